"""One slot of a finite pass (`epoch: pass`): the samples at its positions, in batches, padded at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice, pairwise, repeat
from typing import Any, cast

from wdspec.base.errors import ShardError
from wdspec.formats.samples import RawSamples
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.keys import key64
from wdspec.planning.order import ReleaseOrder
from wdspec.planning.passes import Pass, PassSegment, WindowedPass
from wdspec.read.selection import Choose
from wdspec.read.shard import Piece
from wdspec.read.transform import LiveSource, Process, Sample
from wdspec.read.windows import Candidate, PlannedBatch, WindowPlanner, give, weigh
from wdspec.spec.language.values import MASK
from wdspec.storage.ahead import Ahead
from wdspec.stores.local import LocalFiles


class PassReading:
    """Reads the positions of a pass in one process, for all its slots.

    The sample at a position does not depend on which process reads it: its random numbers are keyed by its position in
    the source.
    """

    def __init__(self, finite: Pass, sources: Sequence[LiveSource]) -> None:
        self.finite = finite
        self.sources = sources
        self._process: dict[int, Process] = {}
        self._choices: dict[tuple[int, bool], tuple[Choose, Choose]] = {}

    def samples(self, first: int, stop: int, at: int, slot: int) -> Iterator[Sample | None]:
        """Yield the samples of the positions first..stop-1, starting with number `at`; None in place of a lost sample.

        With `shuffle`, the samples of each source are yielded by delays that are keyed by the slot.
        """
        for segment in self.finite.segments(first, stop):
            length = segment.stop - segment.first
            if at < length:
                yield from self._segment(segment, at, slot)
            at = max(0, at - length)

    def _segment(self, segment: PassSegment, at: int, slot: int) -> Iterator[Sample | None]:
        delays = self.sources[segment.source].plan.delays
        process = self._process_of(segment.source)
        if delays.size == 1:
            begin = segment.first + at
            for position, raw in enumerate(self._raw(segment._replace(first=begin)), begin):
                yield None if raw is None else process(raw, position)
            return
        key, total = delays.key(slot), segment.stop - segment.first
        read, last = delays.given(key, at, total)
        releasing = ReleaseOrder(delays, key, read, last)
        raws = self._raw(segment._replace(first=segment.first + read))
        held: dict[int, Any] = {}
        while read < total:
            first, read = read, min(read + delays.block, total)
            held.update(zip(range(first, read), raws))  # noqa: B905 - takes only a block of them
            for ordinal in releasing.out.intersection(range(first, read)):
                del held[ordinal]
            for ordinal in releasing.rest(total) if read == total else releasing.upto(read):
                raw = held.pop(ordinal)
                yield None if raw is None else process(raw, segment.first + ordinal)

    def _process_of(self, source: int) -> Process:
        if source not in self._process:
            live = self.sources[source]
            parts, selection = live.parts, live.parts.selection
            if selection is not None and (counted := self.finite.counts[source].counted):
                parts = parts.with_selection(None if counted == "all" else selection.by_value)
            self._process[source] = parts.choosing(live.process(0), live.budget)
        return self._process[source]

    def _choices_of(self, source: int, is_part: bool) -> tuple[Choose, Choose]:
        """Return what says which samples have positions, and the same without counting those that have none."""
        if (source, is_part) not in self._choices:
            live, counted = self.sources[source], self.finite.counts[source].counted
            parts, selection = live.parts, live.parts.selection
            if selection is not None and counted != "all":
                parts = parts.with_selection(selection.by_key if counted else None)
            budgets = live.budget, live.budget.without_log()
            first, second = (parts.choices(budget)[is_part] for budget in budgets)
            self._choices[source, is_part] = first, second
        return self._choices[source, is_part]

    def _raw(self, segment: PassSegment) -> Iterator[Sample | None]:
        """Yield the raw samples of some positions of a source, one or None for each."""
        count = self.finite.counts[segment.source]
        turn, index = count.find(segment.first)
        position = segment.first
        if not position:
            self._report_lost_shards(segment.source, 0)
        with closing(self.sources[segment.source].parts.open.ahead()) as ahead:
            while position < segment.stop:
                until = min(segment.stop, count.ends[turn])
                more = until < segment.stop
                read = self._shard if count.has_all(turn) else self._kept_of_shard
                for raw in read(segment.source, turn, index, index + until - position, ahead, more):
                    position += 1
                    if position == count.ends[turn]:
                        # Not after the sample, as it may be the last one that is read.
                        self._report_lost_shards(segment.source, turn + 1)
                    yield raw
                turn, index = turn + 1, 0

    def _report_lost_shards(self, source: int, turn: int) -> None:
        """Report the errors of the shards without a readable sample that come from a turn on, up to the next sample."""
        live, count = self.sources[source], self.finite.counts[source]
        while turn < len(count.ends) and not count.length(turn):
            for error in count.errors(turn):
                live.budget(error, "shard", url=live.plan.shards[live.plan.order.entry(0, turn).shard].text)
            turn += 1

    def _shard(
        self, source: int, turn: int, first: int, stop: int, ahead: Ahead | LocalFiles, more: bool
    ) -> Iterator[Sample | None]:
        """Yield the raw samples first..stop-1 of a turn's shard, one or None for each.

        The slot that reads the lost samples reports the error. Before the last sample of the shard is yielded, it is
        checked that only the end follows, as nothing is read after it.
        """
        count = self.finite.counts[source]
        if first == stop:
            return
        lost, length = count.lost(turn), count.length(turn)
        index, offset = count.mark(turn, first)
        errors: list[ShardError] = []
        report, opened = self._open(source, turn, first, index, offset, ahead, more, errors)
        if opened is None:
            yield from [None] * (stop - first)
            return
        with closing(opened):
            samples, at = iter(opened), first
            while at < stop:
                raw = next(samples, None)
                if raw is None:
                    break
                index = opened.next_index - 1
                if index > at:
                    if index >= length:
                        errors.append(ShardError(_MORE.format(length)))
                    report()
                    yield from [None] * (min(index, stop) - at)
                    at = min(index, stop)
                errors.clear()  # errors before the first sample belong to another slot
                if index == at < stop:
                    if index in lost:
                        errors.append(ShardError(_DAMAGED, key=raw["__key__"]))
                        report()
                        raw = None
                    if index + 1 == length:
                        if next(samples, None) is not None:
                            errors.append(ShardError(_MORE.format(length)))
                        report()
                    yield raw
                    at += 1
            if at < stop:
                if not errors:
                    errors.append(ShardError(_FEWER.format(opened.next_index, length)))
                report()
                yield from [None] * (stop - at)

    def _kept_of_shard(
        self, source: int, turn: int, first: int, stop: int, ahead: Ahead | LocalFiles, more: bool
    ) -> Iterator[Sample | None]:
        """Do the same as `_shard` if only some of the samples have positions.

        The slot that reads a sample with a position also counts those before it that have none, and reports their
        errors; the one that reads the last sample does so up to the end.
        """
        count = self.finite.counts[source]
        if first == stop:
            return
        choose, walk = self._choices_of(source, count.is_part(turn))
        lost, length = count.lost(turn), count.length(turn)
        at, index, offset = count.mark_before(turn, first)
        errors: list[ShardError] = []
        known = 0  # errors that were looked at
        report, opened = self._open(source, turn, first, index, offset, ahead, more, errors)
        if opened is None:
            yield from [None] * (stop - first)
            return
        with closing(opened):
            samples = iter(opened)
            while at < stop and (raw := next(samples, None)) is not None:
                if count.counted != "all":
                    gone = sum(place not in lost for place in range(index, opened.next_index - 1))
                    for _ in range(min(gone, _count_lost(errors[known:], walk), stop - at)):
                        if at >= first:
                            if at + 1 == length:  # nothing is read after the last one
                                if any(choose(rest) for rest in chain([raw], samples)):
                                    errors.append(ShardError(_MORE.format(length)))
                                report()
                            yield None
                        at += 1
                index, known = opened.next_index, len(errors)
                if at >= stop or not (choose if at >= first else walk)(raw):
                    continue
                if at < first:
                    errors.clear()  # errors before the first sample belong to another slot
                    known = 0
                    at += 1
                    continue
                at += 1
                if at == length and any(choose(rest) for rest in samples):
                    errors.append(ShardError(_MORE.format(length)))
                report()
                known = 0
                yield raw
            if at < stop:
                if not errors:
                    errors.append(ShardError(_FEWER.format(at, length)))
                report()
                yield from [None] * (stop - max(at, first))

    def _open(
        self,
        source: int,
        turn: int,
        first: int,
        index: int,
        offset: int,
        ahead: Ahead | LocalFiles,
        more: bool,
        errors: list[ShardError],
    ) -> tuple[Callable[[], None], RawSamples | None]:
        """Open a turn's shard for the samples from `first` on, at a mark before it.

        Returns:
            What reports and removes `errors`, and counts samples of partners that the shard lacks; and the samples,
            None if it cannot be opened. The former is called before the last sample is yielded, as nothing is read
            after it.
        """
        live, count = self.sources[source], self.finite.counts[source]
        plan, budget = live.plan, live.budget
        shard = plan.shards[plan.order.entry(0, count.place(turn)).shard]
        opened: RawSamples | None = None

        def report() -> None:
            for error in errors:
                budget(error, "shard", url=shard.text)
            errors.clear()
            if opened is not None and not first:
                budget.unjoined += opened.unjoined
                opened.unjoined = 0  # they are counted once

        try:
            opened = live.parts.selecting(
                Piece(shard, offset=offset, index=index, shards=plan.shards),
                on_error=errors.append,
                ahead=ahead,
                on_read=budget.note_bytes,
            )
            budget.note_opened(opened.is_copy)
            if more:
                turns = range(turn + 1, len(count.ends))
                ahead.expect(
                    lambda most: (
                        plan.shards[plan.order.entry(0, count.place(t)).shard] for t in turns[:most]
                    )
                )
        except ShardError as error:
            errors.append(error)
            report()
        return report, opened


def _count_lost(errors: Sequence[ShardError], walk: Choose) -> int:
    """Count the samples that have positions, but cannot be read: the errors have their keys."""
    keys = [error.place.get("key") for error in errors]
    return sum(key is not None and walk({"__key__": str(key), "__url__": ""}) for key in keys)


class FiniteSlot(ABC):
    """Slot (c, k) of a pass, read from any batch on: a `Slot`.

    It has no state, as its position follows from the number of the batch. An iterator that is already at the right
    place is reused.
    """

    def __init__(self, reading: PassReading, first: Callable[[], Sample], rank: int, worker: int) -> None:
        finite = reading.finite
        self._reading, self._first = reading, first
        self._slot = finite.topology.slot(rank, worker)
        self._range = finite.slot_range(rank, worker)
        self._last = (finite.batches - worker - 1) // finite.topology.workers
        """The slot's last batch."""
        self._next = -1
        self._left: Iterator[Any] = iter(())
        """What is left from batch `_next` on."""

    def take(self, m: int) -> list[Sample]:
        """Return the samples of the m-th batch, each with `__mask__`."""
        if m != self._next:
            self._left = self._start(m)
        self._next = m + 1
        samples = self._take()
        if m == self._last:
            for source in self._reading.sources:
                source.budget.passes += 1
        return samples

    @abstractmethod
    def _start(self, m: int) -> Iterator[Any]:
        """Read from the m-th batch on."""

    @abstractmethod
    def _take(self) -> list[Sample]:
        """Return the samples of the next batch, each with `__mask__`."""

    def skip(self, m: int) -> None:
        """Raise: `skip_steps` refuses to skip steps of a pass."""
        raise AssertionError("a pass yields every sample once")

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Raise: `checked_shares` refuses to set shares in a pass."""
        raise AssertionError("a pass has no draws")

    def pack(self) -> bytes:
        """Return nothing, as there is no state."""
        return b""

    def close(self) -> None:
        """Close the open shard."""
        self._left, self._next = iter(()), -1


class PassSlot(FiniteSlot):
    """The samples of a slot of a pass, b at a time.

    Padding is a copy of the first sample of this batch or, if it has none, of the pass.
    """

    def _start(self, m: int) -> Iterator[Sample | None]:
        return self._reading.samples(*self._range, m * self._reading.finite.per_slot, self._slot)

    def _take(self) -> list[Sample]:
        size = self._reading.finite.per_slot
        taken: list[Sample | None] = list(islice(self._left, size))
        first: Sample | None = None
        for sample in taken:
            if sample is not None:
                sample[MASK] = True
                first = first or sample
        if first is not None and len(taken) == size and None not in taken:
            return cast("list[Sample]", taken)
        padding = self._first() if first is None else first
        taken += [None] * (size - len(taken))
        return [{**padding, MASK: False} if sample is None else sample for sample in taken]


class WindowPassSlot(FiniteSlot):
    """The batches of a slot of a pass, planned from windows by what samples cost or have in common.

    A slot that has run dry gives empty batches: one sample with a false `__mask__`, whose packed fields are empty.
    """

    def __init__(
        self,
        planner: WindowPlanner,
        reading: PassReading,
        finite: WindowedPass,
        first: Callable[[], Sample],
        seed: int,
        rank: int,
        worker: int,
    ) -> None:
        super().__init__(reading, first, rank, worker)
        self._planner, self._size, self._ends = planner, finite.per_slot, finite.ends[self._slot]
        self._last = min(self._last, self._ends[-1] - 1 if self._ends else -1)
        self._keys = key64(seed, "window", self._slot), key64(seed, "groups", worker)
        self._packed = () if planner.batch.pack is None else planner.batch.pack.fields

    def _take(self) -> list[Sample]:
        samples = give(next(self._left, []), self._packed[0] if self._packed else None)
        for sample in samples:
            sample[MASK] = True
        if not samples:
            padding = {**self._first(), MASK: False}
            samples.append(padding | {name: padding[name][:0] for name in self._packed if name in padding})
        return samples

    def measure(self) -> list[tuple[list[float], float]]:
        """Return the costs of the samples of each batch of the first window, and its weight for `balance`."""
        return [weigh(batch) for batch in islice(self._start(0), *self._ends[:1]) if batch]

    def _start(self, m: int) -> Iterator[PlannedBatch]:
        ends = (0, *self._ends)
        first = bisect_right(self._ends, m)
        positions = self._reading.samples(*self._range, first * self._size, self._slot)
        for window, (turn, end) in enumerate(pairwise(ends[first:]), first):
            samples = cast("Iterator[Candidate]", filter(None, islice(positions, self._size)))
            for batch in self._planner.batches(samples, window, turn, *self._keys):
                if turn == end:
                    raise ShardError(
                        "samples have other costs than when the pass was planned; write `stats` again with `wdspec "
                        "stats SPEC`, and do not change shards while they are read"
                    )
                turn += 1
                if turn > m:
                    yield batch
            yield from repeat([], end - max(turn, m))  # for samples that can no longer be read


class FirstSample:
    """The first sample of a pass, to pad batches without samples. It is read when first needed."""

    def __init__(self, finite: Pass, sources: Sequence[LiveSource]) -> None:
        # With separate budgets, as the slot of these positions counts its own skips.
        separate = [replace(source, budget=source.budget.without_log(), wrap=None) for source in sources]
        self._reading = PassReading(finite, separate)
        self._sample: Sample | None = None

    def __call__(self) -> Sample:
        """Return the sample.

        Raises:
            ShardError: every sample of the pass was dropped or skipped.
        """
        if self._sample is None:
            reading = self._reading
            found = reading.samples(0, reading.finite.samples, 0, 0)
            self._sample = next((sample for sample in found if sample is not None), None)
            if self._sample is None:
                budgets = [source.budget for source in reading.sources]
                dropped = sum((budget.all_dropped + budget.skipped for budget in budgets), Counter())
                causes = ", ".join(f"{cause} {n}" for cause, n in dropped.items())
                raise ShardError(
                    f"all {reading.finite.samples:,} samples of the pass were dropped or skipped ({causes}); check "
                    "`where`, `subset`, `keys`, `select`, `extensions`, `missing` and the shards"
                )
        return self._sample


_DAMAGED = "the sample is damaged, as counting showed: its key occurs again later, or a member occurs twice"
_FEWER = (
    "the shard has {} samples, but {} were declared or counted; correct or remove `samples`, write `stats` again with "
    "`wdspec stats SPEC`, and do not change shards while they are read"
)
_MORE = (
    "the shard has more than the {} samples that were declared or counted; correct or remove `samples`, write `stats` "
    "again with `wdspec stats SPEC`, and do not change shards while they are read"
)
