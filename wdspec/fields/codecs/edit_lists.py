"""The edit lists of an MP4 or QuickTime file, which say what part of each track is shown."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction

TIMESCALE = 90_000
"""Ticks per second of the file as a whole, which its muxer has to be told."""


def set_edits(data: bytearray, spans: Sequence[tuple[Fraction, Fraction]]) -> bytes:
    """Return the file with other edit lists. Each track must have one.

    Args:
        data: the file, which is changed.
        spans: for each track, where in it the shown part starts, and its length, in seconds.

    Raises:
        ValueError: the times are too long for 32 bits.
    """
    movie = next(_find(data, (b"moov",), 0, len(data)))
    lengths = []
    for (start, length), track in zip(spans, _find(data, (b"trak",), *movie), strict=True):
        header, _ = next(_find(data, (b"mdia", b"mdhd"), *track))
        (scale,) = struct.unpack_from(">I", data, header + 12)
        shown = next(_find(data, (b"tkhd",), *track))[0]
        lengths.append(round(length * TIMESCALE))
        if data[header] or lengths[-1] >= 1 << 32 or start * scale >= (1 << 31) - 1:
            raise ValueError(
                f"a part of {float(length):,.0f} s, with {float(start):,.0f} s from the key frame before it on, is too "
                "long for the edit list of an MP4; write a shorter span"
            )
        edit = struct.pack(">IIIiI", 0, 1, lengths[-1], round(start * scale), 1 << 16)
        first, end = next(_find(data, (b"edts", b"elst"), *track))
        spare = end - first - len(edit)
        data[first:end] = edit + (struct.pack(">I4s", spare, b"free") + bytes(spare - 8) if spare else b"")
        struct.pack_into(">I", data, first - 8, len(edit) + 8)
        _set_length(data, shown, 20, lengths[-1])
    _set_length(data, next(_find(data, (b"mvhd",), *movie))[0], 16, max(lengths))
    return bytes(data)


def _set_length(data: bytearray, first: int, offset: int, length: int) -> None:
    """Write the length into a header, whose times have 64 bits if its version is 1."""
    if data[first]:
        struct.pack_into(">Q", data, first + offset + 8, length)
    else:
        struct.pack_into(">I", data, first + offset, length)


def _find(data: bytearray, path: tuple[bytes, ...], at: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the contents of boxes of an MP4 start and end."""
    while at < end:
        size, kind = struct.unpack_from(">I4s", data, at)
        first = at + 8
        if size == 1:
            size, first = struct.unpack_from(">Q", data, at + 8)[0], at + 16
        if kind == path[0] and len(path) == 1:
            yield first, at + size
        elif kind == path[0]:
            yield from _find(data, path[1:], first, at + size)
        at += size
