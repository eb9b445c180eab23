"""Pillow images of any mode → 8 bits of the mode wanted, or grey floats, rescaled."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

# Cubic with Pillow's antialiasing: Lanczos costs half as much again and rings more at the edges of letters.
SMOOTH = Image.Resampling.BICUBIC
NEAREST = Image.Resampling.NEAREST


def has_16_bits(image: Image.Image) -> bool:
    """Whether an image is grey with 16 bits a sample (Pillow reads 16-bit colour with 8).

    Pillow stretches the values of deep PGMs, and in releases before 11 of 16-bit PNGs, over 0..65535 in
    mode I.
    """
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def values_of_16_bits(image: Image.Image, size: tuple[int, int], nearest: bool) -> np.ndarray[Any, Any]:
    """A 16-bit grey image as float32 in 0..1, HW, rescaled to a size (width, height)."""
    values = np.asarray(image).astype(np.float32)
    if size != image.size:
        resized = Image.fromarray(values).resize(size, NEAREST if nearest else SMOOTH)
        values = np.array(resized, dtype=np.float32).clip(0, 65535)
    values /= 65535.0
    return values


def mode_of_8_bits(image: Image.Image, mode: str, size: tuple[int, int], nearest: bool) -> Image.Image:
    """An image in mode L, RGB or RGBA, rescaled to a size (width, height), and free of its file.

    Sixteen bits are scaled to eight, where Pillow's own conversion clips; alpha is dropped or kept, never
    applied.

    Raises:
        ValueError: the samples are 32-bit integers or floats, which have no agreed range.
    """
    if has_16_bits(image):
        grey = np.rint(values_of_16_bits(image, size, nearest) * 255).astype(np.uint8)
        return Image.fromarray(grey).convert(mode)
    if image.mode in ("I", "F"):
        raise ValueError(
            f"its 32-bit {'integers' if image.mode == 'I' else 'floats'} have no agreed range; "
            "decode it by a function of your own, or as `raw`"
        )
    if mode != "RGBA":
        # Converting would otherwise look for a place for the transparent colour, or warn that it finds none.
        image.info.pop("transparency", None)
    if size == image.size:
        return image.convert(mode)
    if image.mode in ("P", "PA"):
        # Neighbouring palette indices are no neighbouring colours.
        return image.resize(size, NEAREST).convert(mode)
    return image.convert(mode).resize(size, NEAREST if nearest else SMOOTH)
