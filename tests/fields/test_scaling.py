"""The draw of a factor, and the resulting size."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdspec.fields.scale import MAX_PIXELS, Scaling, scaled_size

UNIT = st.floats(0, 1, exclude_max=True)


@given(UNIT, UNIT, UNIT)
def test_a_factor_is_within_its_range_and_has_its_probability(u1: float, u2: float, prob: float) -> None:
    factor = Scaling(0.5, 3.0, prob).factor((u1, u2).__getitem__)
    assert (factor is None) == (u1 >= prob)
    assert factor is None or 0.5 <= factor <= 3.0


def test_factors_are_log_uniform() -> None:
    scaling = Scaling(0.25, 4.0)
    assert [scaling.factor((0.0, u).__getitem__) for u in (0.0, 0.25, 0.5, 0.75)] == pytest.approx(
        [0.25, 0.5, 1.0, 2.0]
    )


def test_a_single_factor_is_exact() -> None:
    assert Scaling(0.3, 0.3).factor((0.0, 0.9).__getitem__) == 0.3


def test_probability_zero_never_scales_and_one_always_does() -> None:
    assert Scaling(2, 2, 0.0).factor((0.0, 0.0).__getitem__) is None
    assert Scaling(2, 2, 1.0).factor((math.nextafter(1, 0), 0.0).__getitem__) == 2


@pytest.mark.parametrize(
    ("lo", "hi", "prob"), [(0, 1, 1), (2, 1, 1), (1, math.inf, 1), (1, 1, 1.5), (1, 1, -0.1)]
)
def test_meaningless_ranges_are_rejected(lo: float, hi: float, prob: float) -> None:
    with pytest.raises(ValueError, match=r"range|probability"):
        Scaling(lo, hi, prob)


def test_scaling_works_in_spawned_workers() -> None:
    assert pickle.loads(pickle.dumps(Scaling(0.5, 2.0, 0.3))) == Scaling(0.5, 2.0, 0.3)


def test_sides_are_rounded_to_at_least_one_pixel() -> None:
    assert scaled_size((10, 3), 0.26) == (3, 1)
    assert scaled_size((10, 3), 1e-9) == (1, 1)
    assert scaled_size((10, 3), None) == (10, 3)
    assert scaled_size((10, 3), 1.0) == (10, 3)


@pytest.mark.parametrize("factor", [1e6, 1e308, math.inf, math.nan, 0.0, -1.0])
def test_absurd_factors_are_rejected(factor: float) -> None:
    with pytest.raises(ValueError, match=r"pixels|positive"):
        scaled_size((1000, 1000), factor)


def test_one_absurd_side_is_enough() -> None:
    with pytest.raises(ValueError, match="pixels"):
        scaled_size((MAX_PIXELS, 1), 1.5)
    assert scaled_size((MAX_PIXELS, 1), 1.0) == (MAX_PIXELS, 1)
