"""`epoch: pass`: every sample is read once, at a fixed position that depends only on the counts of samples.

With `repeat: 2.5`, the positions of a source are those of two copies of it, and of a part of a third one. Samples that
are known to be left out when samples are counted have no position.

    positions:  0 1 2 3 4 5 6 7 8 | 9 10 …  M-1 | pads        sources end to end by name, in each shard after shard
    slots:      (0,0)  (0,1)  | (1,0)  (1,1)                  each a run of whole batches, b samples a batch

With M samples and global batches of G = N·b, there are E = ⌈M/G⌉ batches (`pad`: the positions from M on are
padding) or E = ⌊M/G⌋ batches (`drop`: the positions from E·G on are not read). Batch j comes from the slots
(c, j mod K), so slot (c, k) owns the b·⌈(E-k)/K⌉ positions of its batches. A lost sample leaves its position empty and
does not move other samples.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress, product, repeat
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np

from wdspec.base.errors import ShardError, UsageError
from wdspec.planning.draws import IntArray
from wdspec.planning.keys import key64
from wdspec.planning.order import ShardOrder
from wdspec.planning.timeline import EpochSpan
from wdspec.planning.topology import Topology
from wdspec.planning.windows import find_copies, gather_groups, plan_batches, rules_of
from wdspec.spec.language.batch import Batch
from wdspec.spec.measurements import SampleCosts
from wdspec.spec.spec import Source, Spec

LARGE = 4096
MOST_PADDED = 10
"""A batch of more than `LARGE` samples per rank may have at most this many times the samples of the pass, padding
included. Collated padding takes as much memory as samples."""


class KeptCount(NamedTuple):
    """How many samples of a shard have positions, if some have none."""

    samples: int
    before: tuple[int, ...] = ()
    """For each of the `marks` of the shard, how many of them come before it."""


class ShardCount(NamedTuple):
    """The result of counting one shard."""

    samples: int
    """Positions of the shard, including those of damaged samples (`lost`)."""
    marks: tuple[tuple[int, int], ...] = ()
    """(index, byte offset in the uncompressed shard) of samples at which reading can start, ascending."""
    lost: frozenset[int] = frozenset()
    """Indices of damaged samples."""
    errors: tuple[ShardError, ...] = ()
    """The errors of a shard without a readable sample, if the policy skips them."""
    kept: KeptCount | None = None
    """The samples that the selection of the source keeps, if it was counted; otherwise all have positions."""
    again: KeptCount | None = None
    """Those of them that are in the part of `repeat` after the whole copies, if there is one."""
    bits_again: bytes = b""
    """Which samples those are, one bit for each sample of the shard, if batches are by cost."""

    costs: SampleCosts | None = None
    """What each sample costs; None if batches are not by cost."""
    costs_again: SampleCosts | None = None
    """The same of the samples in `again`."""

    @property
    def positions(self) -> int:
        """Number of positions in a whole copy."""
        return self.samples if self.kept is None else self.kept.samples


@dataclass(frozen=True)
class SourceCount:
    """The sample counts of one source by turn: a pass reads its n-th shard at turn n, and again in each copy."""

    ends: array[int]
    """For each turn, the number of positions in its shard and all shards before it."""
    shards: Mapping[int, ShardCount]
    """By turn of the first copy. Those with nothing to say besides their samples are left out."""
    turns: int = 0
    """Turns of a copy."""
    copies: int = 1
    """The number of whole copies. A part of another one may follow."""
    counted: Literal["", "keys", "all"] = ""
    """What part of the selection of the source was counted: samples that it leaves out have no positions."""
    costs: tuple[SampleCosts, ...] = field(default=(), repr=False)
    """The costs at all positions, in parts, if batches are by cost."""

    @classmethod
    def of(
        cls,
        shards: Iterable[ShardCount],
        copies: int = 1,
        part: bool = False,
        counted: Literal["", "keys", "all"] = "",
    ) -> SourceCount:
        """Combine the counts of shards, in the order of reading.

        Args:
            shards: the counts.
            copies: the number of whole copies.
            part: whether a part of another copy follows.
            counted: what part of the selection was counted.
        """
        lengths, known = array("q"), {}
        parts = array("q")
        costs: list[SampleCosts] = []
        costs_again: list[SampleCosts] = []
        for turn, shard in enumerate(shards):
            lengths.append(shard.positions)
            parts.append(0 if shard.again is None else shard.again.samples)
            if shard.costs is not None:
                costs.append(shard.costs)
                costs_again += [] if shard.costs_again is None else [shard.costs_again]
                shard = shard._replace(costs=None, costs_again=None)
            if shard[1:] != _NOTHING_ELSE:
                known[turn] = shard
        every = lengths * copies + (parts if part else array("q"))
        return cls(
            array("q", accumulate(every)),
            known,
            len(lengths),
            copies,
            counted,
            (*costs * copies, *costs_again),
        )

    @property
    def samples(self) -> int:
        """Number of positions of the source."""
        return self.ends[-1] if self.ends else 0

    @property
    def of_a_copy(self) -> int:
        """Number of positions of a whole copy, whether there is one or not."""
        if self.copies:
            return self.start(self.turns)
        return sum(shard.positions for shard in self.shards.values())

    @property
    def uncounted(self) -> int:
        """Number of samples that the counted part of the selection leaves out."""
        return sum(shard.samples - shard.positions for shard in self.shards.values())

    def place(self, turn: int) -> int:
        """Return the place in the order of shards of the one that is read at a turn."""
        return turn % self.turns

    def is_part(self, turn: int) -> bool:
        """Whether a turn is in the part of a copy after the whole ones."""
        return turn >= self.turns * self.copies

    def has_all(self, turn: int) -> bool:
        """Whether every sample of a turn's shard has a position."""
        return not self.counted and not self.is_part(turn)

    def length(self, turn: int) -> int:
        """Return the number of positions in a turn's shard."""
        return self.ends[turn] - self.start(turn)

    def find(self, position: int) -> tuple[int, int]:
        """Return (turn, number of positions before it in the shard) of a position of the source."""
        turn = bisect_right(self.ends, position)
        return turn, position - self.start(turn)

    def start(self, turn: int) -> int:
        """Return the first position of a turn's shard."""
        return self.ends[turn - 1] if turn else 0

    def lost(self, turn: int) -> frozenset[int]:
        """Return the indices of the damaged samples in a turn's shard."""
        return self._shard(turn).lost

    def errors(self, turn: int) -> tuple[ShardError, ...]:
        """Return the errors of a turn's shard, if it has no readable sample.

        Such a shard has no positions, so the slot that reads the sample before it reports them, once for all copies.
        """
        return self._shard(turn).errors if turn < self.turns else ()

    def mark(self, turn: int, index: int) -> tuple[int, int]:
        """Return (index, byte offset) of the last mark in a turn's shard at or before a sample."""
        marks = self._shard(turn).marks
        at = bisect_right(marks, (index, 1 << 63))
        return marks[at - 1] if at else (0, 0)

    def mark_before(self, turn: int, position: int) -> tuple[int, int, int]:
        """Return (positions before it, index, byte offset) of the last mark before a position of a turn's shard.

        It is before the position by at least one, unless it is the start of the shard or all samples have positions.
        """
        if self.has_all(turn):
            index, offset = self.mark(turn, position)
            return index, index, offset
        shard = self._shard(turn)
        kept = shard.again if self.is_part(turn) else shard.kept
        at = 0 if kept is None else bisect_left(kept.before, position)
        return (kept.before[at - 1], *shard.marks[at - 1]) if kept is not None and at else (0, 0, 0)

    def indices_again(self, turn: int) -> Sequence[int]:
        """Return the indices of the samples in a turn's shard, for a turn in a part of a copy."""
        bits = np.frombuffer(self._shard(turn).bits_again, np.uint8)
        found: list[int] = np.flatnonzero(np.unpackbits(bits)).tolist()
        return found

    def _shard(self, turn: int) -> ShardCount:
        place = self.place(turn)
        return self.shards[place] if place in self.shards else ShardCount(0)


