"""One slot of a finite pass (`epoch: pass`): the samples at its positions, in batches, padded at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.order import ReleaseOrder
from wdspec.planning.passes import Pass, PassSegment
from wdspec.read.shard import Piece
from wdspec.read.transform import LiveSource, Process, Sample
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
            process = live.process(0)
            self._process[source] = (
                process if live.parts.selection is None else live.parts.choosing(process, live.budget)
            )
        return self._process[source]

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
                for raw in self._shard(segment.source, turn, index, index + until - position, ahead, more):
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
            for error in count.errors.get(turn, ()):
                live.budget(error, "shard", url=live.plan.shards[live.plan.order.entry(0, turn).shard].text)
            turn += 1

    def _shard(
        self, source: int, turn: int, first: int, stop: int, ahead: Ahead | LocalFiles, more: bool
    ) -> Iterator[Sample | None]:
        """Yield the raw samples first..stop-1 of a turn's shard, one or None for each.

        The slot that reads the lost samples reports the error. Before the last sample of the shard is yielded, it is
        checked that only the end follows, as nothing is read after it.
        """
        live, count = self.sources[source], self.finite.counts[source]
        plan, budget = live.plan, live.budget
        if first == stop:
            return
        shard = plan.shards[plan.order.entry(0, turn).shard]
        lost, length = count.lost.get(turn, ()), count.length(turn)
        index, offset = count.mark(turn, first)
        errors: list[ShardError] = []

        def report() -> None:
            for error in errors:
                budget(error, "shard", url=shard.text)
            errors.clear()

        try:
            opened = live.parts.open(
                Piece(shard, offset=offset, index=index, shards=plan.shards),
                on_error=errors.append,
                ahead=ahead,
                on_read=budget.note_bytes,
            )
            budget.note_opened(opened.is_copy)
            if more:
                ahead.expect([plan.shards[plan.order.entry(0, turn + 1).shard]])
                turns = range(turn + 1, len(plan.shards))
                ahead.announce(
                    lambda count: (plan.shards[plan.order.entry(0, t).shard] for t in turns[:count])
                )
        except ShardError as error:
            errors.append(error)
            report()
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


class PassSlot:
    """The samples of slot (c, k) in a pass, read b at a time, starting with any batch: a `Slot`.

    It has no state, as its position follows from the number of the batch. An iterator that is already at the right
    place is reused.
    """

    def __init__(self, reading: PassReading, first: Callable[[], Sample], rank: int, worker: int) -> None:
        finite = reading.finite
        self._reading, self._first = reading, first
        self._slot = finite.topology.slot(rank, worker)
        self._range = finite.slot_range(rank, worker)
        self._size = finite.per_slot
        self._last = (self._range[1] - self._range[0]) // self._size - 1
        self._next = -1
        self._samples: Iterator[Sample | None] = iter(())

    def take(self, m: int) -> list[Sample]:
        """Return the m-th batch of the slot: b samples, each with `__mask__`.

        Padding is a copy of the first sample of this batch or, if it has none, of the pass.
        """
        if m != self._next:
            self._samples = self._reading.samples(*self._range, m * self._size, self._slot)
        self._next = m + 1
        taken = list(islice(self._samples, self._size))
        if m == self._last:
            for source in self._reading.sources:
                source.budget.passes += 1
        first: Sample | None = None
        for sample in taken:
            if sample is not None:
                sample[MASK] = True
                first = first or sample
        if first is not None and len(taken) == self._size and None not in taken:
            return taken  # type: ignore[return-value]  # it has no None
        padding = self._first() if first is None else first
        taken += [None] * (self._size - len(taken))
        return [{**padding, MASK: False} if sample is None else sample for sample in taken]

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
        self._samples, self._next = iter(()), -1


class FirstSample:
    """The first sample of a pass, to pad batches without samples. It is read when first needed."""

    def __init__(self, finite: Pass, sources: Sequence[LiveSource]) -> None:
        # With separate budgets, as the slot of these positions counts its own skips.
        separate = [replace(source, budget=source.budget.without_log()) for source in sources]
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
