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
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from operator import add, gt
from typing import Any

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

    def fits(self, size: int, largest: float, total: float, sums: Sequence[float]) -> bool:
        """Whether a batch of this size, with this largest cost and these sums, is within the limits."""
        cost = size * largest if self.padded else total
        return (
            cost <= self.capacity
            and (self.max_size is None or size <= self.max_size)
            and all(sum_ <= limit * (1 + _ROUNDING) for sum_, limit in zip(sums, self.limits, strict=True))
        )

    def whole(self, size: int) -> int:
        """Round a size down to a multiple of `size_multiple`; smaller sizes stay."""
        return size - size % self.size_multiple if size > self.size_multiple else size

    def cut(self, items: list[Any]) -> list[list[Any]]:
        """Cut the samples of a last batch to a multiple of `size_multiple`; the rest is another batch."""
        size = self.whole(len(items))
        return [part for part in (items[:size], items[size:]) if part]


def max_cost_of(batch: Batch) -> float | None:
    """Return the limit of a batch: by default, the length of a packed row."""
    return batch.pack.length if batch.max_cost is None and batch.pack else batch.max_cost


def rules_of(batch: Batch) -> WindowRules:
    """Return the limits of a batch."""
    pack, most = batch.pack, max_cost_of(batch)
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


def plan_batches(costs: Floats, sums: Floats, batch: Batch) -> tuple[list[Piece] | None, list[Places]]:
    """Group the samples of a window into batches as a spec says. Only `overlong: alone` allows samples over the limits.

    Returns:
        The pieces into which the samples are cut, None if none is cut; and the places of the samples, or else of the
        pieces, of each batch.
    """
    rules, most = rules_of(batch), max_cost_of(batch)
    if batch.cuts_samples and most is not None:
        pack, lengths = batch.pack, costs.astype(np.int64).tolist()
        if pack is not None and pack.method == "concatenate":
            rows = concatenate(lengths, int(most))
            stops = list(accumulate(map(len, rows), initial=0))
            return [piece for row in rows for piece in row], [range(*ends) for ends in pairwise(stops)]
        if max(lengths, default=0) > most:
            if batch.overlong == "truncate":
                pieces = [(place, 0, min(length, int(most))) for place, length in enumerate(lengths)]
            else:
                pieces = cut_long(lengths, int(most))
            cut = np.array([stop - start for _, start, stop in pieces], dtype=np.float64)
            return pieces, plan_window(cut, np.zeros((len(pieces), 0)), rules)
    if batch.overlong != "alone":
        return None, plan_window(costs, sums, rules)
    limits = np.array(rules.limits) * (1 + _ROUNDING)
    is_long = (costs > rules.capacity) | (sums > limits).any(axis=1)
    whole, long = np.flatnonzero(~is_long).tolist(), np.flatnonzero(is_long).tolist()
    planned = plan_window(costs[whole], sums[whole], rules)
    return None, [*([whole[at] for at in places] for places in planned), *([place] for place in long)]


def plan_window(costs: Floats, sums: Floats, rules: WindowRules) -> list[Places]:
    """Group the samples of a window into batches. Each single sample must be within the limits.

    Args:
        costs: the cost of each sample, above 0, shape (n,).
        sums: the further costs of each sample, shape (n, number of limits).
        rules: the limits.
    """
    if rules.in_order:
        return _fit_in_order(costs, sums, rules)
    return _cut_sorted(costs, sums, rules) if rules.padded else _fit_best(costs, sums, rules)


def _cut_sorted(costs: Floats, sums: Floats, rules: WindowRules) -> list[Places]:
    order = np.argsort(-costs, kind="stable")
    count, largest = len(order), costs[order].tolist()
    most, capacity = rules.max_size or count, rules.capacity
    totals = [np.concatenate([[0.0], np.cumsum(column[order])]).tolist() for column in sums.T]
    limits = [limit * (1 + _ROUNDING) for limit in rules.limits]
    starts = [0]
    while (start := starts[-1]) < count:
        stop = start + int(min(capacity / largest[start], most))
        for total, limit in zip(totals, limits, strict=True):
            stop = min(stop, bisect_right(total, total[start] + limit) - 1)
        starts.append(start + rules.whole(max(1, min(stop, count) - start)))
    numbers = np.empty(count, np.int32 if count >> 15 else np.int16)  # int16 is sorted in linear time
    numbers[order] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    places = np.argsort(numbers, kind="stable").tolist()
    return [places[start:stop] for start, stop in pairwise(starts)]


def _fit_in_order(costs: Floats, sums: Floats, rules: WindowRules) -> list[Places]:
    batches: list[Places] = []
    open_ = _Open()
    for place, (cost, more) in enumerate(zip(costs.tolist(), sums.tolist(), strict=True)):
        while open_.items and not open_.takes(cost, more, rules):
            size = rules.whole(len(open_.items))
            batches.append(open_.items[:size])
            rest, open_ = open_.items[size:], _Open()
            for each in rest:
                open_.add(each, costs[each], sums[each].tolist())
        open_.add(place, cost, more)
    return [*batches, *rules.cut(open_.items)]


