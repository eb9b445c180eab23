"""The results of `wdspec stats`: a value, a JSON file, and numbers for sources that declare none."""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from glob import iglob
from importlib.metadata import version
from itertools import chain
from math import isnan, nan
from typing import Any, NamedTuple

from wdspec.base.errors import UsageError
from wdspec.spec.files import MOST_DATA, Library, read_from_disk, reason_of
from wdspec.spec.language.expressions import ExpressionError, parse_expression
from wdspec.spec.language.making import Tokenize, behind
from wdspec.spec.problems import Problems, advise_stats, list_names
from wdspec.spec.reading import (
    changed_keys,
    changed_selection,
    digest_costing,
    digest_decoding,
    digest_keeping,
    digest_shards,
    split_costing,
)
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import Node
from wdspec.urls.urls import MAGIC, scheme_of

FORMAT = 2
_SHARDS = b'\n "shards": {\n'
"""Start of the shards in a file. It cannot be in a text, since JSON texts have no line ends."""
_END = b"\n }\n}\n"
ROUNDED = 0.05
"""By which part of it a number that a spec declares may differ from the measured one."""
LEVELS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""The quantiles in a `Spread`."""


@dataclass(frozen=True)
class Spread:
    """The distribution of the sizes of a field's files, in bytes, or of the lengths of its values."""

    count: int
    mean: float
    quantiles: tuple[int, ...]
    """One for each of `LEVELS`."""


Kept = tuple[int, tuple[int, ...]]
"""The numbers of a `KeptCount`."""


class Requested(NamedTuple):
    """What reading a shard, or the objects that its samples name, requests of a store."""

    bytes: int
    ranges: int
    """Requests, if each range is one."""
    parts: int
    """Requests of a store that is asked for long ranges in parts."""


class NamedObjects(NamedTuple):
    """The objects that the samples of a shard name in an entry of `fetch`; only of samples that are kept."""

    requests: int
    """References that name something."""
    objects: int
    """The same without repetitions."""
    bytes: int | None
    """Bytes of all requests; None if they are unknown."""


class SampleCosts(NamedTuple):
    """What samples cost, and what they have in common: all that the plan of their batches depends on."""

    costs: array[float]
    """The cost of each sample, NaN for those that are in no batch."""
    sums: tuple[array[float], ...] = ()
    """For each of the `limits`, the part of each sample."""
    groups: Sequence[Any] = ()
    """The value of `group_by` of each sample, if samples are grouped."""

    @classmethod
    def join(cls, parts: Sequence[SampleCosts]) -> SampleCosts:
        """Return those of all samples of the parts, one part after the other."""
        columns = zip(*(part.sums for part in parts if part.costs), strict=True)
        return cls(
            array("d", chain.from_iterable(part.costs for part in parts)),
            tuple(array("d", chain.from_iterable(column)) for column in columns),
            [value for part in parts for value in part.groups],
        )

    def take(self, places: Sequence[int]) -> SampleCosts:
        """Return those of the samples at some places."""
        return SampleCosts(
            array("d", [self.costs[at] for at in places]),
            tuple(array("d", [column[at] for at in places]) for column in self.sums),
            [self.groups[at] for at in places] if self.groups else (),
        )

    def as_json(self) -> dict[str, Any]:
        numbers = [
            [None if isnan(each) else int(each) if each % 1 == 0 else each for each in column]
            for column in (self.costs, *self.sums)
        ]
        return {"costs": numbers[0], "sums": numbers[1:], "groups": self.groups}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> SampleCosts | None:
        """Return the numbers of a shard; None without them. Raises ValueError."""
        if not values.get("costs"):
            return None
        costs = array("d", (nan if each is None else _positive(each) for each in values["costs"]))
        sums = tuple(
            array("d", (nan if each is None else each and _positive(each) for each in column))
            for column in values.get("sums", ())
        )
        groups = tuple(values.get("groups", ()))
        if any(len(column) != len(costs) for column in (*sums, groups or costs)):
            raise ValueError("there are not as many costs as samples")
        return cls(costs, sums, groups)


