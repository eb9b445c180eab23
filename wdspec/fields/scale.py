"""Rescaling the images of a sample: drawing a factor, and computing the size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Numbers = Callable[[int], float]
"""i → the i-th random number of a sample in [0, 1): 0 and 1 decide its factor, others its crops, flips, clips."""
MAX_PIXELS = 178_956_970
"""Maximum number of pixels of an image, before and after rescaling: half a gigabyte as RGB, as in Pillow."""


@dataclass(frozen=True)
class Scaling:
    """Rescales a share of the samples by a factor that is drawn log-uniformly from a range.

    Raises:
        ValueError: the range is not ``0 < lo <= hi < inf``, or the probability is not in 0..1.
    """

    lo: float
    """The smallest factor."""
    hi: float
    """The largest factor."""
    prob: float = 1.0
    """The probability that a sample is rescaled."""

    def __post_init__(self) -> None:
        if not 0 < self.lo <= self.hi < math.inf:
            raise ValueError(f"a range of scales needs 0 < lo <= hi, not {self.lo} and {self.hi}")
        if not 0 <= self.prob <= 1:
            raise ValueError(f"a probability is in 0..1, not {self.prob}")

    def factor(self, numbers: Numbers) -> float | None:
        """Return the factor for a sample, or None if it keeps its size.

        Args:
            numbers: number 0 decides whether it is rescaled, number 1 how much.
        """
        if self.prob < 1 and numbers(0) >= self.prob:
            return None
        if self.lo == self.hi:
            return self.lo
        low, high = math.log(self.lo), math.log(self.hi)
        return min(max(math.exp(low + numbers(1) * (high - low)), self.lo), self.hi)


def scaled_size(size: tuple[int, int], factor: float | None) -> tuple[int, int]:
    """Return width and height after rescaling: each side is ``max(1, round(side * factor))``.

    Raises:
        ValueError: the factor is not a positive finite number, or the result has more than `MAX_PIXELS` pixels.
    """
    width, height = size
    if factor is None:
        return width, height
    if not 0 < factor < math.inf:
        raise ValueError(f"a factor must be a positive number, not {factor}")
    wide, high = width * factor, height * factor
    # Each side is checked first: the product may overflow, and round(inf) raises.
    if wide > MAX_PIXELS or high > MAX_PIXELS or max(1, round(wide)) * max(1, round(high)) > MAX_PIXELS:
        raise ValueError(
            f"rescaling {width}×{height} by {factor:g} gives an image of more than {MAX_PIXELS:,} pixels; "
            "lower the upper end of `scale`"
        )
    return max(1, round(wide)), max(1, round(high))
