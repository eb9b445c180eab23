"""Promise 5: realised shares, per slot, per global batch and job-wide, against exact fractions."""

from fractions import Fraction
from math import floor, gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.planning.draws import Draws, EvenSequence
from wdspec.planning.topology import Topology

FIBONACCI = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
shares = st.lists(st.integers(1, 1000), min_size=2, max_size=7).map(
    lambda weights: [Fraction(w, sum(weights)) for w in weights]
)
topologies = st.builds(
    Topology, st.sampled_from((1, 2, 3, 4, 7, 8, 16)), st.sampled_from((1, 2, 3, 4, 5, 8, 12))
)


def deviation(drawn, shares):
    """Largest distance, over all prefixes and sources, from the exact share."""
    worst = 0.0
    steps = np.arange(1, len(drawn) + 1)
    for source, share in enumerate(shares):
        worst = max(worst, np.abs(np.cumsum(drawn == source) - steps * float(share)).max())
    return worst


def dealt_out(shares, run, runs, count):
    """The even sequence the slow, obvious way: exact fractions, one draw after the other."""
    multiplier = min(
        (a for a in range(1, runs + 1) if gcd(a, runs) == 1), key=lambda a: abs(a - 0.618034 * runs)
    )
    forest = [(share, source, source) for source, share in enumerate(shares)]
    while len(forest) > 1:
        pair = sorted(sorted(forest)[:2], key=lambda tree: tree[1])
        forest = [tree for tree in forest if tree not in pair]
        together = pair[0][0] + pair[1][0]
        forest.append((together, pair[0][1], [0, pair[0][0] / together, pair[0][2], pair[1][2]]))
    sequence = []
    for _ in range(count):
        node, number = forest[0][2], run
        while not isinstance(node, int):
            x, q, left, right = node
            phase = Fraction(2 * number + 1, 2 * runs)
            node[0] += 1
            node = left if floor((x + 1) * q + phase) > floor(x * q + phase) else right
            number = number * multiplier % runs
        sequence.append(node)
    return sequence


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=7, unique=True), st.integers(1, 9), st.data())
@settings(deadline=None, max_examples=60)
def test_the_even_sequence_matches_exact_fractions(weights, runs, data):
    shares = [Fraction(w, sum(weights)) for w in weights]
    run = data.draw(st.integers(0, runs - 1))
    assert EvenSequence(shares, runs).take(run, 0, 1000).tolist() == dealt_out(shares, run, runs, 1000)


@given(shares, st.integers(0, 1 << 40), st.integers(0, 5000), st.integers(1, 3000))
@settings(deadline=None, max_examples=60)
def test_a_draw_is_the_same_in_any_slice(shares, start, skip, count):
    sequence = EvenSequence(shares, 3)
    whole = sequence.take(1, start, skip + count)
    assert sequence.take(1, start + skip, count).tolist() == whole[skip:].tolist()
    assert len(whole) == skip + count


@given(shares, st.integers(1 << 40, 1 << 60))
@settings(deadline=None, max_examples=30)
def test_counts_are_exact_at_any_distance(shares, x):
    sequence = EvenSequence(shares)
    drawn = sequence.take(0, x, 50_000)
    for source, share in enumerate(shares):
        assert abs((drawn == source).sum() - 50_000 * share) < 3


@pytest.mark.parametrize(
    "weights",
    [
        (1, 1, 1),
        (10, 6, 3, 1),
        (1, 10**6),
        *(
            pytest.param(weights, marks=pytest.mark.long)
            for weights in ((1, 1), (1, 999), (5, 3, 2), (1,) * 7, (89, 55, 34), (51, *[1] * 49))
        ),
    ],
)
def test_a_slot_keeps_its_shares_for_ten_million_draws(weights):
    shares = [Fraction(w, sum(weights)) for w in weights]
    draws = Draws(shares, 3, Topology(8, 4), 32)
    assert deviation(draws.sequence(3, 2, 0, 10_000_000), shares) < 3


@given(shares, topologies, st.sampled_from((*FIBONACCI, 16, 32, 64, 100)), st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=150)
def test_slots_global_batches_and_the_job_keep_the_shares(shares, topology, b, seed):
    draws = Draws(shares, seed, topology, b)
    batches = 3 * topology.workers + 1
    exact = np.array([float(share) for share in shares])
    whole = np.zeros(len(shares))
    rows = {(c, k): draws.batches(c, k, 0, 4) for c in range(topology.ranks) for k in range(topology.workers)}
    for drawn in rows.values():
        assert (
            deviation(np.sort(drawn, axis=1).ravel(), shares) < 8 + b
        )  # within a batch the order is shuffled
        assert np.abs(np.bincount(drawn.ravel(), minlength=len(shares)) - drawn.size * exact).max() < 3
    for number in range(batches):
        m, k = divmod(number, topology.workers)
        batch = np.concatenate([rows[c, k][m] for c in range(topology.ranks)])
        counts = np.bincount(batch, minlength=len(shares))
        assert np.abs(counts - len(batch) * exact).max() < 3
        whole += counts
        job = np.abs(whole - (number + 1) * len(batch) * exact).max()
        assert job <= max(topology.slots, 3)


@pytest.mark.parametrize("b", FIBONACCI[2:])
def test_no_position_in_the_batch_favours_a_source(b):
    shares = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    drawn = Draws(shares, 1, Topology(2, 3), b).batches(1, 2, 0, 4000)
    for source, share in enumerate(shares):
        spread = np.abs((drawn == source).mean(axis=0) - float(share)).max()
        assert spread < 5 * (float(share * (1 - share)) / 4000) ** 0.5


def test_the_order_in_a_batch_does_not_depend_on_the_computed_block():
    draws = Draws([Fraction(1, 3)] * 3, 5, Topology(2, 4), 8)
    together = draws.batches(1, 3, 0, 20)
    assert all((draws.batches(1, 3, m, 1)[0] == together[m]).all() for m in range(20))


def test_random_draws_have_the_shares_on_average_and_depend_on_slot_and_seed():
    shares = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    draws = Draws(shares, 5, Topology(2, 2), 1, "random")
    drawn = draws.sequence(0, 0, 0, 100_000)
    assert np.abs(np.bincount(drawn) / 1e5 - [0.5, 0.25, 0.25]).max() < 0.01
    assert (drawn[:100] != draws.sequence(1, 0, 0, 100)).any()
    assert (drawn[:100] != Draws(shares, 6, Topology(2, 2), 1, "random").sequence(0, 0, 0, 100)).any()
    assert (drawn[5000:5100] == draws.sequence(0, 0, 5000, 100)).all()


def test_round_robin_takes_turns():
    draws = Draws([Fraction(1, 3)] * 3, 5, Topology(1, 1), 1, "round_robin")
    assert draws.sequence(0, 0, 0, 7).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_one_source_needs_no_draws():
    assert not Draws([Fraction(1)], 0, Topology(1, 1), 4).batches(0, 0, 1 << 40, 3).any()
