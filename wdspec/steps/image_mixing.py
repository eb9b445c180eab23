"""`cutmix` and `mixup`: an image and its label, mixed with those of another sample.

CutMix: Yun et al. 2019. MixUp: Zhang et al. 2018. Both take the share of the image from a beta distribution, as
`torchvision.transforms.v2` does. There, a batch is mixed with itself; here, each image with that of a companion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.base.errors import FieldError

Numbers = Callable[[int], float]
"""0, 1, 2, … → the random numbers of a sample, in [0, 1)."""


class Mixed(NamedTuple):
    """What a step makes of an image and its label."""

    image: Any
    label: npt.NDArray[np.float32] | None
    """The shares of the classes, shape (classes,); None if no labels are given."""
    share: float
    """The share of the image and its label; 1 if there is no other image."""


Mix = Callable[..., Mixed]
"""(image, numbers, other=None, label=None, other_label=None) → `Mixed`. Raises FieldError if they do not fit."""


def make_cutmix(*, alpha: float = 1.0, probability: float = 1.0, classes: int | None = None) -> Mix:
    """Return a function that puts a box of another image into an image.

    Args:
        alpha: the parameter of the beta distribution of the share.
        probability: how often images are mixed, if there is another one.
        classes: the number of classes, for labels that are numbers.

    Example:
        >>> import numpy as np
        >>> from wdspec.steps.image_mixing import make_cutmix
        >>> cutmix = make_cutmix(classes=2)
        >>> black, white = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)
        >>> cutmix(black, lambda number: 0.5, white, 0, 1).label.tolist()
        [0.75, 0.25]
    """

    def cut(image: Any, other: Any, share: float, draw: Iterator[float]) -> tuple[Any, float]:
        rows, columns = _sides(image)
        middle, reach = (int(next(draw) * columns), int(next(draw) * rows)), 0.5 * math.sqrt(1 - share)
        left, right = max(0, middle[0] - int(reach * columns)), min(columns, middle[0] + int(reach * columns))
        top, bottom = max(0, middle[1] - int(reach * rows)), min(rows, middle[1] + int(reach * rows))
        mixed = image.copy() if isinstance(image, np.ndarray) else image.clone()
        sides = slice(top, bottom), slice(left, right)
        box: Any = sides if isinstance(image, np.ndarray) else (..., *sides)
        mixed[box] = other[box]
        return mixed, 1 - (right - left) * (bottom - top) / (rows * columns)

    return _mixing("cutmix", cut, alpha, probability, classes)


def make_mixup(*, alpha: float = 1.0, probability: float = 1.0, classes: int | None = None) -> Mix:
    """Return a function that adds up an image and another one, pixel by pixel. The arguments are those of CutMix."""

    def add(image: Any, other: Any, share: float, draw: Iterator[float]) -> tuple[Any, float]:
        if isinstance(image, np.ndarray):
            mixed = image.astype(np.float32) * np.float32(share)
            mixed += other.astype(np.float32) * np.float32(1 - share)
            return (np.rint(mixed) if image.dtype.kind in "iu" else mixed).astype(image.dtype), share
        mixed = image.float() * share + other.float() * (1 - share)
        return (mixed if image.is_floating_point() else mixed.round()).to(image.dtype), share

    return _mixing("mixup", add, alpha, probability, classes)


def _mixing(
    name: str,
    mix: Callable[[Any, Any, float, Iterator[float]], tuple[Any, float]],
    alpha: float,
    probability: float,
    classes: int | None,
) -> Mix:
    """Return the function of a step, from what mixes two images."""
    if not (alpha > 0 and 0 <= probability <= 1):
        raise ValueError(f"alpha is above 0, and a probability from 0 to 1; not {alpha} and {probability}")

    def apply(
        image: Any, numbers: Numbers, other: Any = None, label: Any = None, other_label: Any = None
    ) -> Mixed:
        own = None if label is None else _spread(label, classes, name)
        draw = map(numbers, count())
        if other is None or next(draw) >= probability:
            return Mixed(image, own, 1.0)
        _check(image, other, name)
        mixed, share = mix(image, other, _beta(alpha, draw), draw)
        if own is not None:
            theirs = _spread(other_label, classes, name)
            if theirs.shape != own.shape:
                raise FieldError(f"`{name}` mixes labels of {len(own)} and {len(theirs)} classes")
            own = (own * np.float32(share) + theirs * np.float32(1 - share)).astype(np.float32)
        return Mixed(mixed, own, share)

    return apply


def _sides(image: Any) -> tuple[int, int]:
    """Return the height and width of an array (H, W, …) or a tensor (…, H, W)."""
    shape = tuple(image.shape)
    return shape[:2] if isinstance(image, np.ndarray) else shape[-2:]


def _check(image: Any, other: Any, name: str) -> None:
    """Raise FieldError if two images cannot be mixed."""
    for each in (image, other):
        if not hasattr(each, "shape") or len(each.shape) < 2:
            kind = f"{len(each):,} bytes" if isinstance(each, bytes) else type(each).__name__
            raise FieldError(
                f"`{name}` needs decoded images, not {kind}; write `decode: rgb8` in the source and in its companions"
            )
    shapes = tuple(image.shape), tuple(other.shape)
    if shapes[0] != shapes[1] or image.dtype != other.dtype:
        first, second = (f"{'×'.join(map(str, each.shape))} {each.dtype}" for each in (image, other))
        raise FieldError(
            f"`{name}` mixes images of one shape and type, not {first} and {second}; write the same `decode` in the "
            "source and in its companions, such as `rgb8+random_resized_crop=224`"
        )


def _spread(label: Any, classes: int | None, name: str) -> npt.NDArray[np.float32]:
    """Return the shares of the classes that a label has: of a number, 1 for its class."""
    if label is None:
        raise FieldError(f"`{name}` needs the label of the companion, which is null")
    found = np.asarray(label)
    if found.ndim == 1 and found.dtype.kind in "fiu":
        return found.astype(np.float32)
    if found.ndim or found.dtype.kind not in "iu":
        raise FieldError(
            f"`{name}` takes labels that are numbers or lists of shares, not {str(label)[:60]!r}; the step `label` "
            "makes numbers of names"
        )
    if classes is None or not 0 <= found < classes:
        what = "`classes`, their number, is missing" if classes is None else f"`classes` is {classes}"
        raise FieldError(f"`{name}` cannot mix the class {int(found)}: {what}")
    shares = np.zeros(classes, np.float32)
    shares[int(found)] = 1
    return shares


def _beta(alpha: float, draw: Iterator[float]) -> float:
    """Return a number of the distribution Beta(alpha, alpha)."""
    first, second = _gamma(alpha, draw), _gamma(alpha, draw)
    return first / (first + second) if first + second else float(next(draw) < 0.5)


def _gamma(alpha: float, draw: Iterator[float]) -> float:
    """Return a number of the gamma distribution (Marsaglia and Tsang 2000)."""
    if alpha < 1:
        return _gamma(alpha + 1, draw) * math.pow(1 - next(draw), 1 / alpha)
    d = alpha - 1 / 3
    while True:
        normal = math.sqrt(-2 * math.log(1 - next(draw))) * math.cos(2 * math.pi * next(draw))
        cube: float = (1 + normal / math.sqrt(9 * d)) ** 3
        if cube > 0 and math.log(1 - next(draw)) < normal**2 / 2 + d - d * cube + d * math.log(cube):
            return float(d * cube)
