"""`Reader`: what one process reads. It returns the samples of global batch J, and the states of their slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, cycle
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.fields import memory
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.keys import key64
from wdspec.planning.passes import Pass, PositionNames, WindowedPass
from wdspec.planning.past import Changes, Past
from wdspec.planning.plan import Batching, Plan
from wdspec.planning.shares import LiveShares, ScheduleSegment, live_segments
from wdspec.read.companions import Companions, Supply
from wdspec.read.error_budget import ErrorBudget, PackedCounts
from wdspec.read.fetching_parts import open_mixture, windows_of
from wdspec.read.lean import MANY
from wdspec.read.pass_part import EpochPadding, FirstSample, Padding, PassPart, PassReading
from wdspec.read.rows import Columns, may_be_table, may_keep_rows
from wdspec.read.sections import Begun, Reading, Readings, SectionDraws
from wdspec.read.slot import Mixture, Slot
from wdspec.read.source import StreamState, split_places
from wdspec.read.stage import Stage, build_stage
from wdspec.read.transform import LiveSource, Sample, SourceParts, UserFunctions
from wdspec.read.windows import Measurement, NameOf, WindowPlanner, Windows, name_sample
from wdspec.spec.language.batch import Batch
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
        self.plan, self.ranks, self._spec, self._stage = plan, ranks, spec, spec.stage
        self.budgets = {each.name: ErrorBudget(parts[each.name].errors, each.name) for each in plan.sources}
        """By source, then by source of companions: what was delivered, dropped and skipped in this process."""
        self._functions = UserFunctions()
        has_functions = any(each.transform.has_functions for each in parts.values())
        lent = self._functions.generators if has_functions or (spec.stage and spec.stage.functions) else None
        self._lent: AbstractContextManager[object] = lent or nullcontext()
        self._planner = WindowPlanner.of(spec) if plan.batching.windowed else None
        self._has_sections = self._stage is not None or self._planner is not None
        """Whether slots read sections that are drawn as they began: windows, and inputs of a stage."""
        choose = self._planner if self._stage is None else None
        live = partial(LiveSource, functions=self._functions, seed=plan.seed, wrap=choose)
        self._sources = [live(each, parts[each.name], self.budgets[each.name]) for each in plan.sources]
        self._supply = self._accompany(parts) if plan.companions else None
        self.changes = Changes()
        """The shares that were set, by which batches are drawn, and earlier specs."""
        if plan.finite is None:
            self._usual: Draws | ScheduledDraws = plan.draws()
        else:
            self._pass = self._read_pass(plan.finite)
        collate = spec.batch and spec.batch.collate
        stacked = None if self._has_sections or (collate and collate.call) else spec.batch
        fetches = any(each.parts.transform.objects for each in self._sources)
        is_plain = stacked is not None and plan.finite is None and not (plan.companions or fetches)
        tables = (each for each in self._sources if may_be_table(each.plan.shards[0].text))
        self._keeps_rows = is_plain and any(map(may_keep_rows, tables))
        is_usual = not (fetches or self._keeps_rows or len(self._sources) > MANY)
        self._open_mixture = Mixture if is_usual else partial(open_mixture, self._keeps_rows)
        self._table = dict(table or {})
        """The states of slots that are not open."""
        self._slots: dict[int, Slot[Sample]] = {}
        """The open slots, by number."""
        self._rows: dict[int, dict[int, Slot[Sample]]] = {}
        """The open slots of each canonical worker, one per rank, by number."""
        self._failure: Exception | None = None
        self.rows = _batch_rows(stacked, plan.batching, len(ranks))
        """The memory of batches."""
        self._reported: dict[int, PackedCounts] = {}

    def _accompany(self, parts: Mapping[str, SourceParts]) -> Supply:
        """Let the samples of sources get companions, and return what gives them."""
        self.budgets |= {name: ErrorBudget(parts[name].errors, name) for name in self.plan.companion_names}
        supply = Supply(self.plan, parts, self.budgets, self._functions)
        self._sources = supply.over(self._sources)
        return supply

    def batch(self, step: int) -> list[Sample]:
        """Return the samples of global batch J in the order of the canonical ranks. Raises as `micro_batches`."""
        return [*chain.from_iterable(self.micro_batches(step))]

    def micro_batches(self, step: int) -> list[Sequence[Sample]]:
        """Return the samples of global batch J, a list for each canonical rank.

        Raises:
            WdspecError: a shard or sample cannot be read, and the policy is to raise. Part of the batch is then lost,
                so every later call raises the same error, until `restore`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            with self.rows, self._lent:
                k, m = self.plan.slot_of_step(step, self.changes.epoch)
                return [slot.take(m) for slot in self._row(k).values()]
        except BaseException as error:
            self.fail(error)
            raise

    def skip(self, step: int) -> None:
        """Move past global batch J without returning it. Its samples are decoded only if some may be dropped.

        Raises:
            WdspecError: as `micro_batches`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            with self._lent:
                k, m = self.plan.slot_of_step(step, self.changes.epoch)
                for slot in self._row(k).values():
                    slot.skip(m)
        except BaseException as error:
            self.fail(error)
            raise

    @property
    def is_one_by_one(self) -> bool:
        """Whether a global batch is one sample of one slot that is only decoded."""
        return (
            not self.plan.batching.batched
            and len(self.ranks) == 1
            and self.plan.finite is None
            and not (self.plan.exhausted or self.plan.companions)
            and self._stage is None
            and isinstance(self._lent, nullcontext)
        )

    def one_by_one(self, step: int, stride: int) -> Iterator[Sample]:
        """Yield the samples of global batches J, J + stride, …, if `is_one_by_one`. After each, the slot is past it.

        The caller reports errors to `fail`, unlike for `micro_batches`.
        """
        if self._failure is not None:
            raise self._failure
        workers = self.plan.topology.workers
        count = workers // math.gcd(workers, stride)
        if count == 1:
            return self._samples_of_slot(step)
        # Each slot is opened when its first sample is requested.
        later = (map(self._samples_of_slot, [step + n * stride]) for n in range(count))
        return map(next, cycle([chain.from_iterable(each) for each in later]))

    def _samples_of_slot(self, step: int) -> Iterator[Sample]:
        """Return the samples of the slot of global batch J, from that batch on."""
        k, m = self.plan.slot_of_step(step, self.changes.epoch)
        [slot] = self._row(k).values()
        assert isinstance(slot, Mixture), "passes and stages are not read one by one"
        return slot.one_by_one(m)

    def measure_windows(self) -> list[list[tuple[list[float], float]]]:
        """Return for each canonical rank the batches of the first window of its first slot (`Windows.measure`)."""
        slots = self._row(0).values()
        planned = (slot.below if isinstance(slot, Padding) else slot for slot in slots)
        return [slot.measure() for slot in planned if isinstance(slot, Windows)]

    def counts(self) -> dict[int, PackedCounts]:
        """Return the counts by number of the source, of those that changed since the last call.

        Sources of companions come after those of the mix.
        """
        changed: dict[int, PackedCounts] = {}
        for number, budget in enumerate(self.budgets.values()):
            counted = budget.counts
            if self._reported.get(number) != counted:
                self._reported[number] = changed[number] = counted
        return changed

    def fail(self, error: BaseException) -> None:
        """Close all open shards after an error, by which a batch is lost.

        The slots are past the batch or within it. Until `restore`, `micro_batches` raises the error again, and `table`
        fails.
        """
        self.close()
        self._failure = error if isinstance(error, Exception) else UsageError(_INTERRUPTED)

    @property
    def has_failed(self) -> bool:
        """Whether a batch is lost and nothing has been restored since."""
        return self._failure is not None

    def states(self, step: int) -> dict[int, bytes]:
        """Return the states, after batch J, of its slots."""
        k, _ = self.plan.slot_of_step(step, self.changes.epoch)
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

    def draw_by(self, changes: Changes) -> None:
        """Draw later batches by the shares that were set, and what earlier specs began as they did.

        Slots keep their buffers.
        """
        if changes.past != self.changes.past:
            table = self.table()
            self.restore({})  # sections that are open are read by the specs that began them
            self._table = table
            self.__dict__.pop("_readings", None)
        self.changes = changes
        if self.plan.finite is not None:
            if changes.epoch is not None:
                self.plan.finite.note(changes.epoch)
            return
        if self._has_sections:
            self._readings.segments = changes.segments
            return
        self._usual = self.plan.with_shares(changes.segments).draws()
        for slot in self._slots.values():
            mixture = slot.below if isinstance(slot, (Columns, Companions)) else slot
            if isinstance(mixture, Mixture):
                mixture.draw_by(self._usual)

    def close(self) -> None:
        """Close all open shards, forget the slots, and return the memory of batches."""
        self.restore({})
        self.rows.pool.clear()

    @cached_property
    def _readings(self) -> Readings:
        """By which plans sections are read."""
        spec, plan = self._spec, self.plan
        names = [source.name for source in plan.sources]
        counts = {source.name: len(source.shards) for source in plan.sources}

        def segment(live: LiveShares) -> ScheduleSegment:
            return live_segments(spec, names, [live], lambda source: counts.get(source.name, 0))[0]

        now = Reading(math.inf, plan, self._sources, self._usual, segment)
        return Readings([self._reading_of(past) for past in self.changes.past], now)

    def _reading_of(self, past: Past) -> Reading:
        """Return how sections are read that an earlier spec began."""
        plan, selects = past.plan(self.plan), past.selects()
        sources = []
        for live, source in zip(self._sources, plan.sources, strict=True):
            functions = selects.get(source.name, live.parts.transform.selects)
            if functions != live.parts.transform.selects:
                transform = replace(live.parts.transform, selects=functions)
                live = replace(live, parts=replace(live.parts, transform=transform))
            sources.append(live if live.plan == source else replace(live, plan=source))
        return Reading(past.until, plan, sources, plan.draws(), partial(past.segment, plan))

    def _read_pass(self, finite: Pass) -> tuple[PassReading, FirstSample]:
        """Return what reads the pass, and its first sample."""
        pack = None if self._planner is None else self._planner.batch.pack
        packed = () if pack is None else pack.fields
        supply = self._supply
        first = FirstSample(finite, self._sources, packed, None if supply is None else supply.apart)
        if not finite.is_reshuffled:
            return PassReading(finite, self._sources), first
        from wdspec.read.epoch_part import EpochReading

        return EpochReading(finite, self._sources), first

    @cached_property
    def _waits(self) -> bool:
        """Whether samples are decoded before they are measured, or headers of objects are requested."""
        planner = self._planner
        return planner is not None and any(planner.waits(source.parts) for source in self._sources)

    @cached_property
    def _name_of(self) -> NameOf | None:
        """Returns the same for copies of a sample in a window; None if there are none."""
        finite = self.plan.finite
        if not isinstance(finite, WindowedPass):
            return name_sample if self._stage is None else None
        if not finite.shards:
            return None
        names = PositionNames(finite.counts, finite.shards)
        numbers = {source.name: number for number, source in enumerate(self.plan.sources)}
        return lambda candidate: names.name(numbers[candidate[5].budget.source], candidate[6])

    def _open_slot(self, rank: int, worker: int, state: bytes | None) -> Slot[Sample]:
        """Return slot (c, k), stacked up from the parts that the spec asks for."""
        finite = self.plan.finite
        slot = (self._open_sections if self._has_sections else self._open_samples)(rank, worker, state)
        if self._keeps_rows:
            slot = Columns(slot)
        if finite is not None:
            size, kind = (finite.per_slot, Padding) if self._planner is None else (1, EpochPadding)
            slot = kind(slot, size, finite, (rank, worker), self._pass[1], self._sources)
        return slot

    def _open_samples(
        self,
        rank: int,
        worker: int,
        state: bytes | None,
        draws: SectionDraws | None = None,
        begun: Begun | None = None,
    ) -> Slot[Any]:
        """Return the samples of slot (c, k) with their companions.

        Args:
            rank, worker: c and k.
            state: the state of these parts; in a section, that at its start.
            draws: draws sections; None if there are none.
            begun: how the section began that is read next; None if there are none.
        """
        plan = self.plan
        state, places = split_places(state, len(plan.companions))
        slot: Slot[Any]
        if plan.finite is not None:
            slot = PassPart(self._pass[0], rank, worker)
        else:
            now = (plan, self._sources, self._usual) if begun is None else begun.reading[1:4]
            slot = mixture = self._open_mixture(*now, rank, worker, state)
            if draws is not None:
                draws.mixture = mixture
        if self._supply is not None:
            slot = Companions(slot, self._supply, plan.topology.slot(rank, worker), places)
        return slot

    def _open_sections(self, rank: int, worker: int, state: bytes | None) -> Slot[Any]:
        """Return the samples of slot (c, k) as its windows give them, or its stage, or both."""
        planner = self._planner
        draws = SectionDraws(self._readings, worker) if self.plan.finite is None else None
        begun, place = None, StreamState()
        if draws is not None:
            _, places = split_places(state, (self._stage is not None) + (planner is not None))
            begun = draws.resume(next((each for each in places if each.ordinal), place))
        open_below = partial(self._open_input, rank, worker, draws)
        if planner is None:
            return open_below(state, begun)
        state, [place] = split_places(state, 1)
        return self._plan_windows(open_below(state, begun), place, rank, worker, draws, open_below)

    def _open_input(
        self, rank: int, worker: int, draws: SectionDraws | None, state: bytes | None, begun: Begun | None
    ) -> Slot[Any]:
        """Return what windows are planned from: samples, or what the stage yields. The arguments are as above."""
        stage, place = self._stage, StreamState()
        if stage is not None:
            state, [place] = split_places(state, 1)
        slot = self._open_samples(rank, worker, state, draws, begun)
        if draws is not None and stage is not None:
            function, number = build_stage(stage, self._spec.folder), self.plan.topology.slot(rank, worker)
            lent = self._functions.generators if stage.functions else None
            slot = Stage(slot, place, draws, self._planner is None, stage, function, self.plan, number, lent)
            if self._planner is not None:
                slot = Measurement(slot, self._planner, self._sources)
        return slot

    def _plan_windows(
        self,
        below: Slot[Any],
        place: StreamState,
        rank: int,
        worker: int,
        draws: SectionDraws | None,
        reopen: Callable[[bytes, Begun], Slot[Any]],
    ) -> Slot[Sample]:
        """Return the batches of slot (c, k), planned from windows."""
        plan, planner, finite = self.plan, self._planner, self.plan.finite
        assert planner is not None, "batches are planned from windows"
        number = plan.topology.slot(rank, worker)
        keys = key64(plan.seed, "window", number), key64(plan.seed, "groups", worker)
        is_staged, find = self._stage is not None, None
        if finite is not None:
            assert isinstance(finite, WindowedPass), "the plan is a pass by cost"
            find = partial(finite.window_of, number)
        return windows_of(self._sources)(
            below, place, planner, keys, draws, reopen, is_staged, self._waits, find, self._name_of
        )

    def _row(self, worker: int) -> dict[int, Slot[Sample]]:
        """Return the slots of a canonical worker by number, one per rank, and open them if necessary."""
        if worker not in self._rows:
            numbers = {self.plan.topology.slot(rank, worker): rank for rank in self.ranks}
            for number, rank in numbers.items():
                if number not in self._slots:
                    self._slots[number] = self._open_slot(rank, worker, self._table.pop(number, None))
            self._rows[worker] = {number: self._slots[number] for number in numbers}
        return self._rows[worker]


def _batch_rows(batch: Batch | None, batching: Batching, ranks: int) -> memory.Rows:
    """Return the memory of batches, whose images decoders write where they are stacked if their number is known."""
    if batch is None:
        return memory.Rows()
    fields = {} if batch.collate is None else batch.collate.fields
    others = frozenset(name for name, how in fields.items() if how.way != "stack")
    return memory.Rows(batching.per_slot * (1 if batching.accumulated else ranks), others)
