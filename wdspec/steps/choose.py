"""`choose`: one of several values, such as the captions of an image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from wdspec.base.errors import FieldError

Numbers = Callable[[int], float]
"""0, 1, 2, … → the random numbers of a sample, in [0, 1)."""


def make_choose(*, weights: Sequence[float] | None = None) -> Callable[[Any, Numbers], Any]:
    """Return a function that chooses one of several values.

    Args:
        weights: one for each value, at least 0; without them, all values are equally likely. Values that are None are
            never chosen, and the others keep the ratio of their weights.

    Returns:
        (values, numbers) → one of them, which number 0 of the sample decides. It raises FieldError if there is nothing
        to choose from.

    Raises:
        ValueError: the weights are negative or no numbers, or all are 0.

    Example:
        >>> from wdspec.steps.choose import make_choose
        >>> choose = make_choose(weights=[0.5, 0.3, 0.2])
        >>> choose(["a cat", "a dog", "a bird"], lambda number: 0.6)
        'a dog'
    """
    if weights is not None and not (all(0 <= each < math.inf for each in weights) and any(weights)):
        raise ValueError(f"weights are numbers from 0, and one is above 0, not {list(weights)}")

    def choose(values: Any, numbers: Numbers) -> Any:
        if not isinstance(values, (list, tuple, np.ndarray)):
            raise FieldError(
                f"`choose` needs a list, and this is {'text' if isinstance(values, str) else type(values).__name__}; "
                "write the names of several fields, or a value that is a list, such as `json.captions`"
            )
        if weights is not None and len(values) != len(weights):
            raise FieldError(
                f"`choose` has {len(weights)} weights for {len(values)} values; lists of different lengths have no "
                "weights"
            )
        odds = [
            float(value is not None) * (1 if weights is None else weights[at])
            for at, value in enumerate(values)
        ]
        ends = list(accumulate(odds))
        if not ends or not ends[-1]:
            raise FieldError(
                "there is nothing to `choose` from: "
                + ("the list is empty" if not ends else "all values are null, or their weights are 0")
            )
        place = numbers(0) * ends[-1]
        return values[next(at for at, end in enumerate(ends) if place < end)]

    return choose
