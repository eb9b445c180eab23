"""Worker processes: torch's DataLoader over tasks, and how the processes start, end and fail.

Schedulers, torchrun and Ctrl-C signal whole process groups. A worker that died of such a signal would take along the
batches that the training process still needs on its way to a checkpoint. So workers ignore these signals, and end with
their loader, with Python, or with the training process (`base.parent_watch`), however that ended.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.utils.data import DataLoader

from wdspec.base.errors import WdspecError
from wdspec.base.process import MEMORY_UNIT, PerProcess
from wdspec.base.workers import parent_watch
from wdspec.planning.keys import key64
from wdspec.planning.shares import ScheduleSegment
from wdspec.run.run import Run
from wdspec.run.stats import Tally
from wdspec.run.steps import Step, Work
from wdspec.run.tasks import Delivery, TaskReader, Tasks, deal_steps
from wdspec.stores import watchdog
from wdspec.stores.read_ahead import background_fetcher

_CAUSES = {
    "SIGKILL": "; the usual cause is that memory was short, which `dmesg` or the scheduler's log would say: fewer "
    "workers, a smaller `shuffle` or smaller batches need less",
    "SIGBUS": "; the usual cause is that shared memory (`/dev/shm`) was full: fewer workers, a smaller prefetch_factor "
    "or smaller batches need less, and a container can be given more (`--shm-size`)",
    "SIGSEGV": "; a library crashed, perhaps a decoder: PYTHONFAULTHANDLER=1 shows where",
}
_NEEDED = "wdspec.run.loader"


def _leave_alone(inherited: weakref.WeakSet[Any]) -> None:
    """In a forked child: torch would end the parent's workers when it collects their iterator here."""
    for workers in list(inherited):
        workers._shutdown = True


_running: PerProcess[weakref.WeakSet[Any]] = PerProcess(weakref.WeakSet, _leave_alone)
"""Iterators of DataLoaders with worker processes."""
_processes: PerProcess[weakref.WeakSet[Any]] = PerProcess(weakref.WeakSet)
"""Their processes: one that is stuck outlives its iterator."""


