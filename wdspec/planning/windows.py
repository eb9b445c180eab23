"""Batches by cost: how the samples of a window, which are consecutive samples of a slot, are grouped into batches.

    costs     9 2 5 7 1 4 | 3 8 …        a window; windows are independent of each other
    sorted    9 | 7 | 5 4 | 2 1          padded, `max_cost: 9`: a batch costs n × its largest sample
    packed    9 | 7 2 | 5 4 | 1          packed: a batch costs the sum

Everything here is a pure function of the costs, so each slot plans independently, and a window that is read again gets
the same plan. A plan lists the places of samples in the window. The order of batches depends on the seed, the slot and
the window, because training on batches sorted by cost would be biased.

Cutting the sorted window is next-fit over decreasing sizes and needs no bucket boundaries. Packing is best-fit
decreasing (Johnson, 1973), which needs at most 11/9 of the optimal number of packs. With windows of 1,000 samples,
packs are 1 % less full than without windows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wdspec.planning.keys import random64_array

Floats = npt.NDArray[np.float64]
Batch = list[int]
"""Places of samples in the window, ascending."""

_ROUNDING = 1e-9
"""Sums of costs may exceed a limit by this fraction of it, to allow for rounding."""
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


def plan_window(costs: Floats, sums: Floats, rules: WindowRules) -> list[Batch]:
    """Group the samples of a window into batches. Each single sample must be within the limits.

    Args:
        costs: the cost of each sample, above 0, shape (n,).
        sums: the further costs of each sample, shape (n, number of limits).
        rules: the limits.
    """
    if rules.in_order:
        return _fit_in_order(costs, sums, rules)
    return _cut_sorted(costs, sums, rules) if rules.padded else _fit_best(costs, sums, rules)


def _cut_sorted(costs: Floats, sums: Floats, rules: WindowRules) -> list[Batch]:
    order = np.argsort(-costs, kind="stable")
    sorted_costs = costs[order]
    ends = np.full(len(costs), len(costs))
    if rules.max_size is not None:
        ends = np.minimum(ends, np.arange(len(costs)) + rules.max_size)
    if rules.max_cost < float("inf"):
        sizes = np.floor(rules.capacity / sorted_costs)
        ends = np.minimum(ends, np.arange(len(costs)) + np.minimum(sizes, len(costs)).astype(np.int64))
    for number, limit in enumerate(rules.limits):
        totals = np.concatenate([[0.0], np.cumsum(sums[order, number])])
        reached = np.searchsorted(totals, totals[:-1] + limit * (1 + _ROUNDING), side="right") - 1
        ends = np.minimum(ends, reached)
    stops, places = ends.tolist(), order.tolist()
    batches, start = [], 0
    while start < len(places):
        stop = start + rules.whole(max(1, stops[start] - start))
        batches.append(sorted(places[start:stop]))
        start = stop
    return batches


def _fit_in_order(costs: Floats, sums: Floats, rules: WindowRules) -> list[Batch]:
    batches: list[Batch] = []
    open_ = _Open()
    for place, (cost, more) in enumerate(zip(costs.tolist(), sums.tolist(), strict=True)):
        if open_.places and not open_.takes(cost, more, rules):
            size = rules.whole(len(open_.places))
            batches.append(open_.places[:size])
            rest, open_ = open_.places[size:], _Open()
            for each in rest:
                open_.add(each, costs[each], sums[each].tolist())
        open_.add(place, cost, more)
    if open_.places:
        size = rules.whole(len(open_.places))
        batches += [part for part in (open_.places[:size], open_.places[size:]) if part]
    return batches


class _Open:
    """A batch that is being filled."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.largest = self.total = 0.0
        self.sums: list[float] = []

    def takes(self, cost: float, sums: Sequence[float], rules: WindowRules) -> bool:
        more = [a + b for a, b in zip(self.sums, sums, strict=True)] if self.sums else sums
        return rules.fits(len(self.places) + 1, max(self.largest, cost), self.total + cost, more)

    def add(self, place: int, cost: float, sums: Sequence[float]) -> None:
        self.places.append(place)
        self.largest, self.total = max(self.largest, cost), self.total + cost
        self.sums = [a + b for a, b in zip(self.sums, sums, strict=True)] if self.sums else list(sums)


