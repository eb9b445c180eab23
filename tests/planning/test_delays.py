"""Delays: integers, equal on every machine, that decide when samples are yielded; in order, resumed and changed."""

import random
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.planning import order as module
from wdspec.planning.order import Delays, ReleaseOrder, lanes_of, shuffle_size
from wdspec.read.source import StreamState

ONE = 1 << 20


def ordered(delays, slot, total, stretches=()):
    """All ordinals in the order in which they come out, the slow, obvious way."""
    releases = delays.releases(delays.key(slot), 0, total, stretches).tolist()
    return sorted(range(total), key=lambda i: (releases[i], i))


def test_the_table_does_not_depend_on_logarithm_rounding():
    with localcontext() as context:
        context.prec = 40
        cut = (Decimal(-3)).exp()
        mean = 1 - 3 * cut / (1 - cut)
        exact = [-(1 - Decimal(n) / 256 * (1 - cut)).ln() / mean * ONE for n in range(257)]
        assert [int(each.to_integral_value()) for each in exact] == module._TABLE.tolist()
        assert min(abs(each % 1 - Decimal("0.5")) for each in exact) > Decimal("0.001"), (
            "a billion times what libraries are off"
        )


def test_releases_are_pinned():
    delays = Delays(7, "archive", 1000)
    assert delays.releases(delays.key(3), 0, 4).tolist() == [513123000, 278058576, 935964152, 111501728]
    far = delays.releases(delays.key(3), 1 << 40, 2) - (1 << 60)
    assert (far >= 0).all()
    assert (far < 3600 * ONE).all()


@pytest.mark.parametrize("size", [2, 16, 100, 1000, 5000])
def test_delays_average_n_and_never_exceed_the_maximum(size):
    delays = Delays(1, "a", size)
    waits = delays.releases(delays.key(0), 0, 200_000) / ONE - np.arange(200_000)
    assert waits.mean() == pytest.approx(size, rel=0.01)
    assert waits.min() >= 0
    assert 3.5 * size < waits.max() < delays.longest <= 3.6 * size + 1
    # A truncated exponential: the part after the mean is e⁻¹ of the part that is not cut, and so on.
    assert np.mean(waits > size * 1.1865) == pytest.approx(
        (np.exp(-1) - np.exp(-3)) / (1 - np.exp(-3)), abs=0.01
    )


def test_neighbours_slots_seeds_and_sources_are_independent():
    draws = [
        delays.releases(delays.key(slot), first, 20_000) - (np.arange(first, first + 20_000) << 20)
        for delays, slot, first in (
            (Delays(1, "a", 100), 0, 0),
            (Delays(1, "a", 100), 0, 1),
            (Delays(1, "a", 100), 1, 0),
            (Delays(2, "a", 100), 0, 0),
            (Delays(1, "b", 100), 0, 0),
        )
    ]
    for other in draws[1:]:
        assert abs(np.corrcoef(draws[0], other)[0, 1]) < 0.04


