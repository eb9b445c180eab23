"""The Loader: a thin layer over torch's DataLoader, with a cursor that each batch moves on."""

from __future__ import annotations

import inspect
import multiprocessing
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader

from wdspec.base.errors import UsageError, WdspecError, did_you_mean
from wdspec.base.process import MOST_WORKERS
from wdspec.planning.keys import key64
from wdspec.planning.topology import Seat
from wdspec.run import processes as workers
from wdspec.run.cursor import Cursor, Step
from wdspec.run.parcels import Parcel
from wdspec.run.resumable import Resumable
from wdspec.run.run import Blueprint, Run
from wdspec.run.stats import RunStats, StatsLog, Tally
from wdspec.run.tasks import Failure, TaskDataset, TaskLoader, TaskSampler, opened, pinned
from wdspec.run.threads import AHEAD, WorkerThreads

_OURS = {
    "batch_size": "set `batch:` in the spec",
    "shuffle": "set `shuffle:` and `order:` in the spec",
    "sampler": "the plan decides the order",
    "batch_sampler": "the plan decides the order",
    "drop_last": "all batches are whole",
    "collate_fn": "batches are collated in the workers; use `map:` for other shapes",
    "dataset": "the spec says what is read",
    "workers": "write num_workers=, as for torch's DataLoader (`loader.workers` in a spec, `--workers` in commands)",
}
_OF_PROCESSES = frozenset({"worker_init_fn", "multiprocessing_context", "persistent_workers"})
_TORCHS = frozenset(inspect.signature(DataLoader).parameters)


