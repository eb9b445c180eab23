"""One slot, the unit of order: its draws name the source of each sample, and that source's stream gives the sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.plan import Plan
from wdspec.read.source import SourceStream, StreamState, unpack_slot
from wdspec.read.transform import LiveSource, Sample


class Slot(Protocol):
    """What a reader needs of a slot: an endless one, one after a stage, or one of a finite pass."""

    def take(self, m: int) -> list[Sample]:
        """The slot's m-th batch: b samples."""
        ...

    def skip(self, m: int) -> None:
        """Move past the slot's m-th batch; its samples are decoded only where that cannot be avoided."""
        ...

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Take later batches by other draws."""
        ...

    def pack(self) -> bytes:
        """The state after the last batch taken."""
        ...

    def close(self) -> None:
        """Close all open shards."""
        ...


class EndlessSlot:
    """The endless stream of slot (c, k), read b samples at a time: a `Slot`.

    Args:
        plan: the plan.
        sources: its sources, in its order.
        draws: the plan's draws.
        rank, worker: c and k.
        state: the packed state to resume from; None starts afresh.
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
        """Sources read since they were packed, besides those in `_ahead`: a step reads few of many sources."""
        self._state = b""
        self._rank, self._worker = rank, worker
        self._per_slot = plan.batching.per_slot
        self._start_drawing(draws)

    def _start_drawing(self, draws: Draws | ScheduledDraws) -> None:
        self._draws, self._rows = draws, max(1, draws.block // self._per_slot)
        self._first = 0
        self._ahead: list[int] = []
        """Draws ahead, from batch `_first` on: one flat list, as thousands of small ones keep the collector busy."""
        self._packed_upto = self._drawn_upto = 0
        """Up to where in `_ahead` the drawn sources are packed, and up to where they are read."""

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Take later batches by other draws."""
        self._unpacked.update(self._ahead[self._packed_upto : self._drawn_upto])
        self._start_drawing(draws)

    def take(self, m: int) -> list[Sample]:
        """The slot's m-th batch: b samples."""
        start = self._look_ahead(m)
        self._drawn_upto = stop = start + self._per_slot
        take = self._next
        return [take[source]() for source in self._ahead[start:stop]]

    def skip(self, m: int) -> None:
        """Move past the slot's m-th batch; its samples are decoded only where that cannot be avoided."""
        for stream in self._streams:
            stream.set_skipping(True)
        try:
            self.take(m)
        finally:
            for stream in self._streams:
                stream.set_skipping(False)

    def one_by_one(self, m: int) -> Iterator[Sample]:
        """The samples of the batches from m on, of one sample each; after each the slot is at the next one.

        The same as `take`, without its calls, which take as long as half the reading of a small sample.
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
                if self._ahead is not ahead:  # other shares were set
                    break

    def _look_ahead(self, m: int) -> int:
        """Where the draws of batch m start in `_ahead`."""
        start = (m - self._first) * self._per_slot
        if not 0 <= start < len(self._ahead):
            self._unpacked.update(self._ahead[self._packed_upto : self._drawn_upto])
            self._first, self._packed_upto, start = m, 0, 0
            self._ahead = self._draws.batches(self._rank, self._worker, m, self._rows).ravel().tolist()
        return start

    def pack(self) -> bytes:
        """The state after the last batch taken."""
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
