"""JPEG by simplejpeg, where it is installed (`wdspec[fast]`): the same pixels as Pillow's, in less time.

It reads baseline and progressive files, grey ones, and coloured ones as colour. For all others, and whatever it finds
fault with, Pillow's word counts, so that a file reads alike on machines with simplejpeg and without.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import numpy as np

from wdspec.fields.codecs.images.reduction import Reduction, reduced_size
from wdspec.fields.scale import MAX_PIXELS

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def simplejpeg() -> Any:
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


def read_jpeg(data: bytes, mode: str, reduction: Reduction | None = None) -> Array | None:
    """Pixels as a writable uint8 array, HW or HWC; None where Pillow has to read them.

    Args:
        mode: ``L``, ``RGB`` or ``RGBA``.
        reduction: says by how much the picture is reduced.
    """
    module = simplejpeg()
    if module is None or not data.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, space, _ = module.decode_jpeg_header(data)
        if space not in ("YCbCr", "Gray") or height * width > MAX_PIXELS:
            return None
        if mode == "L":
            # Pillow makes grey of RGB, which for saturated colours is not the Y of the file, and does it faster.
            if space != "Gray":
                return None
            mode = "GRAY"
        by = 1 if reduction is None else reduction((width, height))
        wide, high = reduced_size((width, height), by)
        values: Array = module.decode_jpeg(data, mode, min_height=high, min_width=wide, min_factor=by)
        if values.shape[:2] != (high, wide):
            return None
        return values.reshape(high, wide) if mode == "GRAY" else values
    except (ValueError, RuntimeError, OverflowError):
        return None
