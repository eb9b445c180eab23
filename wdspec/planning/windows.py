"""Batches by cost: how the samples of a window, which are consecutive samples of a slot, are grouped into batches.

    costs     9 2 5 7 1 4 | 3 8 …        a window; windows are independent of each other
    sorted    9 | 7 | 5 4 | 2 1          padded, `max_cost: 9`: a batch costs n × its largest sample
    packed    9 | 7 2 | 5 4 | 1          packed: a batch costs the sum

Everything here is a pure function of the costs, so each slot plans independently, and a window that is read again gets
the same plan. A plan lists the places of samples in the window. The order of batches depends on the seed, the slot and
the window, because training on batches sorted by cost would be biased.

Cutting the sorted window needs no bucket boundaries, and no plan has fewer batches: the batch of the largest sample can
hold the next largest ones instead of its others, which makes no batch cost more, so its number of samples is all that
matters, and the rest follows by induction. What is left unused is due to whole samples: two of .4 fit into 1.

Packing is best-fit decreasing (Johnson, 1973), which needs at most 11/9 of the optimal number of packs. With windows of
1,000 samples, packs are 1% less full than without windows.

If a window has copies of samples, it is divided into parts without copies, which all have the same mixture:

    samples   a b c d a b c e a b        a and b occur three times: 3 parts
    parts     a c | b a d c | b a e b    one after the other, and a batch may continue in the next part
              0     1         2

Sorting puts copies side by side, so batches of a whole window would have many of them. Batches that end with their part
would be up to 12 points less full for five passes in a window of 1,000 samples, and up to 27 points for a source of 50
samples in a mix; those that continue are up to 4 and 6 points less full where padded, and as full as before elsewhere.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, repeat
from operator import add, gt, itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import key64, random64_array
from wdspec.spec.language.batch import Batch

Floats = npt.NDArray[np.float64]
Places = Sequence[int]
"""The places in the window of the samples of a batch, ascending."""

_ROUNDING = 1e-9
"""Sums of costs may exceed a limit by this fraction of it, to allow for rounding."""
_INTEGERS = 2.0**60
"""Integers up to this, and differences of them, have 64 bits."""
_AHEAD = 256
"""Turns whose random numbers are drawn together."""
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class WindowRules:
    """The limits of a batch."""

    max_cost: float = float("inf")
    padded: bool = True
    """Whether the cost of a batch is n × its largest sample. Otherwise, it is the sum."""
    max_size: int | None = None
    size_multiple: int = 1
    """Batches of at least this size are cut to a multiple of it."""
    limits: tuple[float, ...] = ()
    """The largest sum of each further cost in a batch."""
    in_order: bool = False
    """Whether to group samples in the order of reading. Otherwise, each is put where it fits best."""

    @property
    def capacity(self) -> float:
        """`max_cost`, with room for rounding errors."""
        return self.max_cost * (1 + _ROUNDING)

    @property
    def most_sums(self) -> list[float]:
        """`limits`, with room for rounding errors."""
        return [limit * (1 + _ROUNDING) for limit in self.limits]

    def fits(self, size: int, largest: float, total: float, sums: Sequence[float]) -> bool:
        """Whether a batch of this size, with this largest cost and these sums, is within the limits."""
        cost = size * largest if self.padded else total
        return (
            cost <= self.capacity
            and (self.max_size is None or size <= self.max_size)
            and not any(map(gt, sums, self.most_sums))
        )

    def whole(self, size: int) -> int:
        """Round a size down to a multiple of `size_multiple`; smaller sizes stay."""
        return size - size % self.size_multiple if size > self.size_multiple else size


def rules_of(batch: Batch) -> WindowRules:
    """Return the limits of a batch."""
    pack, most = batch.pack, batch.limit
    return WindowRules(
        float("inf") if most is None else most,
        batch.padded and pack is None,
        batch.size or batch.max_size,
        batch.size_multiple,
        tuple(batch.limits.values()),
        pack is not None and pack.method == "in_order",
    )


Piece = tuple[int, int, int]
"""(place of a sample in the window, start, stop): a part of a sample, in units of its cost."""


class Copies(NamedTuple):
    """Which samples of a window are copies of each other, and its parts, none of which has a sample twice."""

    part_count: int
    """The number of parts: that of the copies of some sample, while no sample has more."""
    names: list[int]
    """The number of each sample, which is the same for its copies."""
    parts: npt.NDArray[np.int64]
    """The part that each sample is in."""

    def take(self, places: Places) -> Copies:
        """Return those of the samples at some places, in the same parts."""
        return Copies(self.part_count, [self.names[at] for at in places], self.parts[list(places)])

    def split(self) -> list[npt.NDArray[np.int64]]:
        """Return the places of the samples of each part."""
        ends = np.cumsum(np.bincount(self.parts, minlength=self.part_count))
        return np.split(np.argsort(self.parts, kind="stable"), ends[:-1])


def find_copies(names: Sequence[Hashable]) -> Copies | None:
    """Return which samples of a window have the same name, and divide it; None without copies.

    The copies of the i-th different sample are in the parts i, i + 1, … mod n, so that all parts have equal numbers of
    each source.
    """
    if len(set(names)) == len(names):
        return None
    numbers: dict[Hashable, int] = {}
    own = [numbers.setdefault(name, len(numbers)) for name in names]
    count = max(Counter(own).values())
    following, parts = list(range(len(numbers))), []
    for number in own:
        parts.append(following[number] % count)
        following[number] += 1
    return Copies(count, own, np.array(parts))


def plan_batches(
    costs: Floats, sums: Floats, batch: Batch, copies: Copies | None = None
) -> tuple[list[Piece] | None, list[Places]]:
    """Group the samples of a window into batches as a spec says. Only `overlong: alone` allows samples over the limits.

    Args:
        costs: the cost of each sample, above 0, shape (n,).
        sums: the further costs of each sample, shape (n, number of limits).
        batch: the keys of `batch`.
        copies: the samples that occur several times, which no batch has twice.

    Returns:
        The pieces into which the samples are cut, None if none is cut; and the places of the samples, or else of the
        pieces, of each batch.
    """
    rules, most = rules_of(batch), batch.limit
    if batch.cuts_samples and most is not None:
        pack, lengths = batch.pack, costs.astype(np.int64).tolist()
        if pack is not None and pack.method == "concatenate":
            rows = (
                _concatenate(lengths, int(most))
                if copies is None
                else _join_parts(lengths, int(most), copies)
            )
            stops = list(accumulate(map(len, rows), initial=0))
            return [piece for row in rows for piece in row], [range(*ends) for ends in pairwise(stops)]
        if max(lengths, default=0) > most:
            if batch.overlong == "truncate":
                pieces = [(place, 0, min(length, int(most))) for place, length in enumerate(lengths)]
            else:
                pieces = _cut_long(lengths, int(most))
            cut = np.array([stop - start for _, start, stop in pieces], dtype=np.float64)
            of_pieces = copies and copies.take([place for place, _, _ in pieces])
            return pieces, plan_window(cut, np.zeros((len(pieces), 0)), rules, of_pieces)
    if batch.overlong != "alone":
        return None, plan_window(costs, sums, rules, copies)
    limits = np.array(rules.limits) * (1 + _ROUNDING)
    is_long = (costs > rules.capacity) | (sums > limits).any(axis=1)
    whole, long = np.flatnonzero(~is_long).tolist(), np.flatnonzero(is_long).tolist()
    planned = plan_window(costs[whole], sums[whole], rules, copies and copies.take(whole))
    return None, [*([whole[at] for at in places] for places in planned), *([place] for place in long)]


def plan_window(
    costs: Floats, sums: Floats, rules: WindowRules, copies: Copies | None = None
) -> list[Places]:
    """Group the samples of a window into batches. Each single sample must be within the limits.

    Args:
        costs: the cost of each sample, above 0, shape (n,).
        sums: the further costs of each sample, shape (n, number of limits).
        rules: the limits.
        copies: the samples that occur several times.
    """
    if not rules.in_order and not rules.padded:
        return _fit_best(costs, sums, rules, copies)
    return _cut(costs, sums, rules) if copies is None else _fill_parts(costs, sums, rules, copies)


def _cut(costs: Floats, sums: Floats, rules: WindowRules) -> list[Places]:
    """Cut the samples, in order or sorted, into batches that are as large as the limits allow."""
    count = len(costs)
    order = np.arange(count) if rules.in_order else np.argsort(-costs, kind="stable")
    largest, most, capacity = costs[order].tolist(), rules.max_size or count, rules.capacity
    limited = list(zip(sums.T, rules.limits, strict=True))
    if not rules.padded:
        limited, capacity = [*limited, (costs, rules.max_cost)], float("inf")
    totals = [
        (np.concatenate([[0.0], np.cumsum(column[order])]).tolist(), limit * (1 + _ROUNDING))
        for column, limit in limited
    ]
    starts = [0]
    while (start := starts[-1]) < count:
        stop = start + int(min(capacity / largest[start], most))
        for total, limit in totals:
            stop = min(stop, bisect_right(total, total[start] + limit) - 1)
        starts.append(start + rules.whole(max(1, min(stop, count) - start)))
    numbers = np.empty(count, np.int32 if count >> 15 else np.int16)  # int16 is sorted in linear time
    numbers[order] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    places = np.argsort(numbers, kind="stable").tolist()
    return [places[start:stop] for start, stop in pairwise(starts)]


def _fit_best(costs: Floats, sums: Floats, rules: WindowRules, copies: Copies | None) -> list[Places]:
    """Put each sample, the largest first, into the batch that it fills best. No batch has copies of a sample."""
    count, most = len(costs), rules.max_size
    capacity, whole = min(rules.capacity, float(costs.sum()) + 1), costs.astype(np.int64)
    # Fractions become numbers of parts that `_ROUNDING` allows for.
    if capacity * count > _INTEGERS or (whole != costs).any():
        parts = _INTEGERS // count
        capacity, whole = parts, np.rint(costs * (parts / capacity)).astype(np.int64)
    empty, spent = int(capacity) * count, (whole * count).tolist()
    room: list[int] = []
    """For each open batch, ascending: its remaining capacity times `count`, plus its number."""
    batches: list[list[int]] = []
    limits = [limit * (1 + _ROUNDING) for limit in rules.limits]
    further = sums.tolist() if limits else []
    totals: list[list[float]] = []
    names: Sequence[int] = () if copies is None else copies.names
    has: list[set[int]] = []
    """For each batch, its samples, if there are copies."""
    first: list[int] = []
    """For each batch, the part in which it was begun."""

    def takes(number: int, place: int) -> bool:
        is_there = names and names[place] in has[number]
        return not is_there and not (limits and any(map(gt, _add(totals[number], further[place]), limits)))

    for part, places in enumerate([np.arange(count)] if copies is None else copies.split()):
        room = [each for each in room if first[each % count] >= part - 1]
        for place in places[np.argsort(-costs[places], kind="stable")].tolist():
            cost = spent[place]
            at = bisect_left(room, cost)
            while at < len(room) and (limits or names) and not takes(room[at] % count, place):
                at += 1
            if at < len(room):
                left = room.pop(at) - cost
                number = left % count
                batches[number].append(place)
            else:
                number = len(batches)
                left = empty - cost + number
                batches.append([place])
                totals.append([0.0] * len(limits))
                has.append(set())
                first.append(part)
            if names:
                has[number].add(names[place])
            if limits:
                totals[number] = _add(totals[number], further[place])
            if most is None or len(batches[number]) < most:
                insort(room, left)
    return [sorted(batch) for batch in batches]


def _add(sums: Sequence[float], more: Sequence[float]) -> list[float]:
    return list(map(add, sums, more))


def _cut_long(lengths: Sequence[int], length: int) -> list[Piece]:
    """Cut samples into pieces of `length`; the last piece of a sample may be shorter."""
    return [
        (place, start, min(start + length, whole))
        for place, whole in enumerate(lengths)
        for start in range(0, whole, length)
    ]


def _concatenate(lengths: Sequence[int], length: int) -> list[list[Piece]]:
    """Join all samples and cut the result into rows of `length`; the last row may be shorter."""
    rows: list[list[Piece]] = []
    left = 0
    for place, whole in enumerate(lengths):
        start = 0
        while start < whole:
            if not left:
                rows.append([])
                left = length
            stop = min(whole, start + left)
            rows[-1].append((place, start, stop))
            left -= stop - start
            start = stop
    return rows


Entry = tuple[Any, ...]
"""A sample to put into a batch: its cost, its further costs, and whatever the caller adds."""
_NAME = itemgetter(2)
"""What the copies of a sample have in common, in a window with copies."""


class _OpenBatch:
    """A batch that is being filled, and then the next one.

    Args:
        rules: the limits.
        name_of: returns the same for copies of a sample; None if there are none.
    """

    def __init__(self, rules: WindowRules, name_of: Callable[[Entry], Hashable] | None) -> None:
        self._rules, self._name_of = rules, name_of
        self._is_by_size = rules.max_cost == float("inf") and not rules.limits
        self._start([])

    def _start(self, rest: Iterable[Entry]) -> None:
        self.entries: list[Entry] = []
        self.names: set[Hashable] = set()
        """The names of these samples, if there are copies."""
        self._largest: float = 0
        self._total: float = 0
        self._sums: Sequence[float] = ()
        for entry in rest:
            self.put(entry, None if self._name_of is None else self._name_of(entry))

    def put(self, entry: Entry, name: Hashable) -> bool:
        """Take a sample if it fits, or if it is the first one. Return whether it was taken."""
        entries = self.entries
        if self._is_by_size:
            if len(entries) == self._rules.max_size:
                return False
        else:
            cost, sums = entry[0], entry[1]
            largest, total = max(self._largest, cost), self._total + cost
            if entries:
                sums = _add(self._sums, sums)
                if not self._rules.fits(len(entries) + 1, largest, total, sums):
                    return False
            self._largest, self._total, self._sums = largest, total, sums
        self.entries.append(entry)
        if name is not None:
            self.names.add(name)
        return True

    @property
    def is_full(self) -> bool:
        """Whether no sample fits, if that does not depend on what it costs."""
        return False

    def close(self) -> list[Entry]:
        """Return the samples, cut to a multiple of `size_multiple`; the others start the next batch."""
        entries, size = self.entries, self._rules.whole(len(self.entries))
        self._start(entries[size:])
        return entries[:size]


class _OpenRow(_OpenBatch):
    """A row that is being filled, and then the next one, in which a sample that does not fit continues.

    The last value of an entry says where it starts in the sample.
    """

    @property
    def is_full(self) -> bool:
        """Whether no sample fits."""
        return self._total >= self._rules.max_cost

    def put(self, entry: Entry, name: Hashable) -> bool:
        """Take a sample, or the start of it that fits. Return whether the row has room for that."""
        if self.is_full:
            return False
        self._total += entry[0]
        self.entries.append(entry)
        self.names.add(name)
        return True

    def close(self) -> list[Entry]:
        """Return the samples; what is left of the last one starts the next row."""
        row, over, rest = self.entries, self._total - self._rules.max_cost, []
        if over > 0:
            size, *more, start = row.pop()
            row.append((size - over, *more, start))
            rest.append((over, *more, start + size - over))
        self._start(rest)
        return row


def _fill(batch: _OpenBatch, parts: Sequence[Iterable[Entry]]) -> list[list[Entry]]:
    """Offer each batch the next samples that it does not have. Those that it leaves out are next for the one after it.

    A batch that still has room at the end of a part continues in the next one, but not further: then it has all samples
    that are there. So few samples are left out, however many copies there are.

    Args:
        batch: the first batch, which is empty.
        parts: none of them has a sample twice.
    """
    filled, left = [], deque[Entry]()
    for number, part in enumerate(parts, 1):
        left.extend(part)
        may_continue = number < len(parts) and not batch.entries
        while left or batch.entries:
            skipped = []
            while left:
                name = _NAME(left[0])
                if name in batch.names:
                    skipped.append(left.popleft())
                elif batch.put(left[0], name):
                    left.popleft()
                else:
                    break
            if not left and may_continue and not batch.is_full:
                left.extend(skipped)
                break
            filled.append(batch.close())
            left.extendleft(reversed(skipped))
            may_continue = number < len(parts)
    return filled


def _fill_parts(costs: Floats, sums: Floats, rules: WindowRules, copies: Copies) -> list[Places]:
    """Fill one batch after the other, with the samples of one part after the other.

    Padded batches take the largest samples of a part first, and the smallest ones of the next, so that a batch that
    continues there has similar ones.
    """
    parts = copies.split()
    if not rules.in_order:
        for number, part in enumerate(parts):
            ascending = costs[part] if number % 2 else -costs[part]
            parts[number] = part[np.argsort(ascending, kind="stable")]
    entries = list(zip(costs.tolist(), sums.tolist(), copies.names, range(len(costs)), strict=True))
    batches = _fill(_OpenBatch(rules, _NAME), [[entries[at] for at in part.tolist()] for part in parts])
    return [sorted(entry[3] for entry in batch) for batch in batches]


def _join_parts(lengths: Sequence[int], length: int, copies: Copies) -> list[list[Piece]]:
    """Join all samples, one part after the other, and cut the result into rows without copies."""
    entries = list(zip(lengths, repeat(()), copies.names, range(len(lengths)), repeat(0), strict=False))
    row = _OpenRow(WindowRules(length, padded=False), _NAME)
    rows = _fill(row, [[entries[at] for at in part.tolist()] for part in copies.split()])
    return [sorted((place, start, start + size) for size, _, _, place, start in row) for row in rows]


def permute(count: int, key: int) -> list[int]:
    """Return the numbers 0..count-1 in a random order."""
    order: list[int] = np.argsort(random64_array(key, 0, count), kind="stable").tolist()
    return order


def balance(sums: Sequence[float], turn: int) -> list[int]:
    """Return the numbers of batches in an order in which all slots yield batches of similar weight at the same turn.

    At turn t, each slot yields the remaining batch whose weight is nearest to the quantile ½ + 0.618·t mod 1 of its
    window. All slots therefore yield heavy batches at the same time, without communication.

    Args:
        sums: the weight of each batch.
        turn: the slot's turn at which the window starts.
    """
    ranked = sorted(sums)
    left = sorted((weight, number) for number, weight in enumerate(sums))
    order = []
    for t in range(turn, turn + len(ranked)):
        wanted = ranked[int((0.5 + _GOLDEN * t) % 1 * len(ranked))]
        at = bisect_left(left, (wanted, -1))
        if at == len(left) or (at and wanted - left[at - 1][0] <= left[at][0] - wanted):
            at -= 1
        order.append(left.pop(at)[1])
    return order


def gather_groups(
    samples: Iterable[Entry],
    rules: WindowRules,
    incomplete: str,
    drop: Callable[[list[Entry]], object],
    ahead: int = 0,
    key: int = 0,
    turn: int = 0,
    name_of: Callable[[Entry], Hashable] | None = None,
) -> Iterator[list[Entry]]:
    """Yield batches of samples with the same value, and finally the incomplete ones.

    Samples are read ahead, so that there are full batches of several values to choose from. At each turn, the value v
    with the least -log(u) / w is chosen, where u is a random number that only depends on the key, the turn and v, and
    w is what the samples of v have cost so far. Thus v is chosen with probability w / Σw, and slots with similar data
    choose the same one at the same turn, without communication (weighted rendezvous hashing).

    Args:
        samples: the samples.
        rules: the limits.
        incomplete: what to do with incomplete batches: `keep`, `merge` (batches of several values, in the order of the
            values), or `drop`.
        drop: called with the samples that are dropped.
        ahead: the number of samples to hold; more if they do not fill a batch.
        key: decides the choices, the same in all slots that take turns together.
        turn: the turn of the first batch.
        name_of: returns the same for copies of a sample, which no batch has twice; None if there are no copies.
    """
    groups: dict[Hashable, _Group] = {}
    filled: dict[Hashable, _Group] = {}
    """The groups that have a full batch."""
    held = 0

    def choose() -> list[Entry]:
        value = min(filled, key=lambda value: filled[value].wait(turn))
        group = filled[value]
        batch = group.full.popleft()
        if not group.full:
            del filled[value]
        return batch

    left = iter(samples)
    while read := list(islice(left, max(1, ahead - held))):
        held += len(read)
        for entry in read:
            cost, value = entry[0], entry[3]
            try:
                group = groups[value]
            except KeyError:
                group = groups[value] = _Group(key64(key, *map(str, _rank(value))), rules, name_of)
            group.weight += cost
            if group.take(entry):
                filled[value] = group
        if filled and held >= ahead:
            batch = choose()
            held -= len(batch)
            yield batch
            turn += 1
    while filled:
        yield choose()
        turn += 1
    rest = [batch for value in sorted(groups, key=_rank) for batch in groups[value].open]
    if incomplete == "drop":
        drop([entry for batch in rest for entry in batch.entries])
        return
    if incomplete == "merge":
        merged = _Group(0, rules, name_of)
        for entry in (entry for batch in rest for entry in batch.entries):
            merged.take(entry)
        yield from merged.full
        rest = merged.open
    for last in rest:
        while last.entries:
            yield last.close()


class _Group:
    """The samples of a value: full batches, and those that are being filled: several if there are copies.

    Args:
        key: decides when the value is chosen.
        rules: the limits of batches.
        name_of: returns the same for copies of a sample.
    """

    def __init__(
        self, key: int, rules: WindowRules, name_of: Callable[[Entry], Hashable] | None = None
    ) -> None:
        self.open: list[_OpenBatch] = []
        self._begun = 0
        self._numbers: list[int] = []
        """The numbers of the open batches, in the order in which they were begun."""
        self._with: dict[Hashable, int] = {}
        """Name of a sample -> a number. All open batches below it have the sample."""
        self.full: deque[list[Entry]] = deque()
        self.weight = 0.0
        """What all samples of the value have cost so far."""
        self._key, self._rules, self._name_of = key, rules, name_of
        self._first = -1
        self._waits: list[float] = []

    def take(self, entry: Entry) -> bool:
        """Put a sample into the first batch that does not have it; return whether batches were filled."""
        name = None if self._name_of is None else self._name_of(entry)
        at = bisect_left(self._numbers, self._with.get(name, 0))
        while at < len(self.open) and name in self.open[at].names:
            at += 1
        if at == len(self.open):
            self.open.append(_OpenBatch(self._rules, self._name_of))
            self._numbers.append(self._begun)
            self._begun += 1
        batch, before = self.open[at], len(self.full)
        while not batch.put(entry, name):
            self._close(at)
        if name is not None:
            self._with[name] = self._numbers[at] + 1
        if len(batch.entries) == self._rules.max_size:
            self._close(at)
            if not batch.entries:
                del self.open[at], self._numbers[at]
        return len(self.full) > before

    def _close(self, at: int) -> None:
        """Close an open batch. Its samples may join it again."""
        closed = self.open[at].close()
        self.full.append(closed)
        if self._name_of is not None:
            for name in map(self._name_of, closed):
                self._with[name] = min(self._with[name], self._numbers[at])

    def wait(self, turn: int) -> float:
        """Return -log(u) / w of a turn."""
        at = turn - self._first
        if not 0 <= at < len(self._waits):
            self._first, at = turn, 0
            numbers = (random64_array(self._key, turn, _AHEAD) >> np.uint64(11)) * 2.0**-53
            self._waits = (-np.log1p(-numbers)).tolist()
        return self._waits[at] / self.weight


_MOST_BITS = 10_000
"""Of an integer that is written in decimal. Python limits these to 4,300 digits."""


def _rank(value: Hashable) -> tuple[int, float, str]:
    """Sort key: numbers by value, then everything else, and integers that no float can hold, by its text."""
    if isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max):
        return 0, float(value), ""
    is_long = isinstance(value, int) and value.bit_length() > _MOST_BITS
    return 1, 0.0, f"{value:x}" if is_long else str(value)
