"""A source as a process reads it: what describes it, and what its slots share there."""

from __future__ import annotations

from dataclasses import dataclass

from wdspec.planning.plan import SourcePlan
from wdspec.reading.error_budget import Budget
from wdspec.reading.shard_opener import ShardOpener
from wdspec.reading.transform import Process, Transform
from wdspec.reading.user_steps import MapSteps
from wdspec.spec.language.options import Errors


@dataclass(frozen=True)
class SourceParts:
    """How to read one source; describes only, and pickles."""

    open: ShardOpener
    transform: Transform
    errors: Errors

    @property
    def chooses(self) -> bool:
        """Whether it takes the samples themselves to know which of them are left out."""
        return self.transform.select is not None or self.transform.missing == "skip" or bool(self.errors.skip)


@dataclass(frozen=True)
class LiveSource:
    """A source at work in one process, for all slots that read it."""

    plan: SourcePlan
    parts: SourceParts
    budget: Budget
    maps: MapSteps
    seed: int

    def process(self, slot: int) -> Process:
        """What makes samples of the raw ones of a slot.

        Raises:
            SpecError: a function that the spec names cannot be imported, or is none.
        """
        parts = self.parts
        return parts.transform.build(self.budget, self.seed, slot, self.maps, parts.open)
