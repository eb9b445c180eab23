"""`Reader`: what one process reads. It returns the samples of global batch J, and the states of their slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, cycle

from wdspec.base.errors import UsageError
from wdspec.fields import memory
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.passes import Pass, WindowedPass
from wdspec.planning.plan import Batching, Plan
from wdspec.planning.shares import ScheduleSegment
from wdspec.read.budget import Budget, PackedCounts
from wdspec.read.pass_slot import FirstSample, PassReading, PassSlot, WindowPassSlot
from wdspec.read.rows import TABLE_SUFFIXES, RowSlot, may_keep_rows
from wdspec.read.slot import EndlessSlot, Slot
from wdspec.read.stage import StagedSlot
from wdspec.read.transform import LiveSource, Sample, SourceParts, UserFunctions
from wdspec.read.windows import WindowPlanner, WindowSlot
from wdspec.spec.language.samples import StageOption
from wdspec.spec.spec import Spec

SlotTable = Mapping[int, bytes]
"""Slot number → packed state. A missing slot has not been read yet."""

_INTERRUPTED = "reading was interrupted within a batch, which is lost; load a state that was saved before it"


class Reader:
    """Reads the part of each global batch that belongs to some canonical ranks, in one process.

    Slots are created when first needed, so a process holds only those of the batches that it reads.

    Args:
        plan: the plan.
        parts: how to read each source.
        ranks: the canonical ranks to read.
        spec: for its `stage` and `batch`.
        table: the states to resume from, by slot; None starts at the beginning.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Mapping[str, SourceParts],
        ranks: range,
        spec: Spec,
        table: SlotTable | None = None,
    ) -> None:
        self.plan, self.ranks = plan, ranks
        self._stage, self._folder, collate = spec.stage, spec.folder, spec.batch and spec.batch.collate
        self.budgets = {
            source.name: Budget(parts[source.name].errors, source.name) for source in plan.sources
        }
        """By source: what was delivered, dropped and skipped in this process."""
        self._functions = UserFunctions()
        has_functions = any(parts[source.name].transform.has_functions for source in plan.sources)
        lent = self._functions.generators if has_functions or self._stage is not None else None
        self._lent: AbstractContextManager[object] = lent or nullcontext()
        self._planner = WindowPlanner.of(spec) if plan.batching.windowed else None
        choose = None if self._planner is None else self._planner.choose
        self._needs_samples = bool(self._planner or self._stage or (collate and collate.call))  # no columns
        self._sources = [
            LiveSource(
                source, parts[source.name], self.budgets[source.name], self._functions, plan.seed, choose
            )
            for source in plan.sources
        ]
        self.segments: tuple[ScheduleSegment, ...] = ()
        """The shares that were set, by which batches are drawn."""
        self._open_slot = self._slot_opener(plan)
        self._table = dict(table or {})
        """The states of slots that are not open."""
        self._slots: dict[int, Slot] = {}
        """The open slots, by number."""
        self._rows: dict[int, dict[int, Slot]] = {}
        """The open slots of each canonical worker, one per rank, by number."""
        self._failure: Exception | None = None
        self.rows = _batch_rows(spec, plan.batching, len(ranks))
        """The memory of batches."""
        self._reported: dict[int, PackedCounts] = {}
        self._exhausted = next((each for each in plan.exhausted if each.then == "error"), None)

    def batch(self, number: int) -> list[Sample]:
        """Return the samples of global batch J in the order of the canonical ranks. Raises as `micro_batches`."""
        return [*chain.from_iterable(self.micro_batches(number))]

    def micro_batches(self, number: int) -> list[Sequence[Sample]]:
        """Return the samples of global batch J, a list for each canonical rank.

        Raises:
            WdspecError: a shard or sample cannot be read, and the policy is to raise. Part of the batch is then lost,
                so every later call raises the same error, until `restore`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            if self._exhausted is not None:
                self._check_exhausted(number)
            with self.rows, self._lent:
                k, m = self.plan.slot_of_batch(number)
                return [slot.take(m) for slot in self._row(k).values()]
        except BaseException as error:
            self.fail(error)
            raise

    def skip(self, number: int) -> None:
        """Move past global batch J without returning it. Its samples are decoded only if some may be dropped.

        Raises:
            WdspecError: as `micro_batches`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            if self._exhausted is not None:
                self._check_exhausted(number)
            with self._lent:
                k, m = self.plan.slot_of_batch(number)
                for slot in self._row(k).values():
                    slot.skip(m)
        except BaseException as error:
            self.fail(error)
            raise

    def _check_exhausted(self, number: int) -> None:
        """Raise a UsageError if global batch J would exceed `max_passes` of a source."""
        source = self._exhausted
        if source is not None and number >= source.start:
            raise UsageError(
                f"step {number:,} would exceed `max_passes`; raise it, end the run before that, or set `on_exhausted: "
                "drop` or `stop`",
                source=source.source,
            )

    @property
    def is_one_by_one(self) -> bool:
        """Whether a global batch is one sample of one slot that is only decoded."""
        return (
            not self.plan.batching.batched
            and len(self.ranks) == 1
            and self.plan.finite is None
            and not self.plan.exhausted
            and self._stage is None
            and isinstance(self._lent, nullcontext)
        )

    def one_by_one(self, number: int, stride: int) -> Iterator[Sample]:
        """Yield the samples of global batches J, J + stride, …, if `is_one_by_one`. After each, the slot is past it.

        The caller reports errors to `fail`, unlike for `batch`.
        """
        if self._failure is not None:
            raise self._failure
        workers = self.plan.topology.workers
        count = workers // math.gcd(workers, stride)
        if count == 1:
            return self._samples_of_slot(number)
        return map(next, cycle([self._open_later(number + n * stride) for n in range(count)]))

    def _open_later(self, number: int) -> Iterator[Sample]:
        """Yield `_samples_of_slot`, and open the slot when the first sample is requested."""
        # Not `yield from`, which would close the stream of the slot together with this generator.
        for sample in self._samples_of_slot(number):  # noqa: UP028
            yield sample

    def _samples_of_slot(self, number: int) -> Iterator[Sample]:
        """Return the samples of the slot of global batch J, from that batch on."""
        k, m = self.plan.slot_of_batch(number)
        [slot] = self._row(k).values()
        assert isinstance(slot, EndlessSlot), "passes and stages are not read one by one"
        return slot.one_by_one(m)

    def measure_windows(self) -> list[list[tuple[list[float], float]]]:
        """Return for each canonical rank the batches of the first window of its first slot (`WindowSlot.measure`)."""
        slots = self._row(0).values()
        return [slot.measure() for slot in slots if isinstance(slot, (WindowSlot, WindowPassSlot))]

    def counts(self) -> dict[int, PackedCounts]:
        """Return the counts by number of the source, of the sources that changed since the last call."""
        changed: dict[int, PackedCounts] = {}
        for number, budget in enumerate(self.budgets.values()):
            counted = budget.counts
            if self._reported.get(number) != counted:
                self._reported[number] = changed[number] = counted
        return changed

    def fail(self, error: BaseException) -> None:
        """Close all open shards after an error, by which a batch is lost.

        The slots are past the batch or within it. Until `restore`, `batch` raises the error again, and `table` fails.
        """
        self.close()
        self._failure = error if isinstance(error, Exception) else UsageError(_INTERRUPTED)

    @property
    def has_failed(self) -> bool:
        """Whether a batch is lost and nothing has been restored since."""
        return self._failure is not None

    def states(self, number: int) -> dict[int, bytes]:
        """Return the states, after batch J, of its slots."""
        k, _ = self.plan.slot_of_batch(number)
        return {slot: opened.pack() for slot, opened in self._rows.get(k, {}).items()}

    def table(self) -> dict[int, bytes]:
        """Return the states of all slots read so far.

        Raises:
            UsageError: a batch is lost, so the states are unknown.
        """
        if self._failure is not None:
            raise UsageError(
                f"there is no state after the batch that could not be read ({self._failure}); load one that was saved "
                "before it"
            ) from self._failure
        return {**self._table, **{number: slot.pack() for number, slot in self._slots.items()}}

    def restore(self, table: SlotTable) -> None:
        """Resume from these states. Slots that are already there keep their buffers."""
        for number, slot in list(self._slots.items()):
            if table.get(number) != slot.pack():
                slot.close()
                del self._slots[number]
        self._table = dict(table)
        self._rows.clear()
        self._failure = None

    def draw_by(self, segments: tuple[ScheduleSegment, ...]) -> None:
        """Draw later batches by the shares that were set. Slots keep their buffers."""
        self.segments = segments
        plan = self.plan.with_shares(segments)
        self._open_slot = self._slot_opener(plan)
        draws = plan.draws()
        for slot in self._slots.values():
            slot.draw_by(draws)

    def close(self) -> None:
        """Close all open shards, forget the slots, and return the memory of batches."""
        self.restore({})
        self.rows.pool.clear()

    def _slot_opener(self, plan: Plan) -> Callable[[int, int, bytes | None], Slot]:
        """Return the function that opens slot (c, k) from its state: endless, after a stage, or of a pass."""
        sources = self._sources
        if plan.finite is not None:
            return self._pass_opener(plan.finite)
        draws, stage, planner = plan.draws(), self._stage, self._planner
        tables = (each for each in sources if each.plan.shards[0].text.endswith(TABLE_SUFFIXES))
        is_plain = plan.batching.batched and not self._needs_samples
        endless = RowSlot if is_plain and any(map(may_keep_rows, tables)) else EndlessSlot

        def open_endless(rank: int, worker: int, state: bytes | None) -> EndlessSlot:
            return endless(plan, sources, draws, rank, worker, state)

        if planner is not None:
            return self._window_opener(planner, open_endless)
        return open_endless if stage is None else self._stage_opener(stage, plan, open_endless)

    def _stage_opener(
        self, stage: StageOption, plan: Plan, open_endless: Callable[[int, int, bytes | None], EndlessSlot]
    ) -> Callable[[int, int, bytes | None], Slot]:
        """Return the function that opens slot (c, k) after a stage."""
        folder, generators = self._folder, self._functions.generators
        return lambda rank, worker, state: StagedSlot(
            stage,
            folder,
            plan,
            rank,
            worker,
            lambda inner: open_endless(rank, worker, inner),
            generators,
            state,
        )

    def _pass_opener(self, finite: Pass) -> Callable[[int, int, bytes | None], Slot]:
        """Return the function that opens slot (c, k) of a pass."""
        reading, first = PassReading(finite, self._sources), FirstSample(finite, self._sources)
        if self._planner is not None and isinstance(finite, WindowedPass):
            given = self._planner, reading, finite, first, self.plan.seed
            return lambda rank, worker, state: WindowPassSlot(*given, rank, worker)
        return lambda rank, worker, state: PassSlot(reading, first, rank, worker)

    def _window_opener(
        self, planner: WindowPlanner, open_endless: Callable[[int, int, bytes | None], EndlessSlot]
    ) -> Callable[[int, int, bytes | None], Slot]:
        """Return the function that opens slot (c, k), whose batches are planned from windows."""
        plan, draws = self.plan, self.plan.draws()

        def draws_at(step: int) -> Draws | ScheduledDraws:
            live = [segment for segment in self.segments if segment.start <= step]
            return plan.draws_of(live[-1]) if live else draws

        return lambda rank, worker, state: WindowSlot(
            planner, plan, rank, worker, lambda inner: open_endless(rank, worker, inner), draws_at, state
        )

    def _row(self, worker: int) -> dict[int, Slot]:
        """Return the slots of a canonical worker by number, one per rank, and open them if necessary."""
        if worker not in self._rows:
            numbers = {self.plan.topology.slot(rank, worker): rank for rank in self.ranks}
            for number, rank in numbers.items():
                if number not in self._slots:
                    self._slots[number] = self._open_slot(rank, worker, self._table.pop(number, None))
            self._rows[worker] = {number: self._slots[number] for number in numbers}
        return self._rows[worker]


def _batch_rows(spec: Spec, batching: Batching, ranks: int) -> memory.Rows:
    """Return the memory of batches, whose images decoders write where they are stacked if their number is known."""
    batch = spec.batch
    is_by_user = batch is not None and batch.collate is not None and batch.collate.call is not None
    if batch is None or is_by_user or spec.stage is not None or batching.windowed:
        return memory.Rows()
    fields = {} if batch.collate is None else batch.collate.fields
    listed = batch.ragged if isinstance(batch.ragged, tuple) else ()
    others = [*(name for name, how in fields.items() if how.way != "stack"), *listed]
    return memory.Rows(batching.per_slot * (1 if batching.accumulated else ranks), frozenset(others))
