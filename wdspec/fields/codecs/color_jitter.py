"""`brightness`, `contrast`, `saturation`, `hue`: changing colours by factors that are drawn for each sample.

The arithmetic is that of torchvision's `ColorJitter` on images of floats: values are limited after each step, and the
steps are in an order that is drawn, too. Images of bytes are rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.fields.scale import Numbers
from wdspec.spec.language.decoder_options import COLORING, option_values

Array = np.ndarray[Any, Any]

_FIRST = 64
"""The number of a sample for the order of the steps; the factors follow, and crops draw from those before."""
_ORDERS = tuple(permutations(COLORING))
_GREY = np.array([0.2989, 0.587, 0.114], np.float32)
"""torchvision's weights of red, green and blue in grey."""


@dataclass(frozen=True)
class ColorJitter:
    """Changes the colours of images, by factors from these ranges."""

    ranges: Mapping[str, tuple[float, float]]
    """Option → its range; 1 keeps the brightness, contrast and saturation, and 0 the hue."""

    @classmethod
    def of(cls, decoder: str) -> ColorJitter | None:
        """Return the options in the name of a decoder; None if there are none."""
        ranges = {option: value for option, value in option_values(decoder).items() if option in COLORING}
        return cls(ranges) if ranges else None

    def draw(self, numbers: Numbers | None) -> list[tuple[str, float]]:
        """Return the steps in their order, with their factors.

        Raises:
            UsageError: there are no random numbers.
        """
        if numbers is None:
            raise UsageError(
                f"`{next(iter(self.ranges))}` needs random numbers, which only samples of a spec have; otherwise use a "
                "transform of a library"
            )
        factors = {
            option: low + numbers(_FIRST + 1 + at) * (high - low)
            for at, option in enumerate(COLORING)
            for low, high in [self.ranges.get(option, (0, 0))]
        }
        order = _ORDERS[int(numbers(_FIRST) * len(_ORDERS))]
        return [(option, factors[option]) for option in order if option in self.ranges]

    def __call__(self, values: Array, white: int, numbers: Numbers | None) -> Array:
        """Return an image of the same shape and type.

        Args:
            values: HW or HWC with 3 or 4 channels, from 0 to `white`; alpha is kept.
            numbers: the random numbers of the sample.
        """
        result = values.copy()
        channels = np.atleast_3d(result)[:, :, :3]
        # numpy is fastest in place, with channels that are rows.
        planes = channels.transpose(2, 0, 1).astype(np.float32, order="C")
        for option, factor in self.draw(numbers):
            _STEPS[option](planes.reshape(len(planes), -1), factor, white)
        if result.dtype == np.uint8:
            np.rint(planes, out=planes)
        for at, plane in enumerate(planes):
            np.copyto(channels[:, :, at], plane, casting="unsafe")
        return result


def _brighten(planes: Array, factor: float, white: int) -> None:
    planes *= np.float32(factor)
    np.clip(planes, 0, white, out=planes)


def _spread(planes: Array, factor: float, white: int) -> None:
    """Move all values from or to the mean grey."""
    mean = float(_grey(planes).mean(dtype=np.float64))
    planes *= np.float32(factor)
    planes += np.float32((1 - factor) * mean)
    np.clip(planes, 0, white, out=planes)


def _saturate(planes: Array, factor: float, white: int) -> None:
    """Move colours from or to their grey."""
    grey = _grey(planes) * np.float32(1 - factor)
    planes *= np.float32(factor)
    planes += grey
    np.clip(planes, 0, white, out=planes)


def _turn(planes: Array, turns: float, white: int) -> None:
    """Turn the hue, where a whole turn is 1. In HSV, neither saturation nor value change."""
    red, green, blue = planes
    top = planes.max(axis=0)
    chroma = top - planes.min(axis=0)
    safe = np.where(chroma > 0, chroma, np.float32(1))
    hue = np.where(
        top == red, green - blue, np.where(top == green, blue - red + 2 * safe, red - green + 4 * safe)
    )
    hue /= safe
    hue += np.float32(6 * turns)
    # Each channel is the top less the chroma times how far its own hue is from this one, in sixths of a turn: 0 up to
    # one sixth away, and 1 from two sixths on.
    for plane, own in zip(planes, (0, 2, 4), strict=True):
        np.subtract(hue, np.float32(own - 3), out=plane)
        plane -= 6 * np.floor(plane / np.float32(6))  # in 0..6, and 3 at its own hue
        plane -= 3
        np.abs(plane, out=plane)
        plane -= 1
        np.clip(plane, 0, 1, out=plane)
        plane *= chroma
        np.subtract(top, plane, out=plane)


def _grey(planes: Array) -> Array:
    grey: Array = _GREY @ planes if len(planes) == 3 else planes[0]
    return grey


_STEPS = {"brightness": _brighten, "contrast": _spread, "saturation": _saturate, "hue": _turn}
