"""Shard order: the endless sequence of shards of one source, dealt to the slots like cards.

    entries:   0 1 2 3 4 5 | 6 7 8 9 …      pass p is one permutation of the source's n shards, keyed by
    slots:     0 1 2 3 0 1 | 2 3 0 1 …      (seed, source, p); slot s takes the entries s, s+S, s+2S, …

Every entry is dealt exactly once, so no shard of a pass is read twice or missed, whatever n and S are.
With fewer shards than slots each shard counts as f = ⌈S/n⌉ *virtual shards*: the samples whose index in the
shard is ≡ r (mod f). So no two slots ever read the same samples at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from wdspec.planning.keys import key64, random64
from wdspec.planning.permutation import Permutation


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

    @property
    def most_empty_turns(self) -> int:
        """Entries a slot may read in a row without one sample before the source counts as empty.

        One pass of the slot, but at least what makes a false alarm impossible in practice: a shard list may
        hold empty shards, and a shard of q < f samples leaves most of its virtual shards empty (each turn
        then finds one with probability q/f, so 32·f turns all miss with probability e⁻³²). With replacement a
        turn finds the one good shard of n with probability 1/n.
        """
        if self.kind == "resampled":
            return 32 * min(self.shards, 64)
        if self.split > 1:
            return 32 * self.split
        return min(self.shards, max(-(-self.shards // self.slots), 64))

    def entry(self, slot: int, turn: int) -> ShardTurn:
        """What slot s reads at its turn-th turn (0, 1, …)."""
        number = slot + turn * self.slots
        passes, position = divmod(number, self.per_pass)
        if self.kind == "resampled":
            pick = random64(key64(self.seed, "resampled", self.source), number) * self.shards >> 64
            return ShardTurn(passes, pick, 0)
        if self.kind == "shuffled":
            position = _pass_permutation(self.seed, self.source, passes, self.per_pass)[position]
            return ShardTurn(passes, *divmod(position, self.split))
        shard, residue = divmod(position, self.split)
        # From the second pass on the parts of the shards move by a number drawn for each pass, or a slot would read
        # the same part of a shard for ever; any regular move can fall in step with the slots.
        move = random64(key64(self.seed, "parts", self.source), passes) if passes else 0
        return ShardTurn(passes, shard, (residue + move) % self.split)

    def last_turn(self, slot: int, passes: int) -> int:
        """The slot's last turn in a pass; its first one is that of the pass before, plus 1."""
        return ((passes + 1) * self.per_pass - 1 - slot) // self.slots

    def passes_at(self, slot: int, turn: int) -> int:
        """The pass that the slot's turn belongs to."""
        return (slot + turn * self.slots) // self.per_pass


@lru_cache(maxsize=256)
def _pass_permutation(seed: int, source: str, passes: int, n: int) -> Permutation:
    return Permutation(key64(seed, "order", source, passes), n)
