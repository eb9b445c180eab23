"""A pass that is shuffled anew in each epoch: `epoch: {pass: drop, reshuffle: true}`.

The order of an epoch is a function of its number; there is no state. It starts with one even sequence of exactly so
many draws of each source as it has samples in the epoch, so shares hold in any part of it:

    draws      A B A A B A A B A | A B A A B A A B A | A B A …       A: 2/3, B: 1/3; G = 9
    batch J           0                   1               2          a chunk of G draws each
    ranks      A A A B B B A A A   each chunk is sorted by source and dealt like cards:
               0 1 2 0 1 2 0 1 2   each rank has b draws, and its part of each source

So it is known how many samples of each source a slot has in the epoch. The slots divide a list of all positions of the
source, copy after copy, each with another permutation of the shards. All lengths are known, and so is the place of a
slot after any number of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import key64, keys64, random64, random64_array, random64_at
from wdspec.planning.order import ShardOrder, permutation
from wdspec.planning.passes import Pass, PassPiece
from wdspec.planning.timeline import EpochSpan

Ints = npt.NDArray[Any]
_ONE = 1 << 64
_EXACT = 1 << 31
"""Up to this number of draws, their products fit into 64 bits."""


class ExactDraws:
    """An even sequence of exactly so many draws of each source, repeated forever, with random access.

    Like `EvenSequence`, but by the numbers of draws: of the first x draws of a node of the tree with w draws, ⌊x·a/w +
    ½⌋ go to its left child, which has a. The proof of the bounds in `draws.py` holds for it, too.

    Args:
        counts: the draws of each source; they are not all 0.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = np.array(counts, dtype=np.int64)
        self.total = sum(counts)
        self._nodes: list[tuple[int, int, int, int]] = []
        """(left child, right child, draws of the left child, draws of the node); a child < 0 is the leaf ~child."""
        heap = [(count, source, ~source) for source, count in enumerate(counts) if count]
        heapify(heap)
        while len(heap) > 1:
            pair = heappop(heap), heappop(heap)
            left, right = sorted(pair, key=lambda each: each[1])
            self._nodes.append((left[2], right[2], left[0], left[0] + right[0]))
            heappush(heap, (left[0] + right[0], left[1], len(self._nodes) - 1))
        self._root = heap[0][2]

    def before(self, draws: Ints) -> Ints:
        """Return how many of the first draws are of each source, shape (numbers of draws, sources)."""
        repeats, inside = np.divmod(draws, self.total)
        found = np.multiply.outer(repeats, self.counts)
        kind = np.int64 if self.total < _EXACT else object  # Python's integers have no limit
        pending: list[tuple[int, Ints]] = [(self._root, inside.astype(kind))]
        while pending:
            node, sent = pending.pop()
            if node < 0:
                found[:, ~node] += sent.astype(np.int64)
                continue
            left, right, part, whole = self._nodes[node]
            to_left = (2 * sent * part + whole) // (2 * whole)
            pending += [(left, to_left), (right, sent - to_left)]
        return found


class Run(NamedTuple):
    """Positions that follow each other in a piece of a shard: the numbers first..stop-1 of the piece."""

    turn: int
    """The turn of the shard in the list of the source (`SourceCount`)."""
    residue: int
    """The piece consists of every f-th position of the shard, from this one on."""
    first: int
    stop: int


class _Copy(NamedTuple):
    """The positions of a copy of a source, in the order in which the slots divide them."""

    turns: Ints
    residues: Ints
    ends: Ints
    """For each piece, the number of positions up to its end."""
    low: int
    """The first position that this epoch leaves out."""
    high: int
    """The position after the last one that it leaves out."""

    @property
    def given(self) -> int:
        """Number of positions that remain."""
        return int(self.ends[-1]) - (self.high - self.low)

    def runs(self, start: int, stop: int) -> list[Run]:
        """Return the runs of the positions start..stop-1 of those that remain."""
        out = self.high - self.low
        found = []
        for first, end in ((start, min(stop, self.low)), (max(start, self.low) + out, stop + out)):
            at = int(self.ends.searchsorted(first, side="right"))
            while first < end:
                begin = int(self.ends[at - 1]) if at else 0
                until = min(end, int(self.ends[at]))
                if until > first:
                    found.append(
                        Run(int(self.turns[at]), int(self.residues[at]), first - begin, until - begin)
                    )
                first, at = max(first, until), at + 1
        return found


