"""How large values are, in a few numbers: of a shard exactly, of a source put together from those of its shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from wdspec.spec.measurements import LEVELS, Spread

Numbers = npt.NDArray[Any]


def spread_of(sizes: Sequence[int]) -> Spread:
    """The spread of some sizes: quantiles are sizes that occur."""
    values = np.asarray(sizes, np.int64)
    quantiles = np.quantile(values, LEVELS, method="inverted_cdf")
    return Spread(len(values), float(values.mean()), tuple(map(int, quantiles)))


def pooled(spreads: Sequence[Spread]) -> Spread:
    """The spread of the sizes behind several spreads.

    Count, mean, least and greatest are exact. Of each spread it is known which part of its sizes lies between two
    neighbouring quantiles, and they are taken to lie there evenly: so the part of all sizes below a quantile is off by
    less than the greatest such part, a quarter, and by nothing where spreads are alike.
    """
    if len(spreads) == 1:
        return spreads[0]
    counts = np.array([each.count for each in spreads], np.float64)
    bounds = np.array([each.quantiles for each in spreads], np.float64)
    low, high = bounds[:, :-1].ravel(), bounds[:, 1:].ravel()
    parts = (counts[:, None] * np.diff(LEVELS)).ravel()
    total = int(counts.sum())
    least, greatest = int(bounds.min()), int(bounds.max())

    def quantile(level: float) -> int:
        first, last = least, greatest
        while first < last:  # the least size that so many are not above
            middle = (first + last) // 2
            if _below(middle, low, high, parts) >= level * total - 1e-6:
                last = middle
            else:
                first = middle + 1
        return first

    inner = tuple(map(quantile, LEVELS[1:-1]))
    mean = float(sum(each.count * each.mean for each in spreads) / total)
    return Spread(total, mean, (least, *inner, greatest))


def _below(size: int, low: Numbers, high: Numbers, parts: Numbers) -> float:
    """How many sizes are at most so large, where those of each part lie evenly between its bounds."""
    width = np.maximum(high - low, 1.0)
    return float((parts * np.clip((size - low + (high == low)) / width, 0.0, 1.0)).sum())
