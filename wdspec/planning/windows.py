"""Windows: a slot reads a run of samples of a source and emits them in a keyed permutation.

Unlike a reservoir, a window has a state of a few numbers (where it began, how many were emitted), so that a
resumed run reads at most one window again and goes on exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from wdspec.planning.keys import key64, uniform
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
    """Most samples in a window; 1 means that samples come in the order of the shard."""

    def length(self, slot: int, number: int) -> int:
        """Samples of the slot's window number 0, 1, … (fewer where its pass ends inside it).

        Full windows are of drawn lengths: those of one length would end at the same place of every shard where
        shards are of that length too, and so never mix two of them.
        """
        most = FIRST << min(number, 40)
        if most <= self.shortest:
            return most
        draw = uniform(key64(self.seed, "length", self.source, slot), number)
        return min(most, self.shortest + int(draw * (self.size - self.shortest + 1)))

    @property
    def shortest(self) -> int:
        """Least samples in a full window: three quarters of the size, rounded up."""
        return self.size - self.size // 4

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
