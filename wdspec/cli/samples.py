"""Samples for commands that show or measure them: the first samples of a spec, and one-line descriptions of values.

Samples are read in this process, which runs the user functions of the spec. Variants of a spec leave out parts of the
work, so that commands can show or measure parts separately.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import Any, NamedTuple, TypeVar

from wdspec.base.amounts import show_value
from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.progress import progress
from wdspec.base.redaction import redacted_urls
from wdspec.cli.output import pluralize, size
from wdspec.cli.spec_options import find_source
from wdspec.fields.values import is_array, is_image, sides_of, type_in_words
from wdspec.jobs.job import LiveCount, lines_of_user_code, skip_columns
from wdspec.spec.spec import Source, Spec

_NO_FUNCTIONS: dict[str, Any] = {"map": (), "select": None, "expect": None}
_SINGLE: dict[str, Any] = {"batch": None, "fields": None, "to_tuple": None, "stage": None, "map": ()}


def first_samples(
    spec: Spec,
    count: int,
    workers: int | None = None,
    *,
    drawn: bool = False,
    skipped: Counter[str] | None = None,
    as_files: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the first samples of rank 0, read in this process; needs no torch.

    Args:
        spec: the spec.
        count: how many.
        workers: of the topology, if the spec has no `elastic`.
        drawn: whether to draw a progress bar if the spec drops samples. Without drops, the first samples come at once.
        skipped: receives the numbers of samples that the spec skips or drops, by cause.
        as_files: as for `sample_reader`.

    Raises:
        WdspecError: what training would raise. Errors of user functions become one, too.
    """
    from wdspec.api import sample_reader

    log_skipped_errors()
    count = count if spec.limit is None else min(count, spec.limit)
    # A pass ends after as many samples over all ranks.
    limit = count * (1 if spec.elastic is None else spec.elastic.ranks)
    limit = limit if spec.limit is None else min(limit, spec.limit)
    reader = sample_reader(spec.model_copy(update={"limit": limit}), workers=workers, as_files=as_files)
    batches = reader.plan.timeline.end(0)
    budgets = reader.budgets.values()
    columns = skip_columns(
        spec,
        LiveCount(lambda: sum(sum(list(budget.skipped.values())) for budget in budgets)),
        LiveCount(lambda: sum(sum(budget.all_dropped.values()) for budget in budgets)),
    )
    try:
        with user_errors(), progress("samples", count, drawn=drawn and bool(columns), **columns) as bar:
            for number in range(count if batches is None else min(count, batches)):
                for sample in reader.batch(number):
                    yield sample
                    bar.advance()
    finally:
        reader.close()
        if skipped is not None:
            for budget in budgets:
                skipped.update(budget.skipped + budget.all_dropped)


def first_batch(spec: Spec, step: int = 0) -> list[tuple[str, Any]]:
    """Read a batch of rank 0; return the names and values of its columns. Tuples, as of `pad`, are split.

    Args:
        spec: the spec.
        step: the number of the global batch. Earlier batches are read, too.

    Raises:
        UsageError: the spec has no `batch`, or the pass has no such batch.
        WdspecError: what training would raise. Errors of user functions become one, too.
    """
    if spec.batch is None:
        raise UsageError(
            "the spec has no `batch`, so it yields single samples: omit --batch, or add `batch: 32`"
        )
    batches = first_batches(spec, step, 1)
    if not batches:
        raise UsageError(f"the spec gives no batch {step:,}; choose an earlier one")
    (batch,) = batches
    names = [entry.split(";")[0] for entry in spec.to_tuple or ()]
    if isinstance(batch, dict):
        columns = [(str(name), column) for name, column in batch.items()]
    elif isinstance(batch, tuple) and names:
        columns = list(zip(names, batch, strict=True))
    else:
        columns = [("batch", batch)]
    return [part for field, column in columns for part in _split_tuples(field, column)]


def first_batches(spec: Spec, step: int, count: int) -> list[Any]:
    """Read batches of rank 0, from a global batch on; fewer at the end of a pass or of the stream.

    Raises:
        WdspecError: what training would raise. Errors of user functions become one, too.
    """
    from wdspec.api import compile

    log_skipped_errors()
    pipeline = compile(spec, rank=0, world_size=spec.elastic.ranks if spec.elastic else 1)
    try:
        if step and not spec.is_pass:
            pipeline.skip_steps(0, step - 1)
        with user_errors():
            batches = (batch for _ in range(1 + step) for batch in pipeline)  # a skipped epoch is empty
            start = step if spec.is_pass else 0
            return list(islice(batches, start, start + count))
    finally:
        pipeline.close()


def _split_tuples(field: str, column: Any) -> list[tuple[str, Any]]:
    """A column, or the parts of a tuple under their names."""
    if not isinstance(column, tuple):
        return [(field, column)]
    parts = zip(getattr(column, "_fields", range(len(column))), column, strict=True)
    return [each for name, part in parts for each in _split_tuples(f"{field}.{name}", part)]


