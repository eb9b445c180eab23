"""Task-fed workers: the training process says which batches come next and where their slots are.

Workers take turns from worker 0 on whenever an iteration starts, at batch J₀ say, so worker w serves J₀+w, J₀+w+W, …
and needs the slots k with (k - J₀) mod W = w: other ones after a resume or an odd epoch. So workers own nothing across
iterations. A `Task` says which batches to read and, the first time, the states of that worker's slots; of batches that
are skipped only states come back. What comes back holds the states after each batch.

    parent:   slots ─▶ ([J₀], slots₀) ([J₀+1], slots₁) ([J₀+2, …], ·) …    workers:  restore(slots), batch(J), states
              slots ◀─ states of delivered batches ◀─────────────────────────────────┘

Sending takes 0.2 ms, however little is sent, so small batches come several in a delivery (`Pace`): worker w then reads
J, J+W, J+2W, … for one task. Order and states are those of single batches.

The same tasks feed processes (`processes`) and threads (`threads`).
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any, NamedTuple

from torch._utils import ExceptionWrapper
from torch.utils.data import Dataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from wdspec.base.errors import WdspecError
from wdspec.base.process import memory_peak
from wdspec.planning.shares import ScheduleSegment
from wdspec.read.reader import Reader
from wdspec.run.parcels import Parcel
from wdspec.run.run import Run
from wdspec.run.stats import Counts, Tally
from wdspec.run.steps import Step, Work
from wdspec.spec.language.steps import StepRanges

Failure = WdspecError | ExceptionWrapper
"""Why a batch could not be read; others than ours with the traceback, as torch raises them."""

SECONDS = 0.01
"""Of work that is worth a delivery: sending it takes a fiftieth more."""
BYTES = 1 << 20
"""That a delivery of several batches holds, about."""
MOST = 256
"""Batches in a delivery."""


class Task(NamedTuple):
    """What a worker is asked to read."""

    numbers: range
    """The global batches."""
    slots: dict[int, bytes] | None
    """The states of the worker's slots, in its first task of an iteration."""
    segments: tuple[ScheduleSegment, ...]
    """The shares that were set."""
    skipped: tuple[int, ...]
    """The batches to skip."""


@dataclass(frozen=True)
class Delivery:
    """What a worker returns for a task."""

    parcels: Sequence[Parcel | Step]
    """For each batch its items, none if it is skipped, and the states after it; within one process as they are."""
    failure: Failure | None = None
    """Why later batches of the task are missing."""
    seconds: float = 0.0
    """Seconds spent reading them."""
    memory_peak: int = 0
    """The most memory that the worker had so far, in bytes."""
    reader: int = 0
    """Which reader it comes from,"""
    counts: Counts = field(default_factory=dict)
    """and what that has counted so far, of the sources that were read since its last delivery."""
    opened: int = 0
    """Bytes of parcels that were opened already."""
    has_skipped: bool = False
    """Whether some of the batches were skipped, so that it took less time than others will."""

    @property
    def size(self) -> int:
        """Bytes that were sent."""
        return self.opened + sum(parcel.size for parcel in self.parcels if isinstance(parcel, Parcel))

    def pin_memory(self) -> Delivery:
        """Opened, with items in page-locked memory; torch looks into dicts and lists by itself, not into objects."""
        steps = [open_parcel(parcel) for parcel in self.parcels]
        pinned = [(pin_memory(items), states) for items, states in steps]
        return replace(self, parcels=pinned, opened=self.size)


def open_parcel(parcel: Parcel | Step) -> Step:
    """The items of a batch, and the states after it."""
    return parcel.open() if isinstance(parcel, Parcel) else parcel


class Pace:
    """How many batches come in one delivery: as many as take a few milliseconds to read and fill a megabyte, at most.

    It starts with one, so that the first batches come soon.
    """

    def __init__(self) -> None:
        self.steps = 1
        self._seconds = self._size = 0.0

    def note(self, delivery: Delivery) -> None:
        """Consider the cost of a delivery."""
        count = len(delivery.parcels)
        if not count or delivery.has_skipped:
            return
        weight = 0.25 if self._size else 1.0
        self._seconds += weight * (delivery.seconds / count - self._seconds)
        self._size += weight * (max(1, delivery.size) / count - self._size)
        worth = min(SECONDS / max(self._seconds, 1e-9), BYTES / self._size)
        self.steps = max(1, min(2 * self.steps, int(worth), MOST))


