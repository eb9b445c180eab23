"""Hashes of samples: of their keys, of their bytes, and of what their images look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b, shake_256
from typing import Any

import numpy as np
import numpy.typing as npt

from wdspec.checking.shards.shard_facts import Hashes

SPREAD = 128
"""Bytes hashed of a field at least, evenly spread, and"""
END = 32
"""of its end: whoever finds two alike compares all of them."""
FEWEST = 64
"""Bytes of a field that say anything: many samples share a label."""
LONGEST = 128
"""Bytes of a key that is hashed together with others."""
_WIDTH = 2 * SPREAD + END
_ROWS, _COLUMNS, _PATCH = 8, 9, 4
_FACTORS = np.frombuffer(shake_256(b"wdspec check").digest(8 * (_WIDTH + 1)), np.uint64) | np.uint64(1)
"""Odd numbers of chance, the same for ever: reports keep hashes."""


def key_hashes(keys: Sequence[str | None]) -> Hashes:
    """Hashes of keys; 0 in place of None."""
    hashes = np.zeros(len(keys), np.uint64)
    encoded = [b"" if key is None else key.encode("utf-8", "surrogateescape") for key in keys]
    long = [at for at, key in enumerate(encoded) if len(key) > LONGEST]
    for at in long:
        encoded[at] = blake2b(encoded[at], digest_size=LONGEST // 2).digest()
    if encoded:
        # Numbers of 8 bits: those that differ by a large power of two would leave few bits of a product.
        lengths = np.fromiter(map(len, encoded), np.uint64, len(encoded))
        width = max(1, int(lengths.max()))
        rows = np.array(encoded, dtype=f"S{width}").view(np.uint8).reshape(-1, width)
        hashes = _mixed(rows.astype(np.uint64) @ _FACTORS[:width] + lengths * _FACTORS[-1])
        hashes[[at for at, key in enumerate(keys) if key is None]] = 0
    return hashes


def content_part(data: bytes) -> bytes:
    """What is hashed of a field; nothing of one that is too short to tell."""
    size = len(data)
    if size < 2 * SPREAD:
        return data if size >= FEWEST else b""
    return data[:: size // SPREAD] + data[-END:]


def content_hashes(parts: Sequence[bytes], sizes: Sequence[int]) -> Hashes:
    """Hashes of what `content_part` gave of fields of some sizes; 0 where it was nothing."""
    rows = np.frombuffer(b"".join([part.ljust(_WIDTH, b"\0") for part in parts]), np.uint32)
    sums = rows.reshape(len(parts), -1).astype(np.uint64) @ _FACTORS[: _WIDTH // 4]
    hashes = _mixed(sums + np.array(sizes, np.uint64) * _FACTORS[-1])
    hashes[[at for at, part in enumerate(parts) if not part]] = 0
    return hashes


def _mixed(sums: npt.NDArray[np.uint64]) -> Hashes:
    """Sums whose low bits depend on few of the bits of what was added, with all bits depending on all."""
    sums ^= sums >> np.uint64(32)
    sums *= np.uint64(0x9E3779B97F4A7C15)
    return sums ^ (sums >> np.uint64(29))


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
