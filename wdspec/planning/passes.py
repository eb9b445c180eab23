"""`epoch: pass`: every sample once, each at a fixed position that depends on the samples alone.

    positions:  0 1 2 3 4 5 6 7 8 | 9 10 …  M-1 | pads        sources end to end by name, in each shard after shard
    slots:      (0,0)  (0,1)  | (1,0)  (1,1)                  each a run of whole batches, b samples a batch

With M samples and global batches of G = N·b there are E = ⌈M/G⌉ batches (`pad`: the positions from M on hold
padding) or ⌊M/G⌋ (`drop`: the positions from E·G on are not read). Batch j comes from the slots (c, j mod K), so
slot (c, k) owns the b·⌈(E-k)/K⌉ positions of its batches. Nothing that happens to a sample moves another one:
a lost sample leaves its position empty.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wdspec.base.errors import ShardError, UsageError
from wdspec.planning.keys import key64
from wdspec.planning.order import ShardOrder
from wdspec.planning.topology import Topology

LARGE = 4096
MOST_PADDED = 10
"""A batch of more than `LARGE` samples a rank is padded to at most this many times the samples of the pass: collated,
padding takes as much memory as samples."""


class ShardCount(NamedTuple):
    """What counting one shard found."""

    samples: int
    """Positions it takes up, damaged samples (`lost`) included."""
    marks: tuple[tuple[int, int], ...] = ()
    """(index, byte offset in the uncompressed shard) of some samples, ascending: reading may start there."""
    lost: frozenset[int] = frozenset()
    """Indices of damaged samples."""
    errors: tuple[ShardError, ...] = ()
    """Why the shard has no readable sample, if the policy skips these errors."""


@dataclass(frozen=True)
class SourceCount:
    """The samples of one source, shard after shard in the order in which a pass reads them (its turns)."""

    ends: array[int]
    """For each turn, the samples of its shard and all before it."""
    marks: Mapping[int, tuple[tuple[int, int], ...]]
    """By turn, where there are any."""
    lost: Mapping[int, frozenset[int]]
    """By turn, where there are any."""
    errors: Mapping[int, tuple[ShardError, ...]]
    """Errors of shards without a readable sample, by turn. No position belongs to such a shard, so the slot that reads
    the sample before it reports them."""

    @classmethod
    def of(cls, shards: Iterable[ShardCount]) -> SourceCount:
        """The counts of a source from those of its shards, in the order of reading."""
        ends, marks, lost, errors, total = array("q"), {}, {}, {}, 0
        for turn, shard in enumerate(shards):
            total += shard.samples
            ends.append(total)
            if shard.marks:
                marks[turn] = shard.marks
            if shard.lost:
                lost[turn] = shard.lost
            if shard.errors:
                errors[turn] = shard.errors
        return cls(ends, marks, lost, errors)

    @property
    def samples(self) -> int:
        """Samples of the source."""
        return self.ends[-1] if self.ends else 0

    def length(self, turn: int) -> int:
        """Samples of a turn's shard."""
        return self.ends[turn] - self.start(turn)

    def find(self, position: int) -> tuple[int, int]:
        """(turn, index in its shard) of the sample at a position of the source."""
        turn = bisect_right(self.ends, position)
        return turn, position - self.start(turn)

    def start(self, turn: int) -> int:
        """The position of the first sample of a turn's shard."""
        return self.ends[turn - 1] if turn else 0

    def mark(self, turn: int, index: int) -> tuple[int, int]:
        """(index, byte offset) of the last known place in a turn's shard that is not after a sample."""
        marks = self.marks.get(turn, ())
        at = bisect_right(marks, (index, 1 << 63))
        return marks[at - 1] if at else (0, 0)


class PassSegment(NamedTuple):
    """A run of positions of one source."""

    source: int
    """Index of the source."""
    first: int
    """First position in the source."""
    stop: int


@dataclass(frozen=True)
class Pass:
    """One finite pass over the sources of a plan, dealt to the slots."""

    counts: tuple[SourceCount, ...]
    """Of every source, by name."""
    samples: int
    """M: samples of the pass; fewer than were counted where `limit` ends it."""
    batches: int
    """E."""
    topology: Topology
    per_slot: int
    """b."""

    @property
    def digest(self) -> int:
        """A key of the number of samples of every shard."""
        return key64(self.samples, *(",".join(map(str, count.ends)) for count in self.counts))

    def slot_range(self, rank: int, worker: int) -> tuple[int, int]:
        """(first position, stop) of slot (c, k); positions from `samples` on are padding."""
        before, extra = divmod(self.batches, self.topology.workers)
        first = rank * self.batches + worker * before + min(worker, extra)
        return first * self.per_slot, (first + before + (worker < extra)) * self.per_slot

    def segments(self, first: int, stop: int) -> Iterator[PassSegment]:
        """The positions first..stop-1 source by source, without padding."""
        stop, start = min(stop, self.samples), 0
        for source, count in enumerate(self.counts):
            low, high = max(first, start), min(stop, start + count.samples)
            if low < high:
                yield PassSegment(source, low - start, high - start)
            start += count.samples


def pass_order(seed: int, source: str, shards: int, kind: str) -> ShardOrder:
    """The order in which a pass reads the shards of a source: turn by turn, whichever slot reads them."""
    return ShardOrder(seed, source, shards, 1, kind)


def plan_pass(
    counts: tuple[SourceCount, ...],
    topology: Topology,
    per_slot: int,
    remainder: str,
    limit: int | None,
) -> Pass:
    """Deals the counted samples to the slots.

    Args:
        per_slot: b, samples that a slot gives to a batch.
        remainder: `pad` or `drop`: what becomes of the samples after the last whole global batch.
        limit: the most samples of the pass.

    Raises:
        UsageError: there are no samples, or with `drop` fewer than one global batch, or a large batch of hardly more
            than padding.
    """
    samples = sum(count.samples for count in counts)
    if limit is not None:
        samples = min(samples, limit)
    if not samples:
        raise UsageError("`epoch: pass` found no samples in any shard; check `shards`")
    size = topology.ranks * per_slot
    batches = samples // size if remainder == "drop" else -(-samples // size)
    if not batches:
        raise UsageError(
            f"a pass of {samples:,} samples is shorter than one global batch of {size:,}, so that `drop` leaves "
            "nothing; lower `batch`, or write `epoch: pass`, which pads the last batch"
        )
    if per_slot > LARGE and size > MOST_PADDED * samples:
        enough = -(-samples // topology.ranks)
        raise UsageError(
            f"a pass of {samples:,} samples would be padded to one batch of {size:,}: memory and time would go to "
            f"padding; lower `batch`, {enough:,} a rank {'holds' if enough == 1 else 'hold'} them all"
        )
    return Pass(counts, samples, batches, topology, per_slot)
