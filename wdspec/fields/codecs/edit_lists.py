"""The edit lists of an MP4 or QuickTime file, which say what part of each track is shown."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction

TIMESCALE = 90_000
"""Ticks per second of the file as a whole, which its muxer has to be told."""


def set_edits(data: bytearray, spans: Sequence[tuple[Fraction, Fraction, Fraction]]) -> bytes:
    """Return the file with other edit lists. Each track must have one, and the boxes about them must be the last.

    Args:
        data: the file, which is changed.
        spans: for each track, how long nothing is shown first, then where in it the shown part starts, and how long
            that is, in seconds.

    Raises:
        ValueError: the times are too long for 32 bits.
    """
    movie = next(_find(data, (b"moov",), 0, len(data)))
    tracks = list(_find(data, (b"trak",), *movie))
    for (late, start, length), track in reversed(list(zip(spans, tracks, strict=True))):
        header, _ = next(_find(data, (b"mdia", b"mdhd"), *track))
        (scale,) = struct.unpack_from(">I", data, header + 12)
        shown = next(_find(data, (b"tkhd",), *track))[0]
        before, ticks = round(late * TIMESCALE), round(length * TIMESCALE)
        if data[header] or ticks >= 1 << 32 or start * scale >= (1 << 31) - 1:
            raise ValueError(
                f"a part of {float(length):,.0f} s, with {float(start):,.0f} s from the key frame before it on, is too "
                "long for the edit list of an MP4; write a shorter span"
            )
        _set_length(data, shown, 20, before + ticks)
        edits = [(before, -1)] * bool(before) + [(ticks, round(start * scale))]
        content = struct.pack(">II", 0, len(edits)) + b"".join(
            struct.pack(">IiI", *each, 1 << 16) for each in edits
        )
        _replace(data, [movie, track], b"edts", struct.pack(">I4s", len(content) + 8, b"elst") + content)
    longest = max(round((late + length) * TIMESCALE) for late, _, length in spans)
    _set_length(data, next(_find(data, (b"mvhd",), *movie))[0], 16, longest)
    return bytes(data)


def _replace(data: bytearray, around: list[tuple[int, int]], kind: bytes, content: bytes) -> None:
    """Give a box other contents, and the boxes around it their new length."""
    first, end = next(_find(data, (kind,), *around[-1]))
    for at in (first, *(at for at, _ in around)):
        (size,) = struct.unpack_from(">I", data, at - 8)
        struct.pack_into(">I", data, at - 8, size + len(content) - (end - first))
    data[first:end] = content


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
