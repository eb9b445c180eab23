"""One slot, the unit of order: its draws choose a source for each sample, and the stream of the source yields it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.plan import Plan
from wdspec.read.source import SourceStream, StreamState, unpack_slot
from wdspec.read.transform import LiveSource, Sample


class Slot(Protocol):
    """What a reader needs of a slot: endless, after a stage, or of a finite pass."""

    def take(self, m: int) -> list[Sample]:
        """Return the m-th batch of the slot: b samples."""
        ...

    def skip(self, m: int) -> None:
        """Move past the m-th batch of the slot. Its samples are decoded only if necessary."""
        ...

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Use other draws for later batches."""
        ...

    def pack(self) -> bytes:
        """Return the state after the last batch taken."""
        ...

    def close(self) -> None:
        """Close all open shards."""
        ...


class EndlessSlot:
    """The endless stream of slot (c, k), read b samples at a time: a `Slot`.

    Args:
        plan: the plan.
        sources: the sources of the plan, in its order.
        draws: the draws of the plan.
        rank, worker: c and k.
        state: the packed state to resume from; None starts at the beginning.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Sequence[LiveSource],
        draws: Draws | ScheduledDraws,
        rank: int,
        worker: int,
        state: bytes | None = None,
    ) -> None:
        slot = plan.topology.slot(rank, worker)
        states = unpack_slot(state) if state else [StreamState()] * len(sources)
        self._streams = [
            SourceStream(source, slot, start) for source, start in zip(sources, states, strict=True)
        ]
        self._iterators = [iter(stream) for stream in self._streams]
        self._next: list[Callable[[], Sample]] = [samples.__next__ for samples in self._iterators]
        self._packed: list[bytes | bytearray] = [b""] * len(self._streams)
        self._unpacked = set(range(len(self._streams)))
        """Sources read since they were packed, in addition to those in `_ahead`: a step reads only a few of many."""
        self._state = b""
        self._rank, self._worker = rank, worker
        self._per_slot = plan.batching.per_slot
        self._start_drawing(draws)

    def _start_drawing(self, draws: Draws | ScheduledDraws) -> None:
        self._draws, self._rows = draws, max(1, draws.block // self._per_slot)
        self._first = 0
        self._ahead: list[int] = []
        """Draws from batch `_first` on: one flat list, as thousands of small lists slow down garbage collection."""
        self._packed_upto = self._drawn_upto = 0
        """How far in `_ahead` the sources are packed, and how far they are read."""

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Use other draws for later batches."""
        self._unpacked.update(self._ahead[self._packed_upto : self._drawn_upto])
        self._start_drawing(draws)

    def take(self, m: int) -> list[Sample]:
        """Return the m-th batch of the slot: b samples."""
        start = self._look_ahead(m)
        self._drawn_upto = stop = start + self._per_slot
        take = self._next
        return [take[source]() for source in self._ahead[start:stop]]

    def samples(self, m: int) -> Iterator[Sample]:
        """Yield the samples of the m-th batch one by one, each read when it is requested."""
        start = self._look_ahead(m)
        self._drawn_upto = stop = start + self._per_slot
        for source in self._ahead[start:stop]:
            yield self._next[source]()

    def skip(self, m: int) -> None:
        """Move past the m-th batch of the slot. Its samples are decoded only if necessary."""
        for stream in self._streams:
            stream.set_skipping(True)
        try:
            self.take(m)
        finally:
            for stream in self._streams:
                stream.set_skipping(False)

    def one_by_one(self, m: int) -> Iterator[Sample]:
        """Yield the samples of the batches from m on, of one sample each. After each, the slot is at the next one.

        The same as `take`, without its calls, which would take half as long as reading a small sample.
        """
        return self._iterators[0] if len(self._streams) == 1 else self._draw_one_by_one(m)

    def _draw_one_by_one(self, m: int) -> Iterator[Sample]:
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
        """Return the index in `_ahead` of the draws of batch m."""
        start = (m - self._first) * self._per_slot
        if not 0 <= start < len(self._ahead):
            self._unpacked.update(self._ahead[self._packed_upto : self._drawn_upto])
            self._first, self._packed_upto, start = m, 0, 0
            self._ahead = self._draws.batches(self._rank, self._worker, m, self._rows).ravel().tolist()
        return start

    def pack(self) -> bytes:
        """Return the state after the last batch taken."""
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
