"""In which order a slot reads the shards of a source, and in which order their samples are yielded.

**Shard order**: the endless sequence of shards of one source, dealt to the slots like cards.

    entries:   0 1 2 3 4 5 | 6 7 8 9 …      pass p is one permutation of the source's n shards, keyed by
    slots:     0 1 2 3 0 1 | 2 3 0 1 …      (seed, source, p); slot s takes the entries s, s+S, s+2S, …

Every entry is dealt exactly once, so no shard of a pass is read twice or missed, whatever n and S are. In each pass of
`sequential` the slots take turns in a different order, or a slot would read the same shards forever. With fewer shards
than slots, each shard counts as f = ⌈S/n⌉ *virtual shards*: the samples whose index in the shard is ≡ r (mod f). So two
slots never read the same samples at the same time.

**Delays** shuffle the samples of a source in a slot. Raw sample i is released at r(i) = i + d(i).

    i:     0   1   2   3   4   5   6 …     d(i) is exponential, cut at three times its mean, and drawn from a key
    d(i):  3.2 0.4 5.9 0.1 2.8 …           of i; with the cut its mean is N
    r(i):  3.2 1.4 7.9 3.1 6.8 …
    yields:      1       3 0         4 2 …   in the order of r (of i for equal r)

Once the samples before i are read, all those with r < i can be released: no later one is released before them. So
- N samples are held on average. The first one is yielded after about √N, and none waits for more than 3.6 N others.
- The samples yielded so far are { i : (r(i), i) ≤ (r(l), l) } for the last one, l. A position is the place of the
  oldest sample not yet yielded, its ordinal, and l. A resume reads at most 3.6 N samples again.
- Samples that are dropped after they were read do not move any other.

A reservoir of N has geometric delays of mean N, and shuffles as well, but what it holds depends on everything before.

Everything is integers, in units of 2⁻²⁰ samples, so that all machines agree: the logarithm is a table, and delays are
drawn uniformly between its entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import UInt64Array, key64, keys64, mix64, random64, random64_array, random64_at

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


Releases = npt.NDArray[np.int64]
"""When samples come out, in 2⁻²⁰ samples read, by ordinal."""

SMALLEST = 16
LARGEST = 1 << 40
_ORDERED = 1 << 14
"""Samples whose order is computed at a time, at most, unless a block is larger."""
"""More samples than anyone holds; beyond, releases would not fit into 64 bits."""
_BITS = 20
_PIECES = 256
_CUT = 3
_MEAN = 1 - _CUT / math.expm1(_CUT)
_TABLE = np.array(
    [round(-math.log1p(n / _PIECES * math.expm1(-_CUT)) / _MEAN * (1 << _BITS)) for n in range(_PIECES + 1)],
    dtype=np.int64,
)
"""Quantiles of the delay for N = 1; rounded, so that the last bits of a library's logarithm do not matter."""
_STEPS = np.diff(_TABLE)


class Stretch(NamedTuple):
    """Samples that were in progress when a source's numbers changed: they finish as they started."""

    until: int
    """Ordinal of the first sample with the next numbers."""
    size: int
    """N until then."""
    lanes: int
    """Shards read in turn until then."""


