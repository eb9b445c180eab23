"""Resizing pixels: the one place that decides which library resizes an image, and how.

torch's kernel for bytes (`interpolate(antialias=True)`) resizes grey and RGB images, by `bilinear` or `bicubic`. It
takes an eighth to a third of Pillow's time, and differs from it by a grey level (`bicubic`: by a few, next to edges).
It yields the same pixels with and without AVX2, in any number of threads. Pillow resizes all others:

- by `box`, `lanczos` or `nearest`, or without antialiasing, which the kernel does not have;
- RGBA, whose colours have to be weighted by their alpha;
- 16 bits, as floats, which torch does not round equally on all processors;
- to a width of one pixel, where the kernel yields other pixels without AVX2;
- some parts of images that do not start at a whole pixel, since grids of the kernel do;
- with `resizer=pillow`.

So the pixels depend on the spec and on the image, and not on the machine.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from wdspec.fields.scale import MAX_PIXELS
from wdspec.spec.language.decoders import library

NEAREST = Image.Resampling.NEAREST
Array = np.ndarray[Any, Any]
MOST_EXTRA = 24
MOST_OFF = 0.05
"""torch places the pixels of a part of an image within so many pixels of that image; else Pillow resizes the part."""
_USER = "resizing images (unless `decode` has `resizer=pillow`)"


@dataclass(frozen=True)
class Fit:
    """One step: a part of the image, which may extend beyond it, is resized."""

    size: tuple[int, int]
    """Width and height of the result."""
    crop: tuple[int, int, int, int] | None = None
    """Left, top, right, bottom of the part to cut out first; black outside the image."""
    part: tuple[float, float, float, float] | None = None
    """The same of the part to resize, or None for all of it. The filter also uses pixels around the part."""
    # Bicubic with antialiasing, for `scale`: Lanczos takes 1.5 times as long and has more ringing at edges.
    smooth: Image.Resampling = Image.Resampling.BICUBIC
    antialias: bool = True
    resizer: str = "torch"
    """`torch`, where its kernel can do it, or `pillow`."""

    def __call__(self, values: Array, nearest: bool = False) -> Array:
        """Apply the step to bytes, HW or HWC, or to floats, HW; by nearest neighbour if `nearest` is set."""
        if self.crop is not None:
            values = _cut(values, self.crop)
        if self.part is None and (values.shape[1], values.shape[0]) == self.size:
            return values.copy()  # so that it does not keep the whole image
        if values.shape[0] * self.size[0] > MAX_PIXELS:  # both libraries resize the rows first
            raise ValueError(
                f"resizing {values.shape[1]}×{values.shape[0]} to {self.size[0]}×{self.size[1]} needs more than "
                f"{MAX_PIXELS:,} pixels in between; read it as `raw`"
            )
        is_bytes = values.dtype == np.uint8 and (values.ndim == 2 or values.shape[2] == 3)
        result = None
        if is_bytes and self._kernel is not None and not nearest and self.size[0] > 1:
            result = self._by_torch(values, self._kernel)
        return np.array(self._by_pillow(Image.fromarray(values), nearest)) if result is None else result

    @property
    def _kernel(self) -> str | None:
        """The name of torch's kernel; None if Pillow has to resize."""
        return _KERNELS.get(self.smooth) if self.antialias and self.resizer == "torch" else None

    def _by_torch(self, values: Array, kernel: str) -> Array | None:
        """Return the result, or None if the kernel cannot place its pixels."""
        (width, height), column, row = self.size, 0, 0
        wide, high = self.size
        scales: tuple[float | None, float | None] = (None, None)
        if self.part is not None:
            left, top, right, bottom = self.part
            across = _align(left, right, width, values.shape[1])
            down = _align(top, bottom, height, values.shape[0])
            if across is None or down is None:
                return None
            values, column, row = values[down.pixels, across.pixels], across.extra, down.extra
            wide, high = across.total, down.total
            scales = 1 / down.step, 1 / across.step
        resize, from_numpy = _find_kernel(kernel)
        if not (values.flags.c_contiguous and values.flags.writeable):
            values = values.copy()  # torch would copy a view in several threads, which takes longer
        # A batch of one image, whose strides have the channels last: so the result has, too, and takes half the time.
        channels = values.shape[2] if values.ndim == 3 else 1
        pixels = from_numpy(values).view(1, *values.shape[:2], channels).permute(0, 3, 1, 2)
        resized = resize(pixels, (high, wide), False, *scales).permute(0, 2, 3, 1)[0].numpy()
        result: Array = resized if values.ndim == 3 else resized[:, :, 0]
        return np.ascontiguousarray(result[row : row + height, column : column + width])

    def _by_pillow(self, image: Image.Image, nearest: bool) -> Image.Image:
        if nearest or self.antialias:
            return image.resize(self.size, NEAREST if nearest else self.smooth, self.part)
        whole = self.part or (0, 0, *image.size)
        kind: Any = self.smooth  # of the three filters that both take
        return image.transform(self.size, Image.Transform.EXTENT, whole, kind)


