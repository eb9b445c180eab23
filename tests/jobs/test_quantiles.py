"""The distribution of a source is combined from those of its shards: some values exactly, the rest within a bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.jobs.stats import pool, spread_of
from wdspec.spec.measurements import LEVELS

shards = st.lists(st.lists(st.integers(0, 10**7), min_size=20, max_size=60), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(shards)
def test_count_mean_min_and_max_are_exact_and_quantiles_within_a_quarter(of_shards):
    found = pool([spread_of(sizes) for sizes in of_shards])
    every = np.concatenate([np.array(sizes) for sizes in of_shards])
    assert found.count == len(every)
    assert found.mean == pytest.approx(every.mean())
    assert (found.quantiles[0], found.quantiles[-1]) == (every.min(), every.max())
    assert list(found.quantiles) == sorted(found.quantiles)
    for level, value in zip(LEVELS[1:-1], found.quantiles[1:-1], strict=True):
        # A shard's own quantiles are sizes that occur: off by up to one of its twenty.
        assert (every < value).mean() - 0.3 <= level <= (every <= value).mean() + 0.3


@pytest.mark.parametrize("sizes", [[7], [3] * 9, list(range(1000)), [1] * 500 + [10**9] * 500])
def test_equal_shards_have_the_quantiles_of_one(sizes):
    alone = spread_of(sizes)
    together = pool([alone] * 4)
    assert together.count == 4 * len(sizes)
    for one, all_of_them, level in zip(alone.quantiles, together.quantiles, LEVELS, strict=True):
        assert all_of_them == pytest.approx(one, abs=max(sizes) * 0.002), level
