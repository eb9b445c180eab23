"""Keyed permutations: of a few thousand in one go, and of a million shards with O(1) access."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import key64, mix64, random64_array

SORTED_UP_TO = 4096
"""Up to here a permutation is a sort by random keys (exactly uniform); beyond, a Feistel network, whose
parity and round-function bias are far below notice at that size but would show at a handful of shards."""
_ROUNDS = 7


def permutation(key: int, n: int) -> npt.NDArray[np.intp]:
    """A uniform permutation of range(n), shape (n,): the order of n keyed random numbers (ties cost 2⁻⁶⁴)."""
    return np.argsort(random64_array(key, 0, n), kind="stable")


class Permutation:
    """A permutation of range(n), n ≥ 1, chosen by key: ``p[i]`` in O(1) time and memory for any n.

    For large n: a balanced Feistel network over the next even power of two, walked until it lands inside
    range(n) (cycle walking keeps it a bijection; fewer than 4 steps on average).
    """

    def __init__(self, key: int, n: int) -> None:
        self.n = n
        self._table: list[int] | None = None
        if n <= SORTED_UP_TO:
            self._table = permutation(key, n).tolist()
        else:
            self._half = ((n - 1).bit_length() + 1) // 2
            self._keys = [key64(key, "round", r) for r in range(_ROUNDS)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self.n:
            raise IndexError(i)
        if self._table is not None:
            return self._table[i]
        half, low = self._half, (1 << self._half) - 1
        while True:
            left, right = i >> half, i & low
            for key in self._keys:
                left, right = right, left ^ (mix64(key + right) & low)
            i = left << half | right
            if i < self.n:
                return i
