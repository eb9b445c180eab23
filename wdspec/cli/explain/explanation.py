"""What a spec means on a topology: everything that `wdspec explain` says, as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from wdspec.cli.explain.data_checks import Advice, advice_on_epoch
from wdspec.cli.explain.sample_sizes import memory_of_machine
from wdspec.cli.explain.wording import ExplainedField
from wdspec.cli.support.tables import counted, listed, size
from wdspec.formats.blocks import CHUNK
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Topology
from wdspec.spec.language.steps import steps_in
from wdspec.spec.spec import Spec

PER_UNENDING = 1000
"""Samples for which the expected draws are given where the spec has no epoch."""


@dataclass(frozen=True)
class ExplainedSource:
    """One source with shards, or what a nested mix comes to."""

    name: str
    path: tuple[str, ...] = ()
    """Names of the nested mixes it is in, the outermost first."""
    share: float = 0.0
    """Of the whole mix; 0 for a source that is off."""
    shards: int | None = None
    """None: not listed, since the source is off."""
    samples: float | None = None
    """Per pass; None where neither the spec nor a local shard says."""
    estimated: bool = False
    """Whether samples are an estimate."""
    expected: float = 0.0
    """Samples drawn in an epoch, or of a thousand without one."""
    held: int | None = None
    """Samples shuffled together in each slot; None for a nested mix and a source that is off."""
    held_bytes: float | None = None
    """Bytes of these, if known."""
    interleave: int = 1
    """Shards that a slot reads in turn."""
    open_shards: int = 1
    """Shards that a slot has open at a time: as many as it reads in turn, or all that it has of a pass."""
    order: str = ""
    parts_per_shard: int = 1
    """Over 1 where there are fewer shards than slots."""
    fields: str = ""
    field_list: tuple[ExplainedField, ...] = ()
    steps: str = ""
    nested: bool = False
    """Whether it is a nested mix."""

    @property
    def passes(self) -> float | None:
        """How often an epoch reads the source; None where that is not known."""
        return self.expected / self.samples if self.samples else None


@dataclass(frozen=True)
class Turn:
    """What a slot reads of a source at one of its turns."""

    url: str
    part: int
    """Which of the shard's parts, from 0."""
    parts: int
    """1 unless there are fewer shards than slots."""


@dataclass(frozen=True)
class ExplainedSlot:
    """The first turns of one slot at one source."""

    rank: int
    worker: int
    source: str
    first: tuple[Turn, ...]


@dataclass(frozen=True)
class PlannedRun:
    """The canonical topology, and the ranks and workers that it is described on."""

    topology: Topology
    ranks: int
    workers: int
    """Reading processes per rank, at least 1."""
    why: str
    """Where the numbers come from."""
    shared: int = 1
    """As `Batching.shared`."""

    @property
    def canonical_ranks(self) -> int:
        """How many canonical ranks one rank reads at most, whole or in part."""
        return self.topology.most_read(self.ranks, self.shared)

    @property
    def in_words(self) -> str:
        """`2 ranks x 4 workers = 8 slots (elastic)`."""
        ranks, workers = counted(self.topology.ranks, "rank"), counted(self.topology.workers, "worker")
        return f"{ranks} x {workers} = {counted(self.topology.slots, 'slot')} ({self.why})"

    @property
    def readers_in_words(self) -> str:
        """`1 rank x 2 workers, 4 slots a worker`."""
        ranks, workers = counted(self.ranks, "rank"), counted(self.workers, "worker")
        return f"{ranks} x {workers}, {counted(self.slots_per_worker, 'slot')} a worker"

    @property
    def slots_per_worker(self) -> int:
        """How many slots one reading process holds."""
        return self.canonical_ranks * self.topology.workers // self.workers