class _Open:
    """A batch that is being filled."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.largest = self.total = 0.0
        self.sums: Sequence[float] = ()

    def takes(self, cost: float, sums: Sequence[float], rules: WindowRules) -> bool:
        more = [a + b for a, b in zip(self.sums, sums, strict=True)] if self.sums else sums
        return rules.fits(len(self.items) + 1, max(self.largest, cost), self.total + cost, more)

    def add(self, item: Any, cost: float, sums: Sequence[float]) -> None:
        self.items.append(item)
        self.largest, self.total = max(self.largest, cost), self.total + cost
        self.sums = [a + b for a, b in zip(self.sums, sums, strict=True)] if self.sums else sums


def _fit_best(costs: Floats, sums: Floats, rules: WindowRules) -> list[Places]:
    count, most = len(costs), rules.max_size
    capacity, whole = min(rules.capacity, float(costs.sum()) + 1), costs.astype(np.int64)
    if (
        capacity * count > _INTEGERS or (whole != costs).any()
    ):  # fractions, in parts that `_ROUNDING` allows for
        parts = _INTEGERS // count
        capacity, whole = parts, np.rint(costs * (parts / capacity)).astype(np.int64)
    empty, spent = int(capacity) * count, (whole * count).tolist()
    room: list[int] = []
    """For each open batch, ascending: its remaining capacity times `count`, plus its number."""
    batches: list[list[int]] = []
    limits = [limit * (1 + _ROUNDING) for limit in rules.limits]
    further = sums.tolist() if limits else []
    totals: list[list[float]] = []
    for place in np.argsort(-costs, kind="stable").tolist():
        cost = spent[place]
        at = bisect_left(room, cost)
        while (
            limits and at < len(room) and any(map(gt, _add(totals[room[at] % count], further[place]), limits))
        ):
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
        if limits:
            totals[number] = _add(totals[number], further[place])
        if most is None or len(batches[number]) < most:
            insort(room, left)
    return [sorted(batch) for batch in batches]


def _add(sums: Sequence[float], more: Sequence[float]) -> list[float]:
    return list(map(add, sums, more))


def cut_long(lengths: Sequence[int], length: int) -> list[Piece]:
    """Cut samples into pieces of `length`; the last piece of a sample may be shorter."""
    return [
        (place, start, min(start + length, whole))
        for place, whole in enumerate(lengths)
        for start in range(0, whole, length)
    ]


def concatenate(lengths: Sequence[int], length: int) -> list[list[Piece]]:
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


Entry = tuple[Any, ...]
"""A sample to group: its cost, its further costs, its weight, its value, and whatever the caller adds."""


def gather_groups(
    samples: Iterable[Entry],
    rules: WindowRules,
    incomplete: str,
    drop: Callable[[list[Entry]], object],
    ahead: int = 0,
    key: int = 0,
    turn: int = 0,
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
    """
    groups: dict[Hashable, _Group] = {}
    filled: dict[Hashable, _Group] = {}
    """The groups that have a full batch."""
    most, is_by_size, held = rules.max_size, rules.max_cost == float("inf") and not rules.limits, 0

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
                group = groups[value] = _Group(key64(key, *map(str, _rank(value))))
            group.weight += cost
            if is_by_size:
                group.items.append(entry)
            else:
                while group.items and not group.takes(cost, entry[1], rules):
                    group.close(rules)
                    filled[value] = group
                group.add(entry, cost, entry[1])
            if len(group.items) == most:
                group.close(rules)
                filled[value] = group
        if filled and held >= ahead:
            batch = choose()
            held -= len(batch)
            yield batch
            turn += 1
    while filled:
        yield choose()
        turn += 1
    rest = [groups[value].items for value in sorted(groups, key=_rank)]
    if incomplete == "drop":
        drop([entry for items in rest for entry in items])
    elif incomplete == "keep":
        for items in rest:
            yield from rules.cut(items)
    else:
        merged = _Group(0)
        for entry in (entry for items in rest for entry in items):
            while merged.items and not merged.takes(entry[0], entry[1], rules):
                merged.close(rules)
            merged.add(entry, entry[0], entry[1])
        yield from merged.full
        yield from rules.cut(merged.items)


class _Group(_Open):
    """The samples of a value: full batches, and one that is being filled.

    Args:
        key: decides when the value is chosen.
    """

    def __init__(self, key: int) -> None:
        super().__init__()
        self.full: deque[list[Entry]] = deque()
        self.weight = 0.0
        """What all samples of the value have cost so far."""
        self._key = key
        self._first = -1
        self._waits: list[float] = []

    def close(self, rules: WindowRules) -> None:
        """End the batch, cut to a multiple of `size_multiple`. The remaining samples start the next one."""
        size = rules.whole(len(self.items))
        self.full.append(self.items[:size])
        rest, self.items = self.items[size:], []
        self.largest, self.total, self.sums = 0.0, 0.0, ()
        for entry in rest:
            self.add(entry, entry[0], entry[1])

    def wait(self, turn: int) -> float:
        """Return -log(u) / w of a turn."""
        at = turn - self._first
        if not 0 <= at < len(self._waits):
            self._first, at = turn, 0
            numbers = (random64_array(self._key, turn, _AHEAD) >> np.uint64(11)) * 2.0**-53
            self._waits = (-np.log1p(-numbers)).tolist()
        return self._waits[at] / self.weight


def _rank(value: Hashable) -> tuple[int, float, str]:
    """Sort key: numbers by value, then everything else by its text."""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))
