"""How the samples of a window become batches, by brute force from the rules in docs/batches.md."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from wdspec.planning.keys import key64, random64, uniform

_SLACK = 1 + 1e-9


@dataclass
class Candidate:
    """A sample of a window: its cost, further costs, weight for `balance` and value of `group_by`."""

    cost: float
    sums: list[float]
    weight: float
    value: Any
    take: Any
    """The function that returns the sample, or None if it cannot be delivered."""
    reader: Any
    """The reader of its source."""
    cut: tuple[int, int, int] | None = None
    """(length of the whole sample, start, stop) of a part of it."""
    name: Any = None
    """What it has in common with its copies."""
    place: int = 0
    """Its place in a window with copies."""
    begun: Any = None
    """The model by which its section began."""
    again: Any = None
    """The function that returns what another reader makes of it; None if a stage has yielded it."""


class Rules:
    """The limits of a batch."""

    def __init__(self, batch):
        self.pack, self.batch = batch.pack, batch
        self.most = batch.max_cost or batch.max_tokens
        if self.most is None and batch.pack is not None:
            self.most = batch.pack.length
        self.is_padded = batch.padded and batch.pack is None
        self.max_size = batch.size or batch.max_size
        self.method = batch.pack.method if batch.pack is not None else None

    def fits(self, samples):
        """Whether samples fit into one batch."""
        if self.max_size is not None and len(samples) > self.max_size:
            return False
        costs = [each.cost for each in samples]
        cost = len(costs) * max(costs) if self.is_padded else sum(costs)
        if self.most is not None and cost > self.most * _SLACK:
            return False
        totals = [sum(column) for column in zip(*(each.sums for each in samples), strict=True)]
        return all(t <= limit * _SLACK for t, limit in zip(totals, self.batch.limits.values(), strict=True))

    def whole(self, samples):
        """Return how many of the samples a batch takes: a multiple of `size_multiple`, unless there are fewer."""
        size, multiple = len(samples), self.batch.size_multiple
        return size - size % multiple if size > multiple else size


def plan_window(samples, batch, key, turn):
    """Return the batches of a window of costs, in the order in which they are yielded."""
    rules = Rules(batch)
    batches = _make_batches(samples, rules)
    if batch.balance:
        order = _balance([sum(each.weight for each in members) for members in batches], turn)
    else:
        order = sorted(range(len(batches)), key=lambda number: (random64(key, number), number))
    return [batches[number] for number in order]


def _make_batches(samples, rules):
    batch, parts = rules.batch, _divide(samples)
    if batch.cuts_samples and rules.most is not None:
        most = int(rules.most)
        if rules.method == "concatenate":
            return _concatenate(samples, most) if parts is None else _concatenate_parts(parts, most)
        if any(int(each.cost) > rules.most for each in samples):
            if parts is not None:
                return _fill_parts([_cut_long(part, batch, most) for part in parts], rules)
            return _fill(_cut_long(samples, batch, most), rules)
    if batch.overlong != "alone":
        return _fill(samples, rules) if parts is None else _fill_parts(parts, rules)
    short, long = [], []
    for each in samples:
        (short if rules.fits([each]) else long).append(each)
    if parts is None:
        batches = _fill(short, rules)
    else:
        batches = _fill_parts([[each for each in part if rules.fits([each])] for part in parts], rules)
    return [*batches, *([each] for each in long)]


def _cut_long(samples, batch, most):
    pieces = []
    for each in samples:
        length = int(each.cost)
        if batch.overlong == "truncate":
            spans = [(0, min(length, most))]
        else:
            spans = [(start, min(start + most, length)) for start in range(0, length, most)]
        pieces += [_cut(each, *span) for span in spans]
    return pieces


def _divide(samples):
    """Return the parts of a window with copies, each in the order of the window; None without copies."""
    names = [each.name for each in samples]
    if None in names or len(set(names)) == len(names):
        return None
    different, count = list(dict.fromkeys(names)), max(Counter(names).values())
    parts: list[Any] = [[] for _ in range(count)]
    for at, each in enumerate(samples):
        each.place, copy = at, names[:at].count(each.name)
        parts[(different.index(each.name) + copy) % count].append(each)
    return parts


def _has(batch, sample):
    return any(each.name == sample.name for each in batch)


def _in_window_order(batch):
    return sorted(batch, key=lambda each: (each.place, each.cut or ()))


def _fill_parts(parts, rules):
    """Return the batches of the parts of a window, which are lists of samples or of pieces."""
    if rules.method != "in_order" and not rules.is_padded:
        return _fill_best_parts(parts, rules)
    batches, left, current, first = [], [], [], 0

    def is_full(each):
        return not rules.fits([*current, each])

    for number, part in enumerate(parts):
        if rules.method != "in_order":
            part = sorted(part, key=lambda each: each.cost if number % 2 else -each.cost)
        left = [*left, *part]
        while True:
            first = first if current else number
            at, skipped = 0, []
            while at < len(left) and (_has(current, left[at]) or not is_full(left[at])):
                (skipped if _has(current, left[at]) else current).append(left[at])
                at += 1
            is_at_end = at == len(left)
            if is_at_end and first == number and number + 1 < len(parts):
                left = skipped
                break
            size = rules.whole(current)
            left = [*current[size:], *skipped, *left[at:]]
            batches += [current[:size]] if current else []
            current = []
            if not left:
                break
    return [_in_window_order(batch) for batch in batches]


def _fill_best_parts(parts, rules):
    everything = [each for part in parts for each in part]
    if not everything:
        return []
    costs, capacity = _integers(everything, rules)
    batches: list[list[Any]] = []
    room: list[int] = []
    first: list[int] = []
    start = 0
    for number, part in enumerate(parts):
        for at in _by_size(part):
            sample, cost, best = part[at], costs[start + at], None
            for each, free in enumerate(room):
                is_open = first[each] >= number - 1 and not _has(batches[each], sample)
                if is_open and free >= cost and is_within_limits(rules, [*batches[each], sample]):
                    best = each if best is None or free < room[best] else best
            if best is None:
                best = len(batches)
                batches.append([])
                room.append(capacity)
                first.append(number)
            batches[best].append(sample)
            room[best] -= cost
        start += len(part)
    return [_in_window_order(batch) for batch in batches]


def _concatenate_parts(parts, most):
    rows: list[Any] = []
    left, row, room, first = [], [], most, 0
    for number, part in enumerate(parts):
        left = [*left, *part]
        while True:
            first = first if row else number
            at, skipped, is_cut = 0, [], False
            while at < len(left) and not is_cut:
                each = left[at]
                at += 1
                if _has(row, each):
                    skipped.append(each)
                    continue
                start, length = 0, int(each.cost)
                while start < length:
                    stop = min(length, start + room)
                    row.append(_cut(each, start, stop))
                    room -= stop - start
                    start = stop
                    if room == 0:
                        rows.append(row)
                        row, room, is_cut, first = [], most, True, number
            left = [*skipped, *left[at:]]
            if is_cut and (left or row):
                continue
            if first == number and number + 1 < len(parts):
                break
            rows += [row] if row else []
            row, room = [], most
            if not left:
                break
    return [_in_window_order(row) for row in rows]


def _cut(sample, start, stop):
    return replace(sample, cost=float(stop - start), cut=(int(sample.cost), start, stop))


def _concatenate(samples, most):
    rows: list[Any] = []
    left = 0
    for each in samples:
        start, length = 0, int(each.cost)
        while start < length:
            if left == 0:
                rows.append([])
                left = most
            stop = min(length, start + left)
            rows[-1].append(_cut(each, start, stop))
            left -= stop - start
            start = stop
    return rows


def _fill(samples, rules):
    if not samples:
        return []
    if rules.method == "in_order":
        return _fill_in_order(samples, rules)
    return _fill_sorted(samples, rules) if rules.is_padded else _fill_best(samples, rules)


def _fill_in_order(samples, rules):
    batches, current = [], []
    for each in samples:
        while current and not rules.fits([*current, each]):
            size = rules.whole(current)
            batches.append(current[:size])
            current = current[size:]
        current.append(each)
    while current:
        size = rules.whole(current)
        batches.append(current[:size])
        current = current[size:]
    return batches


def _by_size(samples):
    return sorted(range(len(samples)), key=lambda at: (-samples[at].cost, at))


def _fill_sorted(samples, rules):
    left, batches = _by_size(samples), []
    while left:
        size = 1
        while size < len(left) and rules.fits([samples[at] for at in left[: size + 1]]):
            size += 1
        size = rules.whole(left[:size])
        batches.append([samples[at] for at in sorted(left[:size])])
        left = left[size:]
    return batches


def _fill_best(samples, rules):
    costs, capacity = _integers(samples, rules)
    room: list[int] = []
    batches: list[list[int]] = []
    for at in _by_size(samples):
        best = None
        for number, free in enumerate(room):
            members = [samples[each] for each in batches[number]] + [samples[at]]
            is_within = is_within_limits(rules, members)
            if free >= costs[at] and is_within and (best is None or free < room[best]):
                best = number
        if best is None:
            best = len(room)
            room.append(capacity)
            batches.append([])
        room[best] -= costs[at]
        batches[best].append(at)
    return [[samples[at] for at in sorted(batch)] for batch in batches]


def _integers(samples, rules):
    """Return the costs of samples and the room of a batch as integers."""
    count = len(samples)
    total = sum(each.cost for each in samples)
    capacity = total + 1 if rules.most is None else min(rules.most * _SLACK, total + 1)
    costs = [int(each.cost) for each in samples]
    if capacity * count > 2**60 or any(cost != each.cost for cost, each in zip(costs, samples, strict=True)):
        parts = 2**60 // count
        costs = [round(each.cost * (parts / capacity)) for each in samples]
        capacity = parts
    return costs, int(capacity)


def is_within_limits(rules, members):
    """Whether samples are within `max_size` and `limits`, whatever they cost."""
    if rules.max_size is not None and len(members) > rules.max_size:
        return False
    totals = [sum(column) for column in zip(*(each.sums for each in members), strict=True)]
    return all(t <= limit * _SLACK for t, limit in zip(totals, rules.batch.limits.values(), strict=True))


def _balance(weights, turn):
    ranked, left, order = sorted(weights), sorted((weight, n) for n, weight in enumerate(weights)), []
    for t in range(turn, turn + len(weights)):
        wanted = ranked[int((0.5 + 0.6180339887498949 * t) % 1 * len(ranked))]
        above = [pair for pair in left if pair[0] >= wanted]
        below = [pair for pair in left if pair[0] < wanted]
        is_above = above and (not below or wanted - below[-1][0] > above[0][0] - wanted)
        chosen = above[0] if is_above else below[-1]
        left.remove(chosen)
        order.append(chosen[1])
    return order


def plan_groups(samples, batch, key, turn):
    """Return the batches of a section of groups, in the order in which they are yielded."""
    rules, ahead = Rules(batch), batch.window
    closed: dict[Any, list[Any]] = {}
    open_batches: dict[Any, list[Any]] = {}
    weights: dict[Any, float] = {}
    batches: list[Any] = []

    def count_samples():
        return sum(len(members) for of in (open_batches, closed) for each in of.values() for members in each)

    def give():
        def wait(value):
            number = uniform(key64(key, *map(str, _rank(value))), turn + len(batches))
            return -math.log1p(-number) / weights[value]

        ready = [value for value in closed if closed[value]]
        batches.append(closed[min(ready, key=wait)].pop(0))

    left = list(samples)
    while left:
        for _ in range(min(len(left), max(1, ahead - count_samples()))):
            each = left.pop(0)
            weights[each.value] = weights.get(each.value, 0.0) + each.cost
            _join(open_batches.setdefault(each.value, []), closed.setdefault(each.value, []), each, rules)
        if any(closed.values()) and count_samples() >= ahead:
            give()
    while any(closed.values()):
        give()
    rest = [members for value in sorted(open_batches, key=_rank) for members in open_batches[value]]
    if batch.incomplete == "keep":
        for members in rest:
            batches += _split_whole(members, rules)
    elif batch.incomplete == "merge":
        merged: list[Any] = []
        for each in [each for members in rest for each in members]:
            _join(merged, batches, each, rules)
        for members in merged:
            batches += _split_whole(members, rules)
    return batches


def _join(open_batches, closed, sample, rules):
    """Put a sample into an open batch; batches in which it does not fit, or that are full, are closed."""
    found = (
        at for at, members in enumerate(open_batches) if sample.name is None or not _has(members, sample)
    )
    at = next(found, len(open_batches))
    if at == len(open_batches):
        open_batches.append([])
    while open_batches[at] and not rules.fits([*open_batches[at], sample]):
        size = rules.whole(open_batches[at])
        closed.append(open_batches[at][:size])
        open_batches[at] = open_batches[at][size:]
    open_batches[at].append(sample)
    if len(open_batches[at]) == rules.max_size:
        size = rules.whole(open_batches[at])
        closed.append(open_batches[at][:size])
        open_batches[at] = open_batches[at][size:]
        if not open_batches[at]:
            del open_batches[at]


def _split_whole(members, rules):
    size = rules.whole(members)
    return [part for part in (members[:size], members[size:]) if part]


def _rank(value):
    if isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max):
        return 0, float(value), ""
    return 1, 0.0, str(value)
