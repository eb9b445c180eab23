"""What one process reads: batch J from the slots of its ranks, with their states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle

from wdspec.base.errors import UsageError
from wdspec.planning.plan import Plan
from wdspec.planning.shares import ScheduleSegment
from wdspec.read.budget import Budget, PackedCounts
from wdspec.read.pass_slot import PassReading, PassStream, Spare
from wdspec.read.slot import SlotStream
from wdspec.read.stage import StagedSlot
from wdspec.read.transform import LiveSource, MapSteps, Sample, SourceParts, built
from wdspec.spec.language.samples import Call
from wdspec.spec.spec import Spec

SlotTable = Mapping[int, bytes]
"""Slot number -> packed state; a slot that is absent has not been read yet."""
Stream = SlotStream | PassStream | StagedSlot

_INTERRUPTED = "reading was interrupted inside a batch, which is lost; load a state that was saved before it"


class Reader:
    """Reads global batches, in the part that falls to some canonical ranks, in one process.

    Slots are built when first needed, so a process holds only those of the batches it is asked for.
    """

    def __init__(
        self, plan: Plan, parts: Mapping[str, SourceParts], ranks: range, spec: Spec | None = None
    ) -> None:
        self.plan = plan
        self._spec = spec
        self.ranks = ranks
        self.budgets = {
            source.name: Budget(parts[source.name].errors, source.name) for source in plan.sources
        }
        """Of each source, with what was delivered, dropped as asked, and skipped, in this process."""
        maps = self._maps = MapSteps()
        draw = any(parts[source.name].transform.has_functions for source in plan.sources)
        draw = draw or (spec is not None and spec.stage is not None)
        self._lent: AbstractContextManager[object] = (
            maps.generators if draw and maps.generators else nullcontext()
        )
        self._sources = [
            LiveSource(source, parts[source.name], self.budgets[source.name], maps, plan.seed)
            for source in plan.sources
        ]
        self._segments: tuple[ScheduleSegment, ...] = ()
        self._told: dict[int, PackedCounts] = {}
        self._open = self._opener()
        self._table: dict[int, bytes] = {}
        self._failure: Exception | None = None
        self._live: dict[int, Stream] = {}
        self._row: dict[int, list[Stream]] = {}  # canonical worker k -> its slots, one a rank

    def batch(self, number: int) -> list[Sample]:
        """The samples of global batch J for these ranks, in the order of the ranks.

        Raises:
            WdspecError: a shard or sample could not be read and the policy is to raise. Part of the batch is
                then lost, so every further call raises the same, until `restore`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            with self._lent:
                return self._take(number)
        except BaseException as error:
            self.fail(error)
            raise

    def pass_over(self, number: int) -> None:
        """Goes on behind global batch J, which nobody gets: its samples are read, and decoded only where it takes that
        to know which of them a source leaves out.

        Raises:
            WdspecError: as `batch`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            with self._lent:
                k, m = self.plan.slot_of_batch(number)
                for rank in self.ranks:
                    stream = self._slot(rank, k)
                    assert not isinstance(stream, PassStream), "a pass gives every sample"
                    stream.pass_over(m)
        except BaseException as error:
            self.fail(error)
            raise

    @property
    def is_one_by_one(self) -> bool:
        """Whether a global batch is one sample, of one slot, that nothing but decoding was done to."""
        plan, spec = self.plan, self._spec
        return (
            not plan.batching.batched
            and len(self.ranks) == 1
            and plan.finite is None
            and (spec is None or spec.stage is None)
            and isinstance(self._lent, nullcontext)
        )

    def one_by_one(self, number: int, stride: int) -> Iterator[Sample]:
        """The samples of the global batches J, J + stride, …, if `is_one_by_one`; after each the slots stand behind it.

        Whoever takes them says so (`fail`) where that raises, as `batch` does by itself.
        """
        if self._failure is not None:
            raise self._failure
        workers = self.plan.topology.workers
        count = workers // math.gcd(workers, stride)
        slots = [self._of_slot(number + n * stride) for n in range(count)]
        return map(next, cycle(slots)) if count > 1 else self._slot_at(number)

    def _of_slot(self, number: int) -> Iterator[Sample]:
        """As `_slot_at`, with a slot that is opened when it is asked for its first sample."""
        # No `yield from`, which would end the slot's stream with itself.
        for sample in self._slot_at(number):  # noqa: UP028
            yield sample

    def _slot_at(self, number: int) -> Iterator[Sample]:
        """The samples of the slot that serves global batch J, from that on."""
        k, m = self.plan.slot_of_batch(number)
        [rank] = self.ranks
        slot = self._slot(rank, k)
        assert isinstance(slot, SlotStream), "neither a pass nor a stage is read one by one"
        return slot.one_by_one(m)

    def _take(self, number: int) -> list[Sample]:
        k, m = self.plan.slot_of_batch(number)
        if k not in self._row:
            self._row[k] = [self._slot(rank, k) for rank in self.ranks]
        streams = self._row[k]
        if len(streams) == 1:
            return streams[0].take(m)
        return [sample for stream in streams for sample in stream.take(m)]

    def counts(self) -> dict[int, PackedCounts]:
        """What was counted so far, of the sources in which something was since this was last asked, by their number."""
        changed: dict[int, PackedCounts] = {}
        for number, budget in enumerate(self.budgets.values()):
            counted = budget.counts
            if self._told.get(number) != counted:
                self._told[number] = changed[number] = counted
        return changed

    def fail(self, error: BaseException) -> None:
        """Closes all open shards, for a batch that was read, wholly or in part, and that nobody gets.

        The slots stand behind it, or inside it: until `restore`, `batch` raises the error again, and there is no table.
        """
        self.close()
        self._failure = error if isinstance(error, Exception) else UsageError(_INTERRUPTED)

    @property
    def has_failed(self) -> bool:
        """Whether a batch is lost, and nothing restored since."""
        return self._failure is not None

    def states(self, number: int) -> dict[int, bytes]:
        """The states, after batch J, of the slots it was taken from."""
        k, _ = self.plan.slot_of_batch(number)
        slots = (self.plan.topology.slot(rank, k) for rank in self.ranks)
        return {slot: self._live[slot].pack() for slot in slots if slot in self._live}

    def table(self) -> dict[int, bytes]:
        """The states of all slots read so far.

        Raises:
            UsageError: a batch is lost, so that nobody knows them.
        """
        if self._failure is not None:
            raise UsageError(
                f"there is no state behind the batch that could not be given ({self._failure}); load one "
                "that was saved before it"
            ) from self._failure
        return {**self._table, **{slot: stream.pack() for slot, stream in self._live.items()}}

    def restore(self, table: SlotTable) -> None:
        """Goes on from the given states. Slots that stand there already keep what they hold."""
        for slot, stream in list(self._live.items()):
            if table.get(slot) != stream.pack():
                stream.close()
                del self._live[slot]
        self._table = dict(table)
        self._row.clear()
        self._failure = None

    def draw_by(self, segments: tuple[ScheduleSegment, ...]) -> None:
        """Takes the batches that come by the shares that were set; slots keep what they hold."""
        if segments == self._segments:
            return
        self._segments = segments
        self._open = self._opener()
        draws = self.plan.with_shares(segments).draws()
        for stream in self._live.values():
            assert isinstance(stream, SlotStream), (
                "nothing is drawn in a pass, nor anything set behind a stage"
            )
            stream.draw_by(draws)

    def close(self) -> None:
        """Closes all open shards and forgets the slots."""
        self.restore({})

    def _opener(self) -> Callable[[int, int, bytes | None], Stream]:
        """What makes the stream of slot (c, k) from its state: endless, or of a pass."""
        plan, sources = self.plan, self._sources
        if plan.finite is not None:
            reading, spare = PassReading(plan.finite, sources), Spare(plan.finite, sources)
            return lambda rank, worker, state: PassStream(reading, spare, rank, worker)
        draws = plan.with_shares(self._segments).draws()
        spec = self._spec
        if spec is None or spec.stage is None:
            return lambda rank, worker, state: SlotStream(plan, sources, draws, rank, worker, state)
        option, folder = spec.stage, spec.folder
        call, per_slot = Call(call=option.call, args=option.args), plan.batching.per_slot
        return lambda rank, worker, state: StagedSlot(
            lambda inner: SlotStream(plan, sources, draws, rank, worker, inner),
            built(call, "stage", {}, folder),
            option.call,
            per_slot=per_slot,
            every=-(-option.every // per_slot) * per_slot,
            seed=plan.seed,
            number=plan.topology.slot(rank, worker),
            generators=self._maps.generators,
            state=state,
        )

    def _slot(self, rank: int, worker: int) -> Stream:
        slot = self.plan.topology.slot(rank, worker)
        stream = self._live.get(slot)
        if stream is None:
            stream = self._live[slot] = self._open(rank, worker, self._table.pop(slot, None))
        return stream