def _fit_best(costs: Floats, sums: Floats, rules: WindowRules) -> list[Batch]:
    capacity, most = rules.capacity, rules.max_size or len(costs)
    batches: list[Batch] = []
    totals: list[list[float]] = []
    room: list[tuple[float, int]] = []
    """The remaining capacity of each open batch, ascending, and the number of the batch."""
    listed, limits = costs.tolist(), [limit * (1 + _ROUNDING) for limit in rules.limits]
    further = sums.tolist() if limits else []
    for place in np.argsort(-costs, kind="stable").tolist():
        cost = listed[place]
        at = bisect_left(room, (cost, -1))
        if limits:
            more = further[place]
            while at < len(room) and any(
                a + b > limit for a, b, limit in zip(totals[room[at][1]], more, limits, strict=True)
            ):
                at += 1
        if at < len(room):
            left, number = room.pop(at)
            batches[number].append(place)
        else:
            left, number = capacity, len(batches)
            batches.append([place])
            totals.append([0.0] * len(limits))
        if limits:
            totals[number] = [a + b for a, b in zip(totals[number], further[place], strict=True)]
        if len(batches[number]) < most:
            insort(room, (left - cost, number))
    return [sorted(batch) for batch in batches]


Piece = tuple[int, int, int]
"""(place of a sample in the window, start, stop): a part of a sample, in units of its cost."""


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


def gather_groups(
    samples: Iterable[tuple[Hashable, float, Sequence[float]]],
    rules: WindowRules,
    incomplete: str,
    drop: Callable[[Batch], object],
) -> Iterator[Batch]:
    """Yield batches of samples with the same value, each as soon as it is full, and finally the incomplete ones.

    Args:
        samples: the value, the cost and the further costs of each sample.
        rules: the limits.
        incomplete: what to do with incomplete batches: `keep`, `merge` (batches of several values, in the order of the
            values), or `drop`.
        drop: called with the samples that are dropped.
    """
    groups: dict[Hashable, _Open] = {}
    is_by_size = rules.max_cost == float("inf") and not rules.limits
    seen: list[tuple[float, Sequence[float]]] = []
    for place, (value, cost, sums) in enumerate(samples):
        seen.append((cost, sums))
        group = groups.get(value) or groups.setdefault(value, _Open())
        if not is_by_size and group.places and not group.takes(cost, sums, rules):
            yield from _take_whole(groups, value, rules, seen)
            group = groups.setdefault(value, _Open())
        if is_by_size:
            group.places.append(place)
        else:
            group.add(place, cost, sums)
        if rules.max_size is not None and len(group.places) == rules.max_size:
            yield from _take_whole(groups, value, rules, seen)
    rest = [groups[value].places for value in sorted(groups, key=_rank)]
    if incomplete == "drop":
        drop([place for places in rest for place in places])
    elif incomplete == "keep":
        yield from rest
    else:
        merged = _Open()
        for place in (place for places in rest for place in places):
            if merged.places and not merged.takes(*seen[place], rules):
                yield sorted(merged.places)
                merged = _Open()
            merged.add(place, *seen[place])
        if merged.places:
            yield sorted(merged.places)


def _take_whole(
    groups: dict[Hashable, _Open],
    value: Hashable,
    rules: WindowRules,
    seen: Sequence[tuple[float, Sequence[float]]],
) -> Iterator[Batch]:
    """Yield the batch of a group, cut to a multiple of `size_multiple`. The remaining samples start the next batch."""
    places = groups.pop(value).places
    size = rules.whole(len(places))
    yield places[:size]
    for place in places[size:]:
        groups.setdefault(value, _Open()).add(place, *seen[place])


def _rank(value: Hashable) -> tuple[int, float, str]:
    """Sort key: numbers by value, then everything else by its text."""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))
