"""The ways to get the steps of a run: in this process (`Here`), from worker processes, threads, or Ray actors.

A step is the items of one global batch and the states, after it, of the slots it was taken from. All ways have the
interface `Steps`, so a `Stream` asks for the steps from its position on and does not need to know who reads them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple, Protocol

from wdspec.planning.past import Changes
from wdspec.read.batch import as_tuple
from wdspec.read.reader import Reader
from wdspec.run.received import StepCounts
from wdspec.run.run import Run
from wdspec.run.stats import Tally
from wdspec.spec.language.steps import StepRanges

Step = tuple[list[Any], Mapping[int, bytes], StepCounts | None]
"""The items of one global batch (none if it is skipped), the states after it of the slots it was taken from, and how
much of each source it has (None if it is skipped, or if that follows from the draws)."""


class Work(NamedTuple):
    """The steps that an iteration requests."""

    first: int
    """J of the first step."""
    end: int | None
    """J of the step after the last one; None for an endless stream."""
    stride: int
    """Distance from one step to the next."""
    slot_states: Callable[[], Mapping[int, bytes]]
    """Returns slot -> packed state before the first step; called only where it is needed."""
    changes: Changes
    """The shares set at run time, and earlier specs."""
    skipped: StepRanges
    """Steps to skip: they yield no items."""


class Steps(Protocol):
    """Reads the steps of a run. The defaults fit workers, which send their states and counts with every step."""

    tally: Tally
    """Counts so far."""

    @property
    def requested(self) -> int:
        """J of the first step that has not been requested yet."""
        ...

    def read(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order."""
        ...

    def samples(self, work: Work) -> Iterator[Any] | None:
        """Return the items of the steps, if each step is one sample whose state can be computed later."""
        return None

    def fail(self, error: BaseException) -> None:
        """Record that reading one of the `samples` failed."""
        return

    def slot_states(self, from_steps: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """Return slot -> packed state, given the states that came with the steps so far."""
        return from_steps

    def draw_by(self, changes: Changes) -> None:
        """Draw later steps by these shares."""
        ...

    def forget(self) -> None:
        """Drop steps that were read ahead: the next work starts elsewhere."""
        return

    def count(self) -> None:
        """Bring `tally` up to date."""
        return

    def close(self) -> None:
        """End workers and close open shards; `read` starts them again."""
        ...


class Here:
    """Reads steps in this process.

    Args:
        run: what to read.
        notes_states: whether each step comes with its states. Without them, the reader computes its state on request,
            which it cannot do after an error.
        pin: moves items into page-locked memory.
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
        self.tally = Tally(run.slot_count)
        self.requested = 0
        self._reader: Reader | None = None
        self._process = os.getpid()
        """The process that the reader belongs to."""
        self._must_restore = True
        """Whether the reader may be somewhere else than where the next work starts."""
        self._unfinished: tuple[int, Step] | None = None
        """A step of several items that was read but not yielded completely, with its number."""
        self._last_slots: Mapping[int, bytes] | None = None
        """State of the reader that was closed, or that belongs to the parent process."""

    def read(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order."""
        reader, unfinished = self._prepare(work), self._unfinished
        if unfinished is not None and unfinished[0] == work.first:
            yield unfinished[1]
            work = work._replace(first=work.first + work.stride)
        skipped = work.skipped if work.skipped.ranges else ()
        read, assemble = reader.micro_batches, self._run.assemble
        must_count, must_note = self._run.counts_steps, self._notes_states or not self._is_single
        first, end, stride = work.first, work.end, work.stride
        for number in count(first, stride) if end is None else range(first, end, stride):
            self.requested = number + 1
            items: list[Any] = []
            counts: StepCounts | None = None
            if skipped and number in skipped:
                reader.skip(number)
            else:
                start = time.perf_counter()
                parts = read(number)
                try:
                    items = assemble(number, parts)
                    counts = self._run.count(parts) if must_count else None
                except BaseException as error:
                    reader.fail(error)
                    raise
                if self._pin is not None:
                    items = self._pin(items)
                self.tally.waited += time.perf_counter() - start
            step = items, reader.states(number) if must_note else {}, counts
            if not self._is_single:
                self._unfinished = number, step
            yield step

    def samples(self, work: Work) -> Iterator[Any] | None:
        """Return the items of the steps, if each step is one sample that only needs decoding."""
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
        """Record that reading one of the `samples` failed."""
        assert self._reader is not None, "it has read"
        self._reader.fail(error)

    def _prepare(self, work: Work) -> Reader:
        """Return the reader, moved to the first step of the work."""
        if self._reader is not None and os.getpid() != self._process:
            self._leave_to_parent()
        self.tally.begin()
        is_unfinished = self._unfinished is not None and self._unfinished[0] == work.first
        if self._reader is None or self._must_restore or (self._notes_states and not is_unfinished):
            slots = work.slot_states()
            if self._reader is None:
                self._reader, self._process = self._run.reader(slots), os.getpid()
            else:
                self._reader.restore(slots)
            self._must_restore, self._last_slots = False, None
        if work.changes != self._reader.changes:
            self._reader.draw_by(work.changes)
        return self._reader

    def slot_states(self, from_steps: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """Return slot -> packed state: from the steps, or else from the reader."""
        if self._must_restore or self._notes_states or not self._is_single:
            return from_steps
        if self._reader is not None:
            return self._reader.table()
        return from_steps if self._last_slots is None else self._last_slots

    def draw_by(self, changes: Changes) -> None:
        """Draw later steps by these shares."""
        if self._reader is not None:
            self._reader.draw_by(changes)

    def forget(self) -> None:
        """Drop steps that were read ahead: the next work starts elsewhere."""
        self._unfinished, self._last_slots, self._must_restore = None, None, True

    def count(self) -> None:
        """Bring `tally` up to date."""
        reader = self._reader  # which the thread that reads may close
        if reader is not None and os.getpid() != self._process:
            self._leave_to_parent()
        elif reader is not None:
            self.tally.take(0, reader.counts())

    def close(self) -> None:
        """Close open shards."""
        self._unfinished = None
        if self._reader is None or (self._reader.has_failed and self._is_single and not self._notes_states):
            return  # a failed reader has closed its shards, and fails until a state is loaded
        self.count()
        self.tally.settle()
        if self._reader is not None:
            self._save_slots(self._reader)
            self._reader.close()
        self._reader = None

    def _leave_to_parent(self) -> None:
        """In a forked child, leave the open shards and the counts of the reader to the parent."""
        assert self._reader is not None, "there is a reader to leave"
        self._save_slots(self._reader)
        self._reader, self.tally = None, Tally(self._run.slot_count)

    def _save_slots(self, reader: Reader) -> None:
        """Keep the state of a reader that is about to go, if no step carries it."""
        if self._is_single and not self._notes_states:
            self._last_slots = reader.table()

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads and counts by itself.
        without = dict.fromkeys(("_reader", "_unfinished", "_last_slots"))
        return {**self.__dict__, **without, "tally": Tally(self._run.slot_count)}