@dataclass(frozen=True)
class MeasuredShard:
    """What is known from the headers of a shard."""

    samples: int
    """Number of samples, including the damaged ones in `lost`."""
    bytes: int
    """Bytes of the files in it, uncompressed, without headers and padding."""
    size: int | None = None
    """Bytes of the shard as it is stored."""
    validator: str | None = None
    """The validator of the store (such as an ETag), which changes with the content."""
    fields: Mapping[str, Spread] = field(default_factory=dict)
    """Sizes of files, by suffix in lower case."""
    lengths: Mapping[str, Spread] = field(default_factory=dict)
    """Lengths of decoded values, by field, if they were measured."""
    marks: tuple[tuple[int, int], ...] = ()
    """See `ShardCount`."""
    lost: tuple[int, ...] = ()
    """See `ShardCount`."""
    cost: tuple[float, int] | None = None
    """The cost of its samples by `batch.cost`, and how many could be measured, if this was asked for."""
    costs: SampleCosts | None = None
    """What each sample costs, for a pass by cost."""
    kept: Kept | None = None
    """See `ShardCount`."""
    again: Kept | None = None
    """See `ShardCount`."""
    beside: str | None = None
    """A digest of the partners of the shard (`join`): where they are, their sizes and validators."""
    requested: Requested | None = None
    """What a run requests of the shard, if it is a table of which it reads parts, and this is known."""
    objects: Mapping[str, NamedObjects] = field(default_factory=dict)
    """What its samples name, by entry of `fetch`."""
    names: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The names that are no class, and that `where` may leave out: how often they occur, by field."""

    def as_json(self) -> dict[str, Any]:
        values = {
            "samples": self.samples,
            "bytes": self.bytes,
            "size": self.size,
            "validator": self.validator,
            "fields": spreads_as_json(self.fields),
            "lengths": spreads_as_json(self.lengths),
            "marks": self.marks,
            "lost": self.lost,
            "cost": self.cost,
            **({} if self.costs is None else self.costs.as_json()),
            "kept": self.kept,
            "again": self.again,
            "beside": self.beside,
            "requested": self.requested,
            "objects": self.objects,
            "names": self.names,
        }
        return {key: value for key, value in values.items() if value or key in ("samples", "bytes")}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> MeasuredShard:
        return cls(
            _count(values["samples"]),
            _count(values["bytes"]),
            values.get("size"),
            values.get("validator"),
            spreads_of_json(values.get("fields", {})),
            spreads_of_json(values.get("lengths", {})),
            tuple((_count(index), _count(offset)) for index, offset in values.get("marks", ())),
            tuple(map(_count, values.get("lost", ()))),
            _cost(values.get("cost")),
            SampleCosts.of_json(values),
            _kept(values.get("kept")),
            _kept(values.get("again")),
            values.get("beside"),
            Requested(*map(_count, values["requested"])) if values.get("requested") else None,
            {str(name): _objects(*each) for name, each in values.get("objects", {}).items()},
            _names(values),
        )


@dataclass(frozen=True)
class MeasuredSource:
    """The measurements of a source."""

    asked: tuple[str, ...]
    """`shards` as they are written in the spec."""
    via: str
    """The resolved URL of the first shard, without secrets."""
    reading: str
    """Digest of the options that decide which samples a shard has (`digest_shards`)."""
    listed: int
    """Number of shards."""
    measured: int
    """Number of shards that could be measured."""
    samples: int
    """Samples in the measured shards."""
    bytes: int
    """Bytes in the measured shards."""
    fields: Mapping[str, Spread] = field(default_factory=dict)
    """Sizes of the files in all measured shards, by suffix."""
    lengths: Mapping[str, Spread] = field(default_factory=dict)
    """Lengths of decoded values in all measured shards, by field."""
    decoding: str = ""
    """Digests of the options that decide what the decoded values are (`digest_decoding`), if they were measured."""
    cost: float | None = None
    """Mean cost of a sample, if it was measured."""
    costing: str = ""
    """Digest of the options that decide what a sample costs (`digest_costing`), if it was measured."""
    kept: int | None = None
    """Samples in the measured shards that the selection of the source keeps, if they were counted."""
    keeping: str = ""
    """Digest of what decides which samples are kept (`digest_keeping`), if they were counted."""
    requesting: str = ""
    """Digest of what decides `requested` and `objects` of its shards (`digest_requesting`)."""
    names: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """As in `MeasuredShard`."""

    @property
    def is_whole(self) -> bool:
        """Whether all shards were measured."""
        return self.measured == self.listed

    def as_json(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "via": self.via,
            "reading": self.reading,
            "listed": self.listed,
            "measured": self.measured,
            "samples": self.samples,
            "bytes": self.bytes,
            "fields": spreads_as_json(self.fields),
            **(
                {"lengths": spreads_as_json(self.lengths), "decoding": self.decoding} if self.decoding else {}
            ),
            **({"cost": self.cost, "costing": self.costing} if self.costing else {}),
            **({"kept": self.kept, "keeping": self.keeping} if self.keeping else {}),
            **({"requesting": self.requesting} if self.requesting else {}),
            **({"names": self.names} if self.names else {}),
        }

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> MeasuredSource:
        return cls(
            tuple(map(str, values["asked"])),
            str(values["via"]),
            str(values["reading"]),
            _count(values["listed"]),
            _count(values["measured"]),
            _count(values["samples"]),
            _count(values["bytes"]),
            spreads_of_json(values["fields"]),
            spreads_of_json(values.get("lengths", {})),
            str(values.get("decoding", "")),
            None if values.get("cost") is None else _positive(values["cost"]),
            str(values.get("costing", "")),
            None if values.get("kept") is None else _count(values["kept"]),
            str(values.get("keeping", "")),
            str(values.get("requesting", "")),
            _names(values),
        )


@dataclass(frozen=True)
class Measurements:
    """The measurements of all sources of a spec."""

    sources: Mapping[str, MeasuredSource]
    """By name."""
    shards: Mapping[str, Mapping[str, MeasuredShard]]
    """By source, then by the URL in the spec, in the order of the listing."""
    split: str | None = None
    environment: str | None = None

    @classmethod
    def totals(cls, text: bytes) -> Measurements:
        """Read the bytes of a file, without its shards, which are most of it.

        Raises:
            UsageError: it is not a file of `wdspec stats`, or of another version.
        """
        head, found, rest = text.partition(_SHARDS)
        is_as_written = found and rest.endswith(_END)
        return cls.of_text(head.rstrip().removesuffix(b",") + b"}" if is_as_written else text)

    @classmethod
    def of_text(cls, text: bytes) -> Measurements:
        """Read the bytes of a file, with its shards. Raises UsageError like `totals`."""
        try:
            values = json.loads(text)
            if values["stats"] != FORMAT:
                raise UsageError(f"it was written by another wdspec, in format {values['stats']}")
            sources = {str(name): MeasuredSource.of_json(each) for name, each in values["sources"].items()}
            shards = {
                str(name): {str(url): MeasuredShard.of_json(each) for url, each in of_source.items()}
                for name, of_source in values.get("shards", {}).items()
            }
            return cls(sources, shards, values.get("split"), values.get("environment"))
        except UsageError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UsageError("it is not a file of `wdspec stats`") from None

    @classmethod
    def read(cls, path: str, *, shards: bool = True) -> Measurements:
        """Read a file, with its shards or without.

        Raises:
            UsageError: see `totals`.
            OSError: it cannot be read.
        """
        return (cls.of_text if shards else cls.totals)(read_from_disk(path, True, MOST_DATA))

    @property
    def text(self) -> bytes:
        """The bytes of the file, with one line for each source and shard, so that diffs are readable."""
        head = {
            "stats": FORMAT,
            "wdspec": version("wdspec"),
            "split": self.split,
            "environment": self.environment,
            "levels": LEVELS,
        }
        sources = _lines(2, {name: source.as_json() for name, source in sorted(self.sources.items())})
        shards = ",\n".join(
            f"  {json.dumps(name)}: {{\n{_lines(3, {url: each.as_json() for url, each in of_source.items()})}\n  }}"
            for name, of_source in sorted(self.shards.items())
        )
        top = f'{{\n {json.dumps(head)[1:-1]},\n "sources": {{\n{sources}\n }},'
        return top.encode() + _SHARDS + shards.encode() + _END

    def of(self, spec: Spec, source: Source) -> MeasuredSource | None:
        """The measurements of a source, if it is still read in the same way."""
        found = self.sources.get(source.name)
        return found if found is not None and found.reading == digest_shards(spec, source) else None

    def standing_for(self, spec: Spec, source: Source) -> MeasuredSource | None:
        """The measurements of a source, if its totals are those of the shards in the spec."""
        found = self.of(spec, source) if self.split == spec.split else None
        return found if found is not None and found.asked == tuple(source.shards or ()) else None

    def find_misfit(self, spec: Spec, source: Source) -> str | None:
        """Which kind of sources cannot use their measurements this one is; None if they fit."""
        measured = self.sources.get(source.name)
        if measured is None or measured.asked != tuple(source.shards or ()):
            if _finds_nothing(spec, source):
                return _NO_SHARDS
            return "sources without measurements" if measured is None else _OTHER_SHARDS
        if self.of(spec, source) is None:
            changed = changed_keys(measured.reading, digest_shards(spec, source))
            if changed != ["`errors: {skip: shard}`"]:  # a run that ends at damage reads no other numbers
                return (
                    f"sources that were measured with another {' and '.join(changed) or 'version of wdspec'}"
                )
        return None if measured.is_whole else "sources of which not all shards could be measured"


class _OtherSplitError(UsageError):
    """A file of measurements that is for another split."""


_MEASURE = "run `wdspec stats SPEC`"
_OTHER_SHARDS = "sources whose `shards` have changed since they were measured"
_NO_SHARDS = "sources with a pattern in `shards` that no file matches"


def fill_in_measurements(
    spec: Spec, node: Node, library: Library, leaves: Iterable[Draft], problems: Problems
) -> str | None:
    """Set `samples` and `bytes` of models that have none to the numbers in the file that `stats` names.

    Missing numbers are a warning; planning refuses a spec if it needs them.

    Returns:
        The absolute path of the file.
    """
    if (found := library.find(node, "stats")) is None:
        return None
    path, named = found
    try:
        measurements = library.parse_data(path, MOST_DATA, Measurements.totals)
        if measurements.split != spec.split:
            of = "no split" if measurements.split is None else f"the split `{measurements.split}`"
            raise _OtherSplitError(f"it is for {of}, and each split needs a file of its own")
    except (OSError, ValueError) as error:  # a UsageError is a ValueError
        reason = error.message if isinstance(error, UsageError) else reason_of(error)
        is_of_another = isinstance(error, _OtherSplitError) and spec.split is not None
        hint = advise_stats(spec.split) if is_of_another else _MEASURE
        problems.add("W108", node, f"{named} has no measurements that can be used: {reason}", hint)
        return path
    misfits: dict[str, list[str]] = {}
    for leaf in leaves:
        if leaf.model is None:
            continue
        measured = measurements.sources.get(leaf.name)
        misfit = measurements.find_misfit(spec, leaf.model)
        if misfit is not None:
            misfits.setdefault(misfit, []).append(leaf.name)
        elif measured is not None:
            misfits.setdefault(_find_selection_misfit(measured, spec, leaf.model), []).append(leaf.name)
            _compare_numbers(measured, spec, leaf, named, problems)
            _find_overlong(measured, spec, leaf, named, problems)
            leaf.model = _fill_in(measured, spec, leaf.model)
            if measured.cost is not None and leaf.model.mean_cost is None:
                misfits.setdefault(find_costs_misfit(measured, spec, leaf.model), []).append(leaf.name)
    misfits.pop("", None)
    for what, names in misfits.items():
        _warn(node, f"{what}: {list_names(names)}", problems)
    return path


def find_costs_misfit(measured: MeasuredSource, spec: Spec, source: Source) -> str:
    """Which kind of sources this one is, whose costs were measured in another way; empty if the spec needs none."""
    if not measured.costing or not (costing := digest_costing(spec, source, {})):
        return ""
    if costing == split_costing(measured.costing)[0]:
        return ""
    changed = changed_keys(split_costing(measured.costing)[0], costing) if "=" in measured.costing else []
    lacking = _find_lacking(measured, spec, source)
    what = f"sources whose costs were measured with another {' and '.join(changed) or 'version of wdspec'}"
    return what + (f" (no sample has {list_names(lacking)}, of which token ids are made)" if lacking else "")


def _find_lacking(measured: MeasuredSource, spec: Spec, source: Source) -> list[str]:
    """The texts of which a step makes the ids that cost something, and which no measured sample has."""
    texts = {
        str(path[0])
        for name in behind(source.make, spec.measured_fields)
        if isinstance(recipe := source.make[name], Tokenize)
        for path in recipe.origins
    }
    others = {*source.tags, *source.fetch, *source.made_names, *source.rename}
    others |= {name for join in source.join for name in join.names}
    others |= {name for table in source.lookup for name in table.names}
    is_known = measured.fields and all(join.fields is not None for join in source.join)
    return sorted(each for each in texts - others if each.lower() not in measured.fields) if is_known else []


def _find_selection_misfit(measured: MeasuredSource, spec: Spec, source: Source) -> str:
    """Which kind of sources this one is, whose kept samples were counted in another way; empty if the spec needs none.

    Files that a selection reads, such as lists of keys, are not compared.
    """
    if measured.keeping and digest_keeping(spec, source, {}):
        if changed := changed_selection(measured.keeping, spec, source, None):
            return f"sources whose kept samples were counted with another {' and '.join(changed)}"
    elif (
        spec.reshuffles and (source.where or source.keys_of) and not measured.costing and not measured.keeping
    ):
        return "sources of which no one counted how many samples `where` or `keys_of` keeps"
    elif source.samples is None and source.limits_kept and not measured.keeping:
        names = list_names([key.name for key in source.dropping_keys])
        return f"sources with `max_passes` of which no one counted what remains after {names}"
    return ""


def _kept_of(measured: MeasuredSource, spec: Spec, source: Source) -> int | None:
    """How many samples the selection of a source keeps; None if it was counted in another way, or not at all."""
    is_counted = source.counts_kept and measured.keeping and digest_keeping(spec, source, {})
    return measured.kept if is_counted and not _find_selection_misfit(measured, spec, source) else None


def _fill_in(measured: MeasuredSource, spec: Spec, source: Source) -> Source:
    """The source with the measured numbers that it does not have."""
    numbers = _numbers_of(measured, spec, source)
    return source.model_copy(
        update={key: each for key, each in numbers.items() if getattr(source, key) is None}
    )


def _numbers_of(measured: MeasuredSource, spec: Spec, source: Source) -> dict[str, Any]:
    """What was measured of a source, by the key that can declare it; `max_passes` counts the samples that are kept."""
    samples = _kept_of(measured, spec, source) or None if source.limits_kept else measured.samples
    numbers: dict[str, Any] = {"samples": samples, "bytes": measured.bytes}
    if measured.costing and split_costing(measured.costing)[0] == digest_costing(spec, source, {}):
        numbers["mean_cost"] = measured.cost
    return numbers


def _compare_numbers(
    measured: MeasuredSource, spec: Spec, leaf: Draft, file: str, problems: Problems
) -> None:
    """Warn about numbers that a source declares, and that are not those measured; `samples` may be what is kept."""
    source = leaf.model
    assert source is not None, "the draft has a model"
    kept, dropping = _kept_of(measured, spec, source), [key.name for key in source.dropping_keys]
    for key, found in {**_numbers_of(measured, spec, source), "samples": measured.samples}.items():
        declared, is_kept = getattr(source, key), key == "samples" and kept is not None
        known = [kept if is_kept else found, found][: 1 if source.max_passes else 2]
        if not declared or None in known or any(abs(declared - each) <= ROUNDED * each for each in known):
            continue
        if key != "samples" or is_kept or declared > found or not dropping:
            message = (
                f"`{key}: {declared:,.15g}` of `{leaf.name}` is used, but {file} has measured {found:,.6g}"
            )
            hint = f"remove `{key}`, or run `wdspec stats SPEC` again if the shards have changed"
            if is_kept:
                message += f", of which {kept:,} remain after {list_names(dropping)}"
            elif key == "samples" and source.limits_kept:
                hint = "remove `samples`, and run `wdspec stats SPEC` again, which counts those that remain"
            elif key == "samples" and source.max_passes and dropping:
                hint = f"declare how many samples remain after {list_names(dropping)}"
            problems.add("W109", leaf.node.value_or_self(key), message, hint)


def _find_overlong(measured: MeasuredSource, spec: Spec, leaf: Draft, file: str, problems: Problems) -> None:
    """Warn about a measured value whose length alone is the cost of a sample, and more than a batch may cost."""
    batch, source = spec.batch, leaf.model
    assert source is not None, "the draft has a model"
    if batch is None or batch.limit is None or batch.cuts_samples or batch.overlong != "error":
        return
    is_same = "=" in measured.decoding and not changed_keys(measured.decoding, digest_decoding(spec, source))
    cost = next(iter(batch.expressions), "") if not batch.is_by_function else ""
    with suppress(ExpressionError):  # E330 reports it
        expression = parse_expression(cost, spec.costs)
        field, *rest = expression.paths[0] if expression.paths else ("",)
        longest = measured.lengths.get(f"{field}[0]", measured.lengths.get(str(field)))
        is_length = (
            expression.source == "v0" and rest == ["length"] and not (source.map or spec.map or spec.stage)
        )
        if is_length and is_same and longest and longest.quantiles[-1] > batch.limit:
            what = f"by {file}, `{field}` of a sample of `{leaf.name}` has {longest.quantiles[-1]:,} elements"
            message = f"{what}, but {batch.limit_name} is {batch.limit:g}"
            problems.add("W460", leaf.node, message, batch.remedy_for_long)


def spreads_as_json(fields: Mapping[str, Spread]) -> dict[str, Any]:
    """Convert distributions to JSON values, by field."""
    return {
        name: {"count": spread.count, "mean": round(spread.mean, 1), "quantiles": spread.quantiles}
        for name, spread in fields.items()
    }


def spreads_of_json(values: Mapping[str, Any]) -> dict[str, Spread]:
    """The inverse of `spreads_as_json`. Raises ValueError for wrong counts, or quantiles other than `LEVELS`."""
    fields = {}
    for name, each in values.items():
        quantiles, mean = tuple(map(_count, each["quantiles"])), float(each["mean"])
        if len(quantiles) != len(LEVELS) or not 0 <= mean < 1 << 63:
            raise ValueError("other quantiles, or no mean")
        fields[str(name)] = Spread(_count(each["count"]), mean, quantiles)
    return fields


def _count(values: Any) -> int:
    """Read a number as it is written here: shares would silently use any other."""
    if type(values) is not int or not 0 <= values < 1 << 63:
        raise ValueError("no count")
    return values


def _positive(value: Any) -> float:
    """Check a mean cost. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e16:
        raise ValueError(f"{value!r:.40} is not a cost")
    return value