def log_skipped_errors() -> None:
    """Print skipped errors, as training does."""
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn an error of a user function into a WdspecError, with the lines of user code that led to it."""
    try:
        yield
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except WdspecError:
        raise
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        text = "\n".join(filter(None, (f"{type(error).__name__}: {error}", notes, lines_of_user_code(error))))
        raise WdspecError(f"a function that the spec names failed: {text}") from error


def only_source(spec: Spec, name: str | None) -> Spec:
    """Return the spec with only one source, regardless of its share, and its companions; as it is without a name.

    Raises:
        UsageError: there is no source of that name.
    """
    if name is None:
        return spec
    source = find_source(name, spec)
    own = {each.source: spec.companions[each.source] for each in source.companions.values()}
    return spec.by_which(source).of([source]).model_copy(update={"companions": own})


def without_functions(spec: Spec) -> Spec:
    """The spec without user functions: single samples, decoded and scaled."""
    return _update_sources(spec, _NO_FUNCTIONS).model_copy(update=_SINGLE)


def samples_of(spec: Spec) -> Spec:
    """The spec without batches."""
    return spec.model_copy(update={"batch": None, "stage": None})


M = TypeVar("M", Spec, Source)


def _update_sources(mix: M, update: dict[str, Any]) -> M:
    """The spec, or nested mix, with these values in all sources that have shards."""
    sources = (
        source.model_copy(update=update) if source.dataset is None else _update_sources(source, update)
        for source in mix.dataset or ()
    )
    return mix.model_copy(update={"dataset": tuple(sources)})


PREVIEW = 60
"""Characters of a preview."""
_MOST_ELEMENTS = 10_000_000
_MOST_CHARACTERS = 10_000
_MOST_PARTS = 1_000
_MOST_LEVELS = 40
_MOST_BITS = 10_000
"""Python writes integers of up to 4,300 digits."""


class FieldValue(NamedTuple):
    """One-line description of a field of a sample, or of a column of a batch."""

    name: str
    type: str
    size: str
    preview: str
    """Type, size and preview as in `ValueMeaning`."""
    extent: dict[str, Any]
    """The size as numbers."""

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The cells of a table with `HEADINGS`."""
        return self[:4]

    def as_json(self) -> dict[str, Any]:
        return {**dict(zip(self._fields[:4], self.row, strict=True)), **self.extent}


HEADINGS = ("field", "type", "shape or size", "value")


def describe_fields(values: Iterable[tuple[Any, Any]]) -> list[FieldValue]:
    """Describe fields or columns, given as pairs of name and value."""
    return [FieldValue(str(name), *describe_value(value), extent(value)) for name, value in values]


class ValueMeaning(NamedTuple):
    """Description of a value."""

    type: str
    """`bytes`, `int`, `uint8 array`, `float32 tensor`, `RGB image`, …"""
    size: str
    """`16 x 16 x 3`, `1.2 kB`, `34 characters`; empty for a number."""
    preview: str
    """The number; the start of text, bytes or JSON; the range of an array."""


def describe_value(value: Any) -> ValueMeaning:
    """Describe any value that a decoder or a user's `map` can return."""
    name = type(value).__name__
    if value is None or isinstance(value, (bool, int, float)):
        return ValueMeaning(name, "", shorten(show_value(value, 4 * PREVIEW)))
    if isinstance(value, str):
        return ValueMeaning(
            name, pluralize(len(value), "character"), shorten(redacted_urls(value[:_MOST_CHARACTERS]))
        )
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ValueMeaning(name, size(len(value)), shorten(repr(bytes(value[: PREVIEW + 1]))[2:-1]))
    if is_array(value):
        kind = "array" if type(value).__module__.split(".")[0] == "numpy" else name.lower()
        shape = " x ".join(map(str, value.shape)) or "scalar"
        return ValueMeaning(f"{type_in_words(value.dtype)} {kind}", shape, _range(value))
    if is_image(value):
        return ValueMeaning(f"{value.mode} image", " x ".join(map(str, value.size)), "")
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        is_set = isinstance(value, (set, frozenset))
        text = show_value(value, 4 * PREVIEW) if is_set else _json(value)
        return ValueMeaning(name, pluralize(len(value), "entry", "entries"), shorten(text))
    return ValueMeaning(name, "", shorten(show_value(value, 4 * PREVIEW)))


def excerpt(value: Any) -> Any:
    """The start of a value, without secrets: values of CBOR may contain themselves, or one list any number of times."""
    left = _MOST_PARTS

    def take(value: Any, level: int) -> Any:
        nonlocal left
        left -= 1
        if isinstance(value, str):
            return redacted_urls(value[:_MOST_CHARACTERS])
        if isinstance(value, int) and not isinstance(value, bool):
            return value if value.bit_length() < _MOST_BITS else show_value(value)
        if not isinstance(value, (dict, list, tuple)):
            return value
        if level > _MOST_LEVELS or left < 0:
            return "…"
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        found = {name: take(each, level + 1) for name, each in takewhile(lambda _: left > 0, parts)}
        return found if isinstance(value, dict) else list(found.values())

    return take(value, 0)


def extent(value: Any) -> dict[str, Any]:
    """The size as numbers: `shape` of an array, `length` of text, bytes or a collection; nothing for others."""
    if is_array(value):
        return {"shape": list(sides_of(value) or ())}
    if isinstance(value, (str, bytes, bytearray, memoryview, dict, list, tuple, set, frozenset)):
        return {"length": len(value)}
    return {}


def shorten(text: str) -> str:
    """The start of a text, on one line."""
    text = " ".join(text[: 4 * PREVIEW].split())
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}…"


def _json(value: Any) -> str:
    try:
        return json.dumps(excerpt(value), ensure_ascii=False, default=_inner)
    except (TypeError, ValueError):  # keys that are not texts
        return redacted_urls(show_value(excerpt(value), _MOST_CHARACTERS))


def _inner(value: Any) -> str:
    """A nested value that JSON cannot hold: type and shape of an array, `repr` of others."""
    if is_array(value):
        meaning = describe_value(value)
        return f"{meaning.type} {meaning.size}"
    return show_value(value, _MOST_CHARACTERS)


def _range(value: Any) -> str:
    """The smallest and largest element of an array or tensor, if it has numbers."""
    try:
        if not 0 < math.prod(map(int, value.shape)) <= _MOST_ELEMENTS:
            return ""
        low, high = value.min().item(), value.max().item()
        return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
    except Exception:  # text, objects, complex numbers, or another library: no range to show
        return ""
