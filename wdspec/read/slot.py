"""One slot: the unit of order. It asks the draws for its next source, and that source's stream for the sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wdspec.planning.draws import Draws
from wdspec.planning.plan import Plan
from wdspec.planning.shares import ScheduledDraws
from wdspec.planning.stream_state import StreamState, unpack_slot
from wdspec.read.source import SourceStream
from wdspec.read.transform import LiveSource, Sample


class SlotStream:
    """The endless stream of slot (c, k), read b samples at a time.

    Args:
        plan: the plan.
        sources: its sources, in its order.
        draws: the plan's draws.
        rank, worker: c and k.
        state: the packed state to go on from; None begins afresh.
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
            SourceStream(source, slot, begun) for source, begun in zip(sources, states, strict=True)
        ]
        self._given = [iter(stream) for stream in self._streams]
        self._next: list[Callable[[], Sample]] = [given.__next__ for given in self._given]
        self._packed: list[bytes | bytearray] = [b""] * len(self._streams)
        self._changed = set(range(len(self._streams)))
        """Sources that were read since they were packed, beside those drawn since: of many only a few, at each step."""
        self._state = b""
        self._rank, self._worker = rank, worker
        self._per_slot = plan.batching.per_slot
        # Draws ahead, from batch `_first` on; one flat list, since thousands of small ones keep the collector busy.
        self._first, self._ahead = 0, [0][:0]
        self._noted = self._drawn = 0
        """Up to where in `_ahead` the sources drawn are packed, and up to where they are read."""
        self.draw_by(draws)

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Takes the batches that come by other draws."""
        self._changed.update(self._ahead[self._noted : self._drawn])
        self._draws, self._rows = draws, max(1, draws.block // self._per_slot)
        self._first, self._ahead = 0, []
        self._noted = self._drawn = 0

    def take(self, m: int) -> list[Sample]:
        """The slot's m-th batch: b samples."""
        at, b = self._look_ahead(m), self._per_slot
        self._drawn = at + b
        take = self._next
        return [take[source]() for source in self._ahead[at : at + b]]

    def pass_over(self, m: int) -> None:
        """Goes on behind the slot's m-th batch, whose samples are not finished where that can be avoided."""
        for stream in self._streams:
            stream.passes(True)
        try:
            self.take(m)
        finally:
            for stream in self._streams:
                stream.passes(False)

    def one_by_one(self, m: int) -> Iterator[Sample]:
        """The samples of the batches from m on, of one sample each; after each the slot stands behind it.

        What `take` gives, without its calls, which take as long as half the reading of a small sample.
        """
        if len(self._streams) == 1:
            return self._given[0]
        return self._drawn_one_by_one(m)

    def _drawn_one_by_one(self, m: int) -> Iterator[Sample]:
        take = self._next
        while True:
            at = self._look_ahead(m)
            ahead = self._ahead
            for self._drawn, source in enumerate(ahead[at:], at + 1):
                m += 1
                yield take[source]()
                if self._ahead is not ahead:  # other shares were set
                    break

    def _look_ahead(self, m: int) -> int:
        """Where the draws of batch m begin in `_ahead`."""
        at = (m - self._first) * self._per_slot
        if not 0 <= at < len(self._ahead):
            self._changed.update(self._ahead[self._noted : self._drawn])
            self._first, self._noted, at = m, 0, 0
            self._ahead = self._draws.batches(self._rank, self._worker, m, self._rows).ravel().tolist()
        return at

    def pack(self) -> bytes:
        """The state after the last batch taken."""
        if len(self._streams) == 1:
            return bytes(self._streams[0].pack())
        if self._noted != self._drawn or self._changed:
            for source in self._changed.union(self._ahead[self._noted : self._drawn]):
                self._packed[source] = self._streams[source].pack()
            self._changed.clear()
            self._noted = self._drawn
            self._state = b"".join(self._packed)
        return self._state

    def close(self) -> None:
        """Closes all open shards."""
        for stream in self._streams:
            stream.close()
