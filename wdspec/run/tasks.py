"""Tasks for workers, processes and threads: which batches to read next, and the states of their slots.

When an iteration starts at batch J₀, workers take turns from worker 0 on. So worker w serves J₀+w, J₀+w+W, … and needs
the slots k with (k - J₀) mod W = w, which differ after a resume or an odd epoch. Workers therefore own nothing across
iterations. A `Task` lists the batches to read and, the first time, the states of the worker's slots. A `Delivery`
returns each batch with the states after it; for a skipped batch only the states.

    parent:   slots ─▶ ([J₀], slots₀) ([J₀+1], slots₁) ([J₀+2, …], ·) …    workers:  restore(slots), batch(J), states
              slots ◀─ states of delivered batches ◀─────────────────────────────────┘

Sending takes 0.2 ms even for a small batch, so several small batches share a delivery (`Pace`): worker w then reads
J, J+W, J+2W, … for one task. Order and states are those of single batches.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import cycle
from typing import Any, NamedTuple

from torch._utils import ExceptionWrapper
from torch.utils.data import Dataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.process import memory_peak, process_counts
from wdspec.fields.deferred import decode_item
from wdspec.planning.past import Changes
from wdspec.read.reader import Reader
from wdspec.run.parcels import Bundle, Parcel, ring, unbundle
from wdspec.run.run import Run
from wdspec.run.stats import Counts, Tally
from wdspec.run.steps import Step, Steps, Work
from wdspec.spec.language.steps import StepRanges

Failure = WdspecError | ExceptionWrapper
"""Why a batch could not be read; exceptions that are not wdspec's with their traceback, as torch raises them."""

SECONDS = 0.02
"""Work per delivery to aim for: sending it then adds 1%, more on a busy machine, where each wake-up costs."""
BYTES = 1 << 21
"""Approximate size of a delivery of several batches, at most."""
COUNTS_EVERY = 0.05
"""Seconds between two reports of a worker's counts: gathering and sending those of 50 sources takes 0.1 ms."""
_ROOM = 1.25
"""Memory for a delivery, relative to the size of the last one."""
MOST = 256
"""Batches in a delivery, at most."""


class Task(NamedTuple):
    """What a worker has to read."""

    numbers: range
    """The global batches."""
    slot_states: dict[int, bytes] | None
    """The states of the worker's slots, in its first task of an iteration."""
    changes: Changes
    """The shares set at run time, and earlier specs."""
    skipped: tuple[int, ...]
    """The batches to skip."""
    is_last: bool = False
    """Whether the worker gets no more tasks in this iteration."""


