"""JPEGs that are made smaller anyway, decoded at a half, a quarter or an eighth of their size.

libjpeg makes such a picture of a part of each block's frequencies, which is cheaper than to make all pixels and to
average them. What is left is resized as before, to the same size; what it gives differs by less than a grey level
in the mean (docs/decoders.md says how much).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from wdspec.fields.codecs.images.framing import NEAREST, Fit, Size

SPARE = 1.5
"""How many times as large as the result what is decoded stays, at least: below it the difference can be seen."""


class Reduction:
    """By how much a picture is reduced as it is decoded, and what is left to do: known once its size is.

    Args:
        fits: the steps for a picture of a size (width, height).
    """

    def __init__(self, fits: Callable[[Size], list[Fit]]) -> None:
        self._fits = fits
        self.fits: list[Fit] | None = None
        """The steps from the reduced picture on; None as long as no size was told."""

    def __call__(self, size: Size) -> int:
        """1, 2, 4 or 8, for a picture of a size (width, height)."""
        by, self.fits = reduced(size, self._fits(size))
        return by


def reduced_size(size: Size, by: int) -> Size:
    """Width and height of a picture that is reduced: blocks at its edges count as whole ones."""
    return -(-size[0] // by), -(-size[1] // by)


def reduced(size: Size, fits: list[Fit]) -> tuple[int, list[Fit]]:
    """By how much to reduce a picture of a size (width, height), and the steps from there on.

    It stays as it is where no step averages its pixels first, which labels, too, must not be.
    """
    if not fits or not fits[0].antialias or fits[0].smooth == NEAREST:
        return 1, fits
    first = fits[0]
    left, top, right, bottom = first.part or first.crop or (0, 0, *size)
    spare = min((right - left) / first.size[0], (bottom - top) / first.size[1]) / SPARE
    by = next((by for by in (8, 4, 2) if by <= spare), 1)
    if by == 1 or left < 0 or top < 0 or right > size[0] or bottom > size[1]:
        return 1, fits
    part = (left / by, top / by, right / by, bottom / by)
    if first.crop is None:
        return by, [replace(first, part=part), *fits[1:]]
    # Pixels beyond the crop do not count, but for those that it shares with a reduced one.
    crop = (math.floor(part[0]), math.floor(part[1]), math.ceil(part[2]), math.ceil(part[3]))
    inside = (part[0] - crop[0], part[1] - crop[1], part[2] - crop[0], part[3] - crop[1])
    return by, [replace(first, crop=crop, part=inside), *fits[1:]]
