"""What `wdspec stats` found out about shards, as a value and as JSON, and its numbers in place of declared ones.

Digests of what a spec says of how shards are read: whether what was found out about them still holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.spec.files import MOST_BESIDE, Library, read_from_disk, reason_of
from wdspec.spec.problems import Problems, listed
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import Node

_NOT_READING = {
    "shards",
    "where",
    "probability",
    "weight",
    "upsample",
    "shuffle",
    "interleave",
    "order",
    "samples",
    "bytes",
}
"""Keys of a source that say nothing of what is in its samples."""
_DECODING = {"extensions", "missing", "rename", "decode", "scale", "scaleprob", "select", "map", "tags"}


def reading_of(spec: Spec, source: Source) -> str:
    """A digest of all that the spec says of how the samples of a source are read; of functions, the names alone."""
    said = [
        source.model_dump(mode="json", exclude=_NOT_READING),
        spec.model_dump(mode="json", include={"map", "fields", "to_tuple", "allow", "seed"}),
    ]
    return blake2b(json.dumps(said, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def reading_of_shards(spec: Spec, source: Source) -> str:
    """A digest of what a spec says that decides which samples a shard of a source has."""
    etl = spec.etl_of(source)
    said = [
        source.key.model_dump(mode="json"),
        source.format,
        source.tar.end,
        source.empty,
        source.errors.skips("shard"),
        None if etl is None else etl.model_dump(mode="json"),
    ]
    return blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=8).hexdigest()


def decoding_of(spec: Spec, source: Source) -> str:
    """A digest of that, and of what is done to samples, wherever shards and the spec lie; of functions, the names."""
    said = [
        reading_of_shards(spec, source),
        source.model_dump(mode="json", include=_DECODING),
        spec.model_dump(mode="json", include={"map", "fields", "to_tuple", "seed"}),
    ]
    return blake2b(json.dumps(said, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


FORMAT = 1
_SHARDS = b'\n "shards": {\n'
"""Where a file goes on with the shards; no text in JSON holds a line end."""
_END = b"\n }\n}\n"
LEVELS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""The quantiles that are kept, from the least to the greatest."""


@dataclass(frozen=True)
class Spread:
    """How large the files of a field are, in bytes, or how long its values."""

    count: int
    """How many there are."""
    mean: float
    quantiles: tuple[int, ...]
    """One for each of `LEVELS`."""


@dataclass(frozen=True)
class MeasuredShard:
    """What the headers of a shard say."""

    samples: int
    """Places for samples; those of them that are damaged are in `lost`."""
    bytes: int
    """Of the files in it, uncompressed, without what the format adds."""
    size: int | None = None
    """Bytes as they are stored, and"""
    validator: str | None = None
    """what changes with them, as the store said when they were read."""
    fields: Mapping[str, Spread] = field(default_factory=dict)
    """Bytes, by the suffix of a file, in lower case."""
    lengths: Mapping[str, Spread] = field(default_factory=dict)
    """Of decoded values, by field, where they were asked for."""
    marks: tuple[tuple[int, int], ...] = ()
    """As `ShardCount` has them."""
    lost: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        said = {
            "samples": self.samples,
            "bytes": self.bytes,
            "size": self.size,
            "validator": self.validator,
            "fields": spreads_as_json(self.fields),
            "lengths": spreads_as_json(self.lengths),
            "marks": self.marks,
            "lost": self.lost,
        }
        return {key: value for key, value in said.items() if value or key in ("samples", "bytes")}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> MeasuredShard:
        return cls(
            _count(said["samples"]),
            _count(said["bytes"]),
            said.get("size"),
            said.get("validator"),
            spreads_of_json(said.get("fields", {})),
            spreads_of_json(said.get("lengths", {})),
            tuple((_count(index), _count(offset)) for index, offset in said.get("marks", ())),
            tuple(map(_count, said.get("lost", ()))),
        )


@dataclass(frozen=True)
class MeasuredSource:
    """One source, as it was measured."""

    asked: tuple[str, ...]
    """`shards` as the spec spelt them."""
    via: str
    """Where the first of them led, without secrets."""
    reading: str
    """A digest of what decides which samples a shard has (`reading_of_shards`)."""
    listed: int
    """Shards that there were,"""
    measured: int
    """and of these, those that could be measured."""
    samples: int
    """Of the shards that were measured,"""
    bytes: int
    """likewise."""
    fields: Mapping[str, Spread] = field(default_factory=dict)
    """Of all of them together,"""
    lengths: Mapping[str, Spread] = field(default_factory=dict)
    """likewise."""
    decoding: str = ""
    """Of shards whose values were measured, a digest of all that decides what these are (`decoding_of`)."""

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
        }

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> MeasuredSource:
        return cls(
            tuple(map(str, said["asked"])),
            str(said["via"]),
            str(said["reading"]),
            _count(said["listed"]),
            _count(said["measured"]),
            _count(said["samples"]),
            _count(said["bytes"]),
            spreads_of_json(said["fields"]),
            spreads_of_json(said.get("lengths", {})),
            str(said.get("decoding", "")),
        )


