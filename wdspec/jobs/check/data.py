"""Everything that was found in the shards of a spec, as judgements take it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wdspec.base.errors import WdspecError
from wdspec.jobs.check.facts import DataProblem, SampleFacts, ShardFacts
from wdspec.planning.plan import Plan, SourcePlan
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

MOST_EXAMPLES = 5
"""Problems of one kind that are named of a source."""


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

    def planned(self, name: str) -> SourcePlan | None:
        """The plan of a source."""
        sources = () if self.plan is None else self.plan.sources
        return next((source for source in sources if source.name == name), None)


Judgement = Callable[[CheckedData], Iterator[DataProblem]]


def _ignore(error: Exception) -> None:
    """What is wrong with a shard was noted when it was read."""
