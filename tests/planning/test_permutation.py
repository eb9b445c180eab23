import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdspec.planning.order import SORTED_UP_TO, Permutation, permutation


@given(st.integers(0, 1 << 63), st.integers(1, 300))
def test_every_number_appears_once(key, n):
    assert sorted(permutation(key, n).tolist()) == list(range(n))
    assert [Permutation(key, n)[i] for i in range(n)] == permutation(key, n).tolist()


@pytest.mark.parametrize("n", [SORTED_UP_TO + 1, 10_007, 16_384, 16_385])
def test_large_permutations_contain_every_number_once(n):
    shuffled = Permutation(7, n)
    values = [shuffled[i] for i in range(n)]
    assert sorted(values) == list(range(n))
    moved = sum(abs(v - i) for i, v in enumerate(values)) / n
    assert abs(moved - n / 3) < n / 30, "the mean distance of a random permutation is n/3"
    in_order = sum(b > a for a, b in itertools.pairwise(values)) / n
    assert abs(in_order - 0.5) < 0.02


def test_all_orders_of_three_are_equally_likely():
    orders = Counter(tuple(permutation(key, 3).tolist()) for key in range(6000))
    assert len(orders) == 6
    assert all(850 < count < 1150 for count in orders.values())


def test_a_trillion_numbers_need_no_memory():
    shuffled = Permutation(1, 10**12)
    seen = {shuffled[i] for i in range(1000)}
    assert len(seen) == 1000
    assert max(seen) > 9 * 10**11


def test_numbers_outside_the_range_are_rejected():
    with pytest.raises(IndexError):
        Permutation(1, 5)[5]
    with pytest.raises(IndexError):
        Permutation(1, 5)[-1]