@dataclass(frozen=True)
class Measurements:
    """The sources of a spec, as they were measured, by name."""

    sources: Mapping[str, MeasuredSource]
    shards: Mapping[str, Mapping[str, MeasuredShard]]
    """By source, then by the URL in the spec, in the order in which they were listed."""
    split: str | None = None
    environment: str | None = None

    @classmethod
    def totals(cls, text: bytes) -> Measurements:
        """Those in the bytes of a file, without its shards, which are most of it.

        Raises:
            UsageError: it is none that `wdspec stats` has written, or of another format.
        """
        head, found, rest = text.partition(_SHARDS)
        is_as_written = found and rest.endswith(_END)
        return cls.of_text(head.rstrip().removesuffix(b",") + b"}" if is_as_written else text)

    @classmethod
    def of_text(cls, text: bytes) -> Measurements:
        """The same with its shards."""
        try:
            said = json.loads(text)
            if said["stats"] != FORMAT:
                raise UsageError(f"it was written by another wdspec, in format {said['stats']}")
            sources = {str(name): MeasuredSource.of_json(each) for name, each in said["sources"].items()}
            shards = {
                str(name): {str(url): MeasuredShard.of_json(each) for url, each in of_source.items()}
                for name, of_source in said.get("shards", {}).items()
            }
            return cls(sources, shards, said.get("split"), said.get("environment"))
        except UsageError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UsageError("it is no file that `wdspec stats` has written") from None

    @classmethod
    def read(cls, path: str, *, shards: bool = True) -> Measurements:
        """Those in a file, with its shards or without.

        Raises:
            UsageError: as `totals`.
            OSError: it cannot be read.
        """
        return (cls.of_text if shards else cls.totals)(read_from_disk(path, True, MOST_BESIDE))

    @property
    def text(self) -> bytes:
        """The file: one line for each source and shard, so that differences read well."""
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
        """What was measured of a source, where a shard's samples are found as they were then."""
        found = self.sources.get(source.name)
        return found if found is not None and found.reading == reading_of_shards(spec, source) else None

    def standing_for(self, spec: Spec, source: Source) -> MeasuredSource | None:
        """The same, where its totals are of just the shards that the spec asks for."""
        found = self.of(spec, source) if self.split == spec.split else None
        return found if found is not None and found.asked == tuple(source.shards or ()) else None


def fill_in_measurements(
    spec: Spec, node: Node, library: Library, leaves: Iterable[Draft], problems: Problems
) -> str | None:
    """Has the numbers of the file that `stats` names stand in for `samples` and `bytes` of the models that have none.

    What the file does not give is a warning: where numbers cannot be done without, planning refuses.

    Returns:
        The absolute path of the file.
    """
    if (found := library.find(node, "stats")) is None:
        return None
    path, named = found
    try:
        measurements = library.beside(path, MOST_BESIDE, Measurements.totals)
        if measurements.split != spec.split:
            raise UsageError(f"it is of the split `{measurements.split}`")
    except (OSError, ValueError) as error:  # a UsageError is one
        said = error.message if isinstance(error, UsageError) else reason_of(error)
        _warn(node, f"nothing was measured that could be used in {named}: {said}", problems)
        return path
    misfits: dict[str, list[str]] = {}
    for leaf in leaves:
        assert leaf.model is not None
        measured = measurements.sources.get(leaf.name)
        if measured is None:
            misfits.setdefault("sources that were not measured", []).append(leaf.name)
        elif measured.asked != tuple(leaf.model.shards or ()):
            misfits.setdefault("other shards are asked for than were measured", []).append(leaf.name)
        elif measurements.of(spec, leaf.model) is None:
            what = "another `key`, `format`, `tar`, `empty`, `errors` or `etl` than they were measured with"
            misfits.setdefault(what, []).append(leaf.name)
        elif not measured.is_whole:
            misfits.setdefault("not all shards could be measured", []).append(leaf.name)
        else:
            numbers = {"samples": measured.samples, "bytes": measured.bytes}
            lacking = {key: numbers[key] for key in numbers if getattr(leaf.model, key) is None}
            leaf.model = leaf.model.model_copy(update=lacking)
    for what, names in misfits.items():
        _warn(node, f"{what}: {listed(names)}", problems)
    return path


def spreads_as_json(fields: Mapping[str, Spread]) -> dict[str, Any]:
    """Of each field how many there are, their mean and quantiles."""
    return {
        name: {"count": spread.count, "mean": round(spread.mean, 1), "quantiles": spread.quantiles}
        for name, spread in fields.items()
    }


def spreads_of_json(said: Mapping[str, Any]) -> dict[str, Spread]:
    """The inverse. Raises ValueError for other quantiles than those of `LEVELS`, or no counts."""
    fields = {}
    for name, each in said.items():
        quantiles, mean = tuple(map(_count, each["quantiles"])), float(each["mean"])
        if len(quantiles) != len(LEVELS) or not 0 <= mean < 1 << 63:
            raise ValueError("other quantiles, or no mean")
        fields[str(name)] = Spread(_count(each["count"]), mean, quantiles)
    return fields


def _count(said: Any) -> int:
    """A number as this writes it: shares would silently go by any other."""
    if type(said) is not int or not 0 <= said < 1 << 63:
        raise ValueError("no count")
    return said


def _warn(node: Node, message: str, problems: Problems) -> None:
    problems.add("W104", node, message, "`wdspec stats SPEC` measures it")


def _lines(depth: int, said: Mapping[str, Any]) -> str:
    return ",\n".join(f"{' ' * depth}{json.dumps(name)}: {json.dumps(each)}" for name, each in said.items())
