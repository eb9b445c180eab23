"""Stages that call functions on samples, rename or select fields, and turn samples into tuples."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from wdspec.base.errors import FieldError, MissingFieldError, UsageError
from wdspec.fields.extensions import is_reserved, listed_fields
from wdspec.webdataset.handlers import ErrorHandler, reraise_exception
from wdspec.webdataset.items import samples, tuples
from wdspec.webdataset.stage import DROPPED, each, item_stage


@item_stage
def map(
    source: Iterator[Any], f: Callable[[Any], Any], handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """Call a function on every sample.

    If it returns None, the sample is left out. If it returns a dict, the dict keeps the sample's `__key__` and
    `__url__` unless the function sets them.

    Raises:
        Exception: what the function raises, if the handler does too.
    """

    def call(sample: Any) -> Any:
        result = f(sample)
        if type(result) is dict and type(sample) is dict:
            for name in ("__key__", "__url__"):
                if name not in result and name in sample:
                    result[name] = sample[name]
        return DROPPED if result is None else result

    return each(source, call, handler)


@item_stage
def map_dict(
    source: Iterator[Any], /, *, handler: ErrorHandler = reraise_exception, **functions: Callable[[Any], Any]
) -> Iterator[Any]:
    """Call functions on fields: ``map_dict(jpg=augment)``. Samples are copied, not changed.

    Raises:
        FieldError: a sample has no such field (this is also a KeyError), if the handler raises too.
    """

    def call(sample: Any) -> Any:
        result = dict(sample)
        for name, f in functions.items():
            if name not in sample:
                raise MissingFieldError(
                    f"map_dict has a function for the field {name!r}, but the sample has only: {listed_fields(sample)}"
                )
            result[name] = f(sample[name])
        return result

    return each(samples(source, "map_dict", or_batches=True), call, handler)


@item_stage
def map_tuple(
    source: Iterator[Any],
    *functions: Callable[[Any], Any] | None,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """Call one function on each value of a tuple, in order. None keeps a value, and so does a missing function.

    Raises:
        FieldError: there are more functions than values, if the handler raises too.
    """

    def call(sample: Any) -> Any:
        values = list(sample)
        if len(functions) > len(values):
            raise FieldError(f"map_tuple has {len(functions)} functions for a sample of {len(values)} values")
        for index, f in enumerate(functions):
            if f is not None:
                values[index] = f(values[index])
        return tuple(values)

    return each(tuples(source, "map_tuple"), call, handler)


@item_stage
def select(
    source: Iterator[Any], predicate: Callable[[Any], bool], handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """Keep the samples for which a function returns true."""
    return each(source, lambda sample: sample if predicate(sample) else DROPPED, handler)


@item_stage
def associate(
    source: Iterator[Any],
    extra: Mapping[str, Mapping[str, Any]] | Callable[[str], Mapping[str, Any]],
    *,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """Add fields by the key of each sample. Samples are copied, not changed.

    Args:
        extra: `__key__` → fields, as a dict (other keys get no fields) or as a function.
    """
    find = extra if callable(extra) else lambda key: extra.get(key, {})
    return each(samples(source, "associate"), lambda sample: {**sample, **find(sample["__key__"])}, handler)


@item_stage
def to_tuple(
    source: Iterator[Any],
    *keys: str,
    handler: ErrorHandler = reraise_exception,
    missing_is_error: bool = True,
    none_is_error: bool = False,
) -> Iterator[Any]:
    """Turn each sample into a tuple of fields: ``to_tuple("jpg;png", "json")``, or ``to_tuple("jpg;png json")``.

    Args:
        keys: names of fields, in order. Of alternatives ``a;b``, the first that is present counts.
        missing_is_error: whether a missing field is an error; otherwise it becomes None.
        none_is_error: whether a value of None, such as JSON's `null`, is an error.

    Raises:
        FieldError: a sample lacks a field; lists the fields it has.
    """
    entries = [tuple(filter(None, entry.split(";"))) for key in keys for entry in key.split()]
    if not entries:
        raise UsageError('to_tuple needs the names of fields, such as to_tuple("jpg;png", "json")')
    firsts = [names[0] for names in entries]

    def take(sample: Any) -> tuple[Any, ...]:
        if not none_is_error:
            try:
                return tuple([sample[name] for name in firsts])
            except KeyError:
                pass
        values = tuple(_first(sample, names, missing_is_error) for names in entries)
        if none_is_error and any(value is None for value in values):
            names = entries[[value is None for value in values].index(True)]
            raise FieldError(f"the field `{';'.join(names)}` is None, which none_is_error forbids")
        return values

    return each(samples(source, "to_tuple", or_batches=True), take, handler, FieldError)


def _first(sample: dict[str, Any], names: tuple[str, ...], missing_is_error: bool) -> Any:
    for name in names:
        if name in sample:
            return sample[name]
    if not missing_is_error:
        return None
    raise FieldError(
        f"the sample has no field `{';'.join(names)}`; it has: {listed_fields(sample)}. Add an alternative with "
        "`;`, or pass missing_is_error=False for None"
    )


@item_stage
def rename(
    source: Iterator[Any],
    /,
    *,
    handler: ErrorHandler = reraise_exception,
    keep: bool = True,
    **new: str | Sequence[str],
) -> Iterator[Any]:
    """Rename fields: ``rename(image="jpg;png")``. The first alternative that is present is renamed, others are dropped.

    Args:
        keep: whether to keep fields that are not mentioned. `__key__` and similar entries are always kept, and
            ``rename(key="__key__")`` copies one.
        new: new name → the names it may have had, as a text or a list.

    Raises:
        FieldError: a sample has none of them, or already has the new name.
    """
    alternatives = {name: olds.split(";") if isinstance(olds, str) else olds for name, olds in new.items()}
    replaced = {old for olds in alternatives.values() for old in olds}

    def rename(sample: dict[str, Any]) -> dict[str, Any]:
        result = {
            name: value
            for name, value in sample.items()
            if is_reserved(name) or (keep and name not in replaced)
        }
        for name, olds in alternatives.items():
            old = next((old for old in olds if old in sample), None)
            if old is None:
                known = " or ".join(repr(old) for old in olds)
                raise FieldError(f"rename: {name!r} is {known} of a sample, but it has: {', '.join(sample)}")
            if name in result and not is_reserved(name):
                raise FieldError(
                    f"rename: the sample has a field {name!r} already; rename or remove that field, too"
                )
            result[name] = sample[old]
        return result

    return each(samples(source, "rename", or_batches=True), rename, handler, FieldError)


@item_stage
def rename_keys(
    source: Iterator[Any],
    /,
    *rules: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    **new: str,
) -> Iterator[Any]:
    """Rename the fields that match patterns: ``rename_keys(image="*.jpg")``.

    `__key__` and similar entries are kept, and a rule that is such a name, like ``key="__key__"``, copies it.

    Args:
        rules: pairs (new name, glob). Case is ignored, and the last rule that matches wins.
        keep_unselected: whether to keep fields that match no rule.
        must_match: whether a rule that matches no field of a sample is an error.
        duplicate_is_error: whether two fields with the same new name are an error; otherwise the later one wins.
        new: further rules.

    Raises:
        FieldError: see `must_match` and `duplicate_is_error`.
    """
    patterns = [(name, glob.lower()) for name, glob in (*rules, *new.items())]

    def rename(sample: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        matched = set()
        for name, value in sample.items():
            reserved = is_reserved(name)
            names = [
                new
                for new, glob in patterns
                if (name == glob if reserved else fnmatchcase(name.lower(), glob))
            ]
            matched.update(names)
            targets = [name] if reserved or (keep_unselected and not names) else []
            for target in targets + names[-1:]:
                if duplicate_is_error and target in result and not is_reserved(target):
                    raise FieldError(
                        f"rename_keys gives two fields the name {target!r}; write narrower patterns"
                    )
                result[target] = value
        lacking = [f"{new}={glob!r}" for new, glob in patterns if new not in matched]
        if must_match and lacking:
            raise FieldError(
                f"rename_keys: no field matches {', '.join(lacking)}; the sample has: {listed_fields(sample)}"
            )
        return result

    return each(samples(source, "rename_keys", or_batches=True), rename, reraise_exception, FieldError)


StreamDecoder = Callable[[io.BytesIO], Any]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(f".{name}", pattern) for pattern in patterns)


@item_stage
def extract_keys(
    source: Iterator[Any],
    *patterns: str | Sequence[str],
    duplicate_is_error: bool = True,
    ignore_missing: bool = False,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """Turn each sample into a tuple of the fields that match patterns: ``extract_keys("*.jpg;*.png", "cls")``.

    Args:
        patterns: one for each value, with alternatives ``a;b``. A pattern may match a name, or a dot and the name.
        duplicate_is_error: whether it is an error if several fields match; otherwise the first one counts.
        ignore_missing: whether to leave a pattern without a match out of the tuple.

    Raises:
        FieldError: see `duplicate_is_error` and `ignore_missing`; lists the fields of the sample.
    """
    wanted = [pattern.split(";") if isinstance(pattern, str) else pattern for pattern in patterns]

    def match(sample: Any) -> tuple[Any, ...]:
        values = []
        for alternatives in wanted:
            matching = [name for name in sample if _matches(name, alternatives)]
            if len(matching) > 1 and duplicate_is_error:
                raise FieldError(
                    f"{', '.join(matching)} all match `{';'.join(alternatives)}`; write narrower patterns, or pass "
                    "duplicate_is_error=False to take the first"
                )
            if matching:
                values.append(sample[matching[0]])
            elif not ignore_missing:
                raise FieldError(
                    f"no field matches `{';'.join(alternatives)}`; the sample has: {listed_fields(sample)}"
                )
        return tuple(values)

    return each(samples(source, "extract_keys", or_batches=True), match, handler, FieldError)


@item_stage
def xdecode(
    source: Iterator[Any],
    /,
    *decoders: tuple[str, StreamDecoder | None],
    must_decode: bool = True,
    handler: ErrorHandler = reraise_exception,
    **by_extension: StreamDecoder,
) -> Iterator[Any]:
    """Decode fields by functions of a stream: ``xdecode(("*.left.png", imageio.imread), json=json.load)``.

    Unlike webdataset's `xdecode`, it never unpickles: ``pyd`` is a field like any other.

    Args:
        decoders: pairs (pattern, function of an open binary file → value); None keeps the bytes. The first pattern
            that matches the name of a field, or a dot and the name, decodes it.
        must_decode: whether a field without a decoder is an error; otherwise it stays as it is. ``bin`` fields stay
            bytes, and ``txt`` fields become text.
        by_extension: functions for ``*.name``.

    Raises:
        FieldError: a field has no decoder, or its decoder fails.
    """
    table = [*decoders, *((f"*.{name}", f) for name, f in by_extension.items()), *_PLAIN]

    def decode(name: str, value: Any) -> Any:
        for pattern, function in table:
            if _matches(name, (pattern,)):
                if function is None:
                    return value
                return function(io.BytesIO(value) if isinstance(value, bytes) else value)
        if must_decode:
            last = name.rpartition(".")[2]
            raise FieldError(
                f"xdecode has no decoder for this field; add one, such as {last}=f, or pass must_decode=False",
                field=name,
            )
        return value

    def decode_sample(sample: Any) -> dict[str, Any]:
        result, name = {}, ""
        try:
            for name, value in sample.items():
                result[name] = value if is_reserved(name) else decode(name, value)
        except FieldError:
            raise
        except Exception as cause:
            raise FieldError(f"cannot decode: {type(cause).__name__}: {cause}", field=name) from cause
        return result

    return each(samples(source, "xdecode"), decode_sample, handler)


_PLAIN: tuple[tuple[str, StreamDecoder | None], ...] = (
    ("*.bin", None),
    ("*.txt", lambda stream: stream.read().decode()),
)
