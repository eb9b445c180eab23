"""The findings of a check: facts and problems of shards, which are added up for each source and the whole spec."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from wdspec.base.errors import WdspecError
from wdspec.base.redaction import redact
from wdspec.formats.samples import LOST
from wdspec.planning.plan import Plan, SourcePlan
from wdspec.read.error_budget import code_of
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.spec.problems import is_error
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

CLASS_NAMES = ("label", "class", "cls", "cls2", "category", "class_id", "label_id")
"""Names of fields, and of entries of JSON, that hold the class of a sample; the first existing one counts."""
IGNORED = -100
"""The class that losses leave out."""
MOST_KINDS = 200
"""Maximum number of different shapes, layouts or modes to count; real data has a handful."""
MOST_SIZES = 5_000
"""Maximum number of different image sizes to count."""
MOST_CLASSES = 10_000
"""Maximum number of different values to count as classes; a field with more values has no classes."""
MOST_EXAMPLES = 5
"""Maximum number of problems of one kind to list for a source, unless all are asked for."""
MOST_LISTED = 100_000
"""The same if all are asked for."""
MOST_WALKED = 256
"""Shards of a source of which the offsets of all samples are kept."""
T = TypeVar("T")
_PLACE = ("shard", "member", "key", "field", "offset")

Hashes = npt.NDArray[np.uint64]
"""A 64-bit hash of each sample of a shard, by index, shape (samples,); 0 for no hash."""


class SamplePlace(NamedTuple):
    """The place of a sample."""

    shard: str
    number: int
    """Its index in the shard."""
    offset: int
    key: str


@dataclass(frozen=True)
class DataProblem:
    """A problem of the data, with a code `D…` or `W5…` (`wdspec rule D107`)."""

    code: str
    message: str
    """What was seen, and what to do."""
    source: str = ""
    shard: str = ""
    """URL as written in the spec; empty for a problem of a whole source."""
    member: str | None = None
    """Name of the file within the shard."""
    key: str | None = None
    """Key of the sample."""
    field: str | None = None
    offset: int | None = None
    """Byte offset in the uncompressed shard: of the first header of the member, or of the sample."""

    @classmethod
    def at(
        cls, code: str, message: str, source: str, place: SamplePlace, field: str | None = None
    ) -> DataProblem:
        """A problem of one sample."""
        return cls(code, message, source, place.shard, key=place.key, field=field, offset=place.offset)

    @property
    def is_error(self) -> bool:
        """Whether part of the data cannot be used; otherwise it is a warning."""
        return is_error(self.code)

    @classmethod
    def of(cls, error: Exception, cause: str = "shard", **place: Any) -> DataProblem:
        """A problem from an error of reading, with its code and place.

        Args:
            error: the error.
            cause: where it arose, as for `ErrorBudget`.
            place: known parts of the place that the error does not have.
        """
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, WdspecError):
            message, place = error.message, {**place, **error.place}
        known = {name: place[name] for name in _PLACE if place.get(name) is not None}
        return cls(
            code_of(error, cause),
            redact(message.removesuffix(LOST)),  # a check reads the rest of the shard if possible
            source=str(place.get("source") or ""),
            **{"shard": str(place.get("url") or ""), **known},
        )

    def as_json(self) -> dict[str, Any]:
        severity = "error" if self.is_error else "warning"
        place = {name: getattr(self, name) for name in _PLACE[1:]}
        place = {"source": self.source or None, "shard": self.shard or None, **place}
        return {"code": self.code, "severity": severity, "message": self.message, **place}


class Seen(NamedTuple):
    """How often something was seen, and its first place."""

    times: int
    first: SamplePlace


Kinds = dict[str, Seen]
Extreme = tuple[int, SamplePlace]


class FieldFacts(BaseModel):
    """Facts about the values of a field."""

    kinds: Kinds = Field(default_factory=dict)
    """Counts by type and shape."""
    modes: Kinds = Field(default_factory=dict)
    """Counts by mode of images."""
    sizes: Kinds = Field(default_factory=dict)
    """Counts by size of images: `640x480`."""
    classes: Kinds | None = Field(default_factory=dict)
    """Counts by class, as text; None if the values are too many, or not classes."""
    alike: int = 0
    """Pairs of neighbours in a shard with equal classes."""
    pairs: int = 0
    """All pairs of neighbours."""
    smallest: Extreme | None = None
    """The shortest side of an image, in pixels."""
    largest: Extreme | None = None
    """The largest area of an image, in pixels."""
    lengths: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Lengths of texts, lists and bytes: count, sum, minimum, maximum."""

    def add(self, other: FieldFacts) -> None:
        """Add the facts of another shard."""
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
        """Add the extremes of some images."""
        if smallest is not None and (self.smallest is None or smallest[0] < self.smallest[0]):
            self.smallest = smallest
        if largest is not None and (self.largest is None or largest[0] > self.largest[0]):
            self.largest = largest


