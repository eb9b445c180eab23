"""Windows: a slot reads a run of samples of a source and emits them in a keyed permutation.

Unlike a reservoir, a window has a state of a few numbers (where it began, how many were emitted), so that a
resumed run reads at most one window again and goes on exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from wdspec.planning.keys import key64
from wdspec.planning.permutation import permutation

SMALLEST = 16
FIRST = 64
"""The first window's size; each next one is twice as large until the full size, so training starts at once."""


@dataclass(frozen=True)
class Windows:
    """The windows of one source, for all slots."""

    seed: int
    source: str
    size: int
    """Samples of a full window; 1 means that samples come in the order of the shard."""

    def length(self, number: int) -> int:
        """Samples of window number 0, 1, … (fewer where the slot's pass ends inside it)."""
        return min(self.size, FIRST << min(number, 40))

    def order(self, slot: int, number: int, length: int) -> list[int]:
        """The order of emission: a permutation of range(length)."""
        if self.size == 1:
            return list(range(length))
        order: list[int] = permutation(key64(self.seed, "window", self.source, slot, number), length).tolist()
        return order


def window_size(shuffle: int, share: Fraction) -> int:
    """The source's part of a slot's `shuffle` samples, so that a slot holds about `shuffle` in all.

    At least 16, or all of a smaller `shuffle`; 0 and 1 switch shuffling off.
    """
    if shuffle <= 1:
        return 1
    return max(min(SMALLEST, shuffle), round(shuffle * share))