@dataclass(frozen=True)
class Delivery:
    """What a worker returns for a task."""

    parcels: Sequence[Parcel | Step]
    """For each batch its items (none if skipped), the states after it, and counts; not pickled within one process."""
    failure: Failure | None = None
    """Why later batches of the task are missing."""
    seconds: float = 0.0
    """Seconds spent reading them."""
    memory_peak: int = 0
    """Peak memory of the worker so far, in bytes."""
    reader: int = 0
    """Number of the worker's reader."""
    counts: Counts = field(default_factory=dict)
    """Counts of the reader so far, for the sources read since it last reported them; every `COUNTS_EVERY` seconds."""
    opened_size: int = 0
    """Bytes of the parcels that are already open."""
    of_process: tuple[int, ...] = ()
    """The `ProcessCounts` of the worker process so far."""
    has_skipped: bool = False
    """Whether some batches were skipped, so that `seconds` is not typical."""
    lease: Parcel | None = None
    """By which the receiver finds the bytes of parcels that are in shared memory."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.lease is not None:
            unbundle([parcel for parcel in self.parcels if isinstance(parcel, Parcel)], self.lease)
            self.__dict__["lease"] = None

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.opened_size + sum(parcel.size for parcel in self.parcels if isinstance(parcel, Parcel))

    def pin_memory(self) -> Delivery:
        """Return a copy with open parcels in page-locked memory; torch calls this, and does not look into objects."""
        # Images that are decoded on a GPU have nothing to pin.
        left = [parcel for parcel in self.parcels if isinstance(parcel, Parcel) and parcel.is_encoded]
        pinned = [parcel if parcel in left else _pin_step(open_parcel(parcel)) for parcel in self.parcels]
        return replace(self, parcels=pinned, opened_size=self.size - sum(parcel.size for parcel in left))


def open_parcel(parcel: Parcel | Step) -> Step:
    """Return a step, with all images of its items decoded."""
    if not isinstance(parcel, Parcel):
        return parcel
    items, states, counts = parcel.open()
    return [decode_item(item) for item in items] if parcel.is_encoded else items, states, counts


def _pin_step(step: Step) -> Step:
    return pin_memory(step[0]), *step[1:]


def check_requests(ahead: int, timeout: float) -> None:
    """Raise UsageError unless `ahead` is a number of deliveries, and `timeout` one of seconds."""
    if type(ahead) is not int or ahead < 1:
        raise UsageError(f"`prefetch_factor` is a number of deliveries, at least 1, not {ahead!r}")
    if not isinstance(timeout, (int, float)) or not 0 <= timeout <= threading.TIMEOUT_MAX:
        raise UsageError(f"`timeout` is a number of seconds, at least 0, not {timeout!r}")


class Pace:
    """How many batches make a delivery. Starts with one, so that the first batches arrive early.

    Args:
        seconds: what it takes to read them.
        size: bytes of a delivery of several batches, at most.
    """

    def __init__(self, seconds: float = SECONDS, size: int = BYTES) -> None:
        self.steps, self._most_seconds, self._most_size = 1, seconds, size
        self._seconds = self._size = 0.0

    def note(self, delivery: Delivery) -> None:
        """Adapt to the cost of a delivery."""
        count = len(delivery.parcels)
        if not count or delivery.has_skipped:
            return
        weight = 0.25 if self._size else 1.0
        self._seconds += weight * (delivery.seconds / count - self._seconds)
        self._size += weight * (max(1, delivery.size) / count - self._size)
        worth = min(self._most_seconds / max(self._seconds, 1e-9), self._most_size / self._size)
        self.steps = max(1, min(2 * self.steps, int(worth), MOST))


class Tasks:
    """The tasks of an iteration, in the order in which W workers take turns."""

    def __init__(self, run: Run, workers: int) -> None:
        self.workers = workers
        self.pace = Pace()
        self.requested = 0
        """J of the first batch that has not been requested yet."""
        self.changes = Changes()
        """The shares set at run time, for later tasks."""
        self._plan = run.plan
        self._first, self._skipped = 0, StepRanges()
        self._end: int | None = 0
        self._slots: Mapping[int, bytes] = {}

    def start(self, work: Work) -> None:
        """Set the work whose tasks the next iteration yields."""
        # Don't keep the work itself: it refers to the stream, and so to the loader that holds this.
        self._first, self._end, self.requested = work.first, work.end, work.first
        self._skipped, self._slots, self.changes = work.skipped, work.slot_states(), work.changes

    def __iter__(self) -> Iterator[Task]:
        first, end, skipped, slots = self._first, self._end, self._skipped, self._slots
        workers, number = self.workers, first
        # By the first step: it is not J mod K in all epochs.
        served = self._plan.slot_of_step(first, self.changes.epoch)[0]
        while end is None or number < end:
            # All workers get the same number in a round, so that their turns stay those of single batches.
            steps = self.pace.steps
            if end is not None:
                steps = max(1, min(steps, (end - number) // workers))
            for worker in range(workers if end is None else min(workers, end - number)):
                own = None
                if number == first:
                    own = {
                        slot: state
                        for slot, state in slots.items()
                        if (slot % self._plan.topology.workers - served) % workers == worker
                    }
                numbers = range(number + worker, number + worker + steps * workers, workers)
                self.requested = max(self.requested, numbers[-1] + 1)
                skips = tuple(each for each in numbers if each in skipped) if skipped else ()
                is_last = end is not None and numbers[-1] + workers >= end
                yield Task(numbers, own, self.changes, skips, is_last)
            number += steps * workers


class WorkerSteps(Steps):
    """Steps that workers read, which get tasks in turn. Their counts come with the deliveries."""

    def __init__(self, run: Run, workers: int) -> None:
        self.tally = Tally(run.slot_count)
        self._tasks = Tasks(run, workers)

    @property
    def requested(self) -> int:
        """J of the first step that has not been requested yet."""
        return self._tasks.requested

    def draw_by(self, changes: Changes) -> None:
        """Draw the steps of later tasks by these shares."""
        self._tasks.changes = changes

    def _begin(self, work: Work) -> None:
        self.tally.begin()
        self._tasks.start(work)


class TaskReader(Dataset[Any]):
    """Reads tasks: a map-style dataset from `Task` to `Delivery`, with its own reader."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader: Reader | None = None
        self._number = 0
        """Number of the reader; two readers of a run share one with a probability of 2⁻⁶⁴."""
        self._counts_due = 0.0
        """When to report counts again, by `time.perf_counter`."""
        self._size = 0.0
        """Bytes of a batch of the last delivery, without what is in shared memory."""

    def __getitem__(self, task: Task) -> Delivery:
        start = time.perf_counter()
        parcels: list[Parcel | Step] = []
        failure: Failure | None = None
        bundle = Bundle(int(_ROOM * self._size * len(task.numbers))) if self.shares_memory else None
        try:
            reader = self._prepare(task)
            for number in task.numbers:
                items: list[Any] = []
                found = None
                if number in task.skipped:
                    reader.skip(number)
                else:
                    parts = reader.micro_batches(number)
                    items, found = self.run.assemble(number, parts), self.run.count(parts)
                step = items, reader.states(number), found
                parcels.append(self._pack(step, bundle))
        except WdspecError as error:
            # Sent whole to the training process; torch would put its traceback into another error.
            failure = error
        except Exception:
            if not parcels:
                raise
            failure = ExceptionWrapper(where="in a worker of a Loader")
        if bundle is not None and parcels:
            self._size = bundle.size / len(parcels)
        now = time.perf_counter()
        counts: Counts = {}
        if self.is_sent and self._reader is not None and (now >= self._counts_due or task.is_last or failure):
            counts, self._counts_due = self._reader.counts(), now + COUNTS_EVERY
        return Delivery(
            parcels,
            failure,
            now - start,
            memory_peak(),
            self._number,
            counts,
            of_process=astuple(process_counts.value) if self.is_sent else (),
            has_skipped=bool(task.skipped),
            lease=None if bundle is None else bundle.lend(),
        )

    def _pack(self, step: Step, bundle: Bundle | None) -> Parcel | Step:
        """Return a step as it is delivered."""
        return step if bundle is None else Parcel(step, bundle)

    @property
    def shares_memory(self) -> bool:
        """Whether deliveries are sent to another process of this machine."""
        return get_worker_info() is not None

    @property
    def is_sent(self) -> bool:
        """Whether deliveries are sent to another process."""
        return self.shares_memory

    def _prepare(self, task: Task) -> Reader:
        """Return the reader, moved to the task's first batch."""
        if self._reader is None:
            self._reader, self._number = self.run.reader(), secrets.randbits(64)
            self._reader.rows.is_sent = self.is_sent
            if self.shares_memory:
                self._reader.rows.pool = ring.value
        if task.slot_states is not None:
            self._reader.restore(task.slot_states)
        if task.changes != self._reader.changes:
            self._reader.draw_by(task.changes)
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None, "_counts_due": 0.0}

    def add_to(self, tally: Tally) -> None:
        """Add the counts of this process to a tally; worker processes send theirs."""
        if self._reader is not None:
            tally.take(self._number, self._reader.counts())

    def close(self) -> None:
        """Close the open shards of this process."""
        if self._reader is not None:
            self._reader.close()


def deal_steps(
    deliveries: Iterator[Delivery],
    tasks: Tasks,
    tally: Tally,
    on_delivery: Callable[[int, Delivery], object] = lambda worker, delivery: None,
) -> Iterator[Step]:
    """Yield the steps of deliveries, which arrive from the workers in turn, and update tally and pace.

    Args:
        on_delivery: called with the number of the worker and its delivery.

    Raises:
        WdspecError: a worker could not read a batch; raised after the batches before it.
    """
    # Batches each worker has delivered but the caller has not requested. Workers take turns, batch by batch.
    waiting: list[deque[Parcel | Step | Failure]] = [deque() for _ in range(tasks.workers)]
    for worker in cycle(range(tasks.workers)):
        if not waiting[worker]:
            start = time.perf_counter()
            delivery = next(deliveries, None)
            tally.waited += time.perf_counter() - start
            if delivery is None:
                return
            tally.take(delivery.reader, delivery.counts, delivery.of_process)
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