class Tasks:
    """The tasks of an iteration, in the order in which W workers take turns."""

    def __init__(self, run: Run, workers: int) -> None:
        self.workers = workers
        self.pace = Pace()
        self.requested = 0
        """No batch from J on was asked for."""
        self.segments: tuple[ScheduleSegment, ...] = ()
        """The shares that were set, for tasks that are still to be made."""
        self._slots_per_rank = run.plan.topology.workers
        self._first, self._skipped = 0, StepRanges()
        self._end: int | None = 0
        self._slots: Mapping[int, bytes] = {}

    def start(self, work: Work) -> None:
        """Make the tasks of this work when iterated."""
        # The work itself is not kept: it leads back to the stream, and so to the loader that holds this.
        self._first, self._end, self._skipped, self._slots = work.first, work.end, work.skipped, work.slots()
        self.segments, self.requested = work.segments, work.first

    def __iter__(self) -> Iterator[Task]:
        first, end, skipped, slots = self._first, self._end, self._skipped, self._slots
        workers, number = self.workers, first
        while end is None or number < end:
            # All workers get as many in a round, so that their turns stay those of single batches.
            steps = self.pace.steps
            if end is not None:
                steps = max(1, min(steps, (end - number) // workers))
            for worker in range(workers if end is None else min(workers, end - number)):
                own = None
                if number == first:
                    own = {
                        slot: state
                        for slot, state in slots.items()
                        if (slot % self._slots_per_rank - first) % workers == worker
                    }
                numbers = range(number + worker, number + worker + steps * workers, workers)
                self.requested = max(self.requested, numbers[-1] + 1)
                skips = tuple(each for each in numbers if each in skipped) if skipped else ()
                yield Task(numbers, own, self.segments, skips)
            number += steps * workers


class TaskReader(Dataset[Any]):
    """Does tasks: a map-style dataset from `Task` to `Delivery`, with a reader of its own."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader: Reader | None = None
        self._number = 0
        """Of the reader: no other reader of this run has it, except by a chance of 2⁻⁶⁴."""

    def __getitem__(self, task: Task) -> Delivery:
        start = time.perf_counter()
        parcels: list[Parcel | Step] = []
        failure: Failure | None = None
        is_sent = get_worker_info() is not None
        try:
            reader = self._prepare(task)
            for number in task.numbers:
                items: list[Any] = []
                if number in task.skipped:
                    reader.skip(number)
                else:
                    items = self.run.assemble(number, reader.micro_batches(number))
                step = items, reader.states(number)
                parcels.append(Parcel(step) if is_sent else step)
        except WdspecError as error:
            # As a whole to the training process; torch would print its traceback into another error.
            failure = error
        except Exception:
            if not parcels:
                raise
            failure = ExceptionWrapper(where="in a worker of a Loader")
        return Delivery(
            parcels,
            failure,
            time.perf_counter() - start,
            memory_peak(),
            self._number,
            self._reader.counts() if is_sent and self._reader is not None else {},
            has_skipped=bool(task.skipped),
        )

    def _prepare(self, task: Task) -> Reader:
        """The reader, at the task's first batch."""
        if self._reader is None:
            self._reader, self._number = self.run.reader(), secrets.randbits(64)
        if task.slots is not None:
            self._reader.restore(task.slots)
        self._reader.draw_by(task.segments)
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def add_to(self, tally: Tally) -> None:
        """Add what was read in this process; worker processes send theirs."""
        if self._reader is not None:
            tally.take(self._number, self._reader.counts())

    def close(self) -> None:
        """Close open shards of this process."""
        if self._reader is not None:
            self._reader.close()


def deal_steps(
    deliveries: Iterator[Delivery],
    tasks: Tasks,
    tally: Tally,
    on_delivery: Callable[[int, Delivery], object] = lambda worker, delivery: None,
) -> Iterator[Step]:
    """Yield the steps of deliveries that arrive from workers in turn, and bring tally and pace up to date.

    Args:
        on_delivery: called with the number of the worker and what it delivered.

    Raises:
        WdspecError: what a worker could not read, after the batches before it.
    """
    # Batches each worker has delivered but the caller has not requested; workers take turns, batch by batch.
    waiting: list[deque[Parcel | Step | Failure]] = [deque() for _ in range(tasks.workers)]
    for worker in cycle(range(tasks.workers)):
        if not waiting[worker]:
            start = time.perf_counter()
            delivery = next(deliveries, None)
            tally.waited += time.perf_counter() - start
            if delivery is None:
                return
            tally.take(delivery.reader, delivery.counts)
            tasks.pace.note(delivery)
            on_delivery(worker, delivery)
            waiting[worker].extend(delivery.parcels)
            if delivery.failure is not None:
                waiting[worker].append(delivery.failure)
        parcel = waiting[worker].popleft()
        if isinstance(parcel, ExceptionWrapper):
            parcel.reraise()
        elif isinstance(parcel, WdspecError):
            raise parcel
        else:
            yield open_parcel(parcel)
