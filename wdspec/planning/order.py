"""The order in which a slot reads the shards of a source, and the order in which it yields their samples.

**Shard order**: the endless sequence of shards of one source, distributed over the slots like cards.

    entries:   0 1 2 3 4 5 | 6 7 8 9 …      pass p is one permutation of the source's n shards, keyed by
    slots:     0 1 2 3 0 1 | 2 3 0 1 …      (seed, source, p); slot s takes the entries s, s+S, s+2S, …

Every entry is taken exactly once, so no shard of a pass is read twice or missed, for any n and S. With `sequential`,
the slots take turns in a different order in each pass; otherwise, a slot could read the same shards forever. If there
are fewer shards than slots, each shard counts as f = ⌈S/n⌉ *virtual shards*: the samples whose index in the shard is
≡ r (mod f). So two slots never read the same samples at the same time.

**Delays** shuffle the samples of a source in a slot. Raw sample i is released at r(i) = i + d(i).

    i:     0   1   2   3   4   5   6 …     d(i) is random (keyed by i), exponential, cut at three times the mean
    d(i):  3.2 0.4 5.9 0.1 2.8 …           of the uncut distribution; after the cut, its mean is N
    r(i):  3.2 1.4 7.9 3.1 6.8 …
    yields:      1       3 0         4 2 …   in the order of r (of i for equal r)

Once the samples before i are read, all samples with r < i can be released, since no later sample precedes them. So:
- N samples are held on average. The first one is yielded after about √N samples, and none waits for more than 3.6 N.
- The samples yielded so far are { i : (r(i), i) ≤ (r(l), l) }, where l is the last one. A position is the place and
  ordinal of the oldest sample not yet yielded, and l. A resume reads at most 3.6 N samples again.
- A sample that is dropped after reading does not move any other sample.

A reservoir of N samples has geometric delays of mean N and shuffles as well, but its contents depend on all samples
before.

All numbers are integers in units of 2⁻²⁰ samples, so that all machines agree. The logarithm is a table, and delays are
interpolated linearly between its entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import UInt64Array, key64, keys64, mix64, random64, random64_array, random64_at

SORTED_UP_TO = 4096
"""Up to this length, a permutation is a sort by random keys (exactly uniform). Longer ones use a Feistel network: its
parity and the bias of its round function would be visible for a handful of shards, but are negligible at this size."""
_ROUNDS = 7


def permutation(key: int, n: int) -> npt.NDArray[np.intp]:
    """Return a permutation of range(n), shape (n,): the order of n keyed random numbers.

    It is uniform, except for ties, which have a probability of 2⁻⁶⁴ per pair.
    """
    return np.argsort(random64_array(key, 0, n), kind="stable")


class Permutation:
    """A permutation of range(n), n ≥ 1, chosen by key. Computing ``p[i]`` takes O(1) time and memory for any n.

    For large n, this is a balanced Feistel network over the next even power of two (an even number of bits), repeated
    until the result is inside range(n). This cycle walking keeps it a bijection and takes fewer than 4 steps on
    average.
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
    """One turn of a slot at a source: the shard, the part of it, and the pass."""

    passes: int
    """p: earlier passes over the source."""
    shard: int
    """Index into the source's shard list."""
    residue: int
    """The turn reads the samples of the shard with index ≡ residue (mod `ShardOrder.split`)."""