class SampleFacts(BaseModel):
    """Facts about the samples of a shard or of a source."""

    model_config = ConfigDict(extra="forbid")

    samples: int = 0
    """Samples in the shards, usable or not."""
    delivered: int = 0
    """Samples yielded by all steps of the source."""
    dropped: int = 0
    """Samples dropped by the spec."""
    causes: dict[str, int] = Field(default_factory=dict)
    """Counts of these by what drops them: a key of the spec, or the field that they lack."""
    first_lost: SamplePlace | None = None
    """The first of these that neither `subset` nor `keys` leaves out."""
    bytes: int = 0
    """Uncompressed bytes read."""
    layouts: Kinds = Field(default_factory=dict)
    """Counts by the names of the fields, joined by spaces."""
    columns: Kinds = Field(default_factory=dict)
    """Counts of shards by the columns of a table that are read, as JSON; nothing for other formats."""
    classes: Kinds = Field(default_factory=dict)
    """Counts by number and name of the class, joined by a space, of samples that have both."""
    names: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Counts by name of a class, for each field that `label` makes with `unknown`."""
    fields: dict[str, FieldFacts] = Field(default_factory=dict)

    def add(self, other: SampleFacts) -> None:
        """Add the facts of another shard."""
        self.samples += other.samples
        self.delivered += other.delivered
        self.dropped += other.dropped
        self.bytes += other.bytes
        self.first_lost = self.first_lost or other.first_lost
        for cause, count in other.causes.items():
            self.causes[cause] = self.causes.get(cause, 0) + count
        merge(self.layouts, other.layouts)
        merge(self.columns, other.columns)
        merge(self.classes, other.classes, MOST_CLASSES)
        for name, counts in other.names.items():
            known = self.names.setdefault(name, {})
            known.update({each: known.get(each, 0) + count for each, count in counts.items()})
        for name, facts in other.fields.items():
            self.fields.setdefault(name, FieldFacts()).add(facts)

    def counts(self) -> dict[str, int]:
        """Only the numbers."""
        return {name: getattr(self, name) for name in ("samples", "delivered", "dropped", "bytes")}


@dataclass
class ShardFacts:
    """The findings of a shard; can be pickled."""

    samples: SampleFacts | None = None
    """Facts about its samples; None for a shard that was not read."""
    problems: list[DataProblem] = field(default_factory=list)
    hidden: dict[str, int] = field(default_factory=dict)
    """By code: number of problems that are not listed."""
    size: int | None = None
    """Bytes of the stored shard."""
    validator: str | None = None
    """A text from the store that changes with the shard, such as an ETag; None if the store has none."""
    keys: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Hashes of keys; those of samples that the selection leaves out are marked (`mark_keys`)."""
    contents: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Hashes of the contents (`content_of`); 0 for samples that the selection leaves out."""
    looks: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Hashes of the brightness of images, similar for similar images; only if requested."""
    lacks_checksums: bool = False
    """Whether it is a table of Parquet with pages without checksums: most changed values cannot be noticed."""
    seconds: float = 0.0
    is_unchanged: bool = False
    """Whether the shard has not changed since the last check, and was not checked again."""


def merge(kinds: Kinds, others: Kinds, most: int = MOST_KINDS) -> None:
    """Add counts to `kinds`. More than `most` kinds are ignored."""
    for name, seen in others.items():
        known = kinds.get(name)
        if known is not None:
            kinds[name] = Seen(known.times + seen.times, known.first)
        elif len(kinds) < most:
            kinds[name] = seen


@dataclass(frozen=True)
class LookedAt:
    """A shard and its findings."""

    number: int
    """Its index among the shards of its source."""
    shard: ShardUrl
    facts: ShardFacts


