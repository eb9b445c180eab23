"""The place of one slot in one source, and its layout in bytes. Counters only; no samples."""

from __future__ import annotations

import struct
from typing import NamedTuple

_LAYOUT = struct.Struct("<7q")
SIZE = _LAYOUT.size
"""Bytes of one packed `StreamState`."""


class StreamState(NamedTuple):
    """Where a slot stands in a source: enough to read the current window again and go on inside it."""

    turn: int = 0
    """The slot's turn (`ShardOrder.entry`) at which the current window began."""
    offset: int = 0
    """Byte offset in the uncompressed shard of the window's first sample; 0 is the shard's start."""
    sample: int = 0
    """Index in the shard of the sample at that offset."""
    window: int = 0
    """Number of the current window."""
    ordinal: int = 0
    """Raw samples the slot read from the source before this window."""
    length: int = -1
    """Samples in the current window; -1: not read yet."""
    emitted: int = 0
    """Samples of the window already emitted (or dropped)."""

    def pack(self) -> bytes:
        """The state as `SIZE` bytes, little-endian 64-bit integers in the order of the fields."""
        return _LAYOUT.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> StreamState:
        """The inverse of `pack`."""
        return cls(*_LAYOUT.unpack(data))


def pack_slot(states: list[StreamState]) -> bytes:
    """The state of one slot: its sources' states end to end, in the plan's order."""
    return b"".join(map(StreamState.pack, states))


def unpack_slot(data: bytes) -> list[StreamState]:
    """The inverse of `pack_slot`."""
    return [StreamState(*fields) for fields in _LAYOUT.iter_unpack(data)]
