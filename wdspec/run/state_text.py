"""The states of the slots of a canonical rank as a short text: column by column, in as few bits as possible.

    slots k = 0..K-1 of rank c, sources s       numbers(s, k)[j], source after source: column j
    ┌ s₀: [2, 51200, 10, …] ┐                   ─▶  minimum, common divisor of the differences, bits of each value
    └ s₁: [0, 0, 0, …]      ┘ …                 ─▶  zlib ─▶ base64

The columns are the numbers of a `StreamState`. Equal values, such as those of sources that were not read, take no bits.
Offsets in a tar are multiples of 512 and take nine bits less. The rest is nearly random and does not compress; zlib
finds repeated slots, and its checksum finds damage.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wdspec.read.source import StreamState

Slot = list[StreamState] | None
"""The state of each source in a slot; None if the slot was not read."""
_COLUMN = struct.Struct("<qqBI")
"""Minimum, divisor, bits of a value, number of values."""
_MOST = 1 << 28
"""Limit in bytes for the columns of a rank, against hostile texts."""


def encode(slots: Sequence[Slot]) -> str:
    """Return the slots k = 0..K-1 of a canonical rank as ASCII text."""
    read = [slot for slot in slots if slot]
    rows = [state.numbers() for source in zip(*read, strict=True) for state in source]
    columns = [[bool(slot) for slot in slots], [len(row) for row in rows]]
    if rows:
        columns += [[row[n] for row in rows if n < len(row)] for n in range(max(map(len, rows)))]
    packed = b"".join(_pack(np.array(column, dtype=np.int64)) for column in columns)
    return base64.b64encode(zlib.compress(packed)).decode()


def decode(text: str, workers: int, sources: int) -> list[Slot]:
    """Return the slots of a text: the inverse of `encode`.

    Args:
        workers: K.
        sources: number of sources of a slot.

    Raises:
        ValueError: this is not such a text, or has another number of workers or sources.
    """
    is_read, widths, columns = _read(text, workers, sources)
    rows: list[list[int]] = [[] for _ in widths]
    for n, column in enumerate(columns):
        for row, number in zip(np.flatnonzero(widths > n).tolist(), column.tolist(), strict=True):
            rows[row].append(number)
    states = [StreamState.from_numbers(row) for row in rows]
    slots, count = iter(range(len(states))), int(is_read.sum())
    return [states[next(slots) :: count] if was_read else None for was_read in is_read]


def decode_numbers(
    text: str, workers: int, sources: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64]] | None:
    """Return the numbers of a text for `StreamState.given_by`, which is fast for thousands of ranks.

    Returns:
        Which of the K slots were read, shape (K,), and the first five numbers of each source in each of these, shape
        (sources, slots, 5). None if some states have stretches, so more than five numbers.

    Raises:
        ValueError: as `decode`.
    """
    is_read, widths, columns = _read(text, workers, sources)
    if not len(widths):
        return is_read, np.zeros((sources, 0, 5), dtype=np.int64)
    if widths.min() < 5 or min(int(column.min()) for column in columns) < 0:
        raise ValueError("numbers are missing, or below 0")
    numbers = np.stack(columns[:5], axis=1)
    if (widths != 5 + 3 * numbers[:, 4]).any():
        return None
    return is_read, numbers.reshape(sources, -1, 5)


def _read(
    text: str, workers: int, sources: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return which slots were read, how many numbers each state has, and the columns of these numbers."""
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(text, validate=True), _MOST)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(str(error)) from None
    if not inflate.eof or inflate.unused_data:
        raise ValueError("it is truncated, or too long")
    file = io.BytesIO(data)
    is_read = _read_column(file, workers).astype(bool)
    widths = _read_column(file, int(is_read.sum()) * sources)
    numbers = [_read_column(file, int((widths > n).sum())) for n in range(int(widths.max(initial=0)))]
    if file.read(1):
        raise ValueError("there is data after the columns")
    return is_read, widths, numbers


def _pack(values: NDArray[np.int64]) -> bytes:
    least = int(values.min()) if len(values) else 0
    above = values - least
    divisor = int(np.gcd.reduce(above)) or 1
    above //= divisor
    bits = int(above.max(initial=0)).bit_length()
    flags = (above[:, None] >> np.arange(bits)) & 1
    return _COLUMN.pack(least, divisor, bits, len(values)) + np.packbits(flags.astype(np.uint8)).tobytes()


def _read_column(file: io.BytesIO, count: int) -> NDArray[np.int64]:
    """Read the next column, which must have `count` values."""
    header = file.read(_COLUMN.size)
    if len(header) < _COLUMN.size:
        raise ValueError("a column is missing")
    least, divisor, bits, values = _COLUMN.unpack(header)
    size = (bits * values + 7) // 8
    packed = np.frombuffer(file.read(size), np.uint8)
    if values != count or bits > 63 or len(packed) < size:
        raise ValueError(f"a column has {values} values of {count}")
    flags = np.unpackbits(packed, count=bits * values).reshape(values, bits)
    numbers: NDArray[np.int64] = flags.astype(np.int64) @ (np.int64(1) << np.arange(bits, dtype=np.int64))
    numbers *= divisor
    numbers += least
    return numbers
