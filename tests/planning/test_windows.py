from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from wdspec.planning.windows import Windows, window_size


def test_the_window_is_shared_out_by_share():
    assert window_size(1000, Fraction(1, 4)) == 250
    assert window_size(1000, Fraction(1, 1000)) == 16
    assert window_size(5, Fraction(1, 2)) == 5
    assert window_size(0, Fraction(1)) == window_size(1, Fraction(1)) == 1


def test_windows_ramp_up_to_full_size():
    windows = Windows(0, "a", 1000)
    assert [windows.length(7, n) for n in range(4)] == [64, 128, 256, 512]
    for number in (4, 5, 10**9):
        assert 750 <= windows.length(7, number) <= 1000


@given(st.integers(1, 5000), st.integers(0, 1000), st.integers(0, 10**12))
def test_a_window_is_never_larger_than_its_size_nor_a_full_one_much_smaller(size, slot, number):
    windows = Windows(3, "a", size)
    assert min(64, 3 / 4 * size) <= windows.length(slot, number) <= size
    assert number < 10 or windows.length(slot, number) >= 3 / 4 * size


def test_full_windows_are_of_any_length_in_their_range_and_other_ones_in_other_slots():
    def lengths(seed=0, source="a", slot=0):
        return [Windows(seed, source, 20).length(slot, n) for n in range(2000)]

    assert sorted(set(lengths())) == [15, 16, 17, 18, 19, 20]
    assert max(lengths().count(length) for length in range(15, 21)) < 2000 / 6 * 1.2
    assert lengths() == lengths()
    assert len({tuple(each) for each in (lengths(), lengths(1), lengths(source="b"), lengths(slot=1))}) == 4


@given(st.integers(1, 200), st.integers(0, 100), st.integers(0, 50))
def test_an_order_is_a_permutation_of_its_own(length, slot, number):
    windows = Windows(1, "a", 1000)
    order = windows.order(slot, number, length)
    assert sorted(order) == list(range(length))
    if length > 20:
        assert order != windows.order(slot + 1, number, length)
        assert order != windows.order(slot, number + 1, length)


def test_no_shuffle_keeps_the_order_of_the_shard():
    assert Windows(1, "a", 1).order(3, 9, 1) == [0]