def _objects(requests: Any, objects: Any, size: Any) -> NamedObjects:
    return NamedObjects(_count(requests), _count(objects), None if size is None else _count(size))


def _names(values: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {
        str(field): {str(name): _count(count) for name, count in counts.items()}
        for field, counts in values.get("names", {}).items()
    }


def _kept(value: Any) -> Kept | None:
    if value is None:
        return None
    samples, before = value
    return _count(samples), tuple(map(_count, before))


def _cost(value: Any) -> tuple[float, int] | None:
    if value is None:
        return None
    total, count = value
    return _positive(total), _count(count)


def _warn(node: Node, message: str, problems: Problems) -> None:
    hint = _MEASURE
    if message.startswith(_OTHER_SHARDS):
        hint += "; an environment with other shards needs a `stats` file of its own"
    if message.startswith(_NO_SHARDS):
        hint = f"correct the pattern, and {_MEASURE}"
    problems.add("W108", node, message, hint)


def _finds_nothing(spec: Spec, source: Source) -> bool:
    """Whether a pattern of local files matches none; False for those that are rewritten, or have braces or folders."""
    if spec.rewrite or source.rewrite or "WDS_REWRITE" in os.environ:
        return False
    patterns = (
        os.path.join(source.base, os.path.expanduser(text))
        for text in source.shards or ()
        if MAGIC.search(text) and not scheme_of(text) and not _WIDE.search(text)
    )
    return any(next(iglob(pattern), None) is None for pattern in patterns)


_WIDE = re.compile(r"[{}]|\*\*|/$")


def _lines(depth: int, values: Mapping[str, Any]) -> str:
    return ",\n".join(f"{' ' * depth}{json.dumps(name)}: {json.dumps(each)}" for name, each in values.items())
