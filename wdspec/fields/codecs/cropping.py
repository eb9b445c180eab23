"""`crop`: one random crop and flip for an image, its masks, boxes and points.

The crop is that of the decoder option `random_resized_crop`, and it is resized by the same code. A pixel is a square:
the first one reaches from 0 to 1. So a box that contains the whole image is 0, 0, width, height, and a flip moves x to
width - x, as in torchvision.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from wdspec.base.errors import FieldError
from wdspec.base.trials import Trial
from wdspec.fields.codecs.framing import Framing
from wdspec.fields.codecs.image_decoder import FLIP
from wdspec.fields.codecs.resizing import Fit
from wdspec.fields.scale import Numbers
from wdspec.fields.values import describe
from wdspec.spec.language.decoder_options import Sides

BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
MODES = ("1", "L", "P", "RGB", "RGBA", "I;16", "I", "F")
"""Modes of Pillow whose pixels become an image of this mode again."""
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class Cropped(NamedTuple):
    """What `crop` returns. Mappings have the names of the arguments."""

    image: Any
    masks: dict[str, Any]
    boxes: dict[str, npt.NDArray[np.float32]]
    """Shape (boxes, 4), in the format of the arguments: pixels of the result, or fractions of it."""
    points: dict[str, npt.NDArray[np.float32]]
    """Pixels of the result, or fractions of it; the shape stays."""
    kept: dict[str, npt.NDArray[np.int64]]
    """Which boxes are in the crop, at least in part: their places in the argument."""


class Geometry(NamedTuple):
    """Where a crop is, and what becomes of it."""

    fit: Fit
    is_flipped: bool
    size: tuple[int, int]
    """Width and height of the image."""
    relative: bool
    """Whether boxes and points are fractions of width and height, before and after."""

    def move(self, values: Floats) -> Floats:
        """Return points, shape (…, 2), in the result."""
        crop = self.fit.crop
        assert crop is not None, "`random_resized_crop` always has one"
        left, top, right, bottom = crop
        width, height = self.fit.size
        pixels = values * self.size if self.relative else values
        x = (pixels[..., 0] - left) * (width / (right - left))
        y = (pixels[..., 1] - top) * (height / (bottom - top))
        moved = np.stack([width - x if self.is_flipped else x, y], axis=-1)
        return moved / self.fit.size if self.relative else moved

    @property
    def ends(self) -> tuple[int, int]:
        """The largest x and y in the result."""
        return (1, 1) if self.relative else self.fit.size


def make_crop(
    *,
    size: Sides,
    scale: tuple[float, float] = Framing.scale,
    ratio: tuple[float, float] = Framing.ratio,
    hflip: float = 0.0,
    interpolation: str = Framing.interpolation,
    box_format: str = "xyxy",
    relative: bool = False,
    drop: bool = False,
    flip_points: Sequence[tuple[int, int]] = (),
) -> Callable[..., Cropped]:
    """Return a function that crops an image and all that belongs to it.

    Args:
        size: one side, or height and width, of the result.
        scale: the share of the area of the image that the crop has: the least and the largest.
        ratio: of width to height of the crop: the least and the largest.
        hflip: the probability of a horizontal flip.
        interpolation: how pixels of the image are resized, as in `decode`. Masks always take the nearest pixel.
        box_format: `xyxy` (left, top, right, bottom), `xywh` (left, top, width, height) or `cxcywh` (center, width,
            height).
        relative: whether boxes and points are fractions of width and height, from 0 to 1, rather than pixels.
        drop: whether boxes outside the crop are left out. Otherwise they stay, with an area of 0.
        flip_points: pairs of points that a flip exchanges, such as left and right eye.

    Returns:
        (image, numbers, masks={}, boxes={}, points={}) → `Cropped`. Images and masks are arrays, tensors or Pillow
        images, as decoders return them, and stay of that kind and type. It raises FieldError if a value is none of
        these, or if a mask has another size than the image.

    Raises:
        ValueError: there is no such box format.
    """
    if box_format not in BOX_FORMATS:
        raise ValueError(f"`box_format` is one of {', '.join(BOX_FORMATS)}, not {box_format!r}")
    framing = Framing(random_resized_crop=size, scale=scale, ratio=ratio, interpolation=interpolation)
    pairs = np.array(flip_points, np.int64).reshape(-1, 2)
    watch = _BoxWatch(box_format)

    def crop(
        image: Any,
        numbers: Numbers,
        *,
        masks: Mapping[str, Any] | None = None,
        boxes: Mapping[str, Any] | None = None,
        points: Mapping[str, Any] | None = None,
    ) -> Cropped:
        pixels, wrap = _read_image(image)
        height, width = pixels.shape[:2]
        # Neighbouring numbers of a palette are no similar colours.
        is_indexed = isinstance(image, Image.Image) and image.mode == "P"
        resize = _take_nearest if is_indexed else _resize
        (fit,) = framing.fits((width, height), numbers)
        place = Geometry(fit, numbers(FLIP) < hflip, (width, height), relative)
        moved = {name: _move_boxes(value, place, watch, drop) for name, value in (boxes or {}).items()}
        return Cropped(
            wrap(_flip(resize(pixels, fit), place.is_flipped)),
            {name: _crop_mask(value, place, (height, width), name) for name, value in (masks or {}).items()},
            {name: found for name, (found, _) in moved.items()},
            {name: _move_points(value, place, pairs) for name, value in (points or {}).items()},
            {name: kept for name, (_, kept) in moved.items()},
        )

    return crop


def _read_image(value: Any) -> tuple[Array, Callable[[Array], Any]]:
    """Return the pixels of an image, HW or HWC, and the function that makes such an image of pixels.

    Raises:
        FieldError: it is none.
    """
    if isinstance(value, Image.Image) and value.mode in MODES:
        return np.asarray(value), lambda pixels: _like(value, pixels)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.ndim in (2, 3):
        pixels = value.numpy()
        if value.ndim == 2:
            return pixels, lambda found: torch.from_numpy(np.ascontiguousarray(found))
        return pixels.transpose(1, 2, 0), lambda found: torch.from_numpy(
            np.ascontiguousarray(found.transpose(2, 0, 1))
        )
    if isinstance(value, np.ndarray) and value.ndim in (2, 3) and value.dtype.kind in "buif":
        return value, np.ascontiguousarray
    if isinstance(value, list) and value and not isinstance(value[0], (list, int, float)):
        raise FieldError(
            f"`crop` takes one image, and this is {describe(value)}; write the path of an item, such as `images[0]`, "
            "or take one with `choose`"
        )
    is_file = isinstance(value, (bytes, bytearray))
    remedy = (
        "decode it, for instance with `rgb8` or `l8`"
        if is_file
        else "name the field that has one: `crop: jpg`"
    )
    raise FieldError(f"`crop` needs an image or a mask, and this is {describe(value)}; {remedy}")


def _like(image: Image.Image, pixels: Array) -> Image.Image:
    """Return a Pillow image with the palette of another."""
    result = Image.fromarray(np.ascontiguousarray(pixels))
    if image.mode == "P":
        result.putpalette(image.getpalette("RGB") or [], "RGB")
    return result


def _resize(pixels: Array, fit: Fit) -> Array:
    """Return the crop of an image of any type, HW or HWC, resized."""
    if pixels.dtype == np.bool_:
        return _take_nearest(pixels, fit)
    if pixels.dtype == np.uint8 and (pixels.ndim == 2 or pixels.shape[2] in (3, 4)):
        return fit(pixels)
    values = pixels if pixels.dtype == np.uint8 else pixels.astype(np.float32)
    if values.ndim == 2:
        found = fit(values)
    else:
        found = np.stack(
            [fit(np.ascontiguousarray(values[:, :, at])) for at in range(values.shape[2])], axis=2
        )
    if pixels.dtype.kind in "ui" and found.dtype != pixels.dtype:
        limits = np.iinfo(pixels.dtype)
        found = np.rint(found).clip(limits.min, limits.max)
    return found.astype(pixels.dtype, copy=False)


def _take_nearest(values: Array, fit: Fit) -> Array:
    """Return the crop of values of any type, shape (height, width, …), each the nearest one."""
    assert fit.crop is not None, "`random_resized_crop` always has one"
    left, top, right, bottom = fit.crop
    width, height = fit.size
    across = replace(fit, size=(width, 1), crop=(left, 0, right, 1))
    down = replace(fit, size=(1, height), crop=(0, top, 1, bottom))
    rows = down(np.arange(values.shape[0], dtype=np.float32)[:, None], nearest=True)[:, 0].astype(np.int64)
    columns = across(np.arange(values.shape[1], dtype=np.float32)[None], nearest=True)[0].astype(np.int64)
    found: Array = values[rows[:, None], columns]
    return found


def _flip(pixels: Array, is_flipped: bool) -> Array:
    return pixels[:, ::-1] if is_flipped else pixels


def _crop_mask(value: Any, place: Geometry, size: tuple[int, int], name: str) -> Any:
    """Crop a mask of a size (height, width): HW or HWC, or several as NHW."""
    pixels, wrap = _read_image(value)
    is_stack = pixels.shape[:2] != size and isinstance(value, np.ndarray) and pixels.shape[1:] == size
    if is_stack:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.shape[:2] != size:
        raise FieldError(
            f"the mask `{name}` has {pixels.shape[1]}×{pixels.shape[0]} pixels, and the image {size[1]}×{size[0]}; "
            "they are cropped together, and must have one size"
        )
    found = _flip(_take_nearest(pixels, place.fit), place.is_flipped)
    return wrap(found.transpose(2, 0, 1) if is_stack else found)


def _read_numbers(value: Any, what: str, wanted: str) -> Floats:
    try:
        found = np.asarray(value, np.float64)
    except (ValueError, TypeError) as cause:
        raise FieldError(f"{what} are {wanted}, and this is {value!r:.60}") from cause
    if not np.isfinite(found).all():
        raise FieldError(f"{what} have a number that is not finite: {value!r:.60}")
    return found


def _check_fractions(found: Floats, what: str) -> None:
    """Refuse pixels in place of fractions: whole numbers above 1 are at least 2, and no part is that far out."""
    if found.size and (largest := found.max()) >= 2:
        raise FieldError(
            f"`{what}` have {largest:g}, which is no fraction of the image but pixels; remove `relative: true`"
        )


class _BoxWatch:
    """Warns if most of the first samples have a box that is partly outside the image: its numbers mean something else.

    A few boxes may: those of objects that the image cuts off, or whose numbers are rounded. If all boxes of the samples
    are inside in another format, fewer such samples are enough: small boxes of a wrong format are often inside, too.
    """

    def __init__(self, form: str) -> None:
        self.form = form
        self._trial = Trial(self._describe, _SOME)
        self._fitting = [other for other in BOX_FORMATS if other != form]
        """The other formats in which all boxes so far are inside their images."""

    def __call__(self, boxes: Floats, place: Geometry) -> None:
        """Note the boxes of a sample, shape (boxes, 4), in pixels or fractions of the image."""
        if self._trial.is_over or not len(boxes):
            return
        size = (1, 1) if place.relative else place.size
        wrong = _are_outside(boxes, self.form, size)
        self._fitting = [form for form in self._fitting if not _are_outside(boxes, form, size).any()]
        example = f"{boxes[wrong.argmax()].tolist()} in {place.size[0]}×{place.size[1]} pixels"
        self._trial.note(example if wrong.any() else None)

    def _describe(self, samples: int, wrong: Counter[str]) -> str:
        if wrong.total() < _MOST * samples and not self._fitting:
            return ""
        example = next(iter(wrong))
        inside = f"; all boxes are inside with `{'` or `'.join(self._fitting)}`" if self._fitting else ""
        return (
            f"{wrong.total()} of {samples} samples have a box that is partly outside the image, such as {example}; "
            f"`box_format` is `{self.form}`, and may have to be another one of {', '.join(BOX_FORMATS)}{inside}"
        )


def _are_outside(boxes: Floats, form: str, size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Return which boxes of a format, shape (boxes, 4), are partly outside an image of this size, or no boxes."""
    first, second = _find_corners(boxes, form)
    sides = np.array(size)
    outside = (first < -_SLACK * sides) | (second > (1 + _SLACK) * sides) | (second < first)
    return np.asarray(outside.any(axis=1))


