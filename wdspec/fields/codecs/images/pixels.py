"""Pillow images of any mode → 8 bits of the mode wanted, or all 16 bits of deep ones as floats, rescaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from wdspec.fields.codecs.images.framing import Fit

_GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""Pillow's weights of red, green and blue in grey (ITU-R 601-2)."""

Array = np.ndarray[Any, Any]


def fitted(image: Image.Image, fits: Sequence[Fit], nearest: bool) -> Image.Image:
    """The image after all steps."""
    for fit in fits:
        image = fit(image, nearest)
    return image


def fitted_array(values: Array, fits: Sequence[Fit], nearest: bool) -> Image.Image:
    """The image of an array of bytes, HW or HWC, after all steps; of a crop only its pixels become one."""
    first = fits[0]
    if first.crop is not None:
        left, top, right, bottom = first.crop
        if left >= 0 and top >= 0 and right <= values.shape[1] and bottom <= values.shape[0]:
            values = values[top:bottom, left:right]
            fits = [replace(first, crop=None), *fits[1:]]
    return fitted(Image.fromarray(values), fits, nearest)


def has_16_bits(image: Image.Image) -> bool:
    """Whether an image is grey with 16 bits a sample (Pillow reads 16-bit colour with 8).

    Pillow stretches the values of deep PGMs, and in releases before 11 of 16-bit PNGs, over 0..65535 in
    mode I.
    """
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def grey_of_16_bits(image: Image.Image, fits: Sequence[Fit], nearest: bool) -> Array:
    """A 16-bit grey image as float32 in 0..65535, HW, rescaled by the steps."""
    return _resized(np.asarray(image).astype(np.float32), fits, nearest)


def colours_of_16_bits(
    high: Image.Image, low: Image.Image, mode: str, fits: Sequence[Fit], nearest: bool
) -> Array:
    """The high and low bytes of a 16-bit colour image as float32 in 0..65535, HW or HWC after the mode, rescaled."""
    values = np.asarray(high).astype(np.float32) * 256 + np.asarray(low)
    if mode == "L":
        return _resized((values[:, :, :3] @ _GREY).clip(0, 65535), fits, nearest)
    channels = [_resized(values[:, :, i], fits, nearest) for i in range(min(len(mode), values.shape[2]))]
    if len(channels) < len(mode):
        channels.append(np.full_like(channels[0], 65535))
    return np.stack(channels, axis=2)


def with_channels(grey: Array, mode: str) -> Array:
    """Grey values in 0..65535 as HW, HW3, or HW4 with opaque alpha."""
    if mode == "L":
        return grey
    result = np.full((*grey.shape, len(mode)), 65535, np.float32)
    result[:, :, :3] = grey[:, :, None]
    return result


def mode_of_8_bits(image: Image.Image, mode: str, fits: Sequence[Fit], nearest: bool) -> Image.Image:
    """An image in mode L, RGB or RGBA, rescaled by the steps, and free of its file.

    Sixteen bits are scaled to eight, where Pillow's own conversion clips; alpha is dropped or kept, never
    applied.

    Raises:
        ValueError: the samples are 32-bit integers or floats, which have no agreed range.
    """
    if has_16_bits(image):
        grey = np.rint(grey_of_16_bits(image, fits, nearest) / 65535.0 * 255).astype(np.uint8)
        return Image.fromarray(grey).convert(mode)
    if image.mode in ("I", "F"):
        raise ValueError(
            f"its 32-bit {'integers' if image.mode == 'I' else 'floats'} have no agreed range; "
            "decode it by a function of your own, or as `raw`"
        )
    if mode != "RGBA":
        # Converting would otherwise look for a place for the transparent colour, or warn that it finds none.
        image.info.pop("transparency", None)
    # Neighbouring palette indices are no neighbouring colours.
    nearest = nearest or image.mode in ("P", "PA")
    image = image.convert(mode)
    return fitted(image, fits, nearest)


def _resized(values: Array, fits: Sequence[Fit], nearest: bool) -> Array:
    if not fits:
        return values
    resized = fitted(Image.fromarray(values), fits, nearest)
    return np.array(resized, dtype=np.float32).clip(0, 65535)
