"""Everything a process needs to read its part of a run: describes only, and pickles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wdspec.planning.epoch_length import batching
from wdspec.planning.finite_pass import SourceCount
from wdspec.planning.plan import Plan, make_plan
from wdspec.planning.topology import Seat, Topology
from wdspec.reading.batch_reader import Reader
from wdspec.reading.collate import as_tuple, collate, stack
from wdspec.reading.source_stream import SourceParts
from wdspec.reading.transform import Sample
from wdspec.spec.language.models import Spec
from wdspec.urls.sequence import UrlSequence


@dataclass(frozen=True)
class Blueprint:
    """A checked spec with its shards listed and the parts that read them."""

    spec: Spec
    shards: Mapping[str, UrlSequence]
    """The frozen shard list of every source."""
    parts: Mapping[str, SourceParts]
    counts: Mapping[str, SourceCount] | None = None
    """The samples of every source; only with `epoch: pass`."""

    def plan(self, seat: Seat, workers: int) -> Plan:
        """The plan of a run: over the spec's canonical topology, else over that of this run.

        Args:
            seat: the place of this rank.
            workers: reading processes per rank; 0 reads in the rank's own process.

        Raises:
            UsageError: the run's ranks or workers do not divide the canonical ones.
        """
        elastic = self.spec.elastic
        if elastic is None:
            topology = Topology(seat.world_size, max(1, workers))
            return make_plan(self.spec, self.shards, topology, self.counts)
        topology = Topology(elastic.ranks, elastic.workers)
        seat.canonical_ranks(topology)
        topology.check_workers(workers)
        return make_plan(self.spec, self.shards, topology, self.counts)

    def reader(self, plan: Plan, seat: Seat) -> Reader:
        """A reader of the batches of one rank."""
        return Reader(plan, self.parts, seat.canonical_ranks(plan.topology))

    def items_per_step(self, plan: Plan, seat: Seat) -> int:
        """How many items `assemble` returns for a rank.

        1 with `batch`; one a canonical rank without it, and with `batch: {accumulate: true}`.
        """
        if self.spec.batch is not None and not self.spec.batch.accumulate:
            return 1
        return len(seat.canonical_ranks(plan.topology))

    def assemble(self, samples: list[Sample]) -> list[Any]:
        """What the training loop gets for the samples of one step: one batch, or the samples themselves.

        Returns:
            With `batch`, a list of one dict of tensors, or of one tuple with `to_tuple` (with `accumulate`, of
            one for each canonical rank); without, the samples as dicts or tuples.
        """
        entries, batch = self.spec.to_tuple, self.spec.batch
        if batch is None:
            return samples if entries is None else [as_tuple(sample, entries) for sample in samples]
        if batch.accumulate and self.spec.elastic is not None:
            size = batching(self.spec, self.spec.elastic.ranks).per_slot
            return [_batch(samples[at : at + size], entries) for at in range(0, len(samples), size)]
        return [_batch(samples, entries)]


def _batch(samples: list[Sample], entries: tuple[str, ...] | None) -> Any:
    if entries is None:
        return collate(samples)
    rows = [as_tuple(sample, entries) for sample in samples]
    return tuple(stack(list(column)) for column in zip(*rows, strict=True))
