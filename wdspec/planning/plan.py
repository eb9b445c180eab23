"""The plan: everything that decides who reads what, when, as one frozen, picklable value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from wdspec.base.errors import UsageError
from wdspec.planning.delays import Delays, lanes_of, shuffle_size
from wdspec.planning.draws import Draws
from wdspec.planning.passes import Pass, SourceCount, pass_order, plan_pass
from wdspec.planning.shard_order import ShardOrder
from wdspec.planning.shares import ScheduledDraws, ScheduleSegment, scheduled_shares, starting_batches
from wdspec.planning.topology import Batching, Topology, batching, epoch_batches, slot_of_batch
from wdspec.spec.language.display import as_html
from wdspec.spec.spec import Spec
from wdspec.urls.urls import ShardUrl


@dataclass(frozen=True)
class SourcePlan:
    """One source with a share above 0."""

    name: str
    shards: Sequence[ShardUrl]
    """The frozen list; braces stay arithmetic, so a million shards cost a few hundred bytes."""
    share: Fraction
    """Effective share of the whole mix; with a schedule the largest it ever has, which its delays and lanes go by."""
    order: ShardOrder
    delays: Delays
    samples: int | None
    """Declared samples per pass, if the spec says."""
    interleave: int = 1
    """Shards that a slot reads in turn."""


@dataclass(frozen=True)
class Plan:
    """Who reads what, when: pure functions of (spec, shard lists, topology)."""

    seed: int
    topology: Topology
    batching: Batching
    draw: str
    """`mix.draw`; `pass` where nothing is drawn, since every sample comes once."""
    sources: tuple[SourcePlan, ...]
    """Sources with a share above 0, by name: where they stand in the spec must have no say."""
    off: tuple[str, ...]
    """Names of the sources whose share is 0."""
    epoch_batches: int | None
    """E, global batches in an epoch (each rank takes part in every one); None: endless."""
    finite: Pass | None = None
    """With `epoch: pass`, who reads which sample; shares and draws then have no say."""
    unit: str = "sample"
    """`batch`: each global batch is of one source."""
    schedule: tuple[ScheduleSegment, ...] = ()
    """Where shares change, the segments, in order; empty where they stay."""

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.table("plan", [])

    def table(self, title: str, more: list[tuple[str, str]]) -> str:
        """The plan as HTML: a line of facts, and a table of the sources that are read."""
        topology, batching = self.topology, self.batching
        said = [("ranks", f"{topology.ranks}"), ("workers", f"{topology.workers}")]
        if batching.batched:
            said.append(("global batch", f"{batching.global_size:,}"))
        if self.epoch_batches is not None:
            said.append(("epoch", f"{self.epoch_batches * batching.global_size:,} samples"))
        columns = ("source", "shards", "share", "held for shuffling", "shards in turn")
        lines: list[tuple[str, ...]] = [
            (
                source.name,
                f"{len(source.shards):,}",
                f"{float(source.share):.2%}",
                f"{source.delays.size:,}",
                f"{source.interleave}",
            )
            for source in self.sources
        ]
        return as_html(title, [*more, *said], columns, lines)

    def draws(self) -> Draws | ScheduledDraws:
        """The draws of every slot."""
        parts = [
            Draws(
                segment.shares,
                self.seed,
                self.topology,
                self.batching.per_slot,
                self.draw,
                self.unit,
                segment.start,
                segment.offset,
            )
            for segment in self.segments
        ]
        return parts[0] if len(parts) == 1 else ScheduledDraws(parts)

    def with_shares(self, segments: tuple[ScheduleSegment, ...]) -> Plan:
        """The plan with other shares from the start of the first segment on, if there is one; sizes stay."""
        if not segments:
            return self
        before = (segment for segment in self.segments if segment.start < segments[0].start)
        return replace(self, schedule=(*before, *segments))

    @property
    def segments(self) -> tuple[ScheduleSegment, ...]:
        """The parts of the stream in which shares stay; one, where they always do."""
        return self.schedule or (ScheduleSegment(0, tuple(source.share for source in self.sources)),)

    def mean_shares(self, batches: int) -> tuple[Fraction, ...]:
        """The share of every source over the first so many global batches."""
        total = [Fraction(0)] * len(self.sources)
        ends = [*(segment.start for segment in self.segments[1:]), batches]
        for segment, end in zip(self.segments, ends, strict=True):
            length = max(0, min(end, batches) - segment.start)
            total = [sum_ + length * share for sum_, share in zip(total, segment.shares, strict=True)]
        return tuple(sum_ / batches for sum_ in total)

    @property
    def epoch_samples(self) -> int | None:
        """Samples of an epoch over all ranks together; padding does not count."""
        if self.epoch_batches is None:
            return None
        places = self.epoch_batches * self.batching.global_size
        return places if self.finite is None else min(self.finite.samples, places)

    def require_epoch(self) -> int:
        """E.

        Raises:
            TypeError: the stream is endless, so that nothing has a length.
        """
        if self.epoch_batches is None:
            raise TypeError(
                "this stream is endless and has no length: give `epoch:` in the spec (samples or batches)"
            )
        return self.epoch_batches

    def pass_turns(self, rank: int, worker: int, most: int) -> dict[str, list[ShardUrl]]:
        """The first shards, up to `most`, that slot (c, k) reads of each source in a pass, by source name."""
        assert self.finite is not None, "there is a pass only with `epoch: pass`"
        read: dict[str, list[ShardUrl]] = {source.name: [] for source in self.sources}
        for segment in self.finite.segments(*self.finite.slot_range(rank, worker)):
            source, count = self.sources[segment.source], self.finite.counts[segment.source]
            first, last = count.find(segment.first)[0], count.find(segment.stop - 1)[0]
            turns = range(first, min(last + 1, first + most))
            read[source.name] = [source.shards[source.order.entry(0, turn).shard] for turn in turns]
        return read

    def begin(self, batch: int) -> int | None:
        """J of the first batch of the pass that an iteration begins after the batches before J.

        None without `epoch: pass`: the endless stream goes on.
        """
        return None if self.finite is None else -(-batch // self.finite.batches) * self.finite.batches

    def slot_of_batch(self, batch: int) -> tuple[int, int]:
        """(k, m) of global batch J: canonical worker k serves it as its m-th batch; the same in every pass."""
        return slot_of_batch(batch if self.finite is None else batch % self.finite.batches, self.topology)


def make_plan(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    topology: Topology,
    counts: Mapping[str, SourceCount] | None = None,
) -> Plan:
    """Plans spec over topology.

    Args:
        spec: the checked spec.
        shards: the listed shards of every leaf source, by name.
        topology: canonical ranks and workers.
        counts: the samples of every source, by name; needed, and used, for `epoch: pass` alone.

    Raises:
        UsageError: the shares, the batch or the epoch do not fit together or the topology, or a source with
            a share above 0 has no shard.
    """
    if spec.epoch is not None and spec.epoch.remainder is not None:
        assert counts is not None, "planning a pass takes the samples of every source"
        return _make_pass(spec, shards, topology, counts, spec.epoch.remainder)
    gathered = batching(spec, topology.ranks)
    steps = scheduled_shares(spec, lambda source: len(shards[source.name]))
    starts = starting_batches(steps, gathered.global_size)
    shares = {name: max(step[name] for step in starts.values()) for name in steps[0][1]}
    active = [source for source in spec.sources_by_name if shares[source.name]]
    if spec.mix.draw == "round_robin":
        shares = {source.name: Fraction(1, len(active)) for source in active}
    sources = []
    for source in active:
        listed, share = shards[source.name], shares[source.name]
        if not len(listed):
            raise UsageError("the source has no shards", source=source.name)
        sources.append(
            SourcePlan(
                name=source.name,
                shards=listed,
                share=share,
                order=ShardOrder(spec.seed, source.name, len(listed), topology.slots, source.order),
                delays=Delays(spec.seed, source.name, shuffle_size(source.shuffle, share)),
                samples=source.samples,
                interleave=lanes_of(source.interleave, share),
            )
        )
    return Plan(
        seed=spec.seed,
        topology=topology,
        batching=gathered,
        draw=spec.mix.draw,
        sources=tuple(sources),
        off=tuple(source.name for source in spec.sources if source not in active),
        epoch_batches=epoch_batches(spec, gathered),
        unit=spec.mix.unit,
        schedule=()
        if spec.mix.schedule is None
        else tuple(
            ScheduleSegment(start, tuple(step[source.name] for source in active))
            for start, step in starts.items()
        ),
    )


def _make_pass(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    topology: Topology,
    counts: Mapping[str, SourceCount],
    remainder: str,
) -> Plan:
    gathered = batching(spec, topology.ranks)
    counted = tuple(counts[source.name] for source in spec.sources_by_name)
    finite = plan_pass(counted, topology, gathered.per_slot, remainder, spec.limit)
    total = sum(count.samples for count in counted)
    sources = [
        SourcePlan(
            name=source.name,
            shards=shards[source.name],
            share=Fraction(count.samples, total),
            order=pass_order(spec.seed, source.name, len(shards[source.name]), source.order),
            delays=Delays(spec.seed, source.name, shuffle_size(source.shuffle, Fraction(1))),
            samples=count.samples,
        )
        for source, count in zip(spec.sources_by_name, counted, strict=True)
    ]
    return Plan(
        seed=spec.seed,
        topology=topology,
        batching=gathered,
        draw="pass",
        sources=tuple(sources),
        off=(),
        epoch_batches=finite.batches,
        finite=finite,
    )