class Loader(Resumable):
    """Batches (or samples) of a spec, read by worker processes, or threads, epoch after epoch.

    Iterating gives the rest of the current epoch; leaving early loses and repeats nothing: the next iteration
    goes on with the next batch. With `epoch: pass` every iteration is a whole pass, the same each time; only one
    after `load_state_dict` is the rest of a pass. All ranks get the same number of batches. A context manager:
    `close` ends the worker processes.

    Yields:
        What `SpecDataset` yields.

    Raises:
        WdspecError: while iterating, whatever is wrong with shards or samples, as in one process.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        seat: Seat,
        num_workers: int,
        *,
        threads: bool = False,
        **torch_arguments: Any,
    ) -> None:
        for name in torch_arguments:
            if name in _OURS or name not in _TORCHS:
                remedy = (
                    _OURS.get(name)
                    or did_you_mean(name, _TORCHS)
                    or "neither is it one of torch's DataLoader"
                )
                raise UsageError(f"`{name}` is no argument of wdspec.loader: {remedy}")
        if torch_arguments.get("in_order") is False:
            raise UsageError("`in_order=False` would give batches in no order that a state could describe")
        if not 0 <= num_workers <= MOST_WORKERS:
            raise UsageError(f"num_workers must be from 0 to {MOST_WORKERS:,}, not {num_workers}")
        run = Run.of(blueprint, seat, num_workers).described()
        self._cursor = Cursor(run)
        self._tasks = TaskSampler(self._cursor, num_workers)
        self._log: StatsLog | None = None
        self._tally = Tally(run.slots)
        self._outdated = False
        """Whether workers were asked for batches by other shares than were set since."""
        self._running: Callable[[], Any] = lambda: None
        """The iterator of the DataLoader; a weak reference, so that one left in mid-epoch is gone at once."""
        self._dataset = TaskDataset(run)
        generator = torch_arguments.pop("generator", None)
        if generator is None:  # torch's own default would take a number from the user's global generator
            generator = torch.Generator().manual_seed(key64(blueprint.spec.seed, "loader", seat.rank) >> 1)
        self._threads: WorkerThreads | None = None
        if threads and num_workers:
            for name in _OF_PROCESSES & torch_arguments.keys():
                raise UsageError(f"`{name}` is for worker processes; leave out `loader: {{kind: threads}}`")
            self._threads = WorkerThreads(
                run,
                num_workers,
                AHEAD if (ahead := torch_arguments.pop("prefetch_factor", None)) is None else ahead,
                torch_arguments.pop("timeout", 0),
                pinned(torch_arguments.get("pin_memory", False)),
            )
            num_workers = 0
        self._words: Connection | None = None
        if num_workers:
            self._words, to = multiprocessing.Pipe(duplex=False)
            then = torch_arguments.get("worker_init_fn")
            torch_arguments["worker_init_fn"] = workers.WorkerStart(then, to)
            workers.warm_forkserver(torch_arguments.get("multiprocessing_context"))
        self._loader = TaskLoader(
            self._dataset,
            batch_size=None,
            sampler=self._tasks,
            num_workers=num_workers,
            generator=generator,
            **torch_arguments,
        )

    @property
    def cursor(self) -> Cursor:
        """Where the iterations stand."""
        return self._cursor

    def __iter__(self) -> Iterator[Any]:
        return self._cursor.iterate(self._steps(), self._cursor.begin())

    def _steps(self) -> Iterator[Step]:
        """What the workers deliver; what one of them sent before it ended itself is raised.

        Where one died or gave nothing in time, all are ended, and the next iteration starts others: torch would
        wait for the dead. They are told where to go on, so nothing is lost with them.
        """
        if workers.lost(self._loader._iterator):
            self._end_workers()
        peaks: dict[int, int] = {}
        try:
            while True:
                yield from self._delivered(peaks)
                if not self._outdated:
                    return
                if not self._loader.persistent_workers:
                    self._end_workers()
        except WdspecError:
            raise
        except Exception as error:
            obituary = None
            if type(error) is RuntimeError or isinstance(error, (OSError, EOFError)):
                # The latter where it died while it sent a batch, of which torch says nothing.
                obituary = workers.obituary(self._running(), peaks)
            self._end_workers()
            if self._words is not None and self._words.poll():
                raise self._words.recv() from None
            if obituary is not None:
                raise RuntimeError(obituary) from error
            raise

    def _delivered(self, peaks: dict[int, int]) -> Iterator[Step]:
        """The steps from where the cursor stands, until they end or shares are set that workers did not know.

        Args:
            peaks: takes the most memory that each worker had.
        """
        if not self._loader.persistent_workers:
            self._settle()
        self._tally.begin()
        if self._threads is not None:
            running, self._outdated = self._threads.deliveries(self._tasks), False
        else:
            running, self._outdated = workers.iterate(self._loader), False
            self._running = weakref.ref(running)
        # Of each worker what it delivered and what was not asked for yet; they take turns, batch by batch.
        waiting: list[deque[Parcel | Step | Failure]] = [deque() for _ in range(self._tasks.workers)]
        for worker in cycle(range(len(waiting))):
            if not waiting[worker]:
                asked = time.perf_counter()
                delivery = next(running, None)
                self._tally.waited += time.perf_counter() - asked
                if delivery is None:
                    return
                self._tally.take(delivery.reader, delivery.counts)
                if self._log is not None:
                    self._log.tick(self.stats)
                if self._loader.num_workers:
                    peaks[worker] = delivery.memory_peak
                if self._loader.num_workers or self._threads is not None:
                    self._tasks.pace.note(delivery)
                waiting[worker].extend(delivery.parcels)
                if delivery.failure is not None:
                    waiting[worker].append(delivery.failure)
            parcel = waiting[worker].popleft()
            if isinstance(parcel, ExceptionWrapper):
                parcel.reraise()
            elif isinstance(parcel, WdspecError):
                raise parcel
            else:
                step = opened(parcel)
                self._tally.batches += bool(step[0])
                yield step
                if self._outdated:
                    return

    def stats(self) -> RunStats:
        """What was read so far by all workers of this rank: of each source delivered, dropped, skipped, and more.

        Counting takes less than a hundredth of the time of reading; asking takes some microseconds a source.
        """
        (self._threads or self._dataset).add_to(self._tally)
        return self._tally.stats([source.name for source in self.plan.sources])

    def log_stats(self, file: str | None = None, *, every: float = 60.0) -> None:
        """Says from now on what was read, in lines of JSON in a file, or of words in the log `wdspec` (level INFO).

        Args:
            file: lines are added to it; None for the log.
            every: seconds from one line to the next, or more: it is said with a batch.

        Raises:
            UsageError: `every` is no positive number.
        """
        if not every > 0:
            raise UsageError(f"`every` is a number of seconds above 0, not {every!r}")
        self._log = StatsLog(every, file)

    def set_shares(self, shares: Mapping[str, float], *, after: int = 0) -> int:
        start = super().set_shares(shares, after=after)
        self._outdated |= start < self._tasks.sent
        return start

    def close(self) -> None:
        """Ends the worker processes and closes open shards; iterating again starts new ones."""
        self._cursor.begin()  # so that an iteration under way ends
        self._end_workers()
        (self._threads or self._dataset).close()

    def _settle(self) -> None:
        """Keeps what workers have counted that end; a reader of this process goes on."""
        if self._loader.num_workers:
            self._tally.settle()

    def _end_workers(self) -> None:
        self._settle()
        if self._threads is not None:
            self._threads.end()
        running, self._loader._iterator = self._running(), None
        if running is not None:
            workers.end(running)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
