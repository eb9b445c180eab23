r"""Draws: the source of a slot's t-th sample, as a pure function of (seed, slot, t).

All slots (c, k) with the same k read the same sequence of draws, at offsets of c·b:

    slot (0,k):  d₀ d₁ d₂ d₃ | d₄ d₅ d₆ d₇ | …          batch m of slot (c,k) starts at draw (m + c)·b, so
    slot (1,k):  d₄ d₅ d₆ d₇ | d₈ …                     a global batch is N·b consecutive draws of one
                                                         sequence, and so is every slot.

So if the sequence is even, slots and global batches are even, too. In any run of consecutive draws, the number of
samples of a source deviates from its share by less than β = 1 + p/p₁ + p/p₂ + … < 4 (see the proof below). Hence:
- A slot after any number of whole batches is a run, so it deviates by less than β (2.0 in sweeps over shares, N, K, b).
- A global batch is a run, so it deviates by less than β (2.4).
- The job after any number of global batches is one run for each slot, so it deviates by less than β per slot (1.4).
- Batches are permuted, so inside a batch of b with n samples of the source, a slot deviates by less than
  β + n·(1 - n/b). Of the first t samples of the batch, at least n - (b - t) and at most min(t, n) are from the source,
  and t·n/b are expected.
With a separate phase for each c, the draws of a global batch would not be one run, and deviations could add up.

With `unit: batch`, one draw serves a whole global batch: batch J takes draw m = ⌊J/K⌋ of the sequence of k = J mod K.
Every slot is then a run of one sequence (it deviates by less than β batches), and the K batches of one m are within 4.6
of K shares in sweeps.

`EvenSequence` is the sequence of `draw: even`. It spaces every source as regularly as its share allows. The sources are
the leaves of a binary tree (Huffman's: the two smallest shares are joined first). Each node distributes its draws to
its two children by the most even two-way sequence: of its first x draws, ⌊x·q + φ⌋ go left.

          1            x:        0 1 2 3 4 5 6 7 8 9 …
        ⅖/ \⅗          root:     B A B A B B A B A B        q = ⅖
        A   B          B's own:  C   D   C D   C   D        q = ½   (B is a mix of C and D)
           ½/ \½
           C   D       so:       C A D A C D A C A D

The count of a leaf is a nesting of floors, so it can be computed at any distance without the draws before it. In a run
of draws from x to y, a node sends ⌊y·q + φ⌋ - ⌊x·q + φ⌋ to the left, which deviates by less than 1 from (y - x)·q. Now
let a leaf of share p have ancestors of shares p₁, p₂, … (without the root). It deviates by less than
β = 1 + p/p₁ + p/p₂ + …: by less than 1 from the split of its parent, by the parent's deviation times the leaf's part of
the parent, p/p₁, and so on. Huffman always joins the two smallest nodes, so the sibling of p₁ is not smaller than p or
the sibling of p, and p₂ > 2p. Likewise p₃ > 2p₁, and so on. Therefore
β < 1 + (1 + ½ + ¼ + …) + (½ + ¼ + …) = 4 for any number of sources (in sweeps: 2.0 from the start, 2.4 in any run).
Two alternatives are worse. Merging the due times j/p of all sources deviates by up to half the number of sources, when
many small sources are due together. A Kronecker sequence by the golden ratio deviates by 4.7 within 10⁷ draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import GOLDEN, MASK, UInt64Array, arithmetic, key64, mix64_array, random64_array
from wdspec.planning.topology import Topology

IntArray = npt.NDArray[np.intp]

_ONE = 1 << 64


class EvenSequence:
    """Random access to K even sequences of the given shares, one for each canonical worker.

    The sequences differ in their phases φ = (2i+1)/2K, where i is a permutation of the workers. For the same x, the K
    counts at the root therefore add up to ⌊K·x·q + ½⌋ (Hermite's identity), so even a rare source is spread evenly
    over all sequences. At each level down, i is multiplied by a number that is coprime to K and close to K divided by
    the golden ratio. Workers that send a draw the same way are neighbours in i, and must not be neighbours again at
    the next level.

    Args:
        shares: one positive fraction per source; they sum to 1.
        runs: K.
    """

    def __init__(self, shares: Sequence[Fraction], runs: int = 1) -> None:
        self._nodes, self._root = _tree(shares)
        self._runs = runs
        coprime = (a for a in range(1, runs + 1) if math.gcd(a, runs) == 1)
        self._multiplier = min(coprime, key=lambda a: abs(a - 0.618034 * runs))

    def take(self, run: int, start: int, count: int) -> IntArray:
        """Return the sources (indices) of the draws start..start+count-1 of sequence `run`, shape (count,)."""
        drawn = np.empty(count, dtype=np.intp)
        # (node, its depth, number of earlier draws that reached it, positions in `drawn` of those that reach it now)
        pending: list[tuple[int, int, int, IntArray | slice]] = [(self._root, 0, start, slice(count))]
        while pending:
            node, depth, before, places = pending.pop()
            if node < 0:
                drawn[places] = ~node
                continue
            left, right, step = self._nodes[node]
            number = run * pow(self._multiplier, depth, self._runs) % self._runs
            begin = before * step + -(-(2 * number + 1) * _ONE // (2 * self._runs))
            here = count if isinstance(places, slice) else len(places)
            phases = arithmetic(begin, step, here + 1)
            goes_left = phases[1:] < phases[:-1]
            for child, sent, index in (
                (left, begin >> 64, goes_left.nonzero()[0]),
                (right, before - (begin >> 64), (~goes_left).nonzero()[0]),
            ):
                if len(index):
                    pending.append(
                        (child, depth + 1, sent, index if isinstance(places, slice) else places[index])
                    )
        return drawn

    def counts(self, run: int, start: int, count: int) -> dict[int, int]:
        """Return how often each source is in the draws that `take` returns, without computing them."""
        found: dict[int, int] = {}
        pending = [(self._root, 0, start, count)]
        while pending:
            node, depth, before, here = pending.pop()
            if node < 0:
                found[~node] = here
                continue
            left, right, step = self._nodes[node]
            number = run * pow(self._multiplier, depth, self._runs) % self._runs
            begin = before * step + -(-(2 * number + 1) * _ONE // (2 * self._runs))
            sent = begin >> 64
            to_left = (begin + here * step >> 64) - sent
            pending.append((left, depth + 1, sent, to_left))
            pending.append((right, depth + 1, before - sent, here - to_left))
        return found


def _tree(shares: Sequence[Fraction]) -> tuple[list[tuple[int, int, int]], int]:
    """Return (nodes, root). A node is (left, right, ⌈q·2⁶⁴⌉); a child < 0 is the leaf ~child.

    Rounding up keeps counts exact where x·q + φ is an integer. It has an effect only after more than
    2⁶⁴ / (2K·denominator of q) draws, and then moves a draw by one place.
    """
    nodes: list[tuple[int, int, int]] = []
    heap = [(share, source, ~source) for source, share in enumerate(shares)]
    heapify(heap)
    while len(heap) > 1:
        one, other = heappop(heap), heappop(heap)
        left, right = sorted((one, other), key=lambda entry: entry[1])
        together = left[0] + right[0]
        nodes.append((left[2], right[2], min(-(-left[0] * _ONE // together), MASK)))
        heappush(heap, (together, left[1], len(nodes) - 1))
    return nodes, heap[0][2]


_AT_ONCE = 1 << 20
"""Draws to compute at a time to count them."""


class Draws:
    """The draws of every slot for fixed shares.

    Args:
        shares: one fraction per source; they sum to 1. A source with share 0 is never drawn.
        seed: the spec's seed.
        topology: the canonical topology (N × K).
        per_slot: b, samples of a slot in one global batch; 1 without `batch`.
        kind: `even`, `random` or `round_robin`.
        unit: `sample`, or `batch` if all samples of a global batch come from one source.
        start: the global batch J at which these draws start; `even` and `round_robin` count from there.
        offset: position in their sequence at which `even` and `round_robin` start.
    """

    def __init__(
        self,
        shares: Sequence[Fraction],
        seed: int,
        topology: Topology,
        per_slot: int,
        kind: str = "even",
        unit: str = "sample",
        start: int = 0,
        offset: int = 0,
    ) -> None:
        self.kind = kind
        self.start, self.offset = start, offset
        self.seed = seed
        self.topology = topology
        self.per_slot = per_slot
        self._order_key = key64(seed, "batch order")
        self._batch_key = key64(seed, "draw of a batch")
        self._is_by_batch = unit == "batch"
        self._size = 1 if self._is_by_batch else per_slot
        """Draws of a slot in a global batch."""
        drawn = [source for source, share in enumerate(shares) if share]
        self._count = len(shares)
        self.sources = len(drawn)
        """Number of sources with a share above 0."""
        self.random_per_step = self._size if kind == "random" and self.sources > 1 else 0
        """Random draws of a slot in a global batch, which can only be counted one by one."""
        self.block = max(1024, min(128 * len(drawn), 16384))
        """Number of draws to compute at a time, so that numpy's overhead per call and source is small."""
        self._drawn = np.array(drawn, dtype=np.intp)
        self._all = len(drawn) == len(shares)
        self._shares = [shares[source] for source in drawn]
        self._even = EvenSequence(self._shares, topology.workers)

    @cached_property
    def _bounds(self) -> UInt64Array:
        """Where the part of each source ends among the random numbers; the last part ends with them."""
        ends = accumulate(self._shares[:-1])
        return np.array([min(int(end * _ONE), MASK) for end in ends], dtype=np.uint64)

    def sequence(self, rank: int, worker: int, start: int, count: int) -> IntArray:
        """Return the sources (indices) of the draws start..start+count-1 of slot (rank, worker), shape (count,).

        The draws of the slot are counted from batch 0 of the run, so these draws must start at batch 0, too.
        """
        return self._named(self._draw(rank, worker, start, count))

    def batches(self, rank: int, worker: int, first: int, count: int) -> IntArray:
        """Return the sources (indices) of the batches m = first..first+count-1 of the slot, shape (count, b).

        The draws of a batch are permuted, keyed by (seed, c, J). Otherwise, a source would keep its positions in all
        batches if b is a multiple of its spacing.
        """
        b, size = self.per_slot, self._size
        drawn = self._named(self._draw(rank, worker, first * size, count * size)).reshape(count, size)
        if self._is_by_batch:
            return np.broadcast_to(drawn, (count, b))
        if b == 1 or self.sources == 1:
            return drawn
        numbers = arithmetic(first * self.topology.workers + worker, self.topology.workers, count)
        rows = mix64_array(numbers + np.uint64(key64(self._order_key, rank)))
        order = np.argsort(mix64_array(rows[:, None] + arithmetic(GOLDEN, GOLDEN, b)), axis=1)
        return np.take_along_axis(drawn, order, axis=1)

    def counts(self, rank: int, worker: int, first: int, count: int) -> IntArray:
        """Return how many samples of each source are in the batches m = first..first+count-1, shape (all sources,).

        Only with `draw: random` does it have to compute all draws.
        """
        start, total = first * self._size, count * self._size
        found = np.zeros(self.sources, dtype=np.intp)
        if self.random_per_step:
            for at in range(start, start + total, _AT_ONCE):
                drawn = self._draw(rank, worker, at, min(_AT_ONCE, start + total - at))
                found += np.bincount(drawn, minlength=self.sources)
        elif self.kind == "round_robin":
            turns = (np.arange(self.sources) - sum(self._place(rank, worker, start))) % self.sources
            found += total // self.sources + (turns < total % self.sources)
        else:
            for source, number in self._even.counts(*self._place(rank, worker, start), total).items():
                found[source] = number
        named = np.zeros(self._count, dtype=np.intp)
        named[self._drawn] = found * (self.per_slot // self._size)
        return named

    def _named(self, drawn: IntArray) -> IntArray:
        """Convert indices among the sources with a share to indices among all sources."""
        return drawn if self._all else self._drawn[drawn]

    def _draw(self, rank: int, worker: int, start: int, count: int) -> IntArray:
        """Return draws of slot (c, k), counted from batch 0 of the run, as indices among the sources with a share."""
        if self.random_per_step:
            return np.searchsorted(self._bounds, self._random(rank, worker, start, count), side="right")
        place = self._place(rank, worker, start)
        if self.kind == "round_robin":  # the k'-th sequence begins with the k'-th source
            return (sum(place) + np.arange(count)) % self.sources
        return self._even.take(*place, count)

    def _random(self, rank: int, worker: int, start: int, count: int) -> UInt64Array:
        """Return the random numbers of draws of slot (c, k); those of batches are the same for all ranks."""
        if not self._is_by_batch:
            return random64_array(key64(self.seed, "draw", rank, worker), start, count)
        counter, step = start * self.topology.workers + worker + 1, self.topology.workers * GOLDEN
        return mix64_array(arithmetic(self._batch_key + counter * GOLDEN, step, count))

    def _place(self, rank: int, worker: int, start: int) -> tuple[int, int]:
        """Return which sequence slot (c, k) reads, and the position of a draw in it.

        Relative to the start, batch J is batch (m - m₀)·K + k', where m₀ is the first batch m of the canonical worker
        since then, and k' its distance from the start. So draws start as if the start were J = 0.
        """
        workers = self.topology.workers
        first = -((worker - self.start) // workers)
        of_rank = 0 if self._is_by_batch else rank * self._size
        return first * workers + worker - self.start, start - first * self._size + of_rank + self.offset


class ScheduledDraws:
    """The draws of every slot if shares change: the draws of each segment, one after the other.

    Args:
        parts: one `Draws` for each segment; the first one starts at batch 0.
    """

    def __init__(self, parts: Sequence[Draws]) -> None:
        self._parts = parts
        self.topology = parts[0].topology
        self.block = max(part.block for part in parts)
        """Number of draws to compute at a time."""

    def batches(self, rank: int, worker: int, first: int, count: int) -> IntArray:
        """Return the sources of the batches m = first..first+count-1 of slot (rank, worker), shape (count, b)."""
        found = [part.batches(rank, worker, m, size) for part, m, size in self._split(worker, first, count)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    @property
    def random_per_step(self) -> int:
        """As for `Draws`."""
        return max(part.random_per_step for part in self._parts)

    def counts(self, rank: int, worker: int, first: int, count: int) -> IntArray:
        """Return how many samples of each source are in these batches, shape (all sources,)."""
        counts = (part.counts(rank, worker, m, size) for part, m, size in self._split(worker, first, count))
        return sum(counts, start=self._parts[0].counts(rank, worker, first, 0))

    def _split(self, worker: int, first: int, count: int) -> Iterator[tuple[Draws, int, int]]:
        """Yield the draws of each segment that has some of these batches, with the first one and their number."""
        m, end = first, first + count
        for part, following in zip(self._parts, (*self._parts[1:], None), strict=True):
            # The first batch m of canonical worker k in the next segment: ⌈(J - k) / K⌉.
            last = end if following is None else -((worker - following.start) // self.topology.workers)
            if m < min(last, end):
                yield part, m, min(last, end) - m
                m = min(last, end)
