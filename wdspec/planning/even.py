"""The even sequence of `draw: even`: every source as regularly spaced as its share allows.

Source i is due at the times (j - φ) / pᵢ, j = 1, 2, …; the sequence lists all due times in order.

    p = ½   | A   A   A   A   A   A        due times of each source
    p = ⅓   |  B     B     B     B
    p = ⅙   |    C           C             read off:  A B A C A B …

By time τ source i was drawn ⌊τ·pᵢ + φ⌋ times, so x draws end at a τ within n/2 of x and every count is within
about one sample of x·pᵢ (a Kronecker sequence by the golden ratio, tried first, reaches 4.7 in 10⁷ draws and
adds up over slots). Counts are exact integers at any distance: nothing accumulates, and the x-th draw costs
O(n) whatever x is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.intp]

_GRID, _OFF_GRID = float(1 << 20), 0.3819660112501051
"""Due times are compared on a grid of 2⁻²⁰, so that rounding errors (10⁻¹²) cannot order equal ones; it lies at
an irrational offset, so that no plausible time falls on the edge of a cell."""


class EvenSequence:
    """Random access to the even sequence of the given shares and phase φ in [0, 1).

    Args:
        shares: positive fractions summing to 1, one a source.
        phase: φ. With φ = (2k+1)/2K for k = 0..K-1, the K sequences together draw source i ⌊K·τ·pᵢ + ½⌋ times
            (Hermite's identity), so that even a rare source comes evenly over all of them.
    """

    def __init__(self, shares: Sequence[Fraction], phase: Fraction) -> None:
        self._shares = tuple(shares)
        self._phase = phase
        self._span = max(1024, 1 << (4 * len(shares)).bit_length())
        self._block = lru_cache(maxsize=4)(self._compute_block)

    def __reduce__(self) -> tuple[type[EvenSequence], tuple[tuple[Fraction, ...], Fraction]]:
        return EvenSequence, (self._shares, self._phase)

    def __getitem__(self, wanted: slice) -> IntArray:
        """Sources (indices) of the draws start..stop-1, shape (stop - start,)."""
        start, stop = wanted.start, wanted.stop
        parts: list[IntArray] = []
        number = self._find(start)
        while start < stop:
            first, drawn = self._block(number)
            part = drawn[start - first : stop - first]
            parts.append(part)
            start += len(part)
            number += 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, np.intp)

    def _counts(self, number: int) -> list[int]:
        """How often each source is due up to the beginning of block number, that is by τ = number·span."""
        tau = number * self._span
        return [math.floor(tau * share + self._phase) for share in self._shares]

    def _find(self, x: int) -> int:
        """The block that holds draw x; x // span is at most one off, for span > 2n."""
        number = x // self._span
        while number and sum(self._counts(number)) > x:
            number -= 1
        while sum(self._counts(number + 1)) <= x:
            number += 1
        return number

    def _compute_block(self, number: int) -> tuple[int, IntArray]:
        """(Number of its first draw, draws) of the block of due times in (number·span, (number+1)·span].

        Blocks are fixed, so a draw is the same whatever slice it is asked in. Sources that are due together
        come in the order of the file.
        """
        before, after = self._counts(number), self._counts(number + 1)
        tau = number * self._span
        times, sources = [], []
        for i, share in enumerate(self._shares):
            due = after[i] - before[i]
            if due:
                first = float((before[i] + 1 - self._phase) / share - tau)
                times.append(first + np.arange(due) / float(share))
                sources.append(np.full(due, i, dtype=np.intp))
        grid = np.floor(np.concatenate(times) * _GRID + _OFF_GRID)
        order = np.argsort(grid, kind="stable")
        return sum(before), np.concatenate(sources)[order]
