"""The plan: which samples each rank and worker reads, and when, as one frozen, picklable value.

`make_plan` builds a `Plan` from a spec, its shard lists and a topology. It opens no files, and the same arguments
result in the same plan on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from wdspec.base.errors import UsageError
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.order import Delays, ShardOrder, lanes_of, shuffle_size
from wdspec.planning.passes import (
    Pass,
    SourceCount,
    count_samples,
    number_shards,
    pass_order,
    plan_pass,
    plan_windowed_pass,
)
from wdspec.planning.shares import (
    Exhaustion,
    ScheduleSegment,
    limit_passes,
    mean_tokens,
    scheduled_shares,
    segment_offset,
    starting_batches,
)
from wdspec.planning.timeline import EpochSpan, Timeline
from wdspec.planning.topology import Topology
from wdspec.spec.language.display import Tabular
from wdspec.spec.language.values import MOST_SAMPLES
from wdspec.spec.measurements import SampleCosts
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl


@dataclass(frozen=True)
class Batching:
    """How samples are grouped into global steps; equal on every rank."""

    per_slot: int
    """b: samples of one slot in one global batch; 1 without `batch`."""
    global_size: int
    """G = N·b: samples of one global batch over all canonical ranks."""
    batched: bool
    """Whether samples are batched. If not, each step has one sample of each canonical rank."""
    accumulated: bool = False
    """Whether a rank gets the samples of each of its canonical ranks as a separate batch."""
    windowed: bool = False
    """Whether each slot plans its batches from windows. The slot then draws b samples at a time, groups them into
    batches of any size, and contributes one of these batches to each global step it serves."""

    @property
    def shared(self) -> int:
        """b if ranks may share the samples of a slot in a batch; 1 if each item comes from one canonical rank."""
        return self.per_slot if self.batched and not self.accumulated else 1


@dataclass(frozen=True)
class SourcePlan:
    """One source with a share above 0."""

    name: str
    shards: Sequence[ShardUrl]
    """The frozen shard list. Brace patterns are not expanded, so a million shards take a few hundred bytes."""
    share: Fraction
    """Effective share of the whole mix. With a schedule, the largest one, which determines delays and lanes."""
    order: ShardOrder
    delays: Delays
    samples: int | None
    """Samples per pass, if the spec states them."""
    interleave: int = 1
    """Number of shards that a slot reads in turn."""
    top: str = ""
    """The entry of the top-level list that the source is, or is in."""

    @classmethod
    def of(
        cls,
        source: Source,
        shards: Sequence[ShardUrl],
        share: Fraction,
        seed: int,
        slots: int,
        samples: int | None,
        top: str = "",
    ) -> SourcePlan:
        """Plan a source that is shuffled anew in each pass, with buffers and lanes by its share.

        Raises:
            UsageError: it has no shards.
        """
        if not shards:
            raise UsageError("the source has no shards", source=source.name)
        order = ShardOrder(seed, source.name, len(shards), slots, source.order)
        delays = Delays(seed, source.name, shuffle_size(source.shuffle, share))
        lanes = lanes_of(source.interleave, share)
        return cls(source.name, shards, share, order, delays, samples, lanes, top)


@dataclass(frozen=True)
class CompanionPlan:
    """The companions of a source under one field."""

    owner: str
    """The name of the source whose samples get them."""
    field: str
    threshold: int
    """A sample gets companions if a random 64-bit number is below it: 2⁶⁴ for all samples."""
    count: int
    """How many a sample gets."""
    seed: int
    """The seed of the stream, and of the random numbers of its samples."""
    stream: SourcePlan
    """Where they come from."""

    @property
    def name(self) -> str:
        """Its name in states: that of the source, and the field."""
        return f"companion {self.owner}/{self.field}"


@dataclass(frozen=True)
class Plan(Tabular):
    """Which samples each slot reads, and when. It depends only on the spec, the shard lists and the topology."""

    seed: int
    topology: Topology
    batching: Batching
    draw: str
    """`mix.draw`, or `pass` with `epoch: pass`, which reads every sample once and draws nothing."""
    sources: tuple[SourcePlan, ...]
    """Sources with a share above 0, sorted by name, so that their order in the spec does not matter."""
    off: tuple[str, ...]
    """Names of the sources whose share is 0."""
    timeline: Timeline
    """The steps of an epoch, each a global batch in which every rank takes part, and where the stream stops."""
    finite: Pass | None = None
    """With `epoch: pass`, which slot reads which sample; shares and draws then have no effect."""
    unit: str = "sample"
    """`mix.unit`; with `batch`, each global batch comes from one source."""
    schedule: tuple[ScheduleSegment, ...] = ()
    """The segments of a stream whose shares change, in order; empty if shares are constant."""
    exhausted: tuple[Exhaustion, ...] = ()
    """Where sources have been read `max_passes` times, in order."""
    companions: tuple[CompanionPlan, ...] = ()
    """The companions of sources, in their order."""

    @property
    def companion_names(self) -> tuple[str, ...]:
        """The sources of companions, in the order of the companions."""
        return tuple(dict.fromkeys(each.stream.name for each in self.companions))

    def draws(self) -> Draws | ScheduledDraws:
        """Return the draws of all slots."""
        parts = [self.draws_of(segment, segment.start) for segment in self.segments]
        return parts[0] if len(parts) == 1 else ScheduledDraws(parts)

    def draws_of(self, segment: ScheduleSegment, start: int = 0) -> Draws:
        """Return the draws of the shares of a segment, which start at global batch J: those of windows at 0."""
        b, draw = self.batching.per_slot, self.draw
        return Draws(segment.shares, self.seed, self.topology, b, draw, self.unit, start, segment.offset)

    def with_shares(self, segments: tuple[ScheduleSegment, ...]) -> Plan:
        """Return the plan with `segments` in place of its own from the first one's start on.

        The sizes of shuffle buffers and the numbers of lanes stay. Without segments, the plan is unchanged.
        """
        if not segments:
            return self
        before = (segment for segment in self.segments if segment.start < segments[0].start)
        return replace(self, schedule=(*before, *segments))

    @property
    def segments(self) -> tuple[ScheduleSegment, ...]:
        """The parts of the stream with constant shares; a single one if shares never change."""
        return self.schedule or (ScheduleSegment(0, tuple(source.share for source in self.sources)),)

    def mean_shares(self, batches: int) -> tuple[Fraction, ...]:
        """The share of every source over the first `batches` global batches."""
        total = [Fraction(0)] * len(self.sources)
        ends = [*(segment.start for segment in self.segments[1:]), batches]
        for segment, end in zip(self.segments, ends, strict=True):
            length = max(0, min(end, batches) - segment.start)
            total = [sum_ + length * share for sum_, share in zip(total, segment.shares, strict=True)]
        return tuple(sum_ / batches for sum_ in total)

    @property
    def epoch_samples(self) -> int | None:
        """Samples of the first epoch over all ranks, without padding, or None if unknown."""
        if self.timeline.epoch_steps is None or self.batching.windowed:
            return None
        places = self.timeline.length(0) * self.batching.global_size
        return places if self.finite is None else min(self.finite.samples, places)

    def slot_of_step(self, step: int, epoch: EpochSpan | None = None) -> tuple[int, int]:
        """Return (k, m) for global batch J: canonical worker k = J mod K serves it as its m-th batch, m = ⌊J/K⌋.

        J counts across epochs and is never reset, so every slot is read even if K does not divide an epoch's batches.
        `epoch` says where one starts, if epochs have different lengths.
        """
        m, k = divmod(step if self.finite is None else self.finite.number(step, epoch), self.topology.workers)
        return k, m


def make_plan(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    topology: Topology,
    counts: Mapping[str, SourceCount] | None = None,
) -> Plan:
    """Plan who reads what for a spec and a topology.

    Args:
        spec: the checked spec.
        shards: the shard list of every leaf source, by name.
        topology: canonical ranks and workers.
        counts: the sample counts of every source, by name. Required for `epoch: pass`, otherwise ignored.

    Raises:
        UsageError: shares, `batch` and `epoch` do not fit each other or the topology, or a source with a share above 0
            has no shards.
    """
    batching = choose_batching(spec, topology.ranks)
    if spec.is_pass:
        assert counts is not None, "planning a pass requires the sample counts of all sources"
        return _plan_pass(spec, shards, topology, batching, counts)
    leaves, slots, size = spec.sources, topology.slots, batching.global_size
    shares = scheduled_shares(spec, lambda source: len(shards[source.name]), size)
    starts, exhausted = starting_batches(shares, size), tuple[Exhaustion, ...]()
    if any(source.max_passes is not None for source in leaves):
        starts, exhausted = limit_passes(spec, starts, size)
    stop = exhausted[-1].start if exhausted and exhausted[-1].then == "stop" else None
    largest = {name: max(step[name] for step in starts.values()) for name in next(iter(starts.values()))}
    active = [source for source in spec.sources_by_name if largest[source.name]]
    tops = {leaf.name: top.name for top in spec.dataset for leaf in top.leaves}
    sources = tuple(
        SourcePlan.of(
            each, shards[each.name], largest[each.name], spec.seed, slots, each.samples, tops[each.name]
        )
        for each in active
    )
    schedule = (
        ScheduleSegment(
            start, tuple(step[source.name] for source in active), segment_offset(spec.seed, "schedule", start)
        )
        for start, step in (starts.items() if spec.mix.schedule is not None or len(starts) > 1 else ())
    )
    return Plan(
        seed=spec.seed,
        topology=topology,
        batching=batching,
        draw=spec.mix.draw,
        sources=sources,
        off=tuple(source.name for source in leaves if not largest[source.name]),
        timeline=Timeline(count_epoch_batches(spec, batching, starts), stop),
        unit=spec.mix.unit,
        schedule=tuple(schedule),
        exhausted=exhausted,
    )


def _plan_pass(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    topology: Topology,
    batching: Batching,
    counts: Mapping[str, SourceCount],
) -> Plan:
    remainder = None if spec.epoch is None else spec.epoch.remainder
    assert remainder is not None, "the spec has `epoch: pass`"
    counted = tuple(counts[source.name] for source in spec.sources_by_name)
    if spec.reshuffles:
        return _plan_shuffled_pass(spec, shards, topology, batching, remainder, counted)
    orders = [pass_order(spec, source, len(shards[source.name])) for source in spec.sources_by_name]
    finite: Pass
    if batching.windowed and spec.batch is not None:
        names = [
            [shards[order.source][order.entry(0, turn).shard].text for turn in range(count.turns)]
            for order, count in zip(orders, counted, strict=True)
        ]
        numbers = number_shards(counted, names)
        finite = plan_windowed_pass(
            counted, topology, spec.batch, batching.per_slot, remainder, spec.limit, numbers
        )
    else:
        finite = plan_pass(counted, topology, batching.per_slot, remainder, spec.limit)
    total = sum(count.samples for count in counted)
    sources = [
        SourcePlan(
            name=source.name,
            shards=shards[source.name],
            share=Fraction(count.samples, total),
            order=order,
            delays=Delays(
                spec.seed, source.name, 1 if batching.windowed else shuffle_size(source.shuffle, Fraction(1))
            ),
            samples=count.of_a_copy,
        )
        for source, count, order in zip(spec.sources_by_name, counted, orders, strict=True)
    ]
    return Plan(
        seed=spec.seed,
        topology=topology,
        batching=batching,
        draw="pass",
        sources=tuple(sources),
        off=(),
        timeline=Timeline(finite.batches, is_pass=True),
        finite=finite,
    )


def _plan_shuffled_pass(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    topology: Topology,
    batching: Batching,
    remainder: str,
    counts: tuple[SourceCount, ...],
) -> Plan:
    """Plan a pass that is shuffled anew in each epoch. Its sources have the sizes of those of a mix by samples."""
    from wdspec.planning.epochs import ShuffledPass  # other specs do not need it

    total, sources = sum(count.samples for count in counts), []
    for source, count in zip(spec.sources_by_name, counts, strict=True):
        listed, share = shards[source.name], Fraction(count.samples, total)
        sources.append(SourcePlan.of(source, listed, share, spec.seed, topology.slots, count.of_a_copy))
    names = tuple(source.name for source in sources)
    kinds = tuple(source.order.kind for source in sources)
    finite: ShuffledPass
    if batching.windowed and spec.batch is not None:
        from wdspec.planning.windowed_epochs import EpochTimeline, ShuffledWindows

        shard_names = [[shard.text for shard in source.shards] for source in sources]
        windows = ShuffledWindows(
            counts=tuple(replace(count, costs=()) for count in counts),
            samples=count_samples(counts, spec.limit),
            batches=0,
            topology=topology,
            per_slot=batching.per_slot,
            shards=number_shards(counts, shard_names),
            seed=spec.seed,
            names=names,
            kinds=kinds,
            batch=spec.batch,
            remainder=remainder,
            delays=tuple(source.delays for source in sources),
            widths=tuple(source.interleave for source in sources),
            costs=SampleCosts.join([part for count in counts for part in count.costs]),
        )
        finite = windows
        timeline: Timeline = EpochTimeline(windows.steps(0), finite=windows)
    else:
        planned = plan_pass(counts, topology, batching.per_slot, remainder, spec.limit)
        own = planned.samples, planned.batches, topology, planned.per_slot
        finite = ShuffledPass(counts, *own, spec.seed, names, kinds)
        timeline = Timeline(finite.batches)
    return Plan(
        seed=spec.seed,
        topology=topology,
        batching=batching,
        draw="pass",
        sources=tuple(sources),
        off=(),
        timeline=timeline,
        finite=finite,
    )


def choose_batching(spec: Spec, ranks: int) -> Batching:
    """Return the batching of a spec over N canonical ranks.

    Raises:
        UsageError: `batch.global_size` is not divisible by N; the message lists the nearest sizes that are.
    """
    if spec.batch is None:
        return Batching(1, ranks, batched=False)
    if spec.batch.size is not None and spec.batch.group_by is None:
        return Batching(spec.batch.size, spec.batch.size * ranks, True, spec.batch.accumulate)
    size = spec.batch.global_size
    if size is None:  # batches are planned from windows
        window = spec.batch.window if spec.batch.group_by is None else spec.batch.group_wait
        return Batching(window, window * ranks, True, accumulated=True, windowed=True)
    each, rest = divmod(size, ranks)
    if rest:
        below, above = each * ranks, (each + 1) * ranks
        near = f"{below} or {above}" if below else str(above)
        raise UsageError(f"batch.global_size {size} cannot be shared evenly by {ranks} ranks; use {near}")
    if each > MOST_SAMPLES:
        raise UsageError(
            f"with batch.global_size {size:,}, each of {ranks:,} ranks would hold {each:,} samples at once; the limit "
            f"is {MOST_SAMPLES:,}"
        )
    return Batching(each, size, True, spec.batch.accumulate)


def count_epoch_batches(
    spec: Spec, batching: Batching, starts: Mapping[int, Mapping[str, Fraction]]
) -> int | None:
    """Return E, the number of global batches in an epoch, or None if the stream is endless.

    E is `epoch.batches`, ⌊`epoch.samples` / G⌋, or as many as have about `epoch.tokens` by the shares at the start.
    `limit` caps it.

    Raises:
        UsageError: the epoch is shorter than one global batch, or `limit` ends inside a global batch.
    """
    length = None if spec.epoch is None else spec.epoch.batches
    if spec.epoch is not None and spec.epoch.samples is not None:
        length = spec.epoch.samples // batching.global_size
        if not length:
            raise UsageError(_describe_short_epoch(spec.epoch.samples, batching.global_size))
    elif spec.epoch is not None and spec.epoch.tokens is not None:
        each = tokens_of_step(spec, batching, next(iter(starts.values())))
        length = max(1, math.floor(spec.epoch.tokens / each + Fraction(1, 2)))
    if spec.limit is None or (length is not None and length * batching.global_size <= spec.limit):
        return length
    cap, rest = divmod(spec.limit, batching.global_size)
    if rest:
        near = [str(whole * batching.global_size) for whole in (cap, cap + 1) if whole]
        raise UsageError(
            f"`limit: {spec.limit}` ends inside a global batch of {batching.global_size} samples, but all batches must "
            f"be full; use {' or '.join(near)}, or `epoch: pass`, which pads the last batch"
        )
    return cap


def tokens_of_step(spec: Spec, batching: Batching, shares: Mapping[str, Fraction]) -> Fraction:
    """Return how many tokens a global batch has by the mean costs of the sources.

    A window counts as planned into as few batches as its tokens need.

    Raises:
        UsageError: the mean cost of a source is unknown.
    """
    mean = mean_tokens(spec, shares)
    if not batching.windowed or spec.batch is None:
        return mean * batching.global_size
    window, size, most = batching.per_slot, spec.batch.size or spec.batch.max_size, spec.batch.limit
    batches = max(
        1 if size is None else -(-window // size),
        1 if most is None else math.ceil(window * mean / Fraction(most)),
    )
    return mean * batching.global_size / batches


def _describe_short_epoch(samples: int, size: int) -> str:
    if not samples:
        return (
            "`epoch: {samples: total}` needs the number of samples of each source; run `wdspec stats SPEC`, or add "
            "`samples: n` to the sources"
        )
    return f"an epoch of {samples} samples is shorter than one global batch of {size}; raise `epoch` or lower `batch`"
