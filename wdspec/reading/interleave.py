"""One source as one slot reads it with `interleave: n`: n shards in turn, sample by sample.

    turns of the slot:   0 1 2 3 4 | 5 …       pass ends at |, here with n = 3

    lanes:   0 ────────┐ 3 ─────── ·           a lane whose shard ends takes the next turn; at the end of the pass
             1 ──┐ 2 ──── 4 ──┐ ·              it is given up, the others are read to their ends, and the next pass
             …                                 begins with all lanes anew

So every shard of a pass is read exactly once, and no sample comes twice before the pass of the slot is over, as
without interleaving. What a lane reads depends on the shards alone; the state holds where each lane stands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from wdspec.formats.raw_samples import RawSamples
from wdspec.planning.stream_state import Lane, StreamState
from wdspec.reading.source_parts import LiveSource
from wdspec.reading.source_stream import SourceStream
from wdspec.reading.transform import Sample


class InterleavedStream(SourceStream):
    """A `SourceStream` over several shards at a time; shards are opened when their lane is first read."""

    def __init__(self, source: LiveSource, slot: int, state: StreamState) -> None:
        super().__init__(source, slot, state)
        self._width = source.plan.interleave
        # Of the turns that began since the last delivery, n - 1 may still be under way.
        self._most_empty_turns += self._width - 1
        self._pass = self._order.passes_at(slot, state.turn)
        self._window: list[Any] = []
        positions = [state[:3], *state.lanes]
        self._lanes = deque(_OpenLane(*place) for place in positions)
        # `_turn` is here the last one begun. Lanes are given up only when the pass has no more turns.
        given_up = len(positions) < self._width
        self._turn = (
            self._order.last_turn(slot, self._pass) if given_up else max(turn for turn, *_ in positions)
        )
        # Nowhere but at a beginning does a lane stand alone at offset 0.
        if positions == [(state.turn, 0, 0)]:
            self._turn = state.turn
            self._fill_up()
        if state != StreamState():
            self._delivered = self._turn

    def _state_at(self, window: int, ordinal: int) -> StreamState:
        if not self._lanes:  # where the source was given up as empty, at the end of a pass
            return StreamState(self._turn + 1, window=window, ordinal=ordinal)
        first, *others = (lane.position for lane in self._lanes)
        return StreamState(*first, window=window, ordinal=ordinal, lanes=tuple(others))

    def _in_order(self) -> Iterator[Sample]:
        process, pull = self._process, self._pull
        while True:
            raw = pull()
            if raw is None:
                self._next_pass()
                continue
            self._ordinal += 1
            sample = process(raw, self._ordinal)
            if sample is not None:
                self._delivered = self._turn
                yield sample

    def _fill(self, wanted: int) -> list[Any]:
        self._check_delivers()
        pull = self._pull
        window = self._window = []
        while len(window) < wanted:
            raw = pull()
            if raw is not None:
                window.append(raw)
                continue
            self._next_pass()
            if window:
                break
        self._window = []
        return window

    def _pull(self) -> Any | None:
        """The next raw sample, of the lane whose turn it is; None at the end of the pass."""
        lanes = self._lanes
        while lanes:
            lane = lanes[0]
            if lane.shard is None:
                lane.shard = self._opened(*lane.start_at)
                lane.samples = iter(lane.shard)
            raw = next(lane.samples, None)
            if raw is not None:
                lanes.rotate(-1)
                return raw
            lane.shard.close()
            if self._order.passes_at(self._slot, self._turn + 1) == self._pass:
                self._turn += 1
                lanes[0] = _OpenLane(self._turn)
            else:
                lanes.popleft()
            if not self._window:
                self._check_delivers()
        return None

    def _next_pass(self) -> None:
        self._turn += 1
        self._pass = self._order.passes_at(self._slot, self._turn)
        self._lanes.append(_OpenLane(self._turn))
        self._fill_up()

    def _fill_up(self) -> None:
        while (
            len(self._lanes) < self._width and self._order.passes_at(self._slot, self._turn + 1) == self._pass
        ):
            self._turn += 1
            self._lanes.append(_OpenLane(self._turn))

    def close(self) -> None:
        """Closes the open shards."""
        self._ahead.close()
        for lane in self._lanes:
            if lane.shard is not None:
                lane.shard.close()


class _OpenLane:
    """One of the shards read in turn, opened or about to be."""

    __slots__ = ("samples", "shard", "start_at")

    def __init__(self, turn: int, offset: int = 0, sample: int = 0) -> None:
        self.start_at: Lane = (turn, offset, sample)
        self.shard: RawSamples | None = None
        self.samples: Iterator[Any] = iter(())

    @property
    def position(self) -> Lane:
        """(turn, offset, index) of the next sample to be read."""
        if self.shard is None:
            return self.start_at
        return self.start_at[0], self.shard.next_offset, self.shard.next_index