@dataclass
class CheckedSource:
    """A source and the findings of its shards."""

    source: Source
    parts: SourceParts
    is_other: bool = False
    """Whether it belongs to the spec of `--against`."""
    is_mixed: bool = True
    """Whether its samples are in the mix; otherwise they are companions."""
    shards: list[LookedAt] = field(default_factory=list)
    facts: SampleFacts = field(default_factory=SampleFacts)
    """Facts of all shards together; of single shards only counts are kept."""
    awaited: deque[int] = field(default_factory=deque)
    """Numbers of the shards to add next. Adding shards in order gives the same first places in every check."""
    _early: dict[int, SampleFacts | None] = field(default_factory=dict)
    _offsets: dict[str, array[int]] = field(default_factory=dict)
    """Offsets of the samples of some shards, by URL."""

    def take(self, looked: LookedAt) -> None:
        """Add the findings of a shard."""
        self.shards.append(looked)
        whole = looked.facts.samples
        self._early[looked.number] = whole
        if whole is not None:
            looked.facts.samples = SampleFacts(**whole.counts())
        while self.awaited and self.awaited[0] in self._early:
            facts = self._early.pop(self.awaited.popleft())
            if facts is not None:
                self.facts.add(facts)

    @property
    def name(self) -> str:
        """Name of the source."""
        return self.source.name

    def as_json(self) -> dict[str, Any]:
        return {
            "shards": len(self.shards),
            "read": len(self.read),
            "as_locked": sum(looked.facts.is_unchanged for looked in self.shards),
            "without_checksums": sum(looked.facts.lacks_checksums for looked in self.shards),
            **self.facts.counts(),
            "dropped_by": self.facts.causes,
            "fields": self.facts.fields,
            **({"names": self.facts.names} if self.facts.names else {}),
        }

    @property
    def shares_files(self) -> bool:
        """Whether several samples may have one file on purpose: the segments of a recording."""
        made = (recipe.step for recipe in self.source.make.values())
        return any(join.on is not None for join in self.source.join) or "segment" in made

    @property
    def is_read_in_full(self) -> bool:
        """Whether all shards were read, except those that cannot be."""
        return all(looked.facts.samples or looked.facts.problems for looked in self.shards)

    @cached_property
    def read(self) -> list[LookedAt]:
        """The shards that were read in full, in order."""
        return sorted((each for each in self.shards if each.facts.samples), key=lambda each: each.number)

    def raw(self, looked: LookedAt, index: int) -> tuple[dict[str, Any], int] | None:
        """Read a raw sample and its byte offset again; return None if it cannot be read."""

        def ignore(error: Exception) -> None:
            """Errors of the shard were reported when it was read."""

        try:
            offsets = self._offsets.get(looked.shard.text)
            if offsets is None:
                if len(self._offsets) == MOST_WALKED:
                    self._offsets.clear()
                offsets = self._offsets[looked.shard.text] = array("q")
                offset = 0
                with closing(self.parts.open.headers(Piece(looked.shard), on_error=ignore)) as headers:
                    for _ in headers:
                        offsets.extend([offset] * (headers.next_index - len(offsets)))
                        offset = headers.next_offset
            if index >= len(offsets):
                return None
            offset = offsets[index]
            piece = Piece(looked.shard, offset=offset, index=index)
            with closing(self.parts.open(piece, on_error=ignore)) as samples:
                sample = next(iter(samples), None)
                return None if sample is None else (sample, offset)
        except (WdspecError, OSError):
            return None


@dataclass(frozen=True)
class CheckedData:
    """A spec and the findings of its sources."""

    spec: Spec
    plan: Plan | None
    """The plan for the topology in the spec, if it needs no counts of samples."""
    sources: list[CheckedSource]
    """The sources of the checked spec, those of its companions, then those of the spec of `--against`."""
    most: int = MOST_EXAMPLES
    """Maximum number of problems of one kind to list for a source."""
    hidden: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Problems that are not listed, by source and code."""

    def first(self, source: CheckedSource, code: str, found: Sequence[T]) -> Sequence[T]:
        """What is listed of all that was found under a code."""
        if len(found) > self.most:
            self.hidden[source.name, code] += len(found) - self.most
        return found[: self.most]

    @property
    def own(self) -> list[CheckedSource]:
        """The sources of the checked spec, also those of companions."""
        return [source for source in self.sources if not source.is_other]

    @property
    def mixed(self) -> list[CheckedSource]:
        """The sources of the checked spec whose samples go into batches."""
        return [source for source in self.own if source.is_mixed]

    def fields(self) -> Iterator[tuple[CheckedSource, str, FieldFacts]]:
        """The fields of the sources of the checked spec: source, name, facts."""
        for source in self.own:
            for name, facts in source.facts.fields.items():
                yield source, name, facts

    def planned(self, name: str) -> SourcePlan | None:
        """The plan of a source, or of a stream of companions from it."""
        plan = self.plan
        sources = () if plan is None else (*plan.sources, *(each.stream for each in plan.companions))
        return next((source for source in sources if source.name == name), None)


Judgement = Callable[[CheckedData], Iterator[DataProblem]]