@pytest.mark.parametrize("size", [2, 16, 100, 1000])
def test_the_number_of_buffered_samples_is_as_configured(size):
    delays, total = Delays(3, "a", size), 60 * size + 20_000
    releases = delays.releases(delays.key(0), 0, total)
    read = np.arange(8 * size, total - 4 * size, max(1, size // 7))
    ordered = np.sort(releases)
    held = np.array([n - np.searchsorted(ordered, n << 20, side="left") for n in read])
    assert held.mean() == pytest.approx(size - 0.5, rel=0.05)
    # N, a block, and five standard deviations: more are held once in millions of blocks.
    assert held.max() <= size + np.ceil(5 * np.sqrt(size / 2))
    starts = np.arange(0, 4 * size, max(1, size // 3))
    several = [Delays(seed, "a", size) for seed in range(60)]
    found = np.mean(
        [
            [np.sum(r >= n << 20) for n in starts] - np.maximum(0, 4 * size - starts)
            for r in (each.releases(each.key(0), 0, 4 * size) for each in several)
        ],
        axis=0,
    )
    expected = several[0].held_after(starts.astype(float))
    assert found == pytest.approx(expected, abs=0.25 * np.sqrt(size) + 0.2)


@given(
    size=st.sampled_from((2, 16, 40, 300, 3000)),
    total=st.integers(0, 3000),
    blocks=st.integers(1, 700),
    stop=st.integers(0, 3000),
    slot=st.integers(0, 3),
)
@settings(deadline=None, max_examples=150)
def test_the_release_order_is_sorted_for_any_block_size_and_resume(size, total, blocks, stop, slot):
    delays = Delays(5, "a", size)
    key, expected = delays.key(slot), ordered(Delays(5, "a", size), slot, total)
    releasing, found, read = ReleaseOrder(delays, key, 0), [], 0
    while read < total:
        read = min(read + blocks, total)
        found += releasing.upto(read)
        assert len(found) <= read
    assert found + releasing.rest(total) == expected
    stop = min(stop, total)
    first, last = delays.given(key, stop, total)
    assert first == min(expected[stop:], default=total)
    assert last == (expected[stop - 1] if stop else -1)
    assert stop == 0 or last - first <= delays.longest
    again = ReleaseOrder(delays, key, first, last)
    assert {n for n in again.out if n < total} == {n for n in expected[:stop] if n >= first}
    read = min(first + blocks, total)
    come = again.upto(read)
    released = delays.releases(key, 0, total)
    assert come == [n for n in expected[stop:] if released[n] < read << 20], "as soon as they may"
    assert come + again.rest(total) == expected[stop:]


@pytest.mark.parametrize("seed", range(40))
def test_repeated_size_changes_repeat_and_lose_nothing(seed):
    rng, total, stretches, first, last = random.Random(seed), 2000, (), 0, -1
    given_out, sizes = [], [1, 16, 100, 900]
    while len(given_out) < total:
        delays = Delays(2, "a", rng.choice(sizes))
        key = delays.key(1)
        releasing = ReleaseOrder(delays, key, first, last, stretches)
        coming = releasing.upto(total) + releasing.rest(total)
        taken = coming[: rng.randrange(1, 700)]
        given_out += taken
        first, last = min(set(range(total)) - set(given_out), default=total), taken[-1]
        state = StreamState(0, first, last, 0, (), stretches).for_plan_with_other_sizes(1, delays, 1)
        assert all(stretch.until > max(given_out) for stretch in state.stretches[-1:])
        last, stretches = state.last, state.stretches
    assert sorted(given_out) == list(range(total))


def test_sizes_and_lanes_are_divided_by_share():
    assert [shuffle_size(1000, Fraction(n, 100)) for n in (100, 50, 7, 1)] == [1000, 500, 70, 16]
    assert [shuffle_size(n, Fraction(1, 2)) for n in (0, 1, 2, 10, 40)] == [1, 1, 2, 10, 20]
    small = [Fraction(n, 100_000) for n in (400, 399, 375, 100, 88, 50, 1)]
    assert [shuffle_size(1000, share) for share in small] == [16, 16, 15, 4, 4, 2, 2]
    assert [shuffle_size(3, share) for share in small] == [3, 3, 3, 3, 3, 2, 2]
    assert [shuffle_size(n, Fraction(1, 1000)) for n in (0, 1, 2, 10_000)] == [1, 1, 2, 10]
    assert [lanes_of(8, Fraction(1, n)) for n in (1, 2, 3, 8, 50)] == [8, 4, 3, 1, 1]
    assert shuffle_size(10**15, Fraction(1)) == 1 << 40


def test_blocks_are_a_fraction_of_the_buffer():
    for size in (80, 300, 1000, 5000, 123_456):
        assert size / 6 <= Delays(0, "a", size).block <= size / 3
    assert Delays(0, "a", 16).block == Delays(0, "a", 2).block == 16
