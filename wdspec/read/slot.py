"""One slot, the unit of order, is a stack of parts with one contract:

    Mixture      endless samples: draws choose a source for each, and the stream of the source yields it
    PassPart     or the samples at the positions of a pass (read/pass_part.py)
      Stage        what a stage of the user makes of them (read/stage.py)
      Windows      batches that are planned from windows of samples (read/windows.py)
      Columns      rows of tables as columns (read/rows.py)
        Padding      batches of a pass, with `__mask__` (read/pass_part.py)

`Reader` stacks them up. Each part takes blocks of b samples of the part below. Its state is the state of that part,
then its own place, if it has one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from wdspec.base.errors import UsageError
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.order import Stretch
from wdspec.planning.plan import Plan
from wdspec.planning.shares import LiveShares, ScheduleSegment
from wdspec.read.source import SourceStream, StreamState, unpack_slot
from wdspec.read.transform import LiveSource

T = TypeVar("T", covariant=True)

_SHARE, _BITS = struct.Struct("<d"), struct.Struct("<q")


class Slot(Protocol[T]):
    """What a reader needs of a slot, and each part of the part below it."""

    def take(self, m: int) -> Sequence[T]:
        """Return the m-th block or batch."""
        ...

    def samples(self, m: int) -> Iterator[T]:
        """Yield the samples of the m-th block one by one, each read when it is requested."""
        ...

    def skip(self, m: int) -> None:
        """Move past the m-th block or batch. Its samples are decoded only if necessary."""
        ...

    def pack(self) -> bytes:
        """Return the state after the last block or batch."""
        ...

    def close(self) -> None:
        """Close all open shards."""
        ...


class Part(Generic[T]):
    """A part of a slot on top of another one. By default, it changes nothing."""

    def __init__(self, below: Slot[Any]) -> None:
        self.below = below

    def take(self, m: int) -> Sequence[T]:
        """Return the m-th block or batch."""
        return self.below.take(m)

    def samples(self, m: int) -> Iterator[T]:
        """Yield the samples of the m-th block one by one."""
        return iter(self.take(m))

    def skip(self, m: int) -> None:
        """Move past the m-th block or batch."""
        self.below.skip(m)

    def pack(self) -> bytes:
        """Return the state after the last block or batch."""
        return self.below.pack()

    def close(self) -> None:
        """Close all open shards."""
        self.below.close()


class Mixture(Generic[T]):
    """The endless samples of slot (c, k), b at a time: a `Slot`.

    Args:
        plan: the plan.
        sources: the sources of the plan, in its order.
        draws: the draws of the plan.
        rank, worker: c and k.
        state: the packed state to resume from; None starts at the beginning.
        stream: reads a source.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Sequence[LiveSource],
        draws: Draws | ScheduledDraws,
        rank: int,
        worker: int,
        state: bytes | None = None,
        stream: type[SourceStream] = SourceStream,
    ) -> None:
        slot = plan.topology.slot(rank, worker)
        states = unpack_slot(state) if state else [StreamState()] * len(sources)
        self._streams = [stream(source, slot, start) for source, start in zip(sources, states, strict=True)]
        self._next: list[Callable[[], Any]] = [iter(each).__next__ for each in self._streams]
        self._packed: list[bytes | bytearray] = [b""] * len(self._streams)
        self._unpacked = set(range(len(self._streams)))
        """Sources read since they were packed, in addition to those in `_ahead`: a step reads only a few of many."""
        self._state = b""
        self._rank, self._worker = rank, worker
        self._per_slot, self._plan = plan.batching.per_slot, plan
        end = next((each.start for each in plan.exhausted if each.then == "error"), None)
        self._end = inf if end is None else -(-(end - worker) // plan.topology.workers)
        """The number of the first block that would exceed `max_passes`."""
        self._start_drawing(draws)

    def _start_drawing(self, draws: Draws | ScheduledDraws) -> None:
        self._draws, self._rows = draws, max(1, draws.block // self._per_slot)
        self._first = 0
        self._ahead: list[int] = []
        """Draws from block `_first` on: one flat list, as thousands of small lists slow down garbage collection."""
        self._packed_upto = self._drawn_upto = 0
        """How far in `_ahead` the sources are packed, and how far they are read."""

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Use other draws for later blocks."""
        self._unpacked.update(self._ahead[self._packed_upto : self._drawn_upto])
        self._start_drawing(draws)

    def take(self, m: int) -> Sequence[T]:
        """Return the m-th block of the slot: b samples."""
        start = self._look_ahead(m)
        self._drawn_upto = stop = start + self._per_slot
        if len(self._streams) == 1:
            return self._streams[0].take(self._per_slot)
        take = self._next
        return [take[source]() for source in self._ahead[start:stop]]

    def samples(self, m: int) -> Iterator[T]:
        """Yield the samples of the m-th block one by one, each read when it is requested."""
        start = self._look_ahead(m)
        self._drawn_upto = stop = start + self._per_slot
        for source in self._ahead[start:stop]:
            yield self._next[source]()

    def skip(self, m: int) -> None:
        """Move past the m-th block of the slot. Its samples are decoded only if necessary."""
        for stream in self._streams:
            stream.set_skipping(True)
        try:
            self.take(m)
        finally:
            for stream in self._streams:
                stream.set_skipping(False)

    def one_by_one(self, m: int) -> Iterator[T]:
        """Yield the samples of the blocks from m on, of one sample each. After each, the slot is at the next one.

        The same as `take`, without its calls, which would take half as long as reading a small sample.
        """
        return iter(self._streams[0]) if len(self._streams) == 1 else self._draw_one_by_one(m)

    def _draw_one_by_one(self, m: int) -> Iterator[T]:
        take = self._next
        while True:
            upto = self._look_ahead(m)
            ahead = self._ahead
            for source in ahead[upto:]:
                upto += 1
                self._drawn_upto = upto
                m += 1
                yield take[source]()
                if self._ahead is not ahead:  # shares were set meanwhile
                    break

    def _look_ahead(self, m: int) -> int:
        """Return the index in `_ahead` of the draws of block m."""
        if m >= self._end:
            raise self._exhausted(m)
        start = (m - self._first) * self._per_slot
        if not 0 <= start < len(self._ahead):
            self._unpacked.update(self._ahead[self._packed_upto : self._drawn_upto])
            self._first, self._packed_upto, start = m, 0, 0
            self._ahead = self._draws.batches(self._rank, self._worker, m, self._rows).ravel().tolist()
        return start

    def _exhausted(self, m: int) -> UsageError:
        """Return the error for a block that would exceed `max_passes`."""
        workers = self._plan.topology.workers
        what = f"window {m:,}" if self._plan.batching.windowed else f"step {m * workers + self._worker:,}"
        [source] = [each.source for each in self._plan.exhausted if each.then == "error"]
        return UsageError(
            f"{what} would exceed `max_passes`; raise it, end the run before that, or set `on_exhausted: drop` or "
            "`stop`",
            source=source,
        )

    def pack(self) -> bytes:
        """Return the state after the last block."""
        if len(self._streams) == 1:
            return bytes(self._streams[0].pack())
        if self._packed_upto != self._drawn_upto or self._unpacked:
            for source in self._unpacked.union(self._ahead[self._packed_upto : self._drawn_upto]):
                self._packed[source] = self._streams[source].pack()
            self._unpacked.clear()
            self._packed_upto = self._drawn_upto
            self._state = b"".join(self._packed)
        return self._state

    def close(self) -> None:
        """Close all open shards."""
        for stream in self._streams:
            stream.close()


class LiveDraws:
    """The draws of a mix whose shares may be set at run time, for sections of slots: windows, and inputs of a stage.

    Args:
        plan: the plan.
        names: the sources of the top level, sorted.
        build: returns the segment of shares that were set.
    """

    def __init__(
        self, plan: Plan, names: Sequence[str], build: Callable[[LiveShares], ScheduleSegment]
    ) -> None:
        self.plan, self.names, self.build = plan, tuple(names), build
        self.usual = plan.draws()
        """The draws outside sections, and of sections by the shares of the spec."""
        self.segments: tuple[ScheduleSegment, ...] = ()
        """The segments of the shares that were set, ascending."""

    def segment(self, worker: int, turn: int) -> ScheduleSegment | None:
        """Return the segment that is in effect when canonical worker k begins its turn; None for the spec's shares."""
        step = turn * self.plan.topology.workers + worker
        return next((each for each in reversed(self.segments) if each.start <= step), None)


class SectionDraws:
    """Chooses by which shares the sections of a slot are drawn: those in effect when a section begins.

    A section that is read again after a resume has to be drawn by the same shares, so its place in the state contains
    them if they were set at run time: for each source of the top level (its number, the bits of its share, J from which
    it applies).

    Args:
        live: the draws.
        mixture: what is drawn; None if a part below draws the sections of its own by these shares.
        worker: k of the slot.
    """

    def __init__(self, live: LiveDraws, mixture: Mixture[Any] | None, worker: int) -> None:
        self._live, self._mixture, self._worker = live, mixture, worker
        self.outer: SectionDraws | None = None
        """Those of the sections of a part above, in which this part begins its own."""
        self._segment: ScheduleSegment | None = None
        self._turn = -1

    def begin(self, turn: int, resumed: StreamState | None = None) -> None:
        """Begin a section at a turn of the slot, or read one again that was begun at its place."""
        live, segment = self._live, None
        if resumed is None and self.outer is not None:
            turn, segment = self.outer._turn, self.outer._segment
        elif resumed is None:
            segment = live.segment(self._worker, turn)
        elif (shares := shares_of_section(resumed, live.names)) is not None:
            segment = live.build(shares)
        elif resumed.last >= 0:
            segment = live.segment(self._worker, resumed.last)
        self._turn = turn if resumed is None else resumed.last
        if segment != self._segment:
            self._segment = segment
            if self._mixture is not None:
                self._mixture.draw_by(live.usual if segment is None else live.plan.draws_of(segment))

    def place(self, number: int, done: int, has_turn: bool = False) -> StreamState:
        """Return the place in a section.

        Args:
            number: the number of the section.
            done: what was given of it.
            has_turn: whether to always store the turn at which it was begun, not only if shares were set.
        """
        live = None if self._segment is None else self._segment.live
        if not done or (live is None and not has_turn):
            return StreamState(number, done)
        place = StreamState(number, done, self._turn)
        return place if live is None else with_shares(place, live, self._live.names)


def shares_of_section(place: StreamState, names: Sequence[str]) -> LiveShares | None:
    """Return the shares that were set when a section was begun; None if its place has none.

    Args:
        names: the sources of the top level, sorted.
    """
    if not place.stretches:
        return None
    shares = {names[number]: _SHARE.unpack(_BITS.pack(bits))[0] for number, bits, _ in place.stretches}
    return LiveShares(place.stretches[0][2], shares)


def with_shares(place: StreamState, live: LiveShares, names: Sequence[str]) -> StreamState:
    """Return the place in a section that was begun with shares that were set at run time."""
    stored = sorted((names.index(name), share) for name, share in live.shares.items())
    lists = (Stretch(at, _BITS.unpack(_SHARE.pack(share))[0], live.start) for at, share in stored)
    return place._replace(stretches=tuple(lists))
