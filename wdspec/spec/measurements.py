"""The results of `wdspec stats`: a value, a JSON file, and numbers for sources that declare none.

Digests of how a spec reads shards show whether the results are still valid.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain, combinations, product
from math import isnan, nan
from typing import Any, NamedTuple

from pydantic import BaseModel

from wdspec.base.errors import UsageError
from wdspec.spec.files import MOST_DATA, Library, read_from_disk, reason_of
from wdspec.spec.language.batch import MEASURING
from wdspec.spec.language.effects import FOR_DIGEST, declared_keys
from wdspec.spec.language.options import Errors, MixOptions, TarOptions
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.values import SUFFIXES
from wdspec.spec.problems import Problems, list_names
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import Node

_NOT_READING = {
    "shards",
    "position",
    "probability",
    "weight",
    "upsample",
    "shuffle",
    "interleave",
    "order",
    "samples",
    "bytes",
    "max_passes",
    "on_exhausted",
    "repeat",
}
"""Keys of a source that do not affect the content of samples."""
_LATER = frozenset({"where", "subset", "only_keys", "exclude", "keys_of", "join", "lookup", "tokens"})
"""Keys of a source that choose, add or cut samples. They are left out of digests if they are not set."""
_DECODING = {"extensions", "rename", "decode", "scale", "scaleprob", "map", "tags"}
"""Keys of a source by which its samples have other decoded values; keys that drop samples belong to them, too."""

_NO_FOLDERS: Mapping[str, Any] = {
    "join": {"__all__": {"base"}},
    "lookup": {"__all__": {"base"}},
}
"""The absolute folders in the values below. Measurements stay valid if the folder of the spec moves."""

_KEEPING = {
    "where",
    "subset",
    "only_keys",
    "exclude",
    "keys_of",
    "extensions",
    "rename",
    "decode",
    "tags",
    "join",
}
"""Keys of a source on which its selection depends."""


def _dump(model: BaseModel, **options: Any) -> dict[str, Any]:
    """The values of a model as JSON values, without those that have no effect on samples."""
    return model.model_dump(mode="json", context=FOR_DIGEST, **options)


def reading_of(spec: Spec, source: Source) -> str:
    """A digest of how a spec reads the samples of a source; functions count only by name."""
    unset = _LATER - _later_keys(source)
    values = [
        _dump(source, exclude=_NOT_READING | unset),
        _dump(spec, include={"map", "fields", "to_tuple", "allow", "seed"}),
    ]
    return blake2b(json.dumps(values, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def _values_of(source: Source, keys: Set[str]) -> dict[str, Any]:
    """The values of some keys of a source as JSON values."""
    return _dump(source, include=set(keys), exclude=_NO_FOLDERS)


def _later_keys(source: Source) -> frozenset[str]:
    """The keys of `_LATER` that a source has."""
    return frozenset(key for key in _LATER if getattr(source, key))


def reading_of_shards(spec: Spec, source: Source) -> str:
    """A digest of the options that decide which samples a shard of a source has."""
    etl = spec.etl_of(source)
    values = [
        _dump(source.key),
        source.format,
        source.tar.end,
        source.empty,
        source.errors.skips("shard"),
        None if etl is None else _dump(etl),
        *(() if source.tokens is None else (_dump(source.tokens),)),
    ]
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8).hexdigest()


_SKIPPING = "`errors: {skip: shard}`"
_READINGS: Mapping[str, tuple[Any, ...]] = {
    "`key`": (KeyRule(), KeyRule(kind="last_dot")),
    "`format`": ("auto", *SUFFIXES),
    "`tar`": (TarOptions(), TarOptions(end="lenient")),
    "`empty`": ("error", "allow"),
    _SKIPPING: (Errors(), Errors(skip=True)),
    "`aistore: {etl: …}`": (None,),
}
"""The keys in `reading_of_shards`, and the values that each may have had, as far as there are few."""


def _find_changed_keys(spec: Spec, source: Source, digest: str) -> str:
    """The keys with which a source had another `reading_of_shards`, for a message: those whose change explains it."""
    for count in (1, 2):
        for shown in combinations(_READINGS, count):
            for values in product(*(_READINGS[each] for each in shown)):
                names = (re.findall(r"\w+", each)[0] for each in shown)
                before = source.model_copy(update=dict(zip(names, values, strict=True)))
                if reading_of_shards(spec, before) == digest:
                    return " and ".join(shown)
    return "`key` or `aistore: {etl: …}`"


def decoding_of(spec: Spec, source: Source) -> str:
    """A digest of these options and of what is done to samples, not of where shards are; functions count by name."""
    dropping = {
        key.name for key in declared_keys(type(source)) if key.drops and key.drops.counted_as == "dropped"
    }
    values = [
        reading_of_shards(spec, source),
        _values_of(source, _DECODING | (dropping - _LATER) | _later_keys(source)),
        _dump(spec, include={"map", "fields", "to_tuple", "seed"}),
    ]
    return blake2b(json.dumps(values, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def keeping_of(spec: Spec, source: Source, files: Mapping[str, str]) -> str:
    """A digest of what chooses samples of a source; empty if nothing does.

    Args:
        spec: the spec.
        source: the source.
        files: digests of the files that the selection of the source names, and of the rows of its tables.
    """
    part = source.copies % 1
    if not (part or source.where or source.subset or source.only_keys or source.exclude):
        return ""
    values = [
        reading_of_shards(spec, source),
        _values_of(source, _KEEPING | ({"lookup"} if source.lookup else set())),
        _dump(spec, include={"costs"}),
        str(part),
        dict(files),
    ]
    return blake2b(json.dumps(values, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def costing_of(spec: Spec, source: Source, files: Mapping[str, str]) -> str:
    """A digest of what a sample of a source costs; empty if neither shares nor a pass need it.

    Args:
        spec: the spec.
        source: the source.
        files: digests of the files that the selection of the source names. Only a pass needs them.
    """
    batch = spec.batch
    if batch is None or not batch.has_windows:
        return ""
    keys = {"cost", "pack"}
    if spec.is_pass:  # it also needs to know which samples are dropped
        keys |= {
            "max_cost",
            "overlong",
            *(key for key in ("limits", *MEASURING[1:]) if getattr(batch, key)),
        }
    elif not any(mix.shares_in == "cost" for mix in _mixes_of(spec)):
        return ""
    values = [
        reading_of_shards(spec, source),
        _values_of(source, _DECODING | _later_keys(source)),
        _dump(spec, include={"costs"}),
        _dump(batch, include=keys),
        *([source.missing, source.select, _dump(spec, include={"map"})] if spec.is_pass else ()),
    ]
    if mapped := spec.fields_after_map(source):
        values.append(sorted(mapped))
    if (
        batch.is_by_function or source.select is not None or mapped
    ):  # samples are decoded before they are measured
        values.append(_dump(source, include={"missing", "select", "expect"}))
        values.append(_dump(spec, include={"map", "fields", "to_tuple", "seed"}))
    elif source.missing == "skip":  # samples without these fields are dropped
        values.append(_dump(spec, include={"fields", "to_tuple"}))
    if files and spec.is_pass:
        values.append(dict(files))
    return blake2b(json.dumps(values, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def _mixes_of(spec: Spec) -> Iterator[MixOptions]:
    yield spec.mix
    yield from (inner.mix for source in spec.dataset for inner in source.mixes)


FORMAT = 1
_SHARDS = b'\n "shards": {\n'
"""Start of the shards in a file. It cannot be in a text, since JSON texts have no line ends."""
_END = b"\n }\n}\n"
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
        )


@dataclass(frozen=True)
class MeasuredSource:
    """The measurements of a source."""

    asked: tuple[str, ...]
    """`shards` as they are written in the spec."""
    via: str
    """The resolved URL of the first shard, without secrets."""
    reading: str
    """Digest of the options that decide which samples a shard has (`reading_of_shards`)."""
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
    """Digest of the options that decide what the decoded values are (`decoding_of`), if they were measured."""
    cost: float | None = None
    """Mean cost of a sample, if it was measured."""
    costing: str = ""
    """Digest of the options that decide what a sample costs (`costing_of`), if it was measured."""
    kept: int | None = None
    """Samples in the measured shards that the selection of the source keeps, if they were counted."""
    keeping: str = ""
    """Digest of what decides which samples are kept (`keeping_of`), if they were counted."""

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
        return found if found is not None and found.reading == reading_of_shards(spec, source) else None

    def standing_for(self, spec: Spec, source: Source) -> MeasuredSource | None:
        """The measurements of a source, if its totals are those of the shards in the spec."""
        found = self.of(spec, source) if self.split == spec.split else None
        return found if found is not None and found.asked == tuple(source.shards or ()) else None


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
            raise UsageError(f"it is for the split `{measurements.split}`")
    except (OSError, ValueError) as error:  # a UsageError is a ValueError
        reason = error.message if isinstance(error, UsageError) else reason_of(error)
        _warn(node, f"{named} has no measurements that can be used: {reason}", problems)
        return path
    misfits: dict[str, list[str]] = {}
    for leaf in leaves:
        assert leaf.model is not None
        measured = measurements.sources.get(leaf.name)
        misfit = _find_misfit(measurements, measured, spec, leaf.model)
        if misfit is not None:
            misfits.setdefault(misfit, []).append(leaf.name)
        elif measured is not None:
            leaf.model = _fill_in(measured, spec, leaf.model)
    for what, names in misfits.items():
        _warn(node, f"{what}: {list_names(names)}", problems)
    return path


def _find_misfit(
    measurements: Measurements, measured: MeasuredSource | None, spec: Spec, source: Source
) -> str | None:
    """Which kind of sources cannot be filled in this one is; None if its measurements fit."""
    if measured is None:
        return "sources without measurements"
    if measured.asked != tuple(source.shards or ()):
        return "sources whose `shards` have changed since they were measured"
    if measurements.of(spec, source) is None:
        changed = _find_changed_keys(spec, source, measured.reading)
        if changed not in ("", _SKIPPING):  # a run that ends at damage reads no other numbers
            return f"sources that were measured with another {changed}"
    return None if measured.is_whole else "sources of which not all shards could be measured"


def _fill_in(measured: MeasuredSource, spec: Spec, source: Source) -> Source:
    """The source with the measured numbers that it does not have."""
    numbers: dict[str, Any] = {"samples": measured.samples, "bytes": measured.bytes}
    if measured.costing and measured.costing == costing_of(spec, source, {}):
        numbers["mean_cost"] = measured.cost
    return source.model_copy(
        update={key: each for key, each in numbers.items() if getattr(source, key) is None}
    )


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
    problems.add("W108", node, message, "run `wdspec stats SPEC`")


def _lines(depth: int, values: Mapping[str, Any]) -> str:
    return ",\n".join(f"{' ' * depth}{json.dumps(name)}: {json.dumps(each)}" for name, each in values.items())
