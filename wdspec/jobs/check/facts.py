"""What a check finds: facts and problems of a shard, which add up to those of a source, and of a whole spec."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from wdspec.base.errors import FieldError, WdspecError
from wdspec.base.redaction import redacted
from wdspec.formats.samples import LOST
from wdspec.planning.plan import Plan, SourcePlan
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.spec.codes import is_error
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

CLASS_NAMES = ("label", "class", "cls", "cls2", "category", "class_id", "label_id")
"""Names of fields, and of entries of JSON, that hold the class of a sample; the first one present counts."""
MOST_KINDS = 200
"""Different shapes, layouts or modes that are told apart; real data has a handful."""
MOST_SIZES = 5_000
"""Different sizes of images that are counted."""
MOST_CLASSES = 10_000
"""Different values that are counted as classes; a field with more has none."""
MOST_EXAMPLES = 5
"""Problems of one kind that are named of a source."""
_PLACE = ("shard", "member", "key", "field", "offset")

Hashes = npt.NDArray[np.uint64]
"""A 64-bit hash for each sample of a shard, by index, shape (samples,); 0 where there is none."""


class SamplePlace(NamedTuple):
    """Where a sample is."""

    shard: str
    number: int
    """Its index in the shard."""
    offset: int
    key: str


@dataclass(frozen=True)
class DataProblem:
    """Of a code `D…` or `W5…` (`wdspec rule D107`)."""

    code: str
    message: str
    """What was seen, and what to do."""
    source: str = ""
    shard: str = ""
    """Its URL, as the spec spells it; empty where it is about a source as a whole."""
    member: str | None = None
    """Name of the file within the shard."""
    key: str | None = None
    """Of the sample."""
    field: str | None = None
    offset: int | None = None
    """Byte in the uncompressed shard: of the member's first header, or of the sample's."""

    @classmethod
    def at(
        cls, code: str, message: str, source: str, place: SamplePlace, field: str | None = None
    ) -> DataProblem:
        """A problem of one sample."""
        return cls(code, message, source, place.shard, key=place.key, field=field, offset=place.offset)

    @property
    def is_error(self) -> bool:
        """Whether part of the data cannot be used; else it is a warning."""
        return is_error(self.code)

    @classmethod
    def of(cls, error: Exception, cause: str = "shard", **place: Any) -> DataProblem:
        """An error of reading, by its own code and place.

        Args:
            cause: where it arose, as for `Budget`.
            place: what is known of where, beside what the error knows.
        """
        message, code = str(error), ""
        if isinstance(error, WdspecError):
            message, code, place = error.message, error.code, {**place, **error.place}
        else:
            message = f"{type(error).__name__}: {message}"
        if cause == "map" and not isinstance(error, FieldError):
            code = "D203"
        known = {name: place[name] for name in _PLACE if place.get(name) is not None}
        return cls(
            code or ("D102" if cause == "shard" else "D202"),
            redacted(message.removesuffix(LOST)),  # whoever checks reads on where that can be
            source=str(place.get("source") or ""),
            **{"shard": str(place.get("url") or ""), **known},
        )

    def as_json(self) -> dict[str, Any]:
        """The problem as values; all names are there, whether known or not."""
        return {
            "code": self.code,
            "severity": "error" if self.is_error else "warning",
            "message": self.message,
            "source": self.source or None,
            "shard": self.shard or None,
            "member": self.member,
            "key": self.key,
            "field": self.field,
            "offset": self.offset,
        }


class Seen(NamedTuple):
    """How often something was seen, and where first."""

    times: int
    first: SamplePlace


Kinds = dict[str, Seen]
Extreme = tuple[int, SamplePlace]


class FieldFacts(BaseModel):
    """What the values of one field are."""

    kinds: Kinds = Field(default_factory=dict)
    """By type and shape."""
    modes: Kinds = Field(default_factory=dict)
    """Of images."""
    sizes: Kinds = Field(default_factory=dict)
    """Of images: `640x480`."""
    classes: Kinds | None = Field(default_factory=dict)
    """By value, as text; None where they are too many, or no classes."""
    alike: int = 0
    """Neighbours in a shard with equal classes,"""
    pairs: int = 0
    """of so many."""
    smallest: Extreme | None = None
    """The least side of an image, in pixels,"""
    largest: Extreme | None = None
    """and the largest area."""
    lengths: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Of texts, lists and bytes: how many, their sum, the least, the greatest."""

    def add(self, other: FieldFacts) -> None:
        """Adds what another shard showed of the field."""
        merge(self.kinds, other.kinds)
        merge(self.modes, other.modes)
        merge(self.sizes, other.sizes, MOST_SIZES)
        self.extend(other.smallest, other.largest)
        if self.classes is not None and other.classes is not None:
            merge(self.classes, other.classes, MOST_CLASSES + 1)
            self.alike += other.alike
            self.pairs += other.pairs
            if len(self.classes) > MOST_CLASSES:
                self.classes = None
        else:
            self.classes = None
        (n, total, low, high), (n2, total2, low2, high2) = self.lengths, other.lengths
        if n2:
            self.lengths = (n + n2, total + total2, min(low, low2) if n else low2, max(high, high2))

    def as_json(self) -> dict[str, Any]:
        """How often each type, mode and class was seen, and the lengths of the values."""

        def counts(kinds: Kinds) -> dict[str, int]:
            return {name: seen.times for name, seen in kinds.items()}

        lengths = dict(zip(("count", "sum", "least", "greatest"), self.lengths, strict=True))
        return {
            "types": counts(self.kinds),
            "modes": counts(self.modes),
            "classes": None if self.classes is None else counts(self.classes),
            "lengths": lengths if self.lengths[0] else None,
        }

    def extend(self, smallest: Extreme | None, largest: Extreme | None) -> None:
        """Notes the smallest and largest of some images."""
        if smallest is not None and (self.smallest is None or smallest[0] < self.smallest[0]):
            self.smallest = smallest
        if largest is not None and (self.largest is None or largest[0] > self.largest[0]):
            self.largest = largest


