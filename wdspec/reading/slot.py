"""One slot: the unit of order. Draws say which source comes next, its stream gives the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wdspec.planning.draws import Draws
from wdspec.planning.plan import Plan
from wdspec.planning.schedule import ScheduledDraws
from wdspec.planning.stream_state import StreamState, pack_slot, unpack_slot
from wdspec.reading.interleave import InterleavedStream
from wdspec.reading.source_parts import LiveSource
from wdspec.reading.source_stream import SourceStream
from wdspec.reading.transform import Sample


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
            (InterleavedStream if source.plan.interleave > 1 else SourceStream)(source, slot, begun)
            for source, begun in zip(sources, states, strict=True)
        ]
        self._next: list[Callable[[], Sample]] = [iter(stream).__next__ for stream in self._streams]
        self._draws, self._rank, self._worker = draws, rank, worker
        self._per_slot = plan.batching.per_slot
        self._rows = max(1, draws.block // self._per_slot)
        # Draws ahead, from batch `_first` on; one flat list, since thousands of small ones keep the collector busy.
        self._first, self._ahead = 0, [0][:0]

    def take(self, m: int) -> list[Sample]:
        """The slot's m-th batch: b samples."""
        b = self._per_slot
        at = (m - self._first) * b
        if not 0 <= at < len(self._ahead):
            self._first, at = m, 0
            self._ahead = self._draws.batches(self._rank, self._worker, m, self._rows).ravel().tolist()
        take = self._next
        return [take[source]() for source in self._ahead[at : at + b]]

    def pack(self) -> bytes:
        """The state after the last batch taken."""
        return pack_slot([stream.state for stream in self._streams])

    def close(self) -> None:
        """Closes all open shards."""
        for stream in self._streams:
            stream.close()