@dataclass(frozen=True)
class ShardOrder:
    """The order of one source's shards, for all slots; O(1) per entry in time and memory."""

    seed: int
    source: str
    shards: int
    slots: int
    kind: str = "shuffled"
    """`shuffled`: a new permutation in each pass; `resampled`: with replacement; `sequential`: as listed."""
    split: int = field(init=False)
    """f: virtual shards per shard; 1 unless there are fewer shards than slots. With `resampled`, always 1."""

    def __post_init__(self) -> None:
        split = 1 if self.kind == "resampled" else -(-self.slots // self.shards)
        object.__setattr__(self, "split", split)

    @property
    def per_pass(self) -> int:
        """Number of entries in one pass: n·f."""
        return self.shards * self.split

    def entry(self, slot: int, turn: int) -> ShardTurn:
        """Return what slot s reads at a turn (0, 1, …)."""
        number = self._number(slot, turn)
        passes, position = divmod(number, self.per_pass)
        if self.kind == "resampled":
            pick = random64(key64(self.seed, "resampled", self.source), number) * self.shards >> 64
            return ShardTurn(passes, pick, 0)
        if self.kind == "shuffled":
            position = _pass_permutation(self.seed, self.source, passes, self.per_pass)[position]
        return ShardTurn(passes, *divmod(position, self.split))

    def last_turn(self, slot: int, passes: int) -> int:
        """Return the slot's last turn before the next pass. With replacement, passes never end."""
        if self.kind == "resampled":
            return _NEVER
        end = (passes + 1) * self.per_pass
        turn = (end - 1) // self.slots
        return turn if self._number(slot, turn) < end else turn - 1

    def passes_at(self, slot: int, turn: int) -> int:
        """Return the pass that the slot's turn belongs to; with replacement, always 0, since it never ends."""
        return 0 if self.kind == "resampled" else self._number(slot, turn) // self.per_pass

    def reading(self, slot: int, turn: int) -> int:
        """Return a number that is another one each time that the same part of a shard is read: mostly the pass."""
        return self._number(slot, turn) // (1 if self.kind == "resampled" else self.per_pass)

    def _number(self, slot: int, turn: int) -> int:
        """Return the entry that the slot takes at a turn. In each turn, the slots take the next S entries, one each."""
        begin = turn * self.slots
        if self.kind == "sequential" and begin >= self.per_pass:
            # The change is random because a regular one could coincide with the number of slots.
            moved = random64(key64(self.seed, "dealing", self.source), begin // self.per_pass)
            slot = (slot + moved) % self.slots
        return begin + slot


_NEVER = 1 << 62


@lru_cache(maxsize=256)
def _pass_permutation(seed: int, source: str, passes: int, n: int) -> Permutation:
    return Permutation(key64(seed, "order", source, passes), n)


Releases = npt.NDArray[np.int64]
"""r of samples by ordinal, in units of 2⁻²⁰ samples."""

SMALLEST = 16
LARGEST = 1 << 40
"""Larger than any real buffer. With larger ones, releases would not fit into 64 bits."""
_ORDERED = 1 << 14
"""Maximum number of samples whose order is computed at a time, unless a block is larger."""
_LEAST_SORTED = 128
"""Number of samples whose order is computed at a time for a source that is one of many."""
_BITS = 20
_PIECES = 256
_CUT = 3
_MEAN = 1 - _CUT / math.expm1(_CUT)
_TABLE = np.array(
    [round(-math.log1p(n / _PIECES * math.expm1(-_CUT)) / _MEAN * (1 << _BITS)) for n in range(_PIECES + 1)],
    dtype=np.int64,
)
"""Quantiles of the delay for N = 1, rounded so that the last bits of a library's logarithm do not matter."""
_STEPS = np.diff(_TABLE)


class Stretch(NamedTuple):
    """Samples in progress when `size` or `lanes` of a source changed. They keep the old values."""

    until: int
    """Ordinal of the first sample with the next values."""
    size: int
    """N of these samples."""
    lanes: int
    """Number of shards read in turn for these samples."""


@dataclass(frozen=True)
class Delays:
    """The delays of one source, for all slots."""

    seed: int
    source: str
    size: int
    """N: samples held on average. With 1, samples are yielded in the order of reading."""

    @property
    def block(self) -> int:
        """Samples read at a time: about N / 4, a power of two. Long reads from one lane make good use of CPU caches."""
        return max(SMALLEST, 1 << max(0, (self.size // 3).bit_length() - 1))

    @property
    def order_bytes(self) -> int:
        """Bytes that a slot needs to order a block, besides the samples; 0 if they are below 1 MB."""
        return 48 * self.block if self.block > _ORDERED else 0

    @property
    def longest(self) -> int:
        """Largest number of samples that a sample waits for, 3.56 N. Resuming reads at most as many again."""
        return 0 if self.size == 1 else (int(_TABLE[-1]) * self.size >> _BITS) + 1

    def held_after(self, read: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the mean number of samples held after `read` samples of the pass, at most N. The shape stays."""
        mean = self.size / _MEAN
        far = np.minimum(read, _CUT * mean)
        share: npt.NDArray[np.float64] = (
            -np.expm1(-far / mean) * mean - far * math.exp(-_CUT)
        ) / -math.expm1(-_CUT)
        return share

    def key(self, slot: int) -> int:
        """Return the key of a slot's delays."""
        return key64(self.seed, "delay", self.source, slot)

    def releases(self, key: int, first: int, count: int, stretches: Sequence[Stretch] = ()) -> Releases:
        """Return r of the samples first..first+count-1, shape (count,).

        Args:
            key: the key of the slot's delays.
            stretches: earlier samples with other sizes, ascending.
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
        """Return (oldest sample not yet yielded, last sample yielded) after `count` of `total` samples, as ordinals.

        The last one is -1 if none was yielded. Only samples within 3.6 N of `count` need to be compared: all samples
        before this range were yielded, and none after it.
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
        """Count the samples yielded from `first` on for many slots at once, shape (slots,), without stretches.

        Args:
            slots: the numbers of the slots.
            first: for each slot, an ordinal before which all samples were yielded.
            last: for each slot, the ordinal of the sample yielded last, at least 0.
            end: for each slot, the ordinal at which its pass ends, or 0 if it has not ended.

        Raises:
            ValueError: `last` is too far after `first`: no sample is held for so long.
        """
        keys = keys64(self.seed, "delay", self.source, last=slots)
        releases = (last << _BITS) + _factor(self.size) * _unit_delays(random64_at(keys, last))
        reach = int(((releases >> _BITS) + 1 - first).max(initial=0))
        if reach > 4 * (self.longest + self.block):  # at least four times what a correct state can have
            raise ValueError(f"a sample was yielded {reach} samples after one that was still held")
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
        """Return the first ordinal whose delay may change after sample `last`: no sample from there on was yielded."""
        return int(self.releases(key, last, 1, stretches)[0] >> _BITS) + 1


class ReleaseOrder:
    """The samples of one slot in the order in which they are yielded, computed as reading proceeds.

    Args:
        delays: the delays of the source.
        key: the key of the slot's delays.
        first: ordinal of the first sample to read.
        last: ordinal of the sample yielded last, or -1 if none was.
        stretches: earlier samples with other sizes, ascending.
    """

    def __init__(
        self, delays: Delays, key: int, first: int, last: int = -1, stretches: Sequence[Stretch] = ()
    ) -> None:
        self._delays, self._key, self._stretches = delays, key, stretches
        self._first = self._computed = first
        # Samples before `_computed` that were not yielded yet: the next ones, sorted; then later ones, not yet sorted.
        self._ordinals = self._releases = np.empty(0, dtype=np.int64)
        self._later = self._ordinals, self._releases
        self._at = 0
        self.out: set[int] = set()
        """Samples from the first one on that were already yielded."""
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
        """Return the samples to yield once all samples before the ordinal are read, in order."""
        while self._computed < ordinal:
            self._compute()
        stop = int(self._releases.searchsorted(ordinal << _BITS))
        start, self._at = self._at, max(stop, self._at)
        found: list[int] = self._ordinals[start : self._at].tolist()
        return found

    def runs(self) -> Iterator[list[int]]:
        """Yield all samples that follow, in order and without end, many at a time."""
        while True:
            while self._at == len(self._ordinals):
                self._compute(_LEAST_SORTED)
            found: list[int] = self._ordinals[self._at :].tolist()
            self._at = len(self._ordinals)
            yield found

    def sort(self, ordinals: Sequence[int]) -> list[int]:
        """Return ascending samples in the order in which they are yielded."""
        if not ordinals:
            return []
        first = ordinals[0]
        releases = self._delays.releases(self._key, first, ordinals[-1] + 1 - first, self._stretches)
        found: list[int] = np.array(ordinals)[
            np.argsort(releases[np.array(ordinals) - first], kind="stable")
        ].tolist()
        return found

    def rest(self, end: int) -> list[int]:
        """Return all remaining samples before the ordinal, in order, at the end of a pass."""
        while self._computed < end:
            self._compute()
        ordinals = np.concatenate([self._ordinals[self._at :], self._later[0]])
        releases = np.concatenate([self._releases[self._at :], self._later[1]])
        left = ordinals < end
        ordinals, releases = ordinals[left], releases[left]
        found: list[int] = ordinals[np.lexsort((ordinals, releases))].tolist()
        return found

    def _compute(self, least: int = 512) -> None:
        """Sort the samples up to the next ordinals, many at a time, so that numpy's overhead per call is small.

        At the start of a pass, some at a time: it may have few samples.
        """
        first, block = self._computed, self._delays.block
        count = max(least, min(least // 8 * block, _ORDERED), block)
        count = min(count, max(block, 4 * (first - self._first)))
        self._computed += count
        drawn = self._delays.releases(self._key, first, count, self._stretches)
        ordinals = np.concatenate([self._later[0], np.arange(first, first + count)])
        releases = np.concatenate([self._later[1], drawn])
        self._sort(ordinals, releases)

    def _sort(self, ordinals: Releases, releases: Releases) -> None:
        """Append the samples that are yielded before the first one not yet computed to the sorted ones."""
        now = releases < self._computed << _BITS
        self._later = ordinals[~now], releases[~now]
        ordinals, releases = ordinals[now], releases[now]
        order = np.argsort(releases, kind="stable")  # ties by ordinal, since ordinals are ascending
        self._ordinals = np.concatenate([self._ordinals[self._at :], ordinals[order]])
        self._releases = np.concatenate([self._releases[self._at :], releases[order]])
        self._at = 0


def _unit_delays(drawn: UInt64Array) -> Releases:
    """Convert random 64-bit numbers to delays for N = 1; the shape stays."""
    piece = (drawn >> np.uint64(56)).astype(np.intp)
    part = (drawn >> np.uint64(24) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    delays: Releases = _TABLE[piece] + (_STEPS[piece] * part >> 32)
    return delays


def shuffle_size(shuffle: int, share: Fraction) -> int:
    """Return N of a source: its part of a slot's `shuffle`, so that a slot holds about `shuffle` samples in total.

    N is at least `least_held`, or `shuffle` if that is smaller. With 0 or 1, samples are not shuffled.
    """
    if shuffle <= 1:
        return 1
    size = round(shuffle * share)
    return min(LARGEST, size if size >= SMALLEST else max(min(least_held(share), shuffle), size))


def least_held(share: Fraction) -> int:
    """Return the least N of a source that is shuffled: 16, or fewer with a share of less than 0.4%, but at least 2.

    Thousands of sources would hold far more than `shuffle` together if each had 16. With 2, the samples of a source are
    already in another order than that of its shard, between which the draws of all others lie.
    """
    return max(2, min(SMALLEST, round(4000 * share)))


def lanes_of(interleave: int, share: Fraction) -> int:
    """Return the number of shards of a source that a slot reads in turn: its part of `interleave`, at least 1."""
    return max(1, round(interleave * share))


def _factor(size: int) -> int:
    return size if size > 1 else 0
