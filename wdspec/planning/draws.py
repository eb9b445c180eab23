r"""Draws: which source a slot takes its t-th sample from, as a pure function of (seed, slot, t).

The slots (c, k) of one k read one sequence of draws, c·b apart:

    slot (0,k):  d₀ d₁ d₂ d₃ | d₄ d₅ d₆ d₇ | …          batch m of slot (c,k) starts at draw (m + c)·b, so
    slot (1,k):  d₄ d₅ d₆ d₇ | d₈ …                     a global batch is N·b consecutive draws of one
                                                         sequence, and so is every slot.

So where the sequence is even, slots and global batches are. Any run of its draws is off by less than β = 1 + p/p₁ +
p/p₂ + … < 4 samples of a source (the proof is below), hence
- a slot after any number of whole batches, which is a run: by less than β (2.0 in sweeps over shares, N, K and b);
- a global batch, which is a run: by less than β (2.4);
- the job after any number of global batches, which is a run a slot: by less than β a slot (1.4);
- a slot inside a batch of b with n samples of the source, as the batch is permuted: by less than β + n·(1 - n/b). Of
  the batch's first t samples at least n - (b - t), and at most t or n, are of the source; t·n/b is expected.
A separate phase for each c would alias: the draws of a global batch would not be one run.

With `unit: batch` one draw serves a whole global batch: batch J takes draw m = ⌊J/K⌋ of the sequence of k = J mod K.
Every slot is then a run of one sequence (off by less than β batches), and the K batches of one m are within 4.6 of K
shares in sweeps.

`EvenSequence` is the even sequence of `draw: even`: every source as regularly spaced as its share allows. The sources
are the leaves of a binary tree (Huffman's: the two smallest shares join first). Each node deals its draws to its two
children by the most even two-way sequence: of its first x draws ⌊x·q + φ⌋ go left.

          1            x:        0 1 2 3 4 5 6 7 8 9 …
        ⅖/ \⅗          root:     B A B A B B A B A B        q = ⅖
        A   B          B's own:  C   D   C D   C   D        q = ½   (B is a mix of C and D)
           ½/ \½
           C   D       so:       C A D A C D A C A D

The count of a leaf is nested floors, so it is known at any distance without what came before. In any run of draws,
from x to y, a node sends ⌊y·q + φ⌋ - ⌊x·q + φ⌋ to the left, which is off by less than 1. So a leaf of share p below
nodes of shares p₁, p₂, … (the root left out) is off by less than β = 1 + p/p₁ + p/p₂ + …: by its parent's own split, by
what the parent gets too much or too few of, times the leaf's part of it, and so on. Huffman joins two nodes before any
that is smaller than either, so the sibling of p₁ is no smaller than p or its sibling: p₂ > 2p, likewise p₃ > 2p₁, and
β < 1 + (1 + ½ + ¼ + …) + (½ + ¼ + …) = 4 whatever the number of sources (in sweeps: 2.0 from the start, 2.4 in any
run). Merging the due times j/p of all sources instead is off by half the number of sources, where many
small ones fall due together; a Kronecker sequence by the golden ratio drifts to 4.7 in 10⁷ draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import GOLDEN, MASK, UInt64Array, arithmetic, key64, mix64_array, random64_array
from wdspec.planning.topology import Topology

IntArray = npt.NDArray[np.intp]

_ONE = 1 << 64


class EvenSequence:
    """Random access to K even sequences of the given shares, one for each canonical worker.

    They differ in their phases: φ = (2i+1)/2K, i a permutation of the workers, so that for the same x the K counts
    at the root add up to ⌊K·x·q + ½⌋ (Hermite's identity), and even a rare source comes evenly over all of them.
    At each level down i is multiplied by a number near K/φ (golden) prime to K: the workers that send a draw the
    same way are neighbours in i, and must not be neighbours again.

    Args:
        shares: positive fractions summing to 1, one a source.
        runs: K.
    """

    def __init__(self, shares: Sequence[Fraction], runs: int = 1) -> None:
        self._nodes, self._root = _tree(shares)
        self._runs = runs
        coprime = (a for a in range(1, runs + 1) if math.gcd(a, runs) == 1)
        self._multiplier = min(coprime, key=lambda a: abs(a - 0.618034 * runs))

    def take(self, run: int, start: int, count: int) -> IntArray:
        """Sources (indices) of the draws start..start+count-1 of sequence `run`, shape (count,)."""
        drawn = np.empty(count, dtype=np.intp)
        # (node, its depth, how many draws came to it before, positions in `drawn` of those that do now)
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


def _tree(shares: Sequence[Fraction]) -> tuple[list[tuple[int, int, int]], int]:
    """(nodes, root): a node is (left, right, ⌈q·2⁶⁴⌉); a child < 0 is the leaf ~child.

    Rounding up keeps counts exact where x·q + φ is a whole number; it shows only beyond 2⁶⁴ / (2K·denominator of
    q) draws, and then moves a draw by one place.
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


TWO64 = 1 << 64


class Draws:
    """The draws of every slot for fixed shares.

    Args:
        shares: fractions summing to 1, one a source; a source with 0 is never drawn.
        seed: the spec's seed.
        topology: canonical N × K.
        per_slot: b, the samples a slot gives to one global batch (1 without `batch`).
        kind: `even`, `random` or `round_robin`.
        unit: `sample`, or `batch`: all samples of a global batch come from one source.
        start: the global batch J at which these draws start; even draws and turns start over there.
        offset: where in their sequence even draws and turns start.
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
        self.unit = unit
        self.start, self.offset = start, offset
        self.seed = seed
        self.topology = topology
        self.per_slot = per_slot
        self._order_key = key64(seed, "batch order")
        self._batch_key = key64(seed, "draw of a batch")
        drawn = [source for source, share in enumerate(shares) if share]
        self.sources = len(drawn)
        """How many sources have a share above 0."""
        self.block = max(1024, min(128 * len(drawn), 16384))
        """Draws worth computing at a time: numpy's cost per call and source is then small."""
        self._drawn = np.array(drawn, dtype=np.intp)
        self._all = len(drawn) == len(shares)
        bounds, total = [], Fraction(0)
        for source in drawn[:-1]:
            total += shares[source]
            bounds.append(min(int(total * TWO64), MASK))
        self._bounds = np.array(bounds, dtype=np.uint64)
        self._even = EvenSequence([shares[source] for source in drawn], topology.workers)

    def sequence(self, rank: int, worker: int, start: int, count: int) -> IntArray:
        """Sources (indices) of the draws start..start+count-1 of slot (rank, worker), shape (count,).

        The slot's draws are counted from batch 0 of the run, where these draws must start too.
        """
        return self._named(self._sequence(rank, worker, start, count))

    def batches(self, rank: int, worker: int, first: int, count: int) -> IntArray:
        """Sources of the batches m = first..first+count-1 of the slot, shape (count, b).

        Within a batch the draws come in a permutation keyed by (seed, c, J), or a source would keep its
        positions in the batch whenever b is a multiple of its spacing.
        """
        b = self.per_slot
        if self.unit == "batch":
            drawn = self._named(self._of_batches(worker, first, count))
            return np.broadcast_to(drawn[:, None], (count, b))
        drawn = self._named(self._sequence(rank, worker, first * b, count * b)).reshape(count, b)
        if b == 1 or self.sources == 1:
            return drawn
        numbers = arithmetic(first * self.topology.workers + worker, self.topology.workers, count)
        rows = mix64_array(numbers + np.uint64(key64(self._order_key, rank)))
        order = np.argsort(mix64_array(rows[:, None] + arithmetic(GOLDEN, GOLDEN, b)), axis=1)
        return np.take_along_axis(drawn, order, axis=1)

    def _named(self, drawn: IntArray) -> IntArray:
        """Indices among the sources that are drawn -> indices among all sources."""
        return drawn if self._all else self._drawn[drawn]

    def _sequence(self, rank: int, worker: int, start: int, count: int) -> IntArray:
        if self.sources == 1:
            return np.zeros(count, dtype=np.intp)
        if self.kind == "random":
            return self._pick(random64_array(key64(self.seed, "draw", rank, worker), start, count))
        first_batch, worker = self._since_start(worker)
        position = start - first_batch * self.per_slot + rank * self.per_slot + self.offset
        if self.kind == "round_robin":
            return self._turns(position + worker, count)
        return self._even.take(worker, position, count)

    def _of_batches(self, worker: int, first: int, count: int) -> IntArray:
        """One draw for each of the batches m = first..first+count-1 of canonical worker k, whatever the rank."""
        k_of = self.topology.workers
        if self.sources == 1:
            return np.zeros(count, dtype=np.intp)
        if self.kind == "random":
            counter = first * k_of + worker + 1
            return self._pick(
                mix64_array(arithmetic(self._batch_key + counter * GOLDEN, k_of * GOLDEN, count))
            )
        first_batch, worker = self._since_start(worker)
        position = first - first_batch + self.offset
        if self.kind == "round_robin":
            return self._turns(position + worker, count)
        return self._even.take(worker, position, count)

    def _since_start(self, worker: int) -> tuple[int, int]:
        """(m₀, k'): the first batch m of canonical worker k since the start, and its place after the start.

        Counted from the start, batch J is the batch (m - m₀)·K + k', so draws start as if it were J = 0.
        """
        first = -((worker - self.start) // self.topology.workers)
        return first, first * self.topology.workers + worker - self.start

    def _turns(self, position: int, count: int) -> IntArray:
        turns: IntArray = ((position + np.arange(count)) % self.sources).astype(np.intp)
        return turns

    def _pick(self, points: UInt64Array) -> IntArray:
        return np.searchsorted(self._bounds, points, side="right")


class ScheduledDraws:
    """The draws of every slot where shares change: those of each segment's `Draws`, one after the other.

    Args:
        parts: one for each segment, the first one starting at batch 0.
    """

    def __init__(self, parts: Sequence[Draws]) -> None:
        self._parts = parts
        self.topology = parts[0].topology
        self.block = max(part.block for part in parts)
        """Draws worth computing at a time."""

    def batches(self, rank: int, worker: int, first: int, count: int) -> IntArray:
        """Sources of the batches m = first..first+count-1 of slot (rank, worker), shape (count, b)."""
        found: list[IntArray] = []
        m, end = first, first + count
        for part, following in zip(self._parts, (*self._parts[1:], None), strict=True):
            # The first batch m of canonical worker k that the next segment has: ⌈(J - k) / K⌉.
            last = end if following is None else -((worker - following.start) // self.topology.workers)
            if m < min(last, end):
                found.append(part.batches(rank, worker, m, min(last, end) - m))
                m = min(last, end)
        return found[0] if len(found) == 1 else np.concatenate(found)