class Processes:
    """Reads steps in worker processes: a `Steps` over torch's DataLoader.

    Args:
        run: what is read.
        workers: how many processes, at least 1.
        arguments: of torch's DataLoader.
    """

    def __init__(self, run: Run, workers: int, arguments: dict[str, Any]) -> None:
        self.tally = Tally(run.slots)
        self._tasks = Tasks(run, workers)
        self._running: Callable[[], Any] = lambda: None
        """The iterator of the DataLoader; a weak reference, so that one left in mid-epoch is gone at once."""
        generator = arguments.pop("generator", None)
        if generator is None:  # torch's own default would take a number from the user's global generator
            generator = torch.Generator().manual_seed(key64(run.spec.seed, "loader", run.seat.rank) >> 1)
        self._words, to = multiprocessing.Pipe(duplex=False)
        arguments["worker_init_fn"] = WorkerStart(arguments.get("worker_init_fn"), to)
        warm_forkserver(arguments.get("multiprocessing_context"))
        self._loader = DataLoader(
            TaskReader(run),
            batch_size=None,
            sampler=self._tasks,
            num_workers=workers,
            generator=generator,
            **arguments,
        )

    @property
    def requested(self) -> int:
        """No step from J on was asked for yet."""
        return self._tasks.requested

    def begin(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order.

        Where a worker died or gave nothing in time, all are ended, and the next work starts others: torch would wait
        for the dead. They are sent where to resume, so nothing is lost with them.

        Raises:
            WdspecError: what a worker could not read, or what one reported before it ended itself.
            RuntimeError: a worker died; says how.
        """
        if find_lost(self._loader._iterator):
            self._end_workers()
        if not self._loader.persistent_workers:
            self.tally.settle()
        self.tally.begin()
        self._tasks.start(work)
        peaks: dict[int, int] = {}
        """The most memory that each worker had."""

        def note_peak(worker: int, delivery: Delivery) -> None:
            peaks[worker] = delivery.memory_peak

        try:
            running = self._start_workers()
            self._running = weakref.ref(running)
            yield from deal_steps(running, self._tasks, self.tally, note_peak)
        except WdspecError:
            raise
        except Exception as error:
            obituary = None
            if type(error) is RuntimeError or isinstance(error, (OSError, EOFError)):
                # The latter where it died while it sent a batch, which torch does not mention.
                obituary = describe_death(self._running(), peaks)
            self._end_workers()
            if self._words.poll():
                raise self._words.recv() from None
            if obituary is not None:
                raise RuntimeError(obituary) from error
            raise

    def samples(self, work: Work) -> None:
        """None: states come with every step."""

    def fail(self, error: BaseException) -> None:
        """Do nothing: steps that fail raise."""

    def slots(self, noted: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """As noted."""
        return noted

    def draw_by(self, segments: tuple[ScheduleSegment, ...]) -> None:
        """Have later tasks drawn by the shares that were set."""
        self._tasks.segments = segments

    def forget(self) -> None:
        """Do nothing: workers are sent where to resume."""

    def count(self) -> None:
        """Do nothing: workers send their counts with each delivery."""

    def close(self) -> None:
        """End the workers."""
        self._end_workers()

    def _start_workers(self) -> Iterator[Delivery]:
        """An iterator of the loader, whose workers end before Python waits for them at its exit."""
        if isinstance(self._loader.worker_init_fn, WorkerStart):
            of_main_thread = threading.current_thread() is threading.main_thread()
            self._loader.worker_init_fn = replace(self._loader.worker_init_fn, of_main_thread=of_main_thread)
        # A fork copies no threads, but the locks that they hold. What was read ahead here, such as the headers of a
        # pass, must not keep a thread that has nothing to do any more.
        background_fetcher().rest()
        watchdog.end_idle_watchdog()
        workers: Any = iter(self._loader)
        _running.value.add(workers)
        _processes.value.update(workers._workers)
        deliveries: Iterator[Delivery] = workers
        return deliveries

    def _end_workers(self) -> None:
        self.tally.settle()
        running, self._loader._iterator = self._running(), None
        if running is not None:
            end_workers(running)


def end_workers(running: Any) -> None:
    """End the workers of a DataLoader's iterator, by force those that are stuck."""
    running._shutdown_workers()
    _kill(running._workers)


@dataclass(frozen=True)
class WorkerStart:
    """The `worker_init_fn` of a Loader: shields the worker, then calls the user's, if there is one."""

    then: Callable[[int], object] | None
    words: Connection
    """Where a worker that is stuck leaves the reason before it ends."""
    of_main_thread: bool = False
    """Whether the main thread of the training process starts the workers: it ends no sooner than its process."""

    def __call__(self, worker: int) -> None:
        parent_watch().start(tied=self.of_main_thread)
        watchdog.stuck = self._end_stuck
        for number in (signal.SIGTERM, signal.SIGINT):
            # No SIG_IGN: processes that the worker starts would inherit it.
            signal.signal(number, _go_on)
        if self.then is not None:
            self.then(worker)

    def _end_stuck(self, error: WdspecError) -> None:
        """Sends an error to the training process and ends this one, for no exception can end the read that hangs."""
        self.words.send(error)
        os._exit(0)  # torch then finds the worker gone at a moment when its error can be caught


def warm_forkserver(context: Any) -> None:
    """Has the server that forks workers import what they need once, where each would take seconds to import it.

    Args:
        context: as DataLoader takes it: how workers are started, or a context of multiprocessing; None is the default.
    """
    if context is None:
        context = (
            multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
        )
    method = context if isinstance(context, str) else context.get_start_method()
    if method == "forkserver":
        from multiprocessing import forkserver

        server: Any = forkserver._forkserver  # where what was set before is
        if _NEEDED not in server._preload_modules:
            server.set_forkserver_preload([*server._preload_modules, _NEEDED])


def find_lost(workers: Any, wait: float = 0) -> list[Any]:
    """Those of the workers of an iterator, if it has any, that have died, or do so within some seconds."""
    processes = {worker.sentinel: worker for worker in getattr(workers, "_workers", ())}
    return (
        [processes[end] for end in multiprocessing.connection.wait(list(processes), wait)]
        if processes
        else []
    )


def describe_death(workers: Any, peaks: Mapping[int, int]) -> str | None:
    """What is known of the end of a worker that nobody had asked to end; None where none has.

    Args:
        workers: the iterator.
        peaks: the most memory that each of its workers had when it sent its last batch, in bytes.
    """
    dead = find_lost(workers, wait=1)
    if not dead:
        return None
    worker = dead[0]
    worker.join(1)
    status, known = worker.exitcode, ", ".join(f"{peaks[w] / 2**20:,.0f}" for w in sorted(peaks))
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * MEMORY_UNIT
    end, remedy = f"exited unexpectedly with status {status}", ""
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        end, remedy = f"was killed by {name}", _CAUSES.get(name, "")
    return (
        f"worker {workers._workers.index(worker)} (process {worker.pid}) {end}{remedy}. Memory at most: "
        f"{known or 'unknown'} MiB of workers 0, 1, … up to their last batches, {reaped / 2**20:,.0f} MiB of any "
        "process that this one has seen end. The next iteration goes on from here, with new workers"
    )


def _go_on(number: int, frame: object) -> None:
    """Goes on as long as there is somebody to go on for."""
    if parent_watch().is_gone:
        os._exit(128 + number)


def _end_all() -> None:
    for workers in list(_running.value):
        end_workers(workers)
    _kill(list(_processes.value))


def _kill(processes: list[Any]) -> None:
    for process in processes:
        # One that is closed has nothing behind it.
        with contextlib.suppress(ValueError):
            if process.is_alive():
                process.kill()
                process.join()


# Registered after torch's own and so run before it: from then on, torch leaves workers to multiprocessing, which
# sends them a SIGTERM and waits.
atexit.register(_end_all)
