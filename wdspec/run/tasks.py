"""Task-fed workers: the parent says which batches come next and where their slots stand.

A DataLoader's rotation starts at worker 0 whenever iteration starts, at batch J₀ say, so worker w serves
J₀+w, J₀+w+W, … and needs the slots k with (k - J₀) mod W = w: other ones after a resume or an odd epoch. So
workers own nothing across iterations. A task is (numbers, table, segments, skipped): the table, sent with the first W
tasks only, holds the states of that worker's slots; the segments, sent where they have changed, are the shares that
were set; of batches that are skipped nothing but states comes back.
What comes back holds the states after each batch.

    parent:   table ─▶ ([J₀], table₀) ([J₀+1], table₁) ([J₀+2, …], ·) …    workers:  restore(table), batch(J), states
              table ◀─ states of delivered batches ◀─────────────────────────────────┘

Sending takes 0.2 ms, however little is sent, so small batches come several in a delivery (`Pace`): worker w then reads
J, J+W, J+2W, … for one task. Order and states are those of single batches.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from wdspec.base.errors import WdspecError
from wdspec.planning.shares import ScheduleSegment
from wdspec.read.reader import Reader
from wdspec.run.cursor import Cursor, Step
from wdspec.run.parcels import Parcel
from wdspec.run.processes import memory_peak
from wdspec.run.run import Run
from wdspec.run.stats import Counts, Tally

Segments = tuple[ScheduleSegment, ...]
Task = tuple[range, "dict[int, bytes] | None", "Segments | None", tuple[int, ...]]
Failure = WdspecError | ExceptionWrapper
"""What a batch could not be read for; others than ours with the traceback, as torch raises them."""

SECONDS = 0.01
"""Of work that is worth a delivery: sending it takes a fiftieth more."""
BYTES = 1 << 20
"""That a delivery of several batches holds, about."""
MOST = 256
"""Batches in a delivery."""


@dataclass(frozen=True)
class Delivery:
    """What a worker returns for a task."""

    parcels: Sequence[Parcel | Step]
    """For each batch its items, none if it is skipped, and the states after it; within one process as they are."""
    failure: Failure | None = None
    """Why those of the task that come behind are missing."""
    seconds: float = 0.0
    """That it took to read them."""
    memory_peak: int = 0
    """The most memory that the worker had so far, in bytes."""
    reader: int = 0
    """Which reader it is from,"""
    counts: Counts = field(default_factory=dict)
    """and what that has counted so far, of the sources that were read since its last delivery."""
    opened: int = 0
    """Bytes of parcels that were opened already."""
    has_skipped: bool = False
    """Whether there are batches among them that were skipped, so that it took less than others will."""

    @property
    def size(self) -> int:
        """Bytes that were sent."""
        return self.opened + sum(parcel.size for parcel in self.parcels if isinstance(parcel, Parcel))

    def pin_memory(self) -> Delivery:
        """Opened, with items in page-locked memory; torch looks into dicts and lists by itself, not into objects."""
        steps = [opened(parcel) for parcel in self.parcels]
        pinned = [(pin_memory(items), states) for items, states in steps]
        return replace(self, parcels=pinned, opened=self.size)


def opened(parcel: Parcel | Step) -> Step:
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
        """Takes the cost of a delivery into account."""
        count = len(delivery.parcels)
        if not count or delivery.has_skipped:
            return
        weight = 0.25 if self._size else 1.0
        self._seconds += weight * (delivery.seconds / count - self._seconds)
        self._size += weight * (max(1, delivery.size) / count - self._size)
        worth = min(SECONDS / max(self._seconds, 1e-9), BYTES / self._size)
        self.steps = max(1, min(2 * self.steps, int(worth), MOST))


class TaskSampler(Sampler[Task]):
    """The tasks from where a cursor stands to the end of its epoch.

    It holds the cursor, never the Loader: a reference cycle would let forked children collect, and shut down,
    iterators that they inherited.
    """

    def __init__(self, cursor: Cursor, workers: int) -> None:
        self.cursor = cursor
        self.workers = max(1, workers)
        self.pace = Pace()
        self.sent = 0
        """No batch from J on was asked for."""

    def __iter__(self) -> Iterator[Task]:
        run, first, table = self.cursor.run, self.cursor.batch, dict(self.cursor.table)
        workers, k_of, end = self.workers, run.plan.topology.workers, run.epoch_end(self.cursor.standing)
        skipped = self.cursor.skipped.within(first)
        number = self.sent = first
        known: dict[int, Segments] = {}
        while end is None or number < end:
            # All workers get as many in a round, so that their turns stay those of single batches.
            steps = (
                self.pace.steps if end is None else max(1, min(self.pace.steps, (end - number) // workers))
            )
            for worker in range(workers if end is None else min(workers, end - number)):
                own = None
                if number == first:
                    own = {s: state for s, state in table.items() if (s % k_of - first) % workers == worker}
                numbers = range(number + worker, number + worker + steps * workers, workers)
                segments, told = self.cursor.segments, known.get(worker)
                known[worker], self.sent = segments, max(self.sent, numbers[-1] + 1)
                passed = tuple(each for each in numbers if each in skipped) if skipped else ()
                yield numbers, own, None if segments is told else segments, passed
            number += steps * workers


class TaskDataset(Dataset[Any]):
    """The map-style dataset behind a Loader: a task in, a delivery out."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader: Reader | None = None
        self._number = 0
        """Of the reader: no other of this run has it, but by a chance of 2⁻⁶⁴."""

    def __getitem__(self, task: Task) -> Delivery:
        numbers, table, segments, skipped = task
        begun = time.perf_counter()
        parcels: list[Parcel | Step] = []
        failure: Failure | None = None
        is_sent = get_worker_info() is not None
        try:
            if self._reader is None:
                self._reader, self._number = self.run.reader(), secrets.randbits(64)
            if table is not None:
                self._reader.restore(table)
            if segments is not None:
                self._reader.draw_by(segments)
            for number in numbers:
                if number in skipped:
                    self._reader.pass_over(number)
                    items = []
                else:
                    items = self.run.assemble(number, self._reader.batch(number))
                step = items, self._reader.states(number)
                parcels.append(Parcel(step) if is_sent else step)
        except WdspecError as error:
            # Whole to the training process, where torch would print its traceback into another.
            failure = error
        except Exception:
            if not parcels:
                raise
            failure = ExceptionWrapper(where="in a worker of a Loader")
        counts = self._reader.counts() if is_sent and self._reader is not None else {}
        return Delivery(
            parcels,
            failure,
            time.perf_counter() - begun,
            memory_peak(),
            self._number,
            counts,
            has_skipped=bool(skipped),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def add_to(self, tally: Tally) -> None:
        """Adds what was read in this process; workers send theirs."""
        if self._reader is not None:
            tally.take(self._number, self._reader.counts())

    def close(self) -> None:
        """Closes open shards of this process."""
        if self._reader is not None:
            self._reader.close()


def pinned(wanted: bool) -> bool:
    """Whether memory is page-locked, as torch decides it: where that is wanted and there is a device to copy to."""
    return wanted and torch.accelerator.is_available()


class TaskLoader(DataLoader[Any]):
    """torch's DataLoader over a `TaskDataset`; without workers it is passed by, as it takes 70 µs a task."""

    def __iter__(self) -> Any:
        if self.num_workers:
            return super().__iter__()
        pins = pinned(self.pin_memory)
        deliveries = map(self.dataset.__getitem__, self.sampler)
        return (delivery.pin_memory() if pins else delivery for delivery in deliveries)