_NOTHING_ELSE = ShardCount(0)[1:]


class PassSegment(NamedTuple):
    """A range of positions of one source."""

    source: int
    """Index of the source."""
    first: int
    """First position in the source."""
    stop: int
    """Position after the last one."""


class PassPiece(NamedTuple):
    """What a slot reads of a shard: all samples from one on, or every f-th of them."""

    place: int
    """The place of the shard in the pass over its source."""
    residue: int = 0
    parts: int = 1
    """f: the number of pieces of the shard; this one consists of the samples `residue`, `residue` + f, …."""


@dataclass(frozen=True)
class Pass:
    """One finite pass over the sources of a plan, distributed over the slots."""

    counts: tuple[SourceCount, ...]
    """The counts of all sources, sorted by name."""
    samples: int
    """M: samples of the pass; fewer than were counted if `limit` ends it."""
    batches: int
    """E: global batches of the pass."""
    topology: Topology
    per_slot: int
    """b: samples of one slot in one global batch."""

    @property
    def digest(self) -> int:
        """A hash of the sample counts of all shards."""
        return key64(self.samples, *(",".join(map(str, count.ends)) for count in self.counts))

    @property
    def is_reshuffled(self) -> bool:
        """Whether each epoch has another order."""
        return False

    @property
    def slot_batches(self) -> int:
        """Number of batches of the slots that have most."""
        return -(-self.batches // self.topology.workers)

    @property
    def rounds(self) -> int:
        """Number of rounds in which each slot of a canonical worker draws a batch of the pass, or a window."""
        return self.batches

    def number(self, step: int, start: EpochSpan | None = None) -> int:
        """Return J as slots count it: the same in every pass."""
        return step % self.batches

    def shard_at(self, order: ShardOrder, place: int) -> int:
        """Return the index of the shard at a place of the pass over a source."""
        return order.entry(0, place).shard

    def first_pieces(self, rank: int, worker: int, most: int) -> list[list[PassPiece]]:
        """Return the first shards that slot (c, k) reads of each source."""
        found: list[list[PassPiece]] = [[] for _ in self.counts]
        for segment in self.segments(*self.slot_range(rank, worker)):
            count = self.counts[segment.source]
            first, last = count.find(segment.first)[0], count.find(segment.stop - 1)[0]
            turns = range(first, min(last + 1, first + most))
            found[segment.source] = [PassPiece(count.place(turn)) for turn in turns]
        return found

    def last_batch(self, rank: int, worker: int, m: int = 0) -> int:
        """Return the number of the last batch of slot (c, k) that has samples, in the pass of its m-th; -1 if none."""
        return (self.batches - worker - 1) // self.topology.workers

    def note(self, epoch: EpochSpan) -> None:
        """Note the length of an epoch, which is known here: all are of one length."""

    def slot_range(self, rank: int, worker: int) -> tuple[int, int]:
        """Return (first position, stop) of slot (c, k); positions from `samples` on are padding."""
        before, extra = divmod(self.batches, self.topology.workers)
        first = rank * self.batches + worker * before + min(worker, extra)
        return first * self.per_slot, (first + before + (worker < extra)) * self.per_slot

    def segments(self, first: int, stop: int) -> Iterator[PassSegment]:
        """Yield the positions first..stop-1 source by source, without padding."""
        stop, start = min(stop, self.samples), 0
        for source, count in enumerate(self.counts):
            low, high = max(first, start), min(stop, start + count.samples)
            if low < high:
                yield PassSegment(source, low - start, high - start)
            start += count.samples

    def count(self, rank: int, steps: int) -> IntArray:
        """Return how many samples of each source canonical rank c has in the first steps. Passes follow one another."""
        passes, rest = divmod(steps, self.batches)
        found = np.zeros(len(self.counts), dtype=np.intp)
        for worker in range(self.topology.workers):
            first, stop = self.slot_range(rank, worker)
            part = first - (worker - rest) // self.topology.workers * self.per_slot
            for times, end in ((passes, stop), (1, part)):
                for segment in self.segments(first, end):
                    found[segment.source] += times * (segment.stop - segment.first)
        return found


class WindowPlace(NamedTuple):
    """Where a batch is in the windows of its slot."""

    window: int
    """The number of its window."""
    first: int
    """The number of the first batch of the window."""
    end: int
    """The number of the batch after the last one of the window."""


def find_window(ends: Sequence[int], batch: int) -> WindowPlace | None:
    """Return the place of a batch in windows, of which `ends` has the numbers of batches; None if it is in none."""
    window = bisect_right(ends, batch)
    if window == len(ends):
        return None
    return WindowPlace(window, ends[window - 1] if window else 0, ends[window])


@dataclass(frozen=True)
class WindowedPass(Pass):
    """A finite pass whose batches are planned from windows, by what samples cost.

    Each slot has an equal part of the positions, and cuts it into windows. As the costs of all samples are known, so is
    the number of batches of each slot. The pass ends when the last slot has no batch left; until then, slots that have
    run dry give empty batches.
    """

    ends: tuple[tuple[int, ...], ...] = ()
    """For each slot, the number of its batches up to the end of each of its windows."""
    shards: tuple[Sequence[int], ...] = ()
    """For each source, the number of the shard at each place, the same where shards have the same name; empty if no
    window has copies of a sample."""

    @property
    def digest(self) -> int:
        """A hash of the sample counts of all shards, and of the batches of all windows."""
        return key64(super().digest, repr(self.ends), *(["apart"] if self.shards else []))

    def batches_of(self, slot: int) -> int:
        """Return how many batches the samples of a slot make in the first pass, also those that `drop` drops."""
        return self.ends[slot][-1] if self.ends[slot] else 0

    @property
    def part_given(self) -> float:
        """The part of these batches that the first pass gives."""
        slots = range(self.topology.slots)
        given = sum(self.last_batch(*divmod(slot, self.topology.workers)) + 1 for slot in slots)
        return given / sum(map(self.batches_of, slots))

    def last_batch(self, rank: int, worker: int, m: int = 0) -> int:
        """Return the number of the last batch of slot (c, k) that has samples, in the pass of its m-th; -1 if none."""
        ends = self.ends[self.topology.slot(rank, worker)]
        return min(super().last_batch(rank, worker), ends[-1] - 1 if ends else -1)

    def window_of(self, slot: int, batch: int) -> WindowPlace | None:
        """Return the place of a batch of a slot in its windows; None after its last one in the pass."""
        is_there = batch <= self.last_batch(*divmod(slot, self.topology.workers), batch)
        return find_window(self.ends[slot], batch) if is_there else None

    def slot_range(self, rank: int, worker: int) -> tuple[int, int]:
        """Return (first position, stop) of slot (c, k)."""
        slot, slots = self.topology.slot(rank, worker), self.topology.slots
        return slot * self.samples // slots, (slot + 1) * self.samples // slots


class PositionNames:
    """Says which positions of a pass are those of the same sample.

    Args:
        counts: the counts of the sources.
        shards: for each source, the number of the shard at each place.
    """

    def __init__(self, counts: Sequence[SourceCount], shards: Sequence[Sequence[int]]) -> None:
        self._counts, self._shards = counts, shards
        self._turn = (-1, -1)
        self._indices: Sequence[int] = ()
        """The indices of the samples of this turn of a source, the last one in a part of a copy that was asked for."""

    def name(self, source: int, position: int) -> tuple[int, int]:
        """Return the number of the shard and the index of the sample at a position of a source."""
        count = self._counts[source]
        turn, index = count.find(position)
        if count.is_part(turn):
            if self._turn != (source, turn):
                self._turn, self._indices = (source, turn), count.indices_again(turn)
            index = self._indices[index]
        return self._shards[source][count.place(turn)], index


def number_shards(counts: Sequence[SourceCount], names: Sequence[Sequence[str]]) -> tuple[Sequence[int], ...]:
    """Return for each source the number of the shard at each place, the same where shards have the same name.

    Args:
        counts: the counts of the sources.
        names: the names of their shards, in the order of the pass.

    Returns:
        The numbers; nothing if no sample has several positions.
    """
    numbers: dict[str, int] = {}
    found = tuple([numbers.setdefault(name, len(numbers)) for name in listed] for listed in names)
    is_repeated = any(len(count.ends) > count.turns for count in counts)
    return found if is_repeated or len(numbers) < sum(map(len, names)) else ()


def plan_windowed_pass(
    counts: Sequence[SourceCount],
    topology: Topology,
    batch: Batch,
    window: int,
    remainder: str,
    limit: int | None,
    shards: tuple[Sequence[int], ...] = (),
) -> WindowedPass:
    """Distribute samples whose costs are known over the slots.

    Args:
        window: samples of a slot in a window.
        remainder: how to treat the steps after a slot has run dry: `pad` or `drop`.
        limit: the maximum number of samples in the pass.
        shards: the numbers of the shards (`number_shards`).

    Raises:
        UsageError: there are no samples, or none is in a step that all slots have a batch for.
    """
    samples = count_samples(counts, limit)
    costs = SampleCosts.join([part for count in counts for part in count.costs])
    bare = tuple(replace(count, costs=()) for count in counts)
    empty = WindowedPass(bare, samples, 0, topology, window)
    names = PositionNames(bare, shards)
    has_copies = False
    ends: list[tuple[int, ...]] = []
    for rank, worker in product(range(topology.ranks), range(topology.workers)):
        first, stop = empty.slot_range(rank, worker)
        of_windows = []
        for start in range(first, stop, window):
            end, own = min(start + window, stop), None
            if shards:
                segments = empty.segments(start, end)
                own = [
                    names.name(each.source, at) for each in segments for at in range(each.first, each.stop)
                ]
                has_copies = has_copies or len(set(own)) < len(own)
            of_windows.append(count_batches(costs, start, end, batch, own))
        ends.append(tuple(accumulate(of_windows)))
    totals = [of_slot[-1] if of_slot else 0 for of_slot in ends]
    batches = count_steps(totals, topology.workers, remainder)
    return replace(empty, batches=batches, ends=tuple(ends), shards=shards if has_copies else ())


def count_steps(counts: Sequence[int], workers: int, remainder: str) -> int:
    """Return the number of steps of a pass.

    Args:
        counts: the number of batches of each slot.
        workers: K.
        remainder: how to treat the steps after a slot has run dry: `pad` or `drop`.

    Raises:
        UsageError: there are no batches, or none is in a step that all slots have a batch for.
    """
    dry = [count * workers + slot % workers for slot, count in enumerate(counts)]
    """For each slot, the first step without a batch of it."""
    steps = min(dry) if remainder == "drop" else max(dry) - workers + 1
    if not any(counts):
        raise UsageError(
            "all samples of the pass were dropped; check `overlong`, `incomplete`, `where` and `missing`"
        )
    if not steps:
        raise UsageError(
            "`drop` drops all samples of the pass, as some slot has no batch; lower `elastic` or the size of batches, "
            "or write `pass: pad`"
        )
    return steps


def count_batches(
    costs: SampleCosts, start: int, stop: int, batch: Batch, names: Sequence[Hashable] | None = None
) -> int:
    """Return the number of batches of a window, the samples start..stop-1, of which copies have the same name."""
    window = np.frombuffer(costs.costs)[start:stop]
    is_kept = ~np.isnan(window)
    kept = window[is_kept]
    columns = [np.frombuffer(column)[start:stop][is_kept] for column in costs.sums]
    sums = np.stack(columns, axis=1) if columns else np.zeros((len(kept), 0))
    own = None if names is None else list(compress(names, is_kept))
    if batch.group_by is None:
        return len(plan_batches(kept, sums, batch, None if own is None else find_copies(own))[1])
    values = compress(costs.groups[start:stop], is_kept)
    entries = zip(kept.tolist(), sums.tolist(), repeat(0), values, own or repeat(0))
    # Which group comes next changes nothing, as each fills its batches in the order of reading.
    name_of = None if own is None else itemgetter(4)
    batches = gather_groups(entries, rules_of(batch), batch.incomplete, lambda left: None, name_of=name_of)
    return sum(1 for _ in batches)


def pass_order(spec: Spec, source: Source, shards: int) -> ShardOrder:
    """Return the order in which a pass reads the shards of a source, over all slots: as listed if it reshuffles."""
    kind = "sequential" if spec.reshuffles else source.order
    return ShardOrder(spec.seed, source.name, shards, 1, kind)


def plan_pass(
    counts: tuple[SourceCount, ...],
    topology: Topology,
    per_slot: int,
    remainder: str,
    limit: int | None,
) -> Pass:
    """Distribute the counted samples over the slots.

    Args:
        per_slot: b, samples of one slot in one global batch.
        remainder: how to treat the samples after the last full global batch: `pad` or `drop`.
        limit: the maximum number of samples in the pass.

    Raises:
        UsageError: there are no samples, or fewer than one global batch with `drop`, or a large batch would be mostly
            padding.
    """
    samples = count_samples(counts, limit)
    size = topology.ranks * per_slot
    batches = samples // size if remainder == "drop" else -(-samples // size)
    if not batches:
        raise UsageError(
            f"a pass of {samples:,} samples is shorter than one global batch of {size:,}, so `drop` drops all of them; "
            "lower `batch`, or write `pass: pad` in `epoch`, which pads the last batch"
        )
    if per_slot > LARGE and size > MOST_PADDED * samples:
        enough = -(-samples // topology.ranks)
        raise UsageError(
            f"a pass of {samples:,} samples would be padded to one batch of {size:,}, which wastes memory and time; "
            f"lower `batch`: {enough:,} per rank {'is' if enough == 1 else 'are'} enough for all samples"
        )
    return Pass(counts, samples, batches, topology, per_slot)


def count_samples(counts: Sequence[SourceCount], limit: int | None) -> int:
    """Return the number of samples of a pass. Raises UsageError if there are none."""
    samples = sum(count.samples for count in counts)
    if not samples:
        raise UsageError("`epoch: pass` found no samples in any shard; check `shards`")
    return samples if limit is None else min(samples, limit)
