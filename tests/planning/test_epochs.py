"""The arithmetic of a pass that reshuffles: exact sums, bounds, and places that follow from numbers alone."""

import dataclasses
import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.planning.draws import EvenSequence
from wdspec.planning.epochs import ExactDraws, ShuffledPass, replace_ended, seek, spread
from wdspec.planning.order import Delays
from wdspec.planning.passes import ShardCount, SourceCount
from wdspec.planning.topology import Topology


def draw_pass(rng, most=60):
    """A random pass that reshuffles."""
    topology = Topology(rng.randrange(1, 5), rng.randrange(1, 5))
    counts = []
    for _ in range(rng.randrange(1, 5)):
        lengths = [rng.randrange(most) for _ in range(rng.randrange(1, 9))]
        lengths[0] += 1
        counts.append(SourceCount.of(map(ShardCount, lengths), rng.randrange(1, 4)))
    samples, b = sum(count.samples for count in counts), rng.randrange(1, 6)
    if rng.random() < 0.3:
        samples = rng.randrange(1, samples + 1)
    size = topology.ranks * b
    batches = samples // size if rng.random() < 0.5 else -(-samples // size)
    if not batches:
        return draw_pass(rng, most)
    names = tuple("abcd"[: len(counts)])
    kinds = tuple(rng.choice(("shuffled", "sequential")) for _ in names)
    return ShuffledPass(tuple(counts), samples, batches, topology, b, rng.randrange(9), names, kinds)


def positions(finite, epoch, slot, source):
    """The positions of a source that a slot reads, in the order of the list."""
    split, count = finite.split(source), finite.counts[source]
    return [
        count.start(run.turn) + run.residue + at * split
        for runs in epoch.runs(slot, source)
        for run in runs
        for at in range(run.first, run.stop)
    ]


def all_slots(finite):
    topology = finite.topology
    return [(c, k, topology.slot(c, k)) for c in range(topology.ranks) for k in range(topology.workers)]


def test_copies_of_a_pass_share_the_plans_of_its_epochs():
    finite = draw_pass(random.Random(3))
    copies = [pickle.loads(pickle.dumps(finite)) for _ in range(8)]  # one for each thread
    for number in range(3):
        assert len({id(copy.epoch(number)) for copy in (finite, *copies)}) == 1
    other = dataclasses.replace(finite, seed=finite.seed + 1)
    assert other.epoch(0) is not finite.epoch(0)


@pytest.mark.parametrize("seed", range(60))
def test_the_slots_divide_the_positions_and_leave_out_as_many_as_the_epoch_does(seed):
    finite = draw_pass(random.Random(seed))
    for number in (0, 7):
        epoch, left_out = finite.epoch(number), 0
        for source, count in enumerate(finite.counts):
            read = [at for _, _, slot in all_slots(finite) for at in positions(finite, epoch, slot, source)]
            assert len(set(read)) == len(read)
            assert set(read) <= set(range(count.samples))
            left_out += count.samples - len(read)
        total = sum(count.samples for count in finite.counts)
        size = finite.topology.ranks * finite.per_slot
        assert total - left_out == min(finite.samples, finite.batches * size)


@pytest.mark.parametrize("seed", range(60))
def test_slots_draw_what_they_read_and_all_batches_but_the_last_are_full(seed):
    finite = draw_pass(random.Random(seed))
    epoch, b, workers = finite.epoch(3), finite.per_slot, finite.topology.workers
    last, real = finite.batches - 1, 0
    for rank, worker, slot in all_slots(finite):
        draws = epoch.draws(rank, worker)
        batches = draws.sources(0, 10**9)
        assert len(batches) == len(range(worker, finite.batches, workers))
        assert all(len(batch) == b for m, batch in enumerate(batches) if m * workers + worker != last)
        drawn = [source for batch in batches for source in batch]
        read = [len(positions(finite, epoch, slot, source)) for source in range(len(finite.counts))]
        assert [drawn.count(source) for source in range(len(read))] == read
        assert draws.given(len(batches)) == read
        middle = len(batches) // 2
        assert draws.sources(middle, 10**9) == batches[middle:]
        real += len(batches[-1]) if last % workers == worker else 0
    given = min(finite.samples, finite.batches * b * finite.topology.ranks)
    assert real == given - last * b * finite.topology.ranks