@dataclass(frozen=True)
class ShuffledPass(Pass):
    """A finite pass that is shuffled anew in each epoch."""

    seed: int = 0
    names: tuple[str, ...] = ()
    """The names of the sources."""
    kinds: tuple[str, ...] = ()
    """The `order` of each source."""

    def __hash__(self) -> int:
        # Copies, as each thread has one, share plans of epochs
        return hash((self.seed, self.samples, self.names))

    @property
    def given(self) -> int:
        """M': samples of an epoch."""
        return min(self.samples, self.batches * self.topology.ranks * self.per_slot)

    @property
    def is_reshuffled(self) -> bool:
        """Whether each epoch has another order."""
        return True

    def split(self, source: int) -> int:
        """Return f: the number of pieces of each shard of a source; 1 if it has as many shards as there are slots."""
        return -(-self.topology.slots // self.counts[source].turns)

    def shard_at(self, order: ShardOrder, place: int) -> int:
        """Return the index of the shard at a place of the list, which is that of the source."""
        return place

    def number(self, step: int, start: EpochSpan | None = None) -> int:
        """Return J as slots count it: over all epochs, as if all slots had equally many batches in an epoch."""
        epoch, inside = divmod(step, self.batches)
        return epoch * self.slot_batches * self.topology.workers + inside

    def epoch(self, number: int) -> Epoch:
        """Return the order of an epoch, from 0."""
        return _epoch(self, number)

    def plan_epoch(self, number: int) -> Epoch:
        """Plan the order of an epoch."""
        return Epoch(self, number)

    def first_pieces(self, rank: int, worker: int, most: int) -> list[list[PassPiece]]:
        """Return the first shards that slot (c, k) reads of each source in the first epoch."""
        epoch, slot = self.epoch(0), self.topology.slot(rank, worker)
        found = []
        for source, count in enumerate(self.counts):
            split, runs = self.split(source), (run for runs in epoch.runs(slot, source) for run in runs)
            found.append([PassPiece(count.place(run.turn), run.residue, split) for run in islice(runs, most)])
        return found


@lru_cache(maxsize=3)
def _epoch(finite: ShuffledPass, number: int) -> Epoch:
    return finite.plan_epoch(number)


class SlotDraws:
    """The draws of a slot in an epoch.

    Args:
        counts: how many draws of each source each of its batches (or windows) has, shape (batches, sources).
        key: of the epoch.
        place: c of its batches; the number of the slot of its windows.
        numbers: the numbers of its batches in the epoch, or of its windows.
    """

    def __init__(self, counts: Ints, key: int, place: int, numbers: range) -> None:
        self._counts, self._key, self._place, self._numbers = counts, key, place, numbers

    def given(self, m: int) -> list[int]:
        """Return how many samples of each source the slot gives before its m-th batch."""
        found: list[int] = self._counts[:m].sum(axis=0).tolist()
        return found

    def sources(self, m: int, count: int) -> list[list[int]]:
        """Return the sources of the samples of the batches m..m+count-1 of the slot; fewer at the end of the epoch."""
        sizes = self._counts[m : m + count].sum(axis=1)
        drawn, ends = self.sequence(m, count).tolist(), np.cumsum(sizes)
        return [drawn[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]

    def sequence(self, m: int = 0, count: int = 1 << 62) -> Ints:
        """Return the same, one batch after the other; by default of all batches."""
        counts = self._counts[m : m + count]
        sizes = counts.sum(axis=1)
        sources: Ints = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
        if counts.shape[1] > 1:
            keys = keys64(self._key, "batch order", self._place, last=self._numbers[m : m + count])
            within = np.arange(len(sources)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            numbers = random64_at(np.repeat(keys, sizes), within)
            sources = sources[np.lexsort((numbers, np.repeat(np.arange(len(sizes)), sizes)))]
        return sources


class Epoch:
    """The order of one epoch, for all slots."""

    def __init__(self, finite: ShuffledPass, number: int) -> None:
        self.finite, self.number = finite, number
        self.key = key64(finite.seed, "epoch", number)
        """κ: the seed of what is random in this epoch."""
        sizes = [count.samples for count in finite.counts]
        left_out = spread(sum(sizes) - finite.given, sizes, random64(self.key, 0))
        self._sizes = [size - left for size, left in zip(sizes, left_out, strict=True)]
        self._left_out = left_out
        self._tree = ExactDraws(self._sizes)
        self._start = random64(self.key, 1) % self._tree.total
        """The draw of the tree with which the epoch starts."""
        self._plan()

    def _plan(self) -> None:
        finite, topology = self.finite, self.finite.topology
        chunks = self._chunks()
        self._below = np.zeros((finite.batches, len(self._sizes) + 1), dtype=np.int64)
        """For each batch, how many of its draws come before each source, and in total."""
        np.cumsum(chunks, axis=1, out=self._below[:, 1:])
        shifts = random64_array(key64(self.key, "deal"), 0, finite.batches) % np.uint64(topology.ranks)
        self._shifts = shifts.astype(np.int64)
        """For each batch, the rank that is dealt the first draw."""

    def _chunks(self) -> Ints:
        """Return how many draws of each source each batch has, shape (E, sources)."""
        finite, batches, workers = self.finite, self.finite.batches, self.finite.topology.workers
        size = finite.topology.ranks * finite.per_slot
        ends = np.minimum(np.arange(batches + 1, dtype=np.int64) * size, finite.given)
        numbers = np.arange(batches)
        rounds = (batches - 1) // workers
        if workers > 1 and rounds:
            # Otherwise, a source whose draws are K·G apart would always come from the same worker.
            moved = random64_array(key64(self.key, "rounds"), 0, rounds) % np.uint64(workers)
            table = numbers[: rounds * workers].reshape(rounds, workers)
            table[:] = table[:, :1] + (np.arange(workers) + moved[:, None].astype(np.int64)) % workers
        chunks: Ints = np.diff(self._tree.before(self._start + ends), axis=0)[numbers]
        return chunks

    def draws(self, rank: int, worker: int) -> SlotDraws:
        """Return the draws of slot (c, k)."""
        topology = self.finite.topology
        rows = slice(worker, None, topology.workers)
        before = topology.ranks - 1 - (rank - self._shifts[rows, None]) % topology.ranks
        counts = np.diff((self._below[rows] + before) // topology.ranks, axis=1)
        return SlotDraws(counts, self.key, rank, range(self.finite.batches)[rows])

    @cached_property
    def _starts(self) -> Ints:
        """For each slot and source, the draws of all slots before it, shape (slots + 1, sources)."""
        topology = self.finite.topology
        ranks, workers, sources = topology.ranks, topology.workers, len(self._sizes)
        table = np.zeros((ranks, workers, sources), dtype=np.int64)
        for worker in range(workers):
            below, shifts = self._below[worker::workers], self._shifts[worker::workers]
            for source in range(sources):
                # Each rank has ⌊n/N⌋ of n draws; from the next rank on, n mod N ranks have one more.
                count = below[:, source + 1] - below[:, source]
                first = (below[:, source] + shifts) % ranks
                end = first + count % ranks
                change = np.bincount(first, minlength=2 * ranks) - np.bincount(end, minlength=2 * ranks)
                more = np.cumsum(change)
                table[:, worker, source] = (count // ranks).sum() + more[:ranks] + more[ranks:]
        found: Ints = np.zeros((topology.slots + 1, sources), dtype=np.int64)
        np.cumsum(table.reshape(-1, sources), axis=0, out=found[1:])
        return found

    def is_first(self, slot: int, source: int) -> bool:
        """Whether no slot before this one reads a source."""
        return not self._starts[slot, source]

    def runs(self, slot: int, source: int) -> list[list[Run]]:
        """Return what a slot reads of a source: for each copy, its part of it."""
        copies, starts = self._copies(source)
        (first, stop), found = starts[slot : slot + 2].tolist(), []
        for copy, start, end in zip(copies, first, stop, strict=True):
            found.append(copy.runs(start, end))
        return found

    @cached_property
    def _found(self) -> dict[int, tuple[list[_Copy], Ints]]:
        return {}

    def _copies(self, source: int) -> tuple[list[_Copy], Ints]:
        """Return the copies of a source, and how many positions of each all slots before a slot have."""
        if source not in self._found:
            copies = self._list_copies(source)
            sizes = [copy.given for copy in copies]
            starts = self._starts[:, source]
            places = (
                ExactDraws(sizes).before(starts) if any(sizes) else np.zeros((len(starts), len(copies)), int)
            )
            self._found[source] = copies, places
        return self._found[source]

    def _list_copies(self, source: int) -> list[_Copy]:
        finite, name = self.finite, self.finite.names[source]
        count, left = finite.counts[source], self._left_out[source]
        n, split = count.turns, finite.split(source)
        number = len(count.ends) // n
        lengths = np.diff(np.frombuffer(count.ends, np.int64), prepend=0)
        low = random64(key64(self.key, "left out", name), 0) * (self._sizes[source] + 1) >> 64 if left else 0
        found, before = [], 0
        for copy in range(number):
            pieces = np.arange(n * split)
            if finite.kinds[source] != "sequential":
                pieces = permutation(
                    key64(finite.seed, "order", name, self.number * number + copy), n * split
                )
            turns, residues = copy * n + pieces // split, pieces % split
            ends = np.cumsum((lengths[turns] - residues + split - 1) // split)
            size = int(ends[-1])
            first, stop = (min(max(at - before, 0), size) for at in (low, low + left))
            found.append(_Copy(turns, residues, ends, first, stop))
            before += size
        return found


def spread(left: int, sizes: Sequence[int], start: int) -> list[int]:
    """Return how many of `left` samples are left out of each source: its part, rounded up or down.

    The points ⌊(n + start/2⁶⁴) · total / left⌋ lie on the line of all samples; each is one sample of its source.
    """
    total = sum(sizes)
    if not left:
        return [0] * len(sizes)
    ends = [
        min(left, max(0, -((start * total - at * left * _ONE) // (total * _ONE)))) for at in accumulate(sizes)
    ]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


class Rotation(NamedTuple):
    """Where the lanes of a copy are after a number of samples."""

    lanes: list[tuple[int, int]]
    """(number of the run, samples of it that were read before this round) of each lane, in the order of reading."""
    following: int
    """The next run."""
    at: int
    """How many of the lanes have given a sample in this round."""


def seek(lengths: Sequence[int], width: int, read: int) -> Rotation:
    """Return where the lanes are after `read` samples: in each round, each lane gives one.

    Args:
        lengths: the lengths of the runs.
        width: how many runs are read in turn.
        read: the number of samples.
    """
    lanes = [(run, 0) for run in range(min(width, len(lengths)))]
    following = len(lanes)
    while lanes:
        rounds = min(min(lengths[run] - taken for run, taken in lanes), read // len(lanes))
        read -= rounds * len(lanes)
        lanes = [(run, taken + rounds) for run, taken in lanes]
        if all(taken < lengths[run] for run, taken in lanes):
            break
        lanes, following = replace_ended(lanes, lengths, following)
    return Rotation(lanes, following, read)


def replace_ended(
    lanes: Sequence[tuple[int, int]], lengths: Sequence[int], following: int
) -> tuple[list[tuple[int, int]], int]:
    """Replace lanes that have ended by the next runs; return them, and the next run."""
    kept = []
    for run, taken in lanes:
        if taken < lengths[run]:
            kept.append((run, taken))
        elif following < len(lengths):
            kept.append((following, 0))
            following += 1
    return kept, following
