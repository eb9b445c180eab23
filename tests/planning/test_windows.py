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
    assert [windows.length(n) for n in range(7)] == [64, 128, 256, 512, 1000, 1000, 1000]
    assert windows.length(10**9) == 1000
    assert Windows(0, "a", 20).length(0) == 20


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
