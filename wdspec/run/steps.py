"""Where a stream gets its steps from: read in this process (`Here`), or by workers (`processes`, `threads`).

A step is the items of one global batch and the states after it of the slots that it was taken from. All three ways have
one interface, `Steps`; a stream asks for the steps from its position on and neither knows nor cares who reads them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple, Protocol

from wdspec.planning.shares import ScheduleSegment
from wdspec.read.batch import as_tuple
from wdspec.read.reader import Reader
from wdspec.run.run import Run
from wdspec.run.stats import Tally
from wdspec.spec.language.steps import StepRanges

Step = tuple[list[Any], Mapping[int, bytes]]
"""The items of one global batch, none if it is skipped, and the states after it of the slots it was taken from."""


class Work(NamedTuple):
    """The steps that an iteration asks for."""

    first: int
    """J of the first one."""
    end: int | None
    """J of the first one after the last; None: without end."""
    stride: int
    """Distance from one to the next."""
    slots: Callable[[], Mapping[int, bytes]]
    """Returns slot -> packed state before the first one; only called where it is needed."""
    segments: tuple[ScheduleSegment, ...]
    """The shares that were set."""
    skipped: StepRanges
    """Those that are skipped: they yield no items."""


class Steps(Protocol):
    """What reads the steps of a run."""

    tally: Tally
    """What was read so far."""

    @property
    def requested(self) -> int:
        """No step from J on was asked for yet."""
        ...

    def begin(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order."""
        ...

    def samples(self, work: Work) -> Iterator[Any] | None:
        """The items of the steps, where each step is one sample and its state can be asked for later; else None."""
        ...

    def fail(self, error: BaseException) -> None:
        """Note that reading one of the `samples` has failed."""
        ...

    def slots(self, noted: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """Slot -> packed state, where the steps given so far were noted."""
        ...

    def draw_by(self, segments: tuple[ScheduleSegment, ...]) -> None:
        """Take later steps by the shares that were set."""
        ...

    def forget(self) -> None:
        """Drop what was read and not given: the next work starts elsewhere."""
        ...

    def count(self) -> None:
        """Bring `tally` up to date."""
        ...

    def close(self) -> None:
        """End workers and close open shards; `begin` starts them again."""
        ...


class Here:
    """Reads steps in this process.

    Args:
        run: what is read.
        notes_states: whether each step comes with its states. Without them, the reader is asked for its own when
            someone wants them, which it cannot give after an error.
        pin: moves items into page-locked memory, if they are to be there.
    """

    def __init__(
        self,
        run: Run,
        notes_states: bool = False,
        pin: Callable[[list[Any]], list[Any]] | None = None,
    ) -> None:
        self._run, self._pin = run, pin
        self._notes_states = notes_states
        self._is_single = run.items_per_step == 1
        self.tally = Tally(run.slots)
        self.requested = 0
        self._reader: Reader | None = None
        self._process = os.getpid()
        """The process of the reader."""
        self._must_move = True
        """Whether the reader may be elsewhere than the work that starts."""
        self._unfinished: tuple[int, Step] | None = None
        """The number of a step of several items that was read and not given to its end, and the step."""
        self._parked: Mapping[int, bytes] | None = None
        """Where the reader was that was closed, or left to a parent process."""

    def begin(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order."""
        reader, unfinished = self._prepare(work), self._unfinished
        if unfinished is not None and unfinished[0] == work.first:
            yield unfinished[1]
            work = work._replace(first=work.first + work.stride)
        skipped, read, assemble = (
            work.skipped.ranges and work.skipped,
            reader.micro_batches,
            self._run.assemble,
        )
        numbers = (
            count(work.first, work.stride) if work.end is None else range(work.first, work.end, work.stride)
        )
        for number in numbers:
            self.requested = number + 1
            items: list[Any] = []
            if skipped and number in skipped:
                reader.skip(number)
            else:
                start = time.perf_counter()
                parts = read(number)
                try:
                    items = assemble(number, parts)
                except BaseException as error:
                    reader.fail(error)
                    raise
                if self._pin is not None:
                    items = self._pin(items)
                self.tally.waited += time.perf_counter() - start
            step = items, reader.states(number) if self._notes_states or not self._is_single else {}
            if not self._is_single:
                self._unfinished = number, step
            yield step

    def samples(self, work: Work) -> Iterator[Any] | None:
        """The items of the steps, where each is one sample that is only decoded."""
        if self._notes_states or work.skipped:
            return None
        reader = self._prepare(work)
        if not reader.is_one_by_one:
            return None
        entries = self._run.spec.to_tuple
        samples: Iterator[Any] = reader.one_by_one(work.first, work.stride)
        if entries is not None:
            samples = map(partial(as_tuple, entries=entries), samples)
        return samples if work.end is None else islice(samples, len(range(work.first, work.end, work.stride)))

    def fail(self, error: BaseException) -> None:
        """Note that reading a sample of `samples` has failed."""
        assert self._reader is not None, "it has read"
        self._reader.fail(error)

    def _prepare(self, work: Work) -> Reader:
        """The reader, at the first step of the work."""
        if self._reader is not None and os.getpid() != self._process:
            self._leave_to_parent()
        self.tally.begin()
        is_unfinished = self._unfinished is not None and self._unfinished[0] == work.first
        if self._reader is None or self._must_move or (self._notes_states and not is_unfinished):
            slots = work.slots()
            if self._reader is None:
                self._reader, self._process = self._run.reader(), os.getpid()
            self._reader.restore(slots)
            self._must_move, self._parked = False, None
        self._reader.draw_by(work.segments)
        return self._reader

    def slots(self, noted: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """Slot -> packed state: as noted, or where the reader is."""
        if self._must_move or self._notes_states or not self._is_single:
            return noted
        if self._reader is not None:
            return self._reader.table()
        return noted if self._parked is None else self._parked

    def draw_by(self, segments: tuple[ScheduleSegment, ...]) -> None:
        """Take later steps by the shares that were set."""
        if self._reader is not None:
            self._reader.draw_by(segments)

    def forget(self) -> None:
        """Drop what was read and not given: the next work starts elsewhere."""
        self._unfinished, self._parked, self._must_move = None, None, True

    def count(self) -> None:
        """Bring `tally` up to date."""
        if self._reader is not None and os.getpid() != self._process:
            self._leave_to_parent()
        if self._reader is not None:
            self.tally.take(0, self._reader.counts())

    def close(self) -> None:
        """Close open shards."""
        self._unfinished = None
        if self._reader is None or (self._reader.has_failed and self._is_single and not self._notes_states):
            return  # a reader that has failed has closed its shards, and fails until a state is loaded
        self.count()
        self.tally.settle()
        if self._reader is not None:
            self._park(self._reader)
            self._reader.close()
        self._reader = None

    def _leave_to_parent(self) -> None:
        """In a forked child: what the reader has open, and has counted, belongs to the parent."""
        assert self._reader is not None, "there is a reader to leave"
        self._park(self._reader)
        self._reader, self.tally = None, Tally(self._run.slots)

    def _park(self, reader: Reader) -> None:
        """Note where a reader is that goes away, if nothing else knows it."""
        if self._is_single and not self._notes_states:
            self._parked = reader.table()

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads and counts by itself.
        return {
            **self.__dict__,
            "_reader": None,
            "_unfinished": None,
            "_parked": None,
            "tally": Tally(self._run.slots),
        }
