"""The random numbers that determine the order: keyed, counter-based, and equal on every machine and Python version.

This module uses no ``hash()``, no global generator, and no generator of a library, whose stream may change between
versions. A key is the blake2b hash of an unambiguous encoding. A stream is splitmix64's output function applied to
key + counter (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), with O(1) random access.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""⌊2⁶⁴/φ⌋ | 1: the step of splitmix64 and of the Kronecker sequence of `draw: even`."""
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

UInt64Array = npt.NDArray[np.uint64]


def encode_text(text: str) -> bytes:
    """Return the bytes of a text from data: UTF-8, and for bytes of names that are not UTF-8 these bytes.

    JSON may also have halves of surrogate pairs, which become three bytes each.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def key64(*parts: int | str) -> int:
    """Return a 64-bit key of the parts. Different parts, types or numbers of parts result in unrelated keys.

    Args:
        parts: integers of any size and strings, e.g. ``key64(seed, "order", "archive", 3)``.
    """
    return int.from_bytes(_hash(parts).digest(), "little")


def keys64(*parts: int | str, last: Iterable[int]) -> UInt64Array:
    """Return `key64` of the parts followed by each of the integers in `last`, shape (number of integers,)."""
    start = _hash(parts)
    keys = b"".join(_hash([each], start.copy()).digest() for each in last)
    return np.frombuffer(keys, "<u8").astype(np.uint64)


def _hash(parts: Iterable[int | str], start: hashlib.blake2b | None = None) -> hashlib.blake2b:
    digest = hashlib.blake2b(digest_size=8) if start is None else start
    for part in parts:
        data = repr(part).encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest


def mix64(value: int) -> int:
    """Apply splitmix64's output function: a bijection of 64-bit integers whose values look random."""
    value &= MASK
    value = ((value ^ (value >> 30)) * _M1) & MASK
    value = ((value ^ (value >> 27)) * _M2) & MASK
    return value ^ (value >> 31)


def random64(key: int, counter: int) -> int:
    """Return the counter-th 64-bit number of the key's stream, in O(1)."""
    return mix64(key + (counter + 1) * GOLDEN)


def uniform(key: int, counter: int) -> float:
    """Return the counter-th number of the key's stream as a float in [0, 1) with 53 bits."""
    return (random64(key, counter) >> 11) * 2.0**-53


def mix64_array(values: UInt64Array) -> UInt64Array:
    """Apply `mix64` to every element; the shape stays."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_M1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_M2)
    mixed: UInt64Array = values ^ (values >> np.uint64(31))
    return mixed


def arithmetic(start: int, step: int, count: int) -> UInt64Array:
    """Return ``start + i·step`` modulo 2⁶⁴ for i in 0..count-1, shape (count,). Both may be integers of any size."""
    values: UInt64Array = np.uint64(start & MASK) + np.arange(count, dtype=np.uint64) * np.uint64(step & MASK)
    return values


def random64_array(key: int, start: int, count: int) -> UInt64Array:
    """Return `random64` of the counters start..start+count-1, shape (count,)."""
    return mix64_array(arithmetic(key + (start + 1) * GOLDEN, GOLDEN, count))


def random64_at(keys: UInt64Array, counters: npt.NDArray[np.int64]) -> UInt64Array:
    """Return `random64` of keys and counters (at least 0), which are broadcast against each other."""
    return mix64_array(keys + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN))
