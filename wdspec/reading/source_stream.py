"""One source as one slot reads it: an endless iterator of samples, in windows, with a state."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

from wdspec.errors import ShardError
from wdspec.formats.raw_samples import RawSamples
from wdspec.planning.stream_state import StreamState, write_progress
from wdspec.reading.piece import Piece
from wdspec.reading.source_parts import LiveSource
from wdspec.reading.transform import Sample

EXPECTED = 2
"""Shards beyond those being read that may be fetched meanwhile."""


class SourceStream:
    """The samples of one source in the order of one slot.

    Iterating gives finished samples forever. `state` describes the point after the last sample given; a stream
    built from it gives the same rest. A window that was begun is read again, at most once.
    """

    def __init__(self, source: LiveSource, slot: int, state: StreamState) -> None:
        plan = source.plan
        self._order, self._windows, self._shards = plan.order, plan.windows, plan.shards
        self._slot = slot
        self._open_shard = source.parts.open
        self._ahead = source.parts.open.ahead()
        self._budget = source.budget
        self._process = source.process(slot)
        self._begin, self._packed = state, bytearray(state.pack())
        self._emitted, self._length = state.emitted, state.length
        self._turn = state.turn
        self._start = (state.offset, state.sample)
        self._shard: RawSamples | None = None
        self._samples: Iterator[Sample] = iter(())
        self._ordinal = state.ordinal
        # The turn at which a sample was last delivered; one that a state lies inside of counts as such a turn.
        self._delivered = state.turn - (state == StreamState())
        self._most_empty_turns = plan.order.most_empty_turns

    @property
    def state(self) -> StreamState:
        """The state after the last sample given, or dropped."""
        if self._windows.size == 1:
            return self._state_at(0, self._ordinal)
        begin = self._begin
        if self._length < 0 or self._emitted < self._length:
            return begin._replace(length=self._length, emitted=self._emitted)
        return self._state_at(begin.window + 1, begin.ordinal + self._length)

    def pack(self) -> bytes | bytearray:
        """`state` in bytes, which hold until this is called again."""
        if self._windows.size > 1 and (self._length < 0 or self._emitted < self._length):
            write_progress(self._packed, self._length, self._emitted)
            return self._packed
        return self.state.pack()

    def _state_at(self, window: int, ordinal: int) -> StreamState:
        """The state between samples or windows: where the next one begins."""
        return StreamState(self._turn, *self._position(), window, ordinal)

    def __iter__(self) -> Iterator[Sample]:
        return self._in_order() if self._windows.size == 1 else self._shuffled()

    def _in_order(self) -> Iterator[Sample]:
        """Without shuffling nothing is held: each sample is given as it is read."""
        process = self._process
        while True:
            self._check_delivers()
            self._open()
            for raw in self._samples:
                self._ordinal += 1
                sample = process(raw, self._ordinal)
                if sample is not None:
                    self._delivered = self._turn
                    yield sample
            self._next_turn()

    def _shuffled(self) -> Iterator[Sample]:
        process = self._process
        while True:
            window = self._read_window()
            first = self._begin.ordinal + 1
            order = self._windows.order(self._slot, self._begin.window, len(window))
            for n in range(self._emitted, len(window)):
                i = order[n]
                raw, window[i] = window[i], None
                self._emitted = n + 1
                sample = process(raw, first + i)
                if sample is not None:
                    self._delivered = self._turn
                    yield sample
            self._begin = self.state
            self._packed = bytearray(self._begin.pack())
            self._emitted, self._length = 0, -1

    def close(self) -> None:
        """Closes the open shard, if any."""
        self._ahead.close()
        self._close_shard()

    def _close_shard(self) -> None:
        if self._shard is not None:
            self._shard.close()
            self._shard, self._samples = None, iter(())

    def _read_window(self) -> list[Any]:
        """Reads the samples of the current window again or for the first time."""
        window = self._fill(self._windows.length(self._slot, self._begin.window))
        if self._length >= 0 and self._length != len(window):
            raise ShardError(
                f"a window of {self._length} samples now has {len(window)}: the shards changed since the state was "
                "saved, so the run cannot go on exactly; restore the shards or start afresh",
                source=self._budget.source,
                url=self._url(self._begin.turn),
            )
        self._length = len(window)
        return window

    def _fill(self, wanted: int) -> list[Any]:
        """Reads so many raw samples, or fewer where the slot's pass ends."""
        window: list[Any] = []
        while True:
            if self._shard is None:
                if not window:
                    self._check_delivers()
                self._open()
            window.extend(islice(self._samples, wanted - len(window)))
            if len(window) == wanted:
                return window
            passes = self._order.passes_at(self._slot, self._turn)
            self._next_turn()
            if window and self._order.passes_at(self._slot, self._turn) != passes:
                return window

    def _open(self) -> None:
        self._shard = self._opened(self._turn, *self._start)
        self._samples = iter(self._shard)

    def _opened(self, turn: int, offset: int, index: int) -> RawSamples:
        entry = self._order.entry(self._slot, turn)
        shard = self._shards[entry.shard]
        try:
            opened = self._open_shard(
                Piece(shard, self._order.split, entry.residue, offset, index),
                on_error=lambda error: self._budget(error, "shard", url=shard.text),
                ahead=self._ahead,
            )
        except ShardError as error:
            self._budget(error, "shard", url=shard.text)
            opened = _NoSamples(io.BytesIO())
        self._ahead.expect(
            self._shards[self._order.entry(self._slot, self._turn + n).shard] for n in range(1, EXPECTED + 1)
        )
        return opened

    def _next_turn(self) -> None:
        self._close_shard()
        self._turn += 1
        self._start = (0, 0)

    def _check_delivers(self) -> None:
        """Raises when too many turns in a row have delivered no sample."""
        empty = self._turn - self._delivered - 1
        if empty < self._most_empty_turns:
            return
        budget = self._budget
        causes = {**budget.dropped, **budget.skipped}
        why = ", ".join(f"{name} {n}" for name, n in causes.items()) or "its shards hold no samples"
        raise ShardError(
            f"the source delivered nothing in a whole pass ({empty} shards; left out: {why}); check "
            "`select`, `extensions`, `missing` and the shards",
            source=budget.source,
            url=self._url(self._turn - 1),
        )

    def _position(self) -> tuple[int, int]:
        """(offset, index) in the shard of the current turn of the next sample to be read."""
        if self._shard is None:
            return self._start
        return self._shard.next_offset, self._shard.next_index

    def _url(self, turn: int) -> str:
        return self._shards[self._order.entry(self._slot, turn).shard].text


class _NoSamples(RawSamples):
    """A shard that could not be opened and was skipped under the error policy."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())
