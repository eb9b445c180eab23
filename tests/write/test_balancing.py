"""Spreading samples over shards."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.base.errors import UsageError
from wdspec.write.shard_writer import by_count, by_size, check_limits

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=60)


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 40))
def test_shard_sizes_differ_by_at_most_one_sample(samples, shards):
    counts = by_count(samples, shards=shards)
    assert sum(counts) == samples
    assert len(counts) == min(shards, samples)
    assert max(counts) - min(counts) <= 1


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 40))
def test_the_fewest_sufficient_shards_are_filled_evenly(samples, most):
    counts = by_count(samples, most=most)
    assert sum(counts) == samples
    assert len(counts) == -(-samples // most)
    assert max(counts) <= most
    assert max(counts) - min(counts) <= 1


@settings(deadline=None)
@given(SIZES, st.integers(1, 12))
def test_n_shards_have_about_the_same_size(sizes, shards):
    counts = by_size(sizes, shards=shards)
    assert sum(counts) == len(sizes)
    assert len(counts) == min(shards, len(sizes))
    assert min(counts) >= 1
    if len(sizes) > 4 * shards and max(sizes) * shards < sum(sizes):
        share, begin = sum(sizes) / shards, 0
        for count in counts:
            assert abs(sum(sizes[begin : begin + count]) - share) <= max(sizes)
            begin += count


@settings(deadline=None)
@given(SIZES, st.integers(1, 3000))
def test_no_shard_is_larger_than_the_limit_unless_one_sample_is(sizes, most):
    counts = by_size(sizes, most=most)
    assert sum(counts) == len(sizes)
    begin = 0
    for count in counts:
        assert count == 1 or sum(sizes[begin : begin + count]) <= most
        begin += count


def test_no_samples_or_limits_mean_no_spreading():
    assert by_count(0, shards=3) == by_size([], most=10) == []
    assert by_count(7) == by_size([1] * 7) == [7]


def test_one_limit_is_enough():
    with pytest.raises(UsageError, match="use only one of"):
        check_limits(1, None, 3.0)
