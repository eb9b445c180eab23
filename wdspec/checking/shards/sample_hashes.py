"""Hashes of samples: of their keys, of their bytes, and of what their images look like."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

PART = 256
"""Bytes hashed of the beginning, the middle and the end of a field: whoever finds two alike compares all of them."""
FEWEST = 64
"""Bytes of a field that say anything: many samples share a label."""
_ROWS, _COLUMNS, _PATCH = 8, 9, 4


def key_hash(key: str) -> bytes:
    """8 bytes of a key."""
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def content_hash(data: bytes) -> bytes:
    """8 bytes of a field: of its length, and of three parts of it; zeros for one that is too short to tell."""
    size = len(data)
    if size < FEWEST:
        return bytes(8)
    if size > 3 * PART:
        middle = size // 2
        data = data[:PART] + data[middle : middle + PART] + data[-PART:]
    return blake2b(data + size.to_bytes(8, "little"), digest_size=8).digest()


def look_hash(image: Any) -> int:
    """64 bits that say where an image is brighter than to its left; 0 for what is no image, or shows nothing.

    Args:
        image: an array (height, width, 3), (height, width), or a tensor (3, height, width), of any type.
    """
    array = np.asarray(image)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array[min(1, array.shape[0] - 1)]
    elif array.ndim == 3:
        array = array[:, :, min(1, array.shape[2] - 1)]  # green, which is most of the brightness
    if array.ndim != 2 or min(array.shape) < _COLUMNS or array.dtype.kind not in "uif":
        return 0
    rows = np.linspace(0, array.shape[0] - 1, _ROWS * _PATCH).astype(np.intp)
    columns = np.linspace(0, array.shape[1] - 1, _COLUMNS * _PATCH).astype(np.intp)
    patches = array[np.ix_(rows, columns)].astype(np.float32).reshape(_ROWS, _PATCH, _COLUMNS, _PATCH)
    grey = patches.mean(axis=(1, 3))
    bits = np.packbits(grey[:, 1:] > grey[:, :-1])
    if not 8 <= int(np.unpackbits(bits).sum()) <= 56:
        return 0
    return int.from_bytes(bits.tobytes(), "little")


def largest(sample: Mapping[str, Any]) -> str | None:
    """The name of the field with the most bytes; None where none holds bytes."""
    sizes = {
        name: len(value)
        for name, value in sample.items()
        if type(value) is bytes and not name.startswith("__")
    }
    return max(sizes, key=lambda name: sizes[name]) if sizes else None
