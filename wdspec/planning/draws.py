"""Draws: which source a slot takes its t-th sample from, as a pure function of (seed, slot, t).

The slots (c, k) of one k read one sequence of draws, c·b apart, each from its own place on:

    slot (0,k):  d₀ d₁ d₂ d₃ | d₄ d₅ d₆ d₇ | …          batch m of slot (c,k) starts at draw (m + c)·b, so
    slot (1,k):  d₄ d₅ d₆ d₇ | d₈ …                     a global batch is N·b consecutive draws of one
                                                         sequence, and so is every slot.

So where the sequence is even, slots, global batches and their sum are: in sweeps over shares, N, K and b every
slot stays within 2.3 samples of its share, every global batch within 1.8, and the whole job within one sample a
slot. A phase of its own for each c aliases: the draws of one global batch are then no run.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from wdspec.planning.even import EvenSequence, IntArray
from wdspec.planning.keys import GOLDEN, MASK, arithmetic, key64, mix64_array, random64_array
from wdspec.planning.topology import Topology

TWO64 = 1 << 64


class Draws:
    """The draws of every slot for fixed shares.

    Args:
        shares: positive fractions summing to 1, one a source.
        seed: the spec's seed.
        topology: canonical N × K.
        per_slot: b, the samples a slot gives to one global batch (1 without `batch`).
        kind: `even`, `random` or `round_robin`.
    """

    def __init__(
        self, shares: Sequence[Fraction], seed: int, topology: Topology, per_slot: int, kind: str = "even"
    ) -> None:
        self.kind = kind
        self.sources = len(shares)
        self.seed = seed
        self.topology = topology
        self.per_slot = per_slot
        self._order_key = key64(seed, "batch order")
        bounds, total = [], Fraction(0)
        for share in shares[:-1]:
            total += share
            bounds.append(min(int(total * TWO64), MASK))
        self._bounds = np.array(bounds, dtype=np.uint64)
        k, self._even = topology.workers, {}
        if kind == "even":
            self._even = {w: EvenSequence(shares, Fraction(2 * w + 1, 2 * k)) for w in range(k)}

    def sequence(self, rank: int, worker: int, start: int, count: int) -> IntArray:
        """Sources (indices) of the draws start..start+count-1 of slot (rank, worker), shape (count,)."""
        if self.sources == 1:
            return np.zeros(count, dtype=np.intp)
        position = start + rank * self.per_slot
        if self.kind == "round_robin":
            turns: IntArray = (arithmetic(position + worker, 1, count) % np.uint64(self.sources)).astype(
                np.intp
            )
            return turns
        if self.kind == "even":
            return self._even[worker][position : position + count]
        points = random64_array(key64(self.seed, "draw", rank, worker), start, count)
        return np.searchsorted(self._bounds, points, side="right")

    def batches(self, rank: int, worker: int, first: int, count: int) -> IntArray:
        """Sources of the batches m = first..first+count-1 of the slot, shape (count, b).

        Within a batch the draws come in a permutation keyed by (seed, c, J), or a source would keep its
        positions in the batch whenever b is a multiple of its spacing.
        """
        b = self.per_slot
        drawn = self.sequence(rank, worker, first * b, count * b).reshape(count, b)
        if b == 1 or self.sources == 1:
            return drawn
        numbers = arithmetic(first * self.topology.workers + worker, self.topology.workers, count)
        rows = mix64_array(numbers + np.uint64(key64(self._order_key, rank)))
        order = np.argsort(mix64_array(rows[:, None] + arithmetic(GOLDEN, GOLDEN, b)), axis=1)
        return np.take_along_axis(drawn, order, axis=1)