class Steps(NamedTuple):
    """What to do with an image that is decoded later."""

    fits: list[Fit]
    is_flipped: bool
    box: tuple[int, int, int, int] | None
    """The crop of the first step if it is within the image, so that no more has to be decoded."""


def resize(values: Array, fits: Sequence[Fit], nearest: bool = False) -> Array:
    """Return pixels after all steps: bytes, HW or HWC, or floats, HW."""
    for fit in fits:
        values = fit(values, nearest)
    return values


_KERNELS = {
    Image.Resampling.BILINEAR: "_upsample_bilinear2d_aa",
    Image.Resampling.BICUBIC: "_upsample_bicubic2d_aa",
}
"""torch's functions behind `interpolate(antialias=True)`, called directly, since only they take two scales."""


@lru_cache
def _find_kernel(name: str) -> tuple[Any, Any]:
    """Return the kernel, and torch's function to make a tensor of an array."""
    torch = library("torch", _USER)
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX") and hasattr(os, "register_at_fork"):
        # Without AVX2, the kernel runs in several threads, for which a forked child would wait in vain.
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
    return getattr(torch.ops.aten, name).default, torch.from_numpy


def _cut(values: Array, box: tuple[int, int, int, int]) -> Array:
    """Return left, top, right, bottom of an image: a view, or with black around it a copy."""
    left, top, right, bottom = box
    height, width = values.shape[:2]
    inside = values[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if left >= 0 and top >= 0 and right <= width and bottom <= height:
        return inside
    result = np.zeros((bottom - top, right - left, *values.shape[2:]), values.dtype)
    above, before = max(-top, 0), max(-left, 0)
    result[above : above + inside.shape[0], before : before + inside.shape[1]] = inside
    return result


class _Grid(NamedTuple):
    """Where a kernel whose grids start at the edge of its input places pixels along one side."""

    pixels: slice
    """The pixels of the input to use."""
    extra: int
    """The number of pixels to make before those that count."""
    total: int
    """The number of pixels to make, with those before and after."""
    step: float
    """The distance of pixels in the input."""


def _align(start: float, end: float, count: int, length: int) -> _Grid | None:
    """Place `count` pixels in a part of an input with `length` pixels; None if they would be off by too much.

    With n extra pixels before the part, they are exact if the part starts n steps after a pixel of the input.
    """
    step = (end - start) / count
    # From 2 on, the first pixel that counts also uses all pixels of the input before it.
    extras = [
        n for n in (*range(2, MOST_EXTRA + 1), round(start / step), 1, 0) if round(start - n * step) >= 0
    ]
    errors = [round(abs(start - n * step - round(start - n * step)), 6) for n in extras]
    if not errors or min(errors) > MOST_OFF:
        return None
    extra = extras[errors.index(min(errors))]
    first, last = round(start - extra * step), min(length, math.ceil(end + 2 * step) + 1)
    # The kernel copies a side of as many pixels as it makes, whatever the scale: then it makes one more.
    is_copied = last - first == extra + count and step != 1
    return _Grid(slice(first, last), extra, extra + count + is_copied, step)
