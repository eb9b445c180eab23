"""How far one slot has read one source, as counters, and their layout in bytes; no samples."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.planning.delays import Delays, ReleaseOrder, Stretch

_LAYOUT = struct.Struct("<6q")
_LAST = struct.Struct("<q")
_LAST_AT = 2 * 8
"""Offset of `last`."""
_TRIPLE = struct.Struct("<3q")
SIZE = _LAYOUT.size
"""Bytes of one packed `StreamState` without lanes and stretches."""

Columns = npt.NDArray[np.int64]

Lane = tuple[int, int, int]
"""(turn, offset, sample) of an open shard: its turn in the slot (`ShardOrder.entry`), the byte offset of its next
sample in the uncompressed shard (0 is the shard's start), and that sample's index in the shard."""


class StreamState(NamedTuple):
    """Where a slot is in a source: what was read and did not come out yet is read again from here."""

    turn: int = 0
    """The slot's next turn to start."""
    ordinal: int = 0
    """Raw samples the slot read from the source before this point; all of them came out, or were dropped."""
    last: int = -1
    """Ordinal of the sample that came out last; -1: none of this pass, or all in the order of reading."""
    end: int = 0
    """Ordinal at which the slot's pass ends, once it was read to its end and the rest comes out; else 0."""
    lanes: tuple[Lane, ...] = ()
    """The open shards, the one that is read next first."""
    stretches: tuple[Stretch, ...] = ()
    """Where samples follow other numbers than the plan's, those they started with; ascending."""

    def given(self, slot: int, delays: Delays) -> int:
        """Samples of the source that the slot has yielded, or left out."""
        out = ReleaseOrder(delays, delays.key(slot), self.ordinal, self.last, self.stretches).out
        return self.ordinal + sum(not self.end or ordinal < self.end for ordinal in out)

    @staticmethod
    def given_by(numbers: Columns, slots: Sequence[int], delays: Delays) -> npt.NDArray[np.int64]:
        """`given` of many slots, shape (slots,), of states without stretches.

        Args:
            numbers: the first five `numbers` of each slot, shape (slots, 5).

        Raises:
            ValueError: no slot can be there.
        """
        ordinal, coded, end = numbers[:, 1], numbers[:, 2], numbers[:, 3]
        last = np.where(coded % 2, ordinal - (coded + 1) // 2, ordinal + coded // 2 - 1)
        ends = np.where(end, ordinal + end - 1, 0)
        (held,) = np.nonzero(coded)
        if len(held):
            ordinal = ordinal.copy()
            ordinal[held] += delays.count_out(
                [slots[at] for at in held.tolist()], ordinal[held], last[held], ends[held]
            )
        return ordinal

    def pack(self) -> bytes:
        """The state in bytes: little-endian 64-bit integers in the order of the fields, those of lists counted."""
        packed = _LAYOUT.pack(*self[:4], len(self.lanes), len(self.stretches))
        return packed + b"".join(_TRIPLE.pack(*each) for each in (*self.lanes, *self.stretches))

    @classmethod
    def unpack(cls, data: bytes) -> StreamState:
        """The inverse of `pack`."""
        (state,) = _unpack_all(data)
        return state

    def numbers(self) -> list[int]:
        """The state as JSON has it: turn, ordinal, last, end, number of lanes; three numbers for each lane and stretch.

        Numbers stay small: turns of lanes count back from `turn`, `last` from `ordinal`, after it (2, 4, …) or before
        it (1, 3, …), and `end` from `ordinal`, 1 for the same; 0 means none.
        """
        after = self.last - self.ordinal
        last = 0 if self.last < 0 else 2 * after + 2 if after >= 0 else -2 * after - 1
        lanes = ((self.turn - turn, offset, sample) for turn, offset, sample in self.lanes)
        lists = (number for each in (*lanes, *self.stretches) for number in each)
        return [
            self.turn,
            self.ordinal,
            last,
            self.end and self.end - self.ordinal + 1,
            len(self.lanes),
            *lists,
        ]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> StreamState:
        """The inverse of `numbers`.

        Raises:
            ValueError: these are not the numbers of a state.
        """
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers) or len(numbers) < 5:
            raise ValueError(f"{str(numbers)[:60]} is no place in a source")
        turn, ordinal, last, end, lanes, *rest = numbers
        triples = list(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
        if lanes > len(triples):
            raise ValueError(f"{len(triples)} lanes of {lanes}")
        return cls(
            turn,
            ordinal,
            -1 if not last else ordinal - (last + 1) // 2 if last % 2 else ordinal + last // 2 - 1,
            end and ordinal + end - 1,
            tuple((turn - back, offset, sample) for back, offset, sample in triples[:lanes]),
            tuple(Stretch(*each) for each in triples[lanes:]),
        )

    def for_plan_with_other_sizes(self, slot: int, delays: Delays, lanes: int) -> StreamState:
        """The state for a plan with other delays or lanes: what started with the given ones finishes with them.

        The new ones apply from the first sample on that could not have come out yet, so none is lost or repeated.
        """
        if self.last < 0:
            if not any(offset or sample for _, offset, sample in self.lanes):  # none was read
                return StreamState(min((lane[0] for lane in self.lanes), default=self.turn), self.ordinal)
            return self._replace(stretches=())
        until = delays.next_free(delays.key(slot), self.last, self.stretches)
        if until <= self.ordinal:  # nothing is in progress
            return self._replace(last=-1, stretches=())
        kept = [stretch for stretch in self.stretches if stretch.until < until]
        in_progress = (
            self.stretches[len(kept)] if len(kept) < len(self.stretches) else Stretch(0, delays.size, lanes)
        )
        return self._replace(stretches=(*kept, in_progress._replace(until=until)))

    def restarted(self) -> StreamState:
        """The state for a source that is read in another way: at the start of the first open shard."""
        turn = min((lane[0] for lane in self.lanes), default=self.turn)
        return StreamState(turn, max(self.ordinal, self.last + 1))


def write_last(packed: bytearray, last: int) -> None:
    """Advance a packed state to the next sample that came out: all that changes from sample to sample."""
    _LAST.pack_into(packed, _LAST_AT, last)


def pack_slot(states: list[StreamState]) -> bytes:
    """The state of one slot: its sources' states end to end, in the plan's order."""
    return b"".join(map(StreamState.pack, states))


def unpack_slot(data: bytes) -> list[StreamState]:
    """The inverse of `pack_slot`."""
    return list(_unpack_all(data))


def _unpack_all(data: bytes) -> Iterator[StreamState]:
    at = 0
    while at < len(data):
        turn, ordinal, last, end, lanes, stretches = _LAYOUT.unpack_from(data, at)
        at += SIZE
        start, at = at, at + (lanes + stretches) * _TRIPLE.size
        triples = list(_TRIPLE.iter_unpack(data[start:at]))
        rest = tuple(Stretch(*each) for each in triples[lanes:])
        yield StreamState(turn, ordinal, last, end, tuple(triples[:lanes]), rest)
