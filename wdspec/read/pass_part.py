"""One slot of a finite pass (`epoch: pass`): the samples at its positions, and batches padded at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from itertools import count as counter
from operator import itemgetter
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.formats.samples import RawSamples
from wdspec.planning.order import Delays, ReleaseOrder
from wdspec.planning.passes import Pass, PassSegment
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.randomness import note_pass
from wdspec.read.selection import Choose
from wdspec.read.shard import Piece
from wdspec.read.slot import Part, Slot
from wdspec.read.source import FIRST
from wdspec.read.transform import LiveSource, Process, Sample
from wdspec.spec.language.values import MASK
from wdspec.storage.ahead import Ahead
from wdspec.stores.local import LocalFiles
from wdspec.urls.urls import ShardUrl

Placed = tuple[Sample | None, int]
"""A raw sample of a pass, None if it cannot be read, and its position in the source."""


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

    def of_slot(self, rank: int, worker: int, m: int) -> Iterator[Sample | None]:
        """Yield the samples of slot (c, k) from its m-th block on; None in place of a lost sample."""
        finite = self.finite
        first, stop = finite.slot_range(rank, worker)
        return self.samples(first, stop, m * finite.per_slot, finite.topology.slot(rank, worker))

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
        live, process = self.sources[segment.source], self._process_of(segment.source)
        for raw, position in live.ahead(self._placed(segment, at, slot), itemgetter(0), is_chosen=False):
            yield None if raw is None else process(raw, position)

    def _placed(self, segment: PassSegment, at: int, slot: int) -> Iterator[Placed]:
        """Return the raw samples of a segment in the order of a slot, each with its position."""
        delays = self.sources[segment.source].plan.delays

        def read_from(number: int) -> Iterator[Placed]:
            begin = segment.first + number
            return zip(self._raw(segment._replace(first=begin)), counter(begin), strict=False)

        def taking_from(number: int) -> Callable[[int], list[Placed]]:
            placed = read_from(number)
            return lambda most: list(islice(placed, most))

        if delays.size == 1:
            return read_from(at)
        total = segment.stop - segment.first
        return chain.from_iterable(release(delays, delays.key(slot), at, total, taking_from))

    def _process_of(self, source: int) -> Process:
        if source not in self._process:
            self._process[source] = self._build_process(source, self.sources[source])
        return self._process[source]

    def _build_process(self, source: int, live: LiveSource) -> Process:
        parts, selection = live.parts, live.parts.selection
        if selection is not None and (counted := self.finite.counts[source].counted):
            parts = parts.with_selection(None if counted == "all" else selection.by_value)
        return parts.choosing(live.process(0), live.budget)

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
                coming = range(turn + 1, len(count.ends)) if until < segment.stop else ()
                walk = self._walk(segment.source, turn, index, index + until - position, ahead, coming)
                if position < until == count.ends[turn]:
                    yield from islice(walk, until - position - 1)
                    last = next(walk)
                    # Not after the sample, as it may be the last one that is read.
                    self._report_lost_shards(segment.source, turn + 1)
                    yield last
                yield from walk
                turn, index, position = turn + 1, 0, until

    def _report_lost_shards(self, source: int, turn: int) -> None:
        """Report the errors of the shards without a readable sample that come from a turn on, up to the next sample."""
        live, count = self.sources[source], self.finite.counts[source]
        while turn < len(count.ends) and not count.length(turn):
            for error in count.errors(turn):
                live.budget(error, "shard", url=self._shard(source, turn).text)
            turn += 1

    def _noted(self, opened: RawSamples, source: int, turn: int, epoch: int = 0) -> Iterator[Any]:
        """Yield raw samples that say as which copy in which epoch they are read, if fields are drawn by that."""
        if not self.sources[source].parts.open.fields.draws:
            return iter(opened)
        return note_pass(opened, (epoch << 32) + turn // self.finite.counts[source].turns)

    def _shard(self, source: int, turn: int) -> ShardUrl:
        """Return the shard of a turn of a source."""
        plan, place = self.sources[source].plan, self.finite.counts[source].place(turn)
        return plan.shards[self.finite.shard_at(plan.order, place)]

    def _walk(
        self,
        source: int,
        turn: int,
        first: int,
        stop: int,
        ahead: Ahead | LocalFiles,
        coming: Sequence[int],
        budget: ErrorBudget | None = None,
        epoch: int = 0,
    ) -> Iterator[Sample | None]:
        """Yield the raw samples at the positions first..stop-1 of a turn's shard, one or None for each.

        An error is reported once: by the slot of the first sample that it loses, or, where only some samples have
        positions, of the next one that has. The slot that reads the last position checks that only the end follows, as
        nothing is read after it.

        Args:
            coming: the turns that are read next.
            budget: gets the errors; by default, that of the source.
            epoch: the number of the epoch, for fields that are drawn anew in each.
        """
        if first == stop:
            return
        count, errors = self.finite.counts[source], list[ShardError]()
        has_all, length = count.has_all(turn), count.length(turn)
        at, index, offset = count.mark_before(turn, first)
        piece = Piece(self._shard(source, turn), offset=offset, index=index)
        report, opened = self._open(source, piece, ahead, coming, errors, budget)
        if opened is None:
            yield from [None] * (stop - first)
            return
        with closing(opened):
            samples = self._noted(opened, source, turn, epoch)
            places = (
                self._all_places(opened, samples, count.lost(turn), errors)
                if has_all
                else self._chosen_places(opened, samples, source, turn, first - at, errors)
            )
            for raw in places:
                at += 1
                if errors or at <= first or at == length:
                    # Without a sample, an error may be of one without a position.
                    tells = has_all or raw is not None
                    if at <= first:
                        if tells:
                            errors.clear()  # they belong to another slot
                        continue
                    if at == length and any(raw is not None for raw in places):
                        errors.append(ShardError(_MORE.format(length)))
                    if tells or at == length:
                        report()
                yield raw
                if at == stop:
                    return
            if not errors:
                errors.append(ShardError(_FEWER.format(opened.next_index if has_all else at, length)))
            report()
            yield from [None] * (stop - max(at, first))

    def _all_places(
        self, opened: RawSamples, samples: Iterator[Sample], lost: Set[int], errors: list[ShardError]
    ) -> Iterator[Sample | None]:
        """Yield what is at the positions of a shard in which every sample has one; None where it cannot be read."""
        index = opened.next_index
        for raw in samples:
            here = opened.next_index - 1
            if here != index:
                yield from [None] * (here - index)
            index = here + 1
            if here in lost:
                errors.append(ShardError(_DAMAGED, key=raw["__key__"]))
                yield None
            else:
                yield raw

    def _chosen_places(
        self,
        opened: RawSamples,
        samples: Iterator[Sample],
        source: int,
        turn: int,
        before: int,
        errors: Sequence[ShardError],
    ) -> Iterator[Sample | None]:
        """Yield what is at the positions of a shard in which only chosen samples have one.

        Args:
            before: the number of positions that belong to other slots; samples before them count as dropped there.
        """
        count, index = self.finite.counts[source], opened.next_index
        lost = count.lost(turn)
        choose, choose_before = self._choices_of(source, count.is_part(turn))
        while True:
            known = len(errors)
            raw = next(samples, None)
            if raw is None:
                return
            here = opened.next_index - 1
            if here > index and count.counted != "all":
                unknown = sum(place not in lost for place in range(index, here))
                gone = min(unknown, _count_lost(errors[known:], choose_before))
                yield from [None] * gone
                before -= gone
            index = here + 1
            if here not in lost and (choose_before if before > 0 else choose)(raw):
                yield raw
                before -= 1

    def _open(
        self,
        source: int,
        piece: Piece,
        ahead: Ahead | LocalFiles,
        coming: Sequence[int],
        errors: list[ShardError],
        error_budget: ErrorBudget | None,
    ) -> tuple[Callable[[], None], RawSamples | None]:
        """Open a part of a shard.

        Returns:
            What reports and removes `errors`, and counts samples of partners that the shard lacks; and the samples,
            None if it cannot be opened. The former is called before the last sample is yielded, as nothing is read
            after it.
        """
        live, shard = self.sources[source], piece.shard
        plan, budget = live.plan, live.budget
        opened: RawSamples | None = None
        is_counted = False

        def report() -> None:
            nonlocal is_counted
            for error in errors:
                (error_budget or budget)(error, "shard", url=shard.text)
            errors.clear()
            if opened is not None and not is_counted:
                found = opened.count_unjoined()
                is_counted = found > 0
                (error_budget or budget).unjoined += found

        try:
            opened = live.parts.selecting(
                replace(piece, shards=plan.shards),
                on_error=errors.append,
                ahead=ahead,
                on_read=budget.note_bytes,
            )
            budget.note_opened(opened.is_copy)
            if coming:
                ahead.expect(
                    lambda most: (self._shard(source, each) for each in coming[:most]), plan.interleave
                )
        except ShardError as error:
            errors.append(error)
            report()
        return report, opened


def release(
    delays: Delays, key: int, at: int, total: int, take_from: Callable[[int], Callable[[int], list[Placed]]]
) -> Iterator[list[Placed]]:
    """Yield samples from number `at` on by their delays, some at a time.

    Args:
        delays: their delays.
        key: what the delays are drawn by.
        at: how many were yielded before.
        total: how many there are.
        take_from: starts to read at a number, and returns what takes the next samples from there, at most so many.
    """
    read, last = delays.given(key, at, total)
    take, releasing, start = take_from(read), ReleaseOrder(delays, key, read, last), read
    held: dict[int, Placed] = {}
    while read < total:
        # The first samples come early; later, blocks are longer, which is faster.
        block = take(min(delays.block, max(FIRST, read - start)))
        first, read = read, read + len(block)
        held.update(zip(range(first, read), block, strict=True))
        for ordinal in releasing.out.intersection(range(first, read)):
            del held[ordinal]
        yield [held.pop(o) for o in (releasing.rest(total) if read == total else releasing.upto(read))]


def _count_lost(errors: Sequence[ShardError], walk: Choose) -> int:
    """Count the samples that have positions, but cannot be read: the errors have their keys."""
    keys = [error.place.get("key") for error in errors]
    return sum(key is not None and walk({"__key__": str(key), "__url__": ""}) for key in keys)


class PassPart:
    """The samples at the positions of slot (c, k) of a pass, b at a time; None where one cannot be read: a `Slot`.

    It has no state, as its place follows from the number of the block. An iterator that is already there is reused.
    """

    def __init__(self, reading: PassReading, rank: int, worker: int) -> None:
        finite = reading.finite
        self._reading, self._size = reading, finite.per_slot
        self._rank, self._worker, self._period = rank, worker, finite.slot_batches
        self._next = -1
        self._left: Iterator[Any] = iter(())
        """What is left from block `_next` on."""

    def take(self, m: int) -> list[Any]:
        """Return the m-th block; the last one may be shorter."""
        if m != self._next or not m % self._period:
            self._left = self._reading.of_slot(self._rank, self._worker, m)
        self._next = m + 1
        return list(islice(self._left, self._size))

    def samples(self, m: int) -> Iterator[Any]:
        """Yield the samples of the m-th block one by one, each read when it is requested."""
        if m != self._next or not m % self._period:
            self._left = self._reading.of_slot(self._rank, self._worker, m)
        self._next = -1
        yield from islice(self._left, self._size)
        self._next = m + 1

    def skip(self, m: int) -> None:
        """Raise: `skip_steps` refuses to skip steps of a pass."""
        raise AssertionError("a pass yields every sample once")

    def pack(self) -> bytes:
        """Return nothing, as there is no state."""
        return b""

    def close(self) -> None:
        """Close the open shard."""
        self._left, self._next = iter(()), -1


class Padding(Part[Sample]):
    """The batches of a slot of a pass, with `__mask__`: those with fewer samples than `size` are padded.

    Padding is a copy of the first sample of the batch or, if it has none, of the pass.

    Args:
        below: the batches; None stands for a sample that cannot be read.
        size: the least number of samples in a batch.
        finite: the pass.
        place: (c, k) of the slot.
        first: the first sample of the pass.
        sources: those of the pass.
    """

    def __init__(
        self,
        below: Slot[Sample | None],
        size: int,
        finite: Pass,
        place: tuple[int, int],
        first: FirstSample,
        sources: Sequence[LiveSource],
    ) -> None:
        super().__init__(below)
        self._size, self._first, self._sources = size, first, sources
        self._finite, self._place = finite, place
        self._last, self._period = finite.last_batch(*place), finite.slot_batches

    def take(self, m: int) -> Sequence[Sample]:
        """Return the samples of the m-th batch."""
        samples: Sequence[Any] = self.below.take(m)
        has_all = len(samples) >= self._size
        for sample in samples:
            if sample is None:
                has_all = False
            else:
                sample[MASK] = True
        if m % self._period == self._last:
            for source in self._sources:
                source.budget.passes += 1
        if not has_all:
            assert isinstance(samples, list)  # padded in place: a list of samples by cost has their counts
            present = next(filter(None, samples), None)
            padding = {**(self._first.sample if present is None else present), MASK: False}
            samples += [None] * (self._size - len(samples))
            samples[:] = [{**padding} if sample is None else sample for sample in samples]
        return samples


class EpochPadding(Padding):
    """The same if the last batch of a slot is another one in each epoch."""

    def take(self, m: int) -> Sequence[Sample]:
        """Return the samples of the m-th batch."""
        self._last = self._finite.last_batch(*self._place, m)
        return super().take(m)


class FirstSample:
    """The first sample of a pass, to pad batches without samples. It is read when first needed.

    Args:
        finite: the pass.
        sources: those of the pass.
        packed: the fields whose elements are left out.
        accompany: gives samples of sources companions, if they have some.
    """

    def __init__(
        self,
        finite: Pass,
        sources: Sequence[LiveSource],
        packed: Sequence[str] = (),
        accompany: Callable[[Sequence[LiveSource]], list[LiveSource]] | None = None,
    ) -> None:
        # With separate budgets, as the slot of these positions counts its own skips.
        separate = [replace(source, budget=source.budget.without_log(), wrap=None) for source in sources]
        self._reading = PassReading(finite, separate if accompany is None else accompany(separate))
        self._packed = packed

    @cached_property
    def sample(self) -> Sample:
        """The sample, without the elements of its packed fields.

        Raises:
            ShardError: every sample of the pass was dropped or skipped.
        """
        reading = self._reading
        for sample in reading.samples(0, reading.finite.samples, 0, 0):
            if sample is not None:
                return {**sample, **{name: sample[name][:0] for name in self._packed if name in sample}}
        budgets = [source.budget for source in reading.sources]
        dropped = sum((budget.all_dropped + budget.skipped for budget in budgets), Counter())
        causes = ", ".join(f"{cause} {n}" for cause, n in dropped.items())
        raise ShardError(
            f"all {reading.finite.samples:,} samples of the pass were dropped or skipped ({causes}); check `where`, "
            "`subset`, `keys`, `select`, `extensions`, `missing` and the shards"
        )


_DAMAGED = "the sample is damaged, as counting showed: its key occurs again later, or a member occurs twice"
_FEWER = (
    "the shard has {} samples, but {} were declared or counted; correct or remove `samples`, write `stats` again with "
    "`wdspec stats SPEC`, and do not change shards while they are read"
)
_MORE = (
    "the shard has more than the {} samples that were declared or counted; correct or remove `samples`, write `stats` "
    "again with `wdspec stats SPEC`, and do not change shards while they are read"
)