@dataclass(frozen=True)
class Explanation:
    """A spec, planned and measured."""

    spec: Spec
    plan: Plan
    run: PlannedRun
    sources: tuple[ExplainedSource, ...]
    """In file order; a nested mix stands before its sources."""
    slots: tuple[ExplainedSlot, ...]
    """Of the first slots."""
    found: tuple[Advice, ...]
    """What was found about its data."""

    @property
    def active(self) -> list[ExplainedSource]:
        """The sources that are read."""
        return [each for each in self.sources if each.held is not None]

    @property
    def lacks_shards(self) -> bool:
        """Whether shards of this machine are missing."""
        return any(each.code == "W501" for each in self.found)

    @property
    def samples(self) -> float | None:
        """Samples of all sources together; None where those of one are not known."""
        sizes = [each.samples for each in self.active]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def unmeasured(self) -> int:
        """How many of them hold samples of a size that is not known."""
        return sum(each.held_bytes is None for each in self.active)

    @property
    def held_bytes(self) -> float:
        """Bytes of the samples that one reading process holds for shuffling on average, as far as they are known."""
        return sum(each.held_bytes or 0.0 for each in self.active) * self.run.slots_per_worker

    @property
    def buffer_bytes(self) -> int:
        """Bytes that one reading process holds of its open shards; of small shards less."""
        opened = [each.open_shards for each in self.active]
        each_slot = sum(opened) if self.plan.finite is None else 1  # a pass is read source after source
        return each_slot * self.run.slots_per_worker * CHUNK


def warnings_of(explanation: Explanation) -> Iterator[str]:
    """What the user of this spec on this topology should think about."""
    plan, spec = explanation.plan, explanation.spec
    yield from map(str, explanation.found)
    yield from map(str, advice_on_epoch(spec, explanation.samples))
    asked = spec.epoch.samples if spec.epoch is not None else None
    epoch = plan.epoch_samples
    if asked and epoch and spec.limit is None and asked > epoch:
        yield (
            f"W511 epoch: {asked} is no whole number of batches of {plan.batching.global_size:,}; an epoch is "
            f"{epoch:,} samples, and the next one goes on from there"
        )
    parts = [
        f"{each.name} in {each.parts_per_shard}" for each in explanation.active if each.parts_per_shard > 1
    ]
    if parts:
        yield (
            f"W512 fewer shards than the {plan.topology.slots:,} slots, so each shard is read in parts "
            f"({listed(parts)}), every part by a walk through all of it; more and smaller shards read faster"
        )
    workers = explanation.run.workers
    memory, held = memory_of_machine(), (explanation.held_bytes + explanation.buffer_bytes) * workers
    if memory and held > memory / 4:
        remedy = (
            "`shuffle`"
            if explanation.held_bytes > explanation.buffer_bytes
            else "`interleave`, or run more ranks"
        )
        yield (
            f"W513 the shuffling and the buffers of {counted(workers, 'worker')} hold {size(held)}, over a quarter of "
            f"this machine's {size(memory)}; lower {remedy}"
        )


def heading_json(explanation: Explanation, **more: Any) -> dict[str, Any]:
    """Where the JSON of a report begins: which spec it is about, how that draws (`more` too), on which topology."""
    spec, topology = explanation.spec, explanation.plan.topology
    return {
        "name": spec.name,
        "file": spec.file,
        "split": spec.split,
        "environment": spec.environment,
        "seed": spec.seed,
        "draw": explanation.plan.draw,
        **more,
        "topology": {**asdict(topology), "slots": topology.slots, "why": explanation.run.why},
    }


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation as numbers and texts."""
    plan = explanation.plan
    batch = {
        "per_rank": plan.batching.global_size // explanation.run.ranks,
        "global": plan.batching.global_size,
    }
    return {
        **heading_json(explanation),
        "run": {"ranks": explanation.run.ranks, "workers": explanation.run.workers},
        "batch": batch if plan.batching.batched else None,
        "epoch": None
        if plan.epoch_batches is None
        else {"batches_per_rank": plan.epoch_batches, "samples": plan.epoch_samples},
        "skip": [[first, stop - 1] for first, stop in steps_in(explanation.spec.skip).ranges],
        "expected_of": plan.epoch_samples or PER_UNENDING,
        "sources": [{**asdict(each), "passes": each.passes} for each in explanation.sources],
        "slots": [asdict(each) for each in explanation.slots],
        "held_bytes_per_worker": explanation.held_bytes,
        "buffer_bytes_per_worker": explanation.buffer_bytes,
        "warnings": list(warnings_of(explanation)),
    }