def deviations(finite, number):
    """The largest deviation in a global batch, of the job after any number of batches, and of a rank in a batch."""
    epoch, size = finite.epoch(number), finite.topology.ranks * finite.per_slot
    batches = np.diff(epoch._below, axis=1)
    given = batches.sum()
    shares = batches.sum(axis=0) / given
    in_batch = np.abs(batches - batches.sum(axis=1)[:, None] * shares).max()
    ahead = np.abs(np.cumsum(batches - batches.sum(axis=1)[:, None] * shares, axis=0)).max()
    assert np.all(batches.sum(axis=1)[:-1] == size)
    of_ranks = 0.0
    for rank, worker, _ in all_slots(finite):
        own = epoch.draws(rank, worker)._counts
        equal = batches[worker :: finite.topology.workers] / finite.topology.ranks
        of_ranks = max(of_ranks, np.abs(own - equal).max(initial=0))
    return in_batch, ahead, of_ranks


def draw_large_pass(rng):
    """A pass of many sources, short or long, with `drop` or `pad`."""
    topology = Topology(rng.choice((1, 2, 8, 32)), rng.choice((1, 2, 4, 8)))
    counts = [
        SourceCount.of([ShardCount(round(2 ** rng.uniform(0, 13)))]) for _ in range(rng.choice((2, 3, 7, 40)))
    ]
    samples, b = sum(count.samples for count in counts), rng.choice((1, 4, 32))
    size = topology.ranks * b
    batches = samples // size if rng.random() < 0.5 else -(-samples // size)
    names = tuple(map(str, range(len(counts))))
    if not batches:
        return draw_large_pass(rng)
    return ShuffledPass(tuple(counts), samples, batches, topology, b, 0, names, ("shuffled",) * len(names))


@pytest.mark.parametrize("seed", range(12))
def test_shares_stay_within_the_bounds_of_the_docs(seed):
    rng = random.Random(seed)
    found = [deviations(draw_large_pass(rng), number) for number in range(6)]
    assert max(each[0] for each in found) < 4
    assert max(each[1] for each in found) < 8
    assert max(each[2] for each in found) < 1


@given(counts=st.lists(st.integers(0, 400), min_size=1, max_size=9).filter(any), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=80)
def test_exact_draws_have_the_counts_that_they_are_made_of(counts, seed):
    draws, rng = ExactDraws(counts), random.Random(seed)
    total = sum(counts)
    start, length = rng.randrange(total), rng.randrange(2 * total)
    before = draws.before(np.array([start, start + length, start + total]))
    assert (before[2] - before[0]).tolist() == counts
    shares = np.array(counts) / total
    assert np.abs(before[1] - before[0] - length * shares).max() < 4
    steps = np.diff(draws.before(np.arange(2 * total + 1)), axis=0)
    assert np.all(steps.sum(axis=1) == 1)
    assert np.all((steps == 0) | (steps == 1))


def test_exact_draws_are_those_of_the_even_sequence_of_a_mix():
    counts = [17, 5, 1, 40, 2]
    draws = np.diff(ExactDraws(counts).before(np.arange(66)), axis=0).argmax(axis=1)
    shares = [Fraction(count, 65) for count in counts]
    assert draws.tolist() == EvenSequence(shares).take(0, 0, 65).tolist()


def test_draws_of_billions_of_samples_are_exact():
    counts = [5 * 10**9 + 1, 3, 10**9]
    draws, total = ExactDraws(counts), sum(counts)
    before = draws.before(np.array([0, total - 1, total, 2 * total + 7]))
    assert before[0].tolist() == [0, 0, 0]
    assert before[2].tolist() == counts
    assert before[1].sum() == total - 1
    assert before[3].sum() == 2 * total + 7


