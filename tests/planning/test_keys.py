"""Keys and streams: pinned values, so that no change, here or in a library, alters the order unnoticed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wdspec.planning.keys import (
    GOLDEN,
    MASK,
    arithmetic,
    key64,
    keys64,
    mix64,
    mix64_array,
    random64,
    random64_array,
    random64_at,
    uniform,
)

words = st.integers(0, MASK)


def test_keys_are_pinned():
    assert key64(17, "order", "archive", 3) == 0x47045B6ABF33013A
    assert [random64(0, i) for i in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ], "splitmix64 seeded with 0, as published"


def test_parts_of_a_key_are_separated():
    assert key64("ab", "c") != key64("a", "bc")
    assert key64(1, 2) != key64(12)
    assert key64(1) != key64("1")


def test_vectorized_keys_equal_single_keys():
    numbers = [0, 1, 9, 10, 1 << 70]
    assert keys64(5, "delay", "s", last=numbers).tolist() == [key64(5, "delay", "s", n) for n in numbers]
    counters = np.array([[0, 1], [7, 1 << 40]])
    drawn = random64_at(keys64("k", last=[1, 2])[:, None], counters)
    assert drawn.tolist() == [
        [random64(key64("k", n), c) for c in row] for n, row in zip((1, 2), counters.tolist(), strict=True)
    ]


@given(words, st.integers(0, 1 << 40))
def test_arrays_agree_with_single_numbers(key, start):
    assert random64_array(key, start, 5).tolist() == [random64(key, start + i) for i in range(5)]
    assert mix64_array(arithmetic(key, GOLDEN, 4)).tolist() == [mix64(key + i * GOLDEN) for i in range(4)]
    assert 0 <= uniform(key, start) < 1


def test_numbers_are_uniform():
    values = random64_array(key64("test"), 0, 1 << 16)
    counts = np.bincount((values >> np.uint64(56)).astype(int), minlength=256)
    assert ((counts - 256.0) ** 2 / 256).sum() < 350, "chi-square of 255 degrees of freedom"
