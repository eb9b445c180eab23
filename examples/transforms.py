"""Functions that the specs in this directory name under `map` and `select`."""

from __future__ import annotations

from typing import Any

import numpy as np

Sample = dict[str, Any]


class FitSquare:
    """Turn the grey image of a sample into a float32 array of shape (1, side, side), ink 1, paper 0.

    Smaller images are centred on black, larger ones lose their border. wdspec builds one per worker from the
    `args` in the spec, and calls it with each sample.
    """

    def __init__(self, side: int, field: str = "image") -> None:
        self.side = side
        self.field = field

    def __call__(self, sample: Sample) -> Sample:
        image = sample[self.field]
        top, left = ((have - self.side) // 2 for have in image.shape)
        image = image[max(0, top) :, max(0, left) :][: self.side, : self.side]
        square = np.zeros((1, self.side, self.side), np.float32)
        top, left = ((self.side - have) // 2 for have in image.shape)
        square[0, top : top + image.shape[0], left : left + image.shape[1]] = image
        square /= 255
        sample[self.field] = square
        return sample


def is_even(sample: Sample) -> bool:
    """True for samples whose label is an even number."""
    return sample["label"] % 2 == 0
