"""One slot, the unit of order, is a stack of parts with one contract:

    Mixture      endless samples: draws choose a source for each, and the stream of the source yields it
    PassPart     or the samples at the positions of a pass (read/pass_part.py)
      Companions   with samples of other sources beside them (read/companions.py)
      Stage        what a stage of the user makes of them (read/stage.py)
      Windows      batches that are planned from windows of samples (read/windows.py)
      Columns      rows of tables as columns (read/rows.py)
        Padding      batches of a pass, with `__mask__` (read/pass_part.py)

`Reader` stacks them up. Each part takes blocks of b samples of the part below. Its state is the state of that part,
then its own place, if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from wdspec.base.errors import UsageError
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.plan import Plan
from wdspec.read.source import SourceStream, StreamState, unpack_slot
from wdspec.read.transform import LiveSource

T = TypeVar("T", covariant=True)


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
        choose: returns what reads a source; a `SourceStream` by default.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Sequence[LiveSource],
        draws: Draws | ScheduledDraws,
        rank: int,
        worker: int,
        state: bytes | None = None,
        choose: Callable[[LiveSource], type[SourceStream]] = lambda source: SourceStream,
    ) -> None:
        self._sources, self._choose, self._slot = sources, choose, plan.topology.slot(rank, worker)
        states = unpack_slot(state) if state else [StreamState()] * len(sources)
        self._streams = [
            self._choose(source)(source, self._slot, start)
            for source, start in zip(sources, states, strict=True)
        ]
        self._next: list[Callable[[], Any]] = [iter(each).__next__ for each in self._streams]
        self._packed: list[bytes | bytearray] = [b""] * len(self._streams)
        self._unpacked = set(range(len(self._streams)))
        """Sources read since they were packed, in addition to those in `_ahead`: a step reads only a few of many."""
        self._state = b""
        self._rank, self._worker = rank, worker
        self._per_slot = plan.batching.per_slot
        self._set_plan(plan)
        self._start_drawing(draws)

    def _set_plan(self, plan: Plan) -> None:
        self._plan = plan
        end = next((each.start for each in plan.exhausted if each.then == "error"), None)
        self._end = inf if end is None else -(-(end - self._worker) // plan.topology.workers)
        """The number of the first block that would exceed `max_passes`."""

    def _start_drawing(self, draws: Draws | ScheduledDraws) -> None:
        self._draws, self._rows = draws, max(1, draws.block // self._per_slot)
        self._first = 0
        self._ahead: list[int] = []
        """Draws from block `_first` on: one flat list, as thousands of small lists slow down garbage collection."""
        self._packed_upto = self._drawn_upto = 0
        """How far in `_ahead` the sources are packed, and how far they are read."""

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Use other draws for later blocks."""
        if draws is not self._draws:
            self._unpacked.update(self._ahead[self._packed_upto : self._drawn_upto])
            self._start_drawing(draws)

    def read_by(self, plan: Plan, sources: Sequence[LiveSource], draws: Draws | ScheduledDraws) -> None:
        """Read later blocks from sources with other sizes and selections. Samples in progress keep theirs."""
        self.draw_by(draws)
        if sources is self._sources:
            return
        self._set_plan(plan)
        for number, (old, new) in enumerate(zip(self._sources, sources, strict=True)):
            if new is not old:
                sizes = old.plan.delays, old.plan.interleave
                state = self._streams[number].state
                if sizes != (new.plan.delays, new.plan.interleave):
                    state = state.for_plan_with_other_sizes(self._slot, *sizes)
                self._streams[number].close()
                self._streams[number] = self._choose(new)(new, self._slot, state)
                self._next[number] = iter(self._streams[number]).__next__
                self._unpacked.add(number)
        self._sources = sources

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
        start = self._look_ahead(m)
        drawn = [self._streams[source] for source in {*self._ahead[start : start + self._per_slot]}]
        for stream in drawn:
            stream.set_skipping(True)
        try:
            self.take(m)
        finally:
            for stream in drawn:
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
        if self._plan.batching.windowed:
            what, then = f"window {m:,}", "`on_exhausted: drop`"
        else:
            what, then = f"step {m * workers + self._worker:,}", "`on_exhausted: drop` or `stop`"
        [source] = [each.source for each in self._plan.exhausted if each.then == "error"]
        return UsageError(
            f"{what} would exceed `max_passes`; raise it, end the run before that, or set {then}",
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
