"""The headers of many members at once, by arithmetic on a whole window: what one program wrote is mostly alike.

A header costs two microseconds in a loop, and a third of one here. Only windows are taken whose headers the loop of
`tar_reader` would take as quickly, by the same checks; all others are left to that loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.formats.blocks import BLOCK
from wdspec.formats.tar.headers import NAME

FEWEST = 64
"""Members from which on numpy's cost for each call is small beside what it saves."""

_WORD, _HEAD, _TAIL, _MAGIC = 8, 148, 156, 256
_NAME = np.dtype([("name", f"S{NAME}"), ("rest", f"V{BLOCK - NAME}")])
_COLUMNS = np.concatenate([np.arange(124, 136), np.arange(148, 156)])
"""The size, and the checksum."""
_LOWEST = np.frombuffer(b"0" * 11 + b"\0" + b"0" * 6 + b"\0 ", np.uint8)
"""Of each of these bytes what is least; there are seven more digits, and of what ends a number nothing else."""
_MORE = np.frombuffer(b"\7" * 11 + b"\0" + b"\7" * 6 + b"\0\0", np.uint8)
_EIGHTS = np.array([*range(30, -3, -3), 0, *range(15, -3, -3), 0, 0], dtype=np.int64)
"""How far each digit is shifted."""


class HeaderRun(NamedTuple):
    """Members that lie one behind the other."""

    names: list[bytes]
    data: npt.NDArray[np.int64]
    """Where the bytes of each begin, in the window; the header is the block before."""
    ends: npt.NDArray[np.int64]
    """And where they end."""


def headers_from(buffer: bytes, at: int, tail: bytes, tail_sum: int) -> HeaderRun | None:
    """The ordinary members from a header on, as far as they follow one another in a window; None for few.

    Args:
        buffer, at: the window, and where in it the header is.
        tail: all from byte 156 on of the header of an ordinary file; only members with the same are taken.
        tail_sum: the sum of its bytes, with the blanks of the checksum.
    """
    words = (len(buffer) - at) // BLOCK * (BLOCK // _WORD)
    blocks = np.frombuffer(buffer, "<u8", words, at).reshape(-1, BLOCK // _WORD)
    likely = np.flatnonzero(blocks[:, _MAGIC // _WORD] == np.frombuffer(tail, "<u8", 1, _MAGIC - _TAIL)[0])
    if len(likely) < FEWEST or likely[0]:
        return None
    found = blocks.take(likely, axis=0)
    places = found.view(np.uint8)
    digits = places.take(_COLUMNS, axis=1) - _LOWEST  # what is below becomes large
    weighed = digits << _EIGHTS
    checksums = weighed[:, 12:].sum(axis=1)
    data = at + BLOCK + likely * BLOCK
    ends = data + weighed[:, :12].sum(axis=1)
    count = len(found)
    gaps = data[1:] - (ends[:-1] + (BLOCK - 1) & -BLOCK) != BLOCK
    if gaps.any():
        count = int(gaps.argmax()) + 1
        if count < FEWEST:
            return None
        found, places, digits = found[:count], places[:count], digits[:count]
    sums = np.add.reduce(places[:, :_HEAD], axis=1, dtype=np.uint16)  # at most 148 times 255
    if (
        (digits > _MORE).any()
        or places[:, _TAIL:].tobytes() != tail * count
        or (checksums[:count] - sums != tail_sum).any()
    ):
        return None
    names: list[bytes] = found.view(_NAME)["name"].ravel().tolist()
    return HeaderRun(names, data[:count], ends[:count])