@dataclass(frozen=True)
class Delays:
    """The delays of one source, for all slots."""

    seed: int
    source: str
    size: int
    """N: samples held on average; 1 means that samples come in the order of reading."""

    @property
    def block(self) -> int:
        """Samples read at a time: about N / 4, a power of two. Reading many of a lane in one go suits caches."""
        return max(SMALLEST, 1 << max(0, (self.size // 3).bit_length() - 1))

    @property
    def most_held(self) -> int:
        """Samples held at most, except once in millions of blocks: N, a block, and five standard deviations."""
        return 0 if self.size == 1 else self.size + self.block + math.ceil(5 * math.sqrt(self.size / 2))

    @property
    def order_bytes(self) -> int:
        """Bytes that a slot needs to order a block, besides the samples; 0 for sizes for which they are below 1 MB."""
        return 48 * self.block if self.block > _ORDERED else 0

    @property
    def longest(self) -> int:
        """Most samples that a sample waits for, which is also what resuming reads again: 3.56 N."""
        return 0 if self.size == 1 else (int(_TABLE[-1]) * self.size >> _BITS) + 1

    def held_after(self, read: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Samples held on average after `read` samples of the pass, any shape: up to N."""
        mean = self.size / _MEAN
        far = np.minimum(read, _CUT * mean)
        share: npt.NDArray[np.float64] = (
            -np.expm1(-far / mean) * mean - far * math.exp(-_CUT)
        ) / -math.expm1(-_CUT)
        return share

    def key(self, slot: int) -> int:
        """The key of a slot's delays."""
        return key64(self.seed, "delay", self.source, slot)

    def releases(self, key: int, first: int, count: int, stretches: Sequence[Stretch] = ()) -> Releases:
        """r of the samples first..first+count-1, shape (count,).

        Args:
            key: of the slot.
            stretches: where other sizes apply, ascending.
        """
        delays = _unit_delays(random64_array(key, first, count))
        sizes: Releases | int = _factor(self.size)
        if stretches:
            sizes = np.full(count, sizes, dtype=np.int64)
            for stretch in reversed(stretches):
                sizes[: max(0, stretch.until - first)] = _factor(stretch.size)
        releases: Releases = (np.arange(first, first + count, dtype=np.int64) << _BITS) + sizes * delays
        return releases

    def given(self, key: int, count: int, total: int) -> tuple[int, int]:
        """(ordinal of the oldest sample not yet out, that of the last one out) after `count` of `total` samples.

        The last one is -1 where none is out. It comes out between count - 1 and count + 3.6 N: all samples further back
        are out, and none after it is.
        """
        if not count:
            return 0, -1
        reach = self.longest + 2
        first = max(0, count - reach)
        releases = self.releases(key, first, min(total, count + reach) - first)
        order = first + np.argsort(releases, kind="stable")
        out, rest = order[: count - first], order[count - first :]
        return int(rest.min()) if len(rest) else count, int(out[-1])

    def count_out(self, slots: Sequence[int], first: Releases, last: Releases, end: Releases) -> Releases:
        """How many samples from `first` on came out, for many slots at once, shape (slots,); no stretches.

        Args:
            slots: their numbers.
            first: for each slot, an ordinal before which all samples are out.
            last: ordinals of the samples that came out last, at least 0.
            end: ordinals at which the slots' passes end; 0 where they do not end yet.

        Raises:
            ValueError: `last` is further from `first` than samples are held.
        """
        keys = keys64(self.seed, "delay", self.source, last=slots)
        releases = (last << _BITS) + _factor(self.size) * _unit_delays(random64_at(keys, last))
        reach = int(((releases >> _BITS) + 1 - first).max(initial=0))
        if reach > 4 * (self.longest + self.block):  # no state of ours reaches a quarter so far
            raise ValueError(f"a sample came out {reach} samples behind one that was still held")
        counts, rows = np.zeros(len(keys), dtype=np.int64), max(1, (1 << 18) // max(reach, 1))
        for at in range(0, len(keys), rows):
            part = np.s_[at : at + rows, None]
            ordinals = first[part] + np.arange(reach)
            found = (ordinals << _BITS) + _factor(self.size) * _unit_delays(random64_at(keys[part], ordinals))
            is_out = (found < releases[part]) | ((found == releases[part]) & (ordinals <= last[part]))
            is_out &= (ordinals < end[part]) | (end[part] == 0)
            counts[at : at + rows] = is_out.sum(axis=1)
        return counts

    def next_free(self, key: int, last: int, stretches: Sequence[Stretch] = ()) -> int:
        """The first ordinal whose delay may still change after sample `last` came out: none from there on is out."""
        return int(self.releases(key, last, 1, stretches)[0] >> _BITS) + 1


class ReleaseOrder:
    """The samples of one slot in the order in which they come out, asked for as reading proceeds.

    Args:
        delays: of the source.
        key: of the slot's delays.
        first: ordinal of the first sample to be read.
        last: ordinal of the sample that came out last; -1: none did.
        stretches: where other sizes apply, ascending.
    """

    def __init__(
        self, delays: Delays, key: int, first: int, last: int = -1, stretches: Sequence[Stretch] = ()
    ) -> None:
        self._delays, self._key, self._stretches = delays, key, stretches
        self._computed = first
        # Of the samples up to `_computed` that are not out yet: the next ones in order, and those after these.
        self._ordinals = self._releases = np.empty(0, dtype=np.int64)
        self._later = self._ordinals, self._releases
        self._at = 0
        self.out: set[int] = set()
        """Samples from the first one on that are out already."""
        if last >= 0:
            (release,) = delays.releases(key, last, 1, stretches)
            reach = max(int(release >> _BITS) + 1 - first, 0)
            releases = delays.releases(key, first, reach, stretches)
            ordinals = np.arange(first, first + reach)
            is_out = (releases < release) | ((releases == release) & (ordinals <= last))
            self.out = set(ordinals[is_out].tolist())
            self._computed += reach
            self._sort(ordinals[~is_out], releases[~is_out])

    def upto(self, ordinal: int) -> list[int]:
        """The samples that come out now that all before the ordinal are read, in order."""
        while self._computed < ordinal:
            self._compute()
        stop = int(self._releases.searchsorted(ordinal << _BITS))
        start, self._at = self._at, max(stop, self._at)
        found: list[int] = self._ordinals[start : self._at].tolist()
        return found

    def rest(self, end: int) -> list[int]:
        """All remaining samples, in order, where the one before the ordinal was the last to be read."""
        while self._computed < end:
            self._compute()
        ordinals = np.concatenate([self._ordinals[self._at :], self._later[0]])
        releases = np.concatenate([self._releases[self._at :], self._later[1]])
        left = ordinals < end
        ordinals, releases = ordinals[left], releases[left]
        found: list[int] = ordinals[np.lexsort((ordinals, releases))].tolist()
        return found

    def _compute(self) -> None:
        """Order what comes out up to the next ordinals, many at a time: numpy's cost per call is then small."""
        first, count = self._computed, max(512, min(64 * self._delays.block, _ORDERED), self._delays.block)
        self._computed += count
        drawn = self._delays.releases(self._key, first, count, self._stretches)
        ordinals = np.concatenate([self._later[0], np.arange(first, first + count)])
        releases = np.concatenate([self._later[1], drawn])
        self._sort(ordinals, releases)

    def _sort(self, ordinals: Releases, releases: Releases) -> None:
        """Append those that come out before the first one not yet computed to those that are sorted."""
        now = releases < self._computed << _BITS
        self._later = ordinals[~now], releases[~now]
        ordinals, releases = ordinals[now], releases[now]
        order = np.argsort(releases, kind="stable")  # and by ordinal, since they are ascending
        self._ordinals = np.concatenate([self._ordinals[self._at :], ordinals[order]])
        self._releases = np.concatenate([self._releases[self._at :], releases[order]])
        self._at = 0


def _unit_delays(drawn: UInt64Array) -> Releases:
    """The delays for N = 1 that 64-bit numbers draw, shape kept."""
    piece = (drawn >> np.uint64(56)).astype(np.intp)
    part = (drawn >> np.uint64(24) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    delays: Releases = _TABLE[piece] + (_STEPS[piece] * part >> 32)
    return delays


def shuffle_size(shuffle: int, share: Fraction) -> int:
    """N of a source: its part of a slot's `shuffle` samples, so that a slot holds about `shuffle` in all.

    At least 16, or all of a smaller `shuffle`; 0 and 1 switch shuffling off.
    """
    if shuffle <= 1:
        return 1
    return min(LARGEST, max(min(SMALLEST, shuffle), round(shuffle * share)))


def lanes_of(interleave: int, share: Fraction) -> int:
    """How many shards of a source a slot reads in turn: its part of the slot's `interleave`, at least 1."""
    return max(1, round(interleave * share))


def _factor(size: int) -> int:
    return size if size > 1 else 0