def _find_corners(boxes: Floats, form: str) -> tuple[Floats, Floats]:
    """Return the left top and the right bottom corners of boxes of a format, each of shape (boxes, 2)."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if form == "cxcywh":
        return first - second / 2, first + second / 2
    return first, first + second if form == "xywh" else second


_MOST = 0.55
"""The part of the samples with such boxes from which on to warn."""
_SOME = 0.25
"""The same if all boxes are inside in another format."""
_SLACK = 0.05
"""How far a box may be outside the image, as a part of its side."""


def _move_boxes(
    value: Any, place: Geometry, watch: _BoxWatch, drop: bool
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return boxes in the crop, and which ones are in it."""
    form = watch.form
    wanted = f"a list with four numbers each (`{form}`)"
    found = _read_numbers(value, "boxes", wanted)
    if found.size == 0:
        found = found.reshape(0, 4)
    if found.ndim != 2 or found.shape[1] != 4:
        raise FieldError(f"boxes are {wanted}, and this has shape {found.shape}")
    if not place.relative and found.size and found.max() <= 1 and (found % 1).any():
        raise FieldError(
            f"all boxes are within 0 and 1, such as {found[0].tolist()}: these are no pixels. Write `relative: true`"
        )
    first, second = _find_corners(found, form)
    if place.relative:
        _check_fractions(found, "boxes")
    if (second < first).any():
        at = int((second < first).any(axis=1).argmax())
        raise FieldError(
            f"box {at + 1} of {len(found)}, {found[at].tolist()}, ends before it begins; `box_format` is `{form}`, and "
            f"may have to be another one of {', '.join(BOX_FORMATS)}"
        )
    watch(found, place)
    corners = place.move(np.stack([first, second]))
    if place.is_flipped:
        corners = np.stack([corners[[1, 0], :, 0], corners[:, :, 1]], axis=-1)
    first, second = corners.clip(0, place.ends)
    kept = np.flatnonzero((second > first).all(axis=1))
    if drop:
        first, second = first[kept], second[kept]
    if form == "cxcywh":
        first, second = (first + second) / 2, second - first
    elif form == "xywh":
        second = second - first
    return np.hstack([first, second]).astype(np.float32), kept


def _move_points(value: Any, place: Geometry, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Return points in the crop. A third number says whether a point is visible: 0 outside the crop."""
    wanted = "lists of x and y, or of x, y and a number that says whether the point is visible"
    found = _read_numbers(value, "points", wanted)
    if found.size == 0:
        return found.astype(np.float32)
    if found.ndim < 2 or found.shape[-1] not in (2, 3):
        raise FieldError(f"points are {wanted}, and this has shape {found.shape}")
    if place.relative:
        _check_fractions(found[..., :2], "points")
    moved = place.move(found[..., :2])
    if found.shape[-1] == 3:
        is_inside = ((moved >= 0) & (moved <= place.ends)).all(axis=-1)
        moved = np.concatenate([moved, np.where(is_inside, found[..., 2], 0)[..., None]], axis=-1)
    if place.is_flipped and len(pairs):
        if pairs.max() >= found.shape[-2]:
            raise FieldError(
                f"`flip_points` exchanges point {pairs.max()}, and there are {found.shape[-2]}, counted from 0"
            )
        order = np.arange(found.shape[-2])
        order[pairs] = pairs[:, ::-1]
        moved = moved[..., order, :]
    return moved.astype(np.float32)
