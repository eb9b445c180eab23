"""A run as one rank reads it: a blueprint under a plan, and all that follows from the two.

Everything a process needs to read its part of a run: describes only, and pickles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.planning.digest import describe_order, describe_samples, digest
from wdspec.planning.live_shares import LiveShares, live_segments
from wdspec.planning.passes import SourceCount
from wdspec.planning.plan import Plan, make_plan
from wdspec.planning.shares import ScheduleSegment
from wdspec.planning.topology import Seat, Topology
from wdspec.read.batch import BatchMaker, as_tuple
from wdspec.read.reader import Reader
from wdspec.read.transform import Sample, SourceParts
from wdspec.spec.language.steps import StepRanges, steps_in
from wdspec.spec.spec import Spec
from wdspec.urls.urls import UrlSequence


@dataclass(frozen=True)
class Blueprint:
    """A checked spec with its shards listed and the parts that read them."""

    spec: Spec
    shards: Mapping[str, UrlSequence]
    """The frozen shard list of every source."""
    parts: Mapping[str, SourceParts]
    counts: Mapping[str, SourceCount] | None = None
    """The samples of every source; only with `epoch: pass`."""


@dataclass(frozen=True)
class Run:
    """What a rank reads. It never changes and it pickles; where it stands is for a `Cursor` to say."""

    blueprint: Blueprint
    plan: Plan
    seat: Seat

    @classmethod
    def of(cls, blueprint: Blueprint, seat: Seat, workers: int) -> Run:
        """The run over the spec's canonical topology, else over the topology that reads it.

        Args:
            seat: which rank this is.
            workers: reading processes per rank; 0 reads in the rank's own process.

        Raises:
            UsageError: the run's ranks or workers do not divide the canonical ones.
        """
        elastic = blueprint.spec.elastic
        if elastic is None:
            topology = Topology(seat.world_size, max(1, workers))
        else:
            topology = Topology(elastic.ranks, elastic.workers)
            topology.check_workers(workers)
        run = cls(blueprint, make_plan(blueprint.spec, blueprint.shards, topology, blueprint.counts), seat)
        seat.places(topology, run.plan.batching.shared)
        return run

    @cached_property
    def ranks(self) -> range:
        """The canonical ranks that this rank reads, whole or in part."""
        return self.seat.canonical_ranks(self.plan.topology, self.plan.batching.shared)

    @property
    def _own(self) -> slice:
        """This rank's samples among those that its canonical ranks give to a batch."""
        shared = self.plan.batching.shared
        places, first = self.seat.places(self.plan.topology, shared), self.ranks.start * shared
        return slice(places.start - first, places.stop - first)

    @cached_property
    def items_per_step(self) -> int:
        """How many items the training loop gets of one global batch, on this rank.

        1 with `batch`; one for each canonical rank without it, and with `batch: {accumulate: true}`.
        """
        batch = self.blueprint.spec.batch
        return 1 if batch is not None and not batch.accumulate else len(self.ranks)

    @cached_property
    def skipped(self) -> StepRanges:
        """The steps that the spec leaves out."""
        return steps_in(self.blueprint.spec.skip)

    def check_skippable(self) -> None:
        """Raises a UsageError if steps of it cannot be left out."""
        if self.plan.finite is not None:
            raise UsageError("steps cannot be skipped with `epoch: pass`, which gives every sample once")

    @property
    def slots(self) -> int:
        """How many slots this rank reads; of a pass with fewer batches than workers only those that have one."""
        finite, slots = self.plan.finite, self.plan.topology.workers
        if finite is not None:
            slots = min(slots, finite.batches)
        return len(self.ranks) * slots

    # Hashing long lists of shards takes time, so these are computed once.

    @cached_property
    def order(self) -> str:
        """All that the order depends on (`order_digest.describe_order`), as JSON text."""
        return json.dumps(describe_order(self.blueprint.spec, self.plan))

    @cached_property
    def digest(self) -> str:
        """A digest of `order`."""
        return digest(json.loads(self.order))

    def described(self) -> Run:
        """The run itself, with its order described now, so that no state has to wait for shards to be hashed."""
        _ = self.digest
        return self

    @cached_property
    def samples(self) -> str:
        """A digest of what changes the samples but not their order."""
        return describe_samples(self.blueprint.spec)

    @cached_property
    def sources(self) -> list[str]:
        """The names of the sources that are read, in the order in which a slot's state has them; then the stage."""
        stage = self.blueprint.spec.stage
        return [source.name for source in self.plan.sources] + (
            [] if stage is None else [f"stage {stage.call}"]
        )

    def segments(self, live: Sequence[LiveShares]) -> tuple[ScheduleSegment, ...]:
        """The segments of shares that were set (`live_segments`)."""
        blueprint = self.blueprint
        return live_segments(
            blueprint.spec, self.plan, live, lambda source: len(blueprint.shards[source.name])
        )

    def shares_at(self, batch: int, segments: tuple[ScheduleSegment, ...]) -> dict[str, float]:
        """The share of every source in global batch J, where those segments were set."""
        holding = [each for each in self.plan.with_shares(segments).segments if each.start <= batch][-1]
        named = zip(self.plan.sources, holding.shares, strict=True)
        return {source.name: float(share) for source, share in named}

    def epoch_of(self, batch: int) -> int:
        """The epoch that global batch J lies in, from 0; 0 for all of an endless stream."""
        length = self.plan.epoch_batches
        return batch // length if length else 0

    def epoch_end(self, batch: int) -> int | None:
        """J of the first batch behind the epoch that batch J lies in; None for an endless stream."""
        length = self.plan.epoch_batches
        return (batch // length + 1) * length if length else None

    def reader(self) -> Reader:
        """A reader of this rank's part of each global batch."""
        return Reader(self.plan, self.blueprint.parts, self.ranks, self.blueprint.spec)

    @cached_property
    def assemble(self) -> Callable[[int, list[Sample]], list[Any]]:
        """What makes of the number and the samples of one global batch the `items_per_step` items that a loop gets.

        With `batch`, one dict of tensors, or one tuple with `to_tuple` (with `accumulate`, one for each canonical
        rank); without, the samples as dicts or tuples.
        """
        entries, batch = self.blueprint.spec.to_tuple, self.blueprint.spec.batch
        if batch is None:
            if entries is None:
                return lambda number, samples: samples
            return lambda number, samples: [as_tuple(sample, entries) for sample in samples]
        make = BatchMaker(batch, entries, self.blueprint.spec.folder, self.plan.seed)
        size, of_all = self.plan.batching.per_slot, self.plan.batching.global_size
        first = self.ranks.start * size
        if batch.accumulate:
            parts = [slice(part * size, (part + 1) * size) for part in range(self.items_per_step)]
        else:
            parts = [self._own]
        return lambda number, samples: [
            make(samples[part], number * of_all + first + part.start) for part in parts
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers have no use for what was computed here.
        return Run, (self.blueprint, self.plan, self.seat)
