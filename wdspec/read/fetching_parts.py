"""The parts of a slot that know which samples come next, and have their objects fetched (`read/fetching.py`).

`open_mixture` and `windows_of` choose them for the sources that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from math import inf
from typing import Any, TypeVar, cast

from wdspec.planning.passes import WindowPlace
from wdspec.read.fetching import STOP, Fetcher, LookAhead, Objects
from wdspec.read.lean import MANY, LeanRowStream, LeanStream, PreparingMixture
from wdspec.read.rows import RowStream, may_be_table, may_keep_rows
from wdspec.read.slot import Mixture
from wdspec.read.source import RestartPoint, SourceStream, StreamState
from wdspec.read.transform import LiveSource, Sample
from wdspec.read.windows import PlannedBatch, Windows
from wdspec.storage.due import draws_ahead

T = TypeVar("T")


class FetchingStream(SourceStream):
    """The samples of one source in the order of one slot; their objects are fetched in this order.

    A state is the same as without: it says which samples were yielded, not which ones were read.
    """

    _place: StreamState | None = None
    """The state after the last sample in the order of reading."""
    _newest: float = inf
    """The ordinal of the newest restart point when the block of the last sample yielded was read."""

    @property
    def state(self) -> StreamState:
        """The state after the last sample yielded or dropped."""
        return self._place if self._place is not None and self._is_ordered else super().state

    def close(self) -> None:
        """Close the open shards, and give up the objects that are read ahead."""
        samples = cast(Generator[Sample, None, None], self._samples)
        super().close()
        samples.close()

    def _iterate_ordered(self) -> Iterator[Sample]:
        watch = self._watch
        for raw, ordinal, place in self._look_ahead(self._in_order()):
            self._place = place
            sample = self._process(raw, ordinal)
            if sample is not None:
                watch.has_sample = True
                yield sample
            elif not watch.has_sample:
                watch.check(ordinal)

    def _in_order(self) -> Iterator[tuple[Sample, int, StreamState]]:
        """Yield the samples as they are read, each with its number and the state after it."""
        lanes = self._lanes
        while True:
            while (run := lanes.run()) is not None:
                for raw in run:
                    self._read += 1
                    yield raw, self._read, super().state
                self._note_run()
                lanes.end_run()
            lanes.begin_pass(self._plan.interleave)

    def _note_ended(self, turn: int, was_empty: bool) -> None:
        if not self._is_ordered:
            super()._note_ended(turn, was_empty)
        else:  # its last samples may be waiting
            self._watch.note_ended(turn, self._lanes.next_turn, None if was_empty else self._read)

    def _iterate_shuffled(self) -> Iterator[Sample]:
        buffer, watch = self._buffer, self._watch
        for raw, ordinal, ended, end, newest in self._look_ahead(self._due()):
            self._last, self._end, self._newest = ordinal, end, newest
            del buffer[ordinal]
            sample = self._process(raw, ordinal + 1)
            if sample is not None:
                watch.has_sample = True
                if ended and not buffer:
                    self._end_pass()
                yield sample
        yield from self._iterate_ordered()

    def _look_ahead(self, items: Iterator[T]) -> Iterator[T]:
        """Yield samples, and meanwhile fetch the objects of those that follow."""
        return self._source.ahead(items, _raw_of)

    def _due(self) -> Iterator[Any]:
        """Yield the samples as they are due, with what the state is to say once they are yielded.

        Each has its ordinal, whether the pass is read to its end, that end (`_end`), and `_newest`.
        """
        runs = self._read_runs()
        before, self._newest = self._end, self._restarts[-1].ordinal
        for ordinals, ended in runs:
            # What is read ahead is in no state. A pass of which nothing was yielded has no end yet.
            end, self._end = self._end, 0 if self._last < 0 else before
            newest = self._restarts[-1].ordinal
            for ordinal in ordinals:
                yield self._buffer[ordinal], ordinal, ended, end, newest
            if ended:  # the next pass begins when all samples of this one were yielded
                yield STOP
            before = self._end

    def _find_restart(self) -> RestartPoint:
        """As without, also if later restart points were noted while reading ahead."""
        oldest, restarts = min(next(iter(self._buffer), self._read), self._newest), self._restarts
        while len(restarts) > 1 and restarts[1].ordinal <= oldest:
            restarts.popleft()
        return restarts[0]


class LeanFetchingStream(FetchingStream, LeanStream):
    """A `FetchingStream` of a mix of many sources: the objects that the next draws need are fetched, and no others."""

    _requests: LookAhead[Any] | None = None

    requests_ahead = True

    def prepare(self) -> None:
        """Have what the next sample needs requested from its store."""
        super().prepare()
        if self._requests is not None:
            self._requests.fill()

    def _look_ahead(self, items: Iterator[T]) -> Iterator[T]:
        objects = self._source.objects_first
        assert objects is not None, "it looks ahead"
        most = draws_ahead(float(self._plan.share))
        self._requests = LookAhead(items, lambda item: [(_raw_of(item), objects)], objects.fetcher, most)
        return iter(self._requests)


def open_mixture(keeps_rows: bool, *arguments: Any) -> Mixture[Any]:
    """Open a `Mixture` whose sources are read as their number and their samples need it.

    Args:
        keeps_rows: whether rows of tables stay rows until they are batched.
        arguments: as for `Mixture`.
    """
    has_many = len(arguments[1]) > MANY

    def choose(source: LiveSource) -> type[SourceStream]:
        if source.objects_first is not None:
            return LeanFetchingStream if has_many else FetchingStream
        if keeps_rows and may_be_table(source.plan.shards[0].text) and may_keep_rows(source):
            return LeanRowStream if has_many else RowStream
        return LeanStream if has_many else SourceStream

    kind: Any = PreparingMixture if has_many else Mixture
    mixture: Mixture[Any] = kind(*arguments, choose)
    return mixture


def _raw_of(item: Any) -> Sample:
    raw: Sample = item[0]
    return raw


class FetchingWindows(Windows):
    """Batches that are planned from windows; the objects of their samples are fetched in the order of the batches."""

    objects: dict[str, Objects]
    """By source, of those whose samples are measured before they are decoded."""
    _requests: LookAhead[PlannedBatch] | None = None
    """What has requested the objects of the window; its last batch is used after its end."""

    def _pass_given(self) -> bool:
        is_same = super()._pass_given()
        if is_same:
            self._batches = self._ahead(self._batches)
        return is_same

    def _read_planned(self, place: WindowPlace) -> Iterator[PlannedBatch]:
        return self._ahead(super()._read_planned(place))

    def close(self) -> None:
        """Close all open shards, and give up the objects that are read ahead."""
        super().close()
        self._batches = iter(())
        self._end_requests()

    def _ahead(self, batches: Iterator[PlannedBatch]) -> Iterator[PlannedBatch]:
        self._end_requests()
        self._requests = LookAhead(batches, self._fetching, self._fetcher)
        return iter(self._requests)

    def _end_requests(self) -> None:
        if self._requests is not None:
            self._requests.forget_last()

    @property
    def _fetcher(self) -> Fetcher:
        return next(iter(self.objects.values())).fetcher

    def _fetching(self, batch: PlannedBatch) -> Iterable[tuple[Sample, Objects]]:
        for _, _, _, _, raw, finish, _, _ in batch:
            objects = self.objects.get(finish.budget.source)
            if objects is not None:
                yield raw, objects


def windows_of(sources: Sequence[LiveSource]) -> Callable[..., Windows]:
    """Return what makes the windows of a slot."""
    # The objects of samples that are decoded before they are measured are there already.
    found = ((each.plan.name, each.parts.transform.objects, each.objects_first) for each in sources)
    objects = {name: each for name, each, first in found if each is not None and each is not first}
    if not objects:
        return Windows

    def make(*arguments: Any) -> Windows:
        windows = FetchingWindows(*arguments)
        windows.objects = objects
        return windows

    return make
