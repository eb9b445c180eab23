"""The order of an epoch of a pass that reshuffles, after "Passes that reshuffle" in docs/order.md, with plain lists."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from wdspec.planning.keys import key64, random64
from wdspec.planning.order import Delays

_ONE = 1 << 64


@dataclass
class EpochSource:
    """A source of a pass."""

    name: str
    is_sequential: bool
    shards: int
    copies: list[list[int]]
    """For each copy, the number of the shard at each of its positions."""
    held: int
    """N."""
    width: int

    @property
    def size(self):
        """T."""
        return sum(map(len, self.copies))


def draw_tree(counts, first, number):
    """Return the draws first..first+number-1 of the tree of some numbers of draws, one after the other."""
    nodes = [(count, source, source) for source, count in enumerate(counts) if count]
    while len(nodes) > 1:
        nodes.sort(key=lambda node: node[:2])
        pair = sorted(nodes[:2], key=lambda node: node[1])
        whole = pair[0][0] + pair[1][0]
        nodes = [(whole, pair[0][1], [*pair, whole, 0]), *nodes[2:]]
    drawn = []
    for _ in range(first + number):
        node = nodes[0][2]
        while isinstance(node, list):
            left, right, whole, x = node
            node[3] += 1
            before, after = ((Fraction(each * left[0], whole) + Fraction(1, 2)) // 1 for each in (x, x + 1))
            node = (left if after > before else right)[2]
        drawn.append(node)
    return drawn[first:]


def count_left_out(sizes, left, start):
    """Return how many positions each source leaves out."""
    ends, total = [0], 0
    for size in sizes:
        total += size
        ends.append(total)
    points = [(number * _ONE + start) * total // (left * _ONE) for number in range(left)]
    return [sum(low <= point < high for point in points) for low, high in pairwise(ends)]


def list_epoch(seed, epoch, sources, topology, per_slot, batches, given):
    """Return rank, worker -> its batches in an epoch, each a list of (name of the source, position in it).

    Args:
        given: M'.
    """
    key, left, counts = _count(seed, epoch, sources, given)
    drawn = _deal(key, counts, topology, per_slot, batches, given)
    return _place(seed, epoch, sources, topology, left, drawn)


def list_windows(seed, epoch, sources, topology, window, given):
    """Return rank, worker -> its windows in an epoch, as `list_epoch` does the batches."""
    key, left, counts = _count(seed, epoch, sources, given)
    draws, drawn, slots = draw_tree(counts, random64(key, 1) % given, given), {}, topology.slots
    for c in range(topology.ranks):
        for k in range(topology.workers):
            s = topology.slot(c, k)
            own, windows = draws[s * given // slots : (s + 1) * given // slots], []
            for n in range(-(-len(own) // window)):
                each, order = sorted(own[n * window : (n + 1) * window]), key64(key, "batch order", s, n)
                mixed = sorted(range(len(each)), key=lambda t, order=order: random64(order, t))
                windows.append([each[t] for t in mixed])
            drawn[c, k] = windows
    return _place(seed, epoch, sources, topology, left, drawn)


def _count(seed, epoch, sources, given):
    """Return κ, and for each source how many positions are left out, and how many remain."""
    key, sizes = key64(seed, "epoch", epoch), [source.size for source in sources]
    left = (
        count_left_out(sizes, sum(sizes) - given, random64(key, 0))
        if sum(sizes) > given
        else [0] * len(sizes)
    )
    return key, left, [size - out for size, out in zip(sizes, left, strict=True)]


def _place(seed, epoch, sources, topology, left, drawn):
    """Return the batches (or windows) of all slots with positions in place of the draws."""
    found = {}
    slots = [(c, k) for c in range(topology.ranks) for k in range(topology.workers)]
    for number, source in enumerate(sources):
        wanted = [sum(batch.count(number) for batch in drawn[slot]) for slot in slots]
        parts = _divide(seed, epoch, source, left[number], wanted)
        for slot, part in zip(slots, parts, strict=True):
            found[slot, number] = iter(_read(seed, epoch, source, topology.slot(*slot), part))
    return {
        slot: [
            [(sources[number].name, next(found[slot, number])) for number in batch] for batch in drawn[slot]
        ]
        for slot in slots
    }


def _deal(key, counts, topology, per_slot, batches, given):
    """Return rank, worker -> the sources of the samples of its batches."""
    ranks, workers = topology.ranks, topology.workers
    draws = draw_tree(counts, random64(key, 1) % given, given)
    size = ranks * per_slot
    dealt = {(c, k): [] for c in range(ranks) for k in range(workers)}
    for batch in range(batches):
        turn, worker = divmod(batch, workers)
        chunk = batch
        if (turn + 1) * workers < batches:
            chunk = turn * workers + (worker + random64(key64(key, "rounds"), turn)) % workers
        hands = {c: [] for c in range(ranks)}
        for number, source in enumerate(sorted(draws[chunk * size : (chunk + 1) * size])):
            hands[(number + random64(key64(key, "deal"), batch)) % ranks].append(source)
        for c, hand in hands.items():
            order = key64(key, "batch order", c, batch)
            mixed = sorted(range(len(hand)), key=lambda t, order=order: random64(order, t))
            dealt[c, worker].append([hand[t] for t in mixed])
    return dealt


def _divide(seed, epoch, source, left, wanted):
    """Return for each slot what it reads of each copy: runs of positions."""
    key, slots, copies = key64(seed, "epoch", epoch), len(wanted), source.copies
    split = -(-slots // source.shards)
    pieces, before = [], 0  # (copy, piece, position)
    for copy, shards in enumerate(copies):
        numbers = list(range(source.shards * split))
        if not source.is_sequential:
            order = key64(seed, "order", source.name, epoch * len(copies) + copy)
            numbers.sort(key=lambda number, order=order: random64(order, number))
        for number in numbers:
            own = [before + at for at, shard in enumerate(shards) if shard == number // split]
            pieces += [(copy, number, position) for position in own[number % split :: split]]
        before += len(shards)
    low = random64(key64(key, "left out", source.name), 0) * (len(pieces) - left + 1) // _ONE
    kept = [(at, *each) for at, each in enumerate(pieces) if not low <= at < low + left]
    lists = [[each for each in kept if each[1] == copy] for copy in range(len(copies))]
    drawn = draw_tree([len(each) for each in lists], 0, len(kept)) if kept else []
    parts, start, taken = [], 0, [0] * len(copies)
    for number in wanted:
        part = []
        for copy, each in enumerate(lists):
            count = drawn[start : start + number].count(copy)
            runs, last = [], None
            for at, _, piece, position in each[taken[copy] : taken[copy] + count]:
                if last != (at - 1, piece):
                    runs.append([])
                runs[-1].append(position)
                last = at, piece
            part.append(runs)
            taken[copy] += count
        parts.append(part)
        start += number
    return parts


def _read(seed, epoch, source, slot, part):
    """Return the positions of a slot in the order in which it yields them."""
    found = []
    for copy, runs in enumerate(part):
        waiting = [list(run) for run in runs]
        lanes, read, at = waiting[: source.width], [], 0
        del waiting[: source.width]
        while lanes:
            at %= len(lanes)
            if not lanes[at]:
                if waiting:
                    lanes[at] = waiting.pop(0)
                else:
                    del lanes[at]
                    continue
            read.append(lanes[at].pop(0))
            at += 1
        delays = Delays(seed, source.name, source.held)
        key = key64(key64(seed, "delay", source.name, slot), "epoch", epoch, copy)
        releases = delays.releases(key, 0, len(read)).tolist()
        found += [read[i] for i in sorted(range(len(read)), key=lambda i, due=releases: (due[i], i))]
    return found
