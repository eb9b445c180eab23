"""What a shard showed: counts and first places, which add up over shards, and hashes of its samples.

One thing that is wrong or doubtful with data, and where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from wdspec.base.errors import FieldError, WdspecError
from wdspec.base.redaction import redacted
from wdspec.formats.samples import LOST
from wdspec.spec.codes import is_error

_PLACE = ("shard", "member", "key", "field", "offset")


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


CLASS_NAMES = ("label", "class", "cls", "cls2", "category", "class_id", "label_id")
"""What fields, and entries of JSON, are called that say what class a sample is of; the first that is there counts."""

Hashes = npt.NDArray[np.uint64]
"""A 64-bit hash for each sample of a shard, by index, shape (samples,); 0 where there is none."""

MOST_KINDS = 200
"""Different shapes, layouts or modes that are told apart; real data has a handful."""
MOST_SIZES = 5_000
"""Different sizes of images that are counted."""
MOST_CLASSES = 10_000
"""Different values that are counted as classes; a field with more has none."""


class SamplePlace(NamedTuple):
    """Where a sample is."""

    shard: str
    number: int
    """Its index in the shard."""
    offset: int
    key: str


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


class ShardFacts:
    """All that is kept of one shard; pickles.

    Args:
        samples: what they show; None for a shard that was only looked for.
    """

    def __init__(self, samples: SampleFacts | None = None) -> None:
        self.samples = samples
        self.problems: list[DataProblem] = []
        self.hidden: dict[str, int] = {}
        """By code: how many more problems there were than those that are listed."""
        self.size: int | None = None
        """Bytes of the shard as it is stored,"""
        self.validator: str | None = None
        """and what changes with it, as far as the store says."""
        self.keys: Hashes = np.zeros(0, np.uint64)
        self.contents: Hashes = np.zeros(0, np.uint64)
        """Of the largest field."""
        self.looks: Hashes = np.zeros(0, np.uint64)
        """Of the brightness of an image, alike for images that look alike; only where asked for."""
        self.seconds = 0.0
        self.is_unchanged = False
        """Whether the shard is as it was when it was last looked at, so that nothing was looked at now."""


def merge(kinds: Kinds, others: Kinds, most: int = MOST_KINDS) -> None:
    """Adds counts; of more than so many kinds those that come later are left out."""
    for name, seen in others.items():
        known = kinds.get(name)
        if known is not None:
            kinds[name] = Seen(known.times + seen.times, known.first)
        elif len(kinds) < most:
            kinds[name] = seen
