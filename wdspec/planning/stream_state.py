"""How far one slot has read one source, and its layout in bytes. Counters only; no samples."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_LAYOUT = struct.Struct("<8q")
_PROGRESS = struct.Struct("<2q")
_PROGRESS_AT = 5 * 8
"""Where `length` and `emitted` lie."""
_LANE = struct.Struct("<3q")
SIZE = _LAYOUT.size
"""Bytes of one packed `StreamState` of a source that reads one shard at a time."""

Lane = tuple[int, int, int]
"""(turn, offset, sample) of an open shard, as in the first three fields of `StreamState`."""


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
    lanes: tuple[Lane, ...] = ()
    """With `interleave`, the other open shards, in the order of their turns after the first."""

    @property
    def given(self) -> int:
        """Samples of the source that the slot has given, or left out."""
        return self.ordinal + self.emitted

    def pack(self) -> bytes:
        """The state in bytes: little-endian 64-bit integers in the order of the fields, the lanes counted."""
        packed = _LAYOUT.pack(*self[:7], len(self.lanes))
        return packed + b"".join(_LANE.pack(*lane) for lane in self.lanes) if self.lanes else packed

    @classmethod
    def unpack(cls, data: bytes) -> StreamState:
        """The inverse of `pack`."""
        (state,) = _unpacked(data)
        return state

    def numbers(self) -> list[int]:
        """The state as JSON has it: the numbers of the fields, then three of each lane, its turn from `turn` on."""
        return [*self[:7], *(n for lane in self.lanes for n in (lane[0] - self.turn, *lane[1:]))]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> StreamState:
        """The inverse of `numbers`."""
        turn, rest = numbers[0], iter(numbers[7:])
        lanes = tuple(
            (turn + ahead, offset, sample) for ahead, offset, sample in zip(rest, rest, rest, strict=True)
        )
        return cls._make((*numbers[:7], lanes))


def write_progress(packed: bytearray, length: int, emitted: int) -> None:
    """Moves a packed state on within its window: all that changes from sample to sample of a window."""
    _PROGRESS.pack_into(packed, _PROGRESS_AT, length, emitted)


def pack_slot(states: list[StreamState]) -> bytes:
    """The state of one slot: its sources' states end to end, in the plan's order."""
    return b"".join(map(StreamState.pack, states))


def unpack_slot(data: bytes) -> list[StreamState]:
    """The inverse of `pack_slot`."""
    return list(_unpacked(data))


def _unpacked(data: bytes) -> Iterator[StreamState]:
    at = 0
    while at < len(data):
        *fields, count = _LAYOUT.unpack_from(data, at)
        at += SIZE
        end = at + count * _LANE.size
        yield StreamState._make((*fields, tuple(_LANE.iter_unpack(data[at:end]))))
        at = end
