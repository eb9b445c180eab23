"""Shard order: the endless sequence of shards of one source, dealt to the slots like cards.

    entries:   0 1 2 3 4 5 | 6 7 8 9 …      pass p is one permutation of the source's n shards, keyed by
    slots:     0 1 2 3 0 1 | 2 3 0 1 …      (seed, source, p); slot s takes the entries s, s+S, s+2S, …

Every entry is dealt exactly once, so no shard of a pass is read twice or missed, whatever n and S are.
In each pass of `sequential` the slots take turns in another order, or a slot would read the same shards forever. With
fewer shards than slots each shard counts as f = ⌈S/n⌉ *virtual shards*: the samples whose index in the
shard is ≡ r (mod f). So no two slots ever read the same samples at the same time.

Keyed permutations: of a few thousand in one go, and of a million shards with O(1) access.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import key64, mix64, random64, random64_array

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


class ShardTurn(NamedTuple):
    """One turn of a slot at a source: which part of which shard, in which pass."""

    passes: int
    """Passes over the source that came before this one (p)."""
    shard: int
    """Index into the source's shard list."""
    residue: int
    """Of the shard, the samples with index ≡ residue (mod `ShardOrder.split`)."""


@dataclass(frozen=True)
class ShardOrder:
    """The order of one source's shards, for all slots; O(1) per entry in time and memory."""

    seed: int
    source: str
    shards: int
    slots: int
    kind: str = "shuffled"
    """`shuffled`: a fresh permutation each pass; `resampled`: with replacement; `sequential`: as listed."""
    split: int = field(init=False)
    """f: virtual shards per shard; 1 unless there are fewer shards than slots."""

    def __post_init__(self) -> None:
        split = 1 if self.kind == "resampled" else -(-self.slots // self.shards)
        object.__setattr__(self, "split", split)

    @property
    def per_pass(self) -> int:
        """Entries of one pass: n·f."""
        return self.shards * self.split

    def entry(self, slot: int, turn: int) -> ShardTurn:
        """What slot s reads at its turn-th turn (0, 1, …)."""
        number = self._number(slot, turn)
        passes, position = divmod(number, self.per_pass)
        if self.kind == "resampled":
            pick = random64(key64(self.seed, "resampled", self.source), number) * self.shards >> 64
            return ShardTurn(passes, pick, 0)
        if self.kind == "shuffled":
            position = _pass_permutation(self.seed, self.source, passes, self.per_pass)[position]
        return ShardTurn(passes, *divmod(position, self.split))

    def last_turn(self, slot: int, passes: int) -> int:
        """The slot's last turn in a pass, the one before the first of the next; with replacement there is none."""
        if self.kind == "resampled":
            return _NEVER
        end = (passes + 1) * self.per_pass
        turn = (end - 1) // self.slots
        return turn if self._number(slot, turn) < end else turn - 1

    def passes_at(self, slot: int, turn: int) -> int:
        """The pass that the slot's turn belongs to; with replacement there is only one, as it never completes."""
        return 0 if self.kind == "resampled" else self._number(slot, turn) // self.per_pass

    def _number(self, slot: int, turn: int) -> int:
        """The entry that the slot takes at a turn: in each round, the slots take the next entries, one each."""
        begin = turn * self.slots
        if self.kind == "sequential" and begin >= self.per_pass:
            # Any regular change could fall in step with the slots.
            moved = random64(key64(self.seed, "dealing", self.source), begin // self.per_pass)
            slot = (slot + moved) % self.slots
        return begin + slot


_NEVER = 1 << 62


@lru_cache(maxsize=256)
def _pass_permutation(seed: int, source: str, passes: int, n: int) -> Permutation:
    return Permutation(key64(seed, "order", source, passes), n)