@given(sizes=st.lists(st.integers(0, 90), min_size=1, max_size=6).filter(any), data=st.data())
@settings(deadline=None, max_examples=80)
def test_each_source_leaves_out_its_part_rounded_up_or_down(sizes, data):
    left, start = data.draw(st.integers(0, sum(sizes))), data.draw(st.integers(0, 2**64 - 1))
    found = spread(left, sizes, start)
    assert sum(found) == left
    for size, out in zip(sizes, found, strict=True):
        assert 0 <= out <= size
        assert abs(out - Fraction(left * size, sum(sizes))) < 1


@given(lengths=st.lists(st.integers(1, 9), max_size=8), width=st.integers(1, 5))
@settings(deadline=None, max_examples=80)
def test_a_place_after_any_number_of_samples_is_that_of_reading_them(lengths, width):
    lanes, following, read = (
        [(run, 0) for run in range(min(width, len(lengths)))],
        min(width, len(lengths)),
        0,
    )
    while lanes:
        place = seek(lengths, width, read)
        assert (place.lanes, place.following, place.at) == (lanes, following, 0)
        for at in range(1, len(lanes)):
            assert seek(lengths, width, read + at) == (lanes, following, at)
        read += len(lanes)
        lanes, following = replace_ended([(run, taken + 1) for run, taken in lanes], lengths, following)
    assert read == sum(lengths)
    assert seek(lengths, width, read).lanes == []


def test_epochs_differ_in_their_draws_their_shards_and_what_they_leave_out():
    counts = tuple(SourceCount.of(map(ShardCount, [5] * 20)) for _ in "ab")
    finite = ShuffledPass(counts, 200, 11, Topology(2, 2), 9, 0, ("a", "b"), ("shuffled", "shuffled"))
    orders, draws, left = set(), set(), set()
    for number in range(5):
        epoch = finite.epoch(number)
        read = [tuple(positions(finite, epoch, slot, 0)) for _, _, slot in all_slots(finite)]
        orders.add(tuple(read))
        left.add(frozenset(range(100)).difference(*read))
        draws.add(str(epoch.draws(0, 0).sources(0, 9)))
    assert len(orders) == len(draws) == len(left) == 5


def test_copies_of_a_sample_are_in_different_parts_of_the_epoch():
    count = SourceCount.of(map(ShardCount, [40] * 25), 3)
    finite = ShuffledPass((count,), 3000, 750, Topology(2, 2), 2, 0, ("a",), ("shuffled",))
    epoch, delays = finite.epoch(0), Delays(0, "a", 100)
    thirds = {}
    for _, _, slot in all_slots(finite):
        yielded = []
        for runs in epoch.runs(slot, 0):
            own = [
                count.start(run.turn) + run.residue + at for run in runs for at in range(run.first, run.stop)
            ]
            due = delays.releases(delays.key(slot), 0, len(own))
            yielded += [own[at] for at in np.argsort(due, kind="stable")]
        for at, position in enumerate(yielded):
            thirds.setdefault(position % 1000, []).append(at * 3 // len(yielded))
    apart = sum(sorted(each) == [0, 1, 2] for each in thirds.values())
    assert apart > 950


def test_a_rare_source_comes_from_all_workers():
    """Its draws are as far apart as the batches of a worker."""
    counts = (SourceCount.of([ShardCount(620)]), SourceCount.of([ShardCount(20)]))
    finite = ShuffledPass(counts, 640, 80, Topology(1, 4), 8, 0, ("a", "b"), ("shuffled", "shuffled"))
    rare = [finite.epoch(0).draws(0, worker).given(20)[1] for worker in range(4)]
    assert sum(rare) == 20
    assert min(rare) >= 2
