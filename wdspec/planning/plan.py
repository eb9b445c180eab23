"""The plan: everything that decides who reads what, when, as one frozen, picklable value.

`make_plan` turns a spec, its shard lists and a topology into a `Plan`. A plan opens nothing, and the same arguments
give the same plan on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from wdspec.base.errors import UsageError
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.order import Delays, ShardOrder, lanes_of, shuffle_size
from wdspec.planning.passes import Pass, SourceCount, pass_order, plan_pass
from wdspec.planning.shares import ScheduleSegment, scheduled_shares, segment_offset, starting_batches
from wdspec.planning.topology import Topology
from wdspec.spec.language.display import as_html
from wdspec.spec.language.values import MOST_SAMPLES
from wdspec.spec.spec import Spec
from wdspec.urls.urls import ShardUrl


@dataclass(frozen=True)
class Batching:
    """How samples are gathered into global steps, the same on every rank."""

    per_slot: int
    """b: samples one slot gives to one global batch; 1 without `batch`."""
    global_size: int
    """G = N·b: samples of one global batch over all canonical ranks."""
    batched: bool
    """False: the pipeline yields samples, one a canonical rank and step."""
    accumulated: bool = False
    """Whether a rank gets the samples of each of its canonical ranks as a separate batch."""
    windowed: bool = False
    """Whether each slot plans its batches from windows. A slot then draws a window of b samples at a time, and gives
    one of its batches to each global step, of any size."""

    @property
    def shared(self) -> int:
        """b where ranks may share what a slot gives to a batch, 1 where each item comes from one canonical rank."""
        return self.per_slot if self.batched and not self.accumulated else 1


@dataclass(frozen=True)
class SourcePlan:
    """One source with a share above 0."""

    name: str
    shards: Sequence[ShardUrl]
    """The frozen list; braces stay arithmetic, so a million shards cost a few hundred bytes."""
    share: Fraction
    """Effective share of the whole mix; with a schedule the largest it ever has, which sets its delays and lanes."""
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
    """Sources with a share above 0, by name: their place in the spec must not matter."""
    off: tuple[str, ...]
    """Names of the sources whose share is 0."""
    epoch_batches: int | None
    """E, global batches in an epoch (each rank takes part in every one); None: endless."""
    finite: Pass | None = None
    """With `epoch: pass`, who reads which sample; shares and draws then have no effect."""
    unit: str = "sample"
    """`batch`: each global batch comes from one source."""
    schedule: tuple[ScheduleSegment, ...] = ()
    """Where shares change, the segments, in order; empty where they stay."""

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.to_html("plan", [])

    def to_html(self, title: str, more: Sequence[tuple[str, str]]) -> str:
        """The plan as a line of facts and a table of the sources that are read, for a notebook."""
        topology, batching = self.topology, self.batching
        facts = [*more, ("ranks", f"{topology.ranks}"), ("workers", f"{topology.workers}")]
        if batching.windowed:
            facts.append(("window", f"{batching.per_slot:,} samples"))
        elif batching.batched:
            facts.append(("global batch", f"{batching.global_size:,}"))
        if self.epoch_batches is not None and batching.windowed:
            facts.append(("epoch", f"{self.epoch_batches:,} batches of each canonical rank"))
        elif self.epoch_batches is not None:
            facts.append(("epoch", f"{self.epoch_batches * batching.global_size:,} samples"))
        columns = ("source", "shards", "share", "held for shuffling", "shards in turn")
        rows: list[tuple[str, ...]] = [
            (
                source.name,
                f"{len(source.shards):,}",
                f"{float(source.share):.2%}",
                f"{source.delays.size:,}",
                f"{source.interleave}",
            )
            for source in self.sources
        ]
        return as_html(title, facts, columns, rows)

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

    def draws_of(self, segment: ScheduleSegment) -> Draws:
        """The draws of windows by the shares of a segment, whenever it starts."""
        b, draw = self.batching.per_slot, self.draw
        return Draws(segment.shares, self.seed, self.topology, b, draw, self.unit, 0, segment.offset)

    def with_shares(self, segments: tuple[ScheduleSegment, ...]) -> Plan:
        """The plan with other shares from the start of the first segment on, if there is one; sizes stay."""
        if not segments:
            return self
        before = (segment for segment in self.segments if segment.start < segments[0].start)
        return replace(self, schedule=(*before, *segments))

    @property
    def segments(self) -> tuple[ScheduleSegment, ...]:
        """The parts of the stream with constant shares; one, where shares never change."""
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
        """Samples of an epoch over all ranks together, if they are known; padding does not count."""
        if self.epoch_batches is None or self.batching.windowed:
            return None
        places = self.epoch_batches * self.batching.global_size
        return places if self.finite is None else min(self.finite.samples, places)

    def require_epoch(self) -> int:
        """E.

        Raises:
            TypeError: the stream is endless and has no length.
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

    def pass_start(self, batch: int) -> int:
        """J of the first batch of the pass that an iteration starts after the batches before J; only in a pass."""
        assert self.finite is not None, "there is a pass only with `epoch: pass`"
        return -(-batch // self.finite.batches) * self.finite.batches

    def slot_of_batch(self, batch: int) -> tuple[int, int]:
        """(k, m) of global batch J: canonical worker k serves it as its m-th batch; the same in every pass."""
        return self.topology.slot_of_batch(batch if self.finite is None else batch % self.finite.batches)


def make_plan(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    topology: Topology,
    counts: Mapping[str, SourceCount] | None = None,
) -> Plan:
    """Plan a spec over a topology.

    Args:
        spec: the checked spec.
        shards: the listed shards of every leaf source, by name.
        topology: canonical ranks and workers.
        counts: the samples of every source, by name; needed, and used, for `epoch: pass` alone.

    Raises:
        UsageError: the shares, the batch or the epoch do not fit together or the topology, or a source with
            a share above 0 has no shard.
    """
    batching = choose_batching(spec, topology.ranks)
    if spec.is_pass:
        assert counts is not None, "planning a pass takes the samples of every source"
        return _plan_pass(spec, shards, topology, batching, counts)
    starts = starting_batches(
        scheduled_shares(spec, lambda source: len(shards[source.name])), batching.global_size
    )
    largest = {name: max(step[name] for step in starts.values()) for name in next(iter(starts.values()))}
    active = [source for source in spec.sources_by_name if largest[source.name]]
    sources = []
    for source in active:
        listed = shards[source.name]
        share = Fraction(1, len(active)) if spec.mix.draw == "round_robin" else largest[source.name]
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
    schedule = (
        ScheduleSegment(
            start, tuple(step[source.name] for source in active), segment_offset(spec.seed, "schedule", start)
        )
        for start, step in (starts.items() if spec.mix.schedule is not None else ())
    )
    return Plan(
        seed=spec.seed,
        topology=topology,
        batching=batching,
        draw=spec.mix.draw,
        sources=tuple(sources),
        off=tuple(source.name for source in spec.sources if not largest[source.name]),
        epoch_batches=count_epoch_batches(spec, batching),
        unit=spec.mix.unit,
        schedule=tuple(schedule),
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
    finite = plan_pass(counted, topology, batching.per_slot, remainder, spec.limit)
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
        batching=batching,
        draw="pass",
        sources=tuple(sources),
        off=(),
        epoch_batches=finite.batches,
        finite=finite,
    )


def choose_batching(spec: Spec, ranks: int) -> Batching:
    """The batching of a spec over N canonical ranks.

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
            f"batch.global_size {size:,} has each of {ranks:,} ranks hold {each:,} samples at once; the limit is "
            f"{MOST_SAMPLES:,}"
        )
    return Batching(each, size, True, spec.batch.accumulate)


def count_epoch_batches(spec: Spec, batching: Batching) -> int | None:
    """E, the global batches of an epoch: ⌊samples / G⌋, or as given; None for an endless stream.

    An epoch is a cut of the endless stream. `limit` caps it.

    Raises:
        UsageError: the epoch is shorter than one global batch, or `limit` would end it inside one.
    """
    length: int | None = None
    if spec.epoch is not None:
        if spec.epoch.batches is not None:
            length = spec.epoch.batches
        elif spec.epoch.samples is not None:
            length = spec.epoch.samples // batching.global_size
            if not length:
                raise UsageError(
                    f"an epoch of {spec.epoch.samples} samples is shorter than one global batch of "
                    f"{batching.global_size}; raise `epoch` or lower `batch`"
                )
    if spec.limit is None or (length is not None and length * batching.global_size <= spec.limit):
        return length
    cap, rest = divmod(spec.limit, batching.global_size)
    if rest:
        near = [str(whole * batching.global_size) for whole in (cap, cap + 1) if whole]
        raise UsageError(
            f"`limit: {spec.limit}` would end inside a global batch of {batching.global_size} samples, and all "
            f"batches are whole; use {' or '.join(near)}, or `epoch: pass`, which pads the last batch"
        )
    return cap