class SampleFacts(BaseModel):
    """What the samples of a shard, or of a source, show."""

    samples: int = 0
    """As found in the shards, whether they can be used or not."""
    delivered: int = 0
    """That come out of all steps of the source."""
    dropped: int = 0
    """Left out as the spec asks."""
    bytes: int = 0
    """Read, uncompressed."""
    layouts: Kinds = Field(default_factory=dict)
    """By the names of their fields, as one text."""
    fields: dict[str, FieldFacts] = Field(default_factory=dict)

    def add(self, other: SampleFacts) -> None:
        """Adds what another shard showed."""
        self.samples += other.samples
        self.delivered += other.delivered
        self.dropped += other.dropped
        self.bytes += other.bytes
        merge(self.layouts, other.layouts)
        for name, facts in other.fields.items():
            self.fields.setdefault(name, FieldFacts()).add(facts)

    def counts(self) -> SampleFacts:
        """The numbers alone."""
        return SampleFacts(
            samples=self.samples, delivered=self.delivered, dropped=self.dropped, bytes=self.bytes
        )


@dataclass
class ShardFacts:
    """All that is kept of one shard; pickles."""

    samples: SampleFacts | None = None
    """What its samples show; None for a shard that was not read."""
    problems: list[DataProblem] = field(default_factory=list)
    hidden: dict[str, int] = field(default_factory=dict)
    """By code: how many more problems there were than those that are listed."""
    size: int | None = None
    """Bytes of the shard as it is stored,"""
    validator: str | None = None
    """and what changes with it, as far as the store says."""
    keys: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    contents: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Of the largest field."""
    looks: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Of the brightness of an image, alike for images that look alike; only where asked for."""
    seconds: float = 0.0
    is_unchanged: bool = False
    """Whether the shard is as it was when it was last looked at, so that nothing was looked at now."""


