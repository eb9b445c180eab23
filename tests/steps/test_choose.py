"""`choose`: one of several values."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from wdspec.base.errors import FieldError
from wdspec.planning.keys import key64, uniform
from wdspec.steps.choose import make_choose

COUNT = 4000


def shares(weights: Any, values: Any) -> list[float]:
    """The share of each value in many draws."""
    choose = make_choose(weights=weights)
    found = Counter(choose(values, partial(uniform, key64("sample", at))) for at in range(COUNT))
    return [found[value] / COUNT for value in values]


@pytest.mark.parametrize(
    ("weights", "values", "wanted"),
    [
        (None, ["a", "b", "c", "d"], [0.25] * 4),
        ([0.5, 0.3, 0.2], ["a", "b", "c"], [0.5, 0.3, 0.2]),
        ([5, 3, 2], ["a", None, "c"], [5 / 7, 0, 2 / 7]),
        ([1, 0], ["a", "b"], [1, 0]),
        (None, [None, "b", None], [0, 1, 0]),
    ],
)
def test_values_are_chosen_by_their_weights_and_never_those_that_are_null(
    weights: Any, values: Any, wanted: list[float]
) -> None:
    found = shares(weights, values)
    for one, share in zip(found, wanted, strict=True):
        assert abs(one - share) <= 4 * (share * (1 - share) / COUNT) ** 0.5  # four standard errors


def test_the_first_and_the_last_number_choose_the_first_and_the_last_value() -> None:
    for weights in (None, [1e-9, 1, 1e-9]):
        choose = make_choose(weights=weights)
        assert choose(["a", "b", "c"], lambda _: 0.0) == "a"
        assert choose(["a", "b", "c"], lambda _: 1 - 2**-53) == "c"
    assert make_choose(weights=[0.1] * 10)(list(range(10)), lambda _: 1 - 2**-53) == 9


def test_a_last_value_without_weight_is_not_chosen() -> None:
    assert make_choose(weights=[1, 0])(["a", "b"], lambda _: 1 - 2**-53) == "a"


def test_lists_of_columns_are_arrays() -> None:
    assert make_choose()(np.array(["a", "b"], object), lambda _: 0.6) == "b"


@pytest.mark.parametrize(
    ("weights", "values", "message"),
    [
        (None, "a caption", "needs a list, and this is text; write the names of several fields"),
        (None, {"a": 1}, "needs a list, and this is dict"),
        (None, [], "nothing to `choose` from: the list is empty"),
        (None, [None, None], "all values are null, or their weights are 0"),
        ([0, 1], ["a", None], "all values are null, or their weights are 0"),
        ([1, 1], ["a"], "2 weights for 1 value"),
    ],
)
def test_what_cannot_be_chosen_from_is_an_error(weights: Any, values: Any, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        make_choose(weights=weights)(values, lambda _: 0.5)


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [float("nan")], [float("inf")]])
def test_weights_that_are_no_weights_are_an_error(weights: Any) -> None:
    with pytest.raises(ValueError, match="weights are numbers from 0, and one is above 0"):
        make_choose(weights=weights)
