"""The even sequence of `draw: even`: every source as regularly spaced as its share allows.

The sources are the leaves of a binary tree (Huffman's: the two smallest shares join first). Each node deals what
comes to it to its two children by the most even two-way sequence there is: of its first x draws ⌊x·q + φ⌋ go left.

          1            x:        0 1 2 3 4 5 6 7 8 9 …
        ⅖/ \\⅗          root:     B A B A B B A B A B        q = ⅖
        A   B          B's own:  C   D   C D   C   D        q = ½   (B is a mix of C and D)
           ½/ \\½
           C   D       so:       C A D A C D A C A D

The count of a leaf is nested floors, so it is known at any distance without what came before. In any run of draws,
from x to y, a node sends ⌊y·q + φ⌋ - ⌊x·q + φ⌋ to the left, which is off by less than 1. So a leaf of share p below
nodes of shares p₁, p₂, … (the root left out) is off by less than β = 1 + p/p₁ + p/p₂ + …: by its parent's own split, by
what the parent gets too much or too few of, times the leaf's part of it, and so on. Huffman joins two nodes before any
that is smaller than either, so the sibling of p₁ is no smaller than p or its sibling: p₂ > 2p, likewise p₃ > 2p₁, and
β < 1 + (1 + ½ + ¼ + …) + (½ + ¼ + …) = 4 whatever the number of sources (in sweeps: 2.0 from the beginning, 2.4 in any
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

from wdspec.planning.keys import MASK, arithmetic

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