def merge(kinds: Kinds, others: Kinds, most: int = MOST_KINDS) -> None:
    """Adds counts; of more than so many kinds those that come later are left out."""
    for name, seen in others.items():
        known = kinds.get(name)
        if known is not None:
            kinds[name] = Seen(known.times + seen.times, known.first)
        elif len(kinds) < most:
            kinds[name] = seen


@dataclass(frozen=True)
class LookedAt:
    """A shard, and what it showed."""

    number: int
    """Its index among the shards of its source."""
    shard: ShardUrl
    facts: ShardFacts


@dataclass
class CheckedSource:
    """A source, and what its shards showed."""

    source: Source
    parts: SourceParts
    is_other: bool = False
    """Whether it is of the spec that the checked one is compared with."""
    shards: list[LookedAt] = field(default_factory=list)
    facts: SampleFacts = field(default_factory=SampleFacts)
    """What all shards together showed; of each by itself no more than its counts is held."""
    awaited: deque[int] = field(default_factory=deque)
    """Numbers of the shards that are still to be added to it, in order, so that the same comes first in every check."""
    _early: dict[int, SampleFacts | None] = field(default_factory=dict)

    def take(self, looked: LookedAt) -> None:
        """Takes in what a shard showed."""
        self.shards.append(looked)
        whole = looked.facts.samples
        self._early[looked.number] = whole
        if whole is not None:
            looked.facts.samples = whole.counts()
        while self.awaited and self.awaited[0] in self._early:
            showed = self._early.pop(self.awaited.popleft())
            if showed is not None:
                self.facts.add(showed)

    @property
    def name(self) -> str:
        """As messages call it."""
        return self.source.name

    def as_json(self) -> dict[str, Any]:
        """What its shards showed, in numbers."""
        facts = self.facts
        return {
            "shards": len(self.shards),
            "read": len(self.read),
            "as_locked": sum(looked.facts.is_unchanged for looked in self.shards),
            "samples": facts.samples,
            "delivered": facts.delivered,
            "dropped": facts.dropped,
            "bytes": facts.bytes,
            "fields": {name: each.as_json() for name, each in facts.fields.items()},
        }

    @cached_property
    def read(self) -> list[LookedAt]:
        """The shards that were read in full, in order."""
        return sorted((each for each in self.shards if each.facts.samples), key=lambda each: each.number)

    def raw(self, looked: LookedAt, index: int) -> tuple[dict[str, Any], int] | None:
        """A sample once more, as the shard has it, and its byte offset; None where it cannot be read."""
        try:
            offset = 0
            with closing(self.parts.open.headers(Piece(looked.shard), on_error=_ignore)) as headers:
                for _ in headers:
                    if headers.next_index > index:
                        break
                    offset = headers.next_offset
            piece = Piece(looked.shard, offset=offset, index=index)
            with closing(self.parts.open(piece, on_error=_ignore)) as samples:
                sample = next(iter(samples), None)
                return None if sample is None else (sample, offset)
        except (WdspecError, OSError):
            return None


@dataclass(frozen=True)
class CheckedData:
    """A spec, and what its sources showed."""

    spec: Spec
    plan: Plan | None
    """For the topology that the spec names, if it can be planned without counting samples."""
    sources: list[CheckedSource]
    """Those of a spec that it is compared with at the end."""

    @property
    def own(self) -> list[CheckedSource]:
        """Those of the spec that is checked."""
        return [source for source in self.sources if not source.is_other]

    def fields(self) -> Iterator[tuple[CheckedSource, str, FieldFacts]]:
        """The fields of each of its own sources, with their names."""
        for source in self.own:
            for name, facts in source.facts.fields.items():
                yield source, name, facts

    def planned(self, name: str) -> SourcePlan | None:
        """The plan of a source."""
        sources = () if self.plan is None else self.plan.sources
        return next((source for source in sources if source.name == name), None)


Judgement = Callable[[CheckedData], Iterator[DataProblem]]


def _ignore(error: Exception) -> None:
    """What is wrong with a shard was noted when it was read."""
