"""Worker processes: torch's DataLoader over tasks, and how the processes start, end and fail.

Schedulers, torchrun and Ctrl-C signal whole process groups. If workers died of such a signal, the batches that the
training process still needs to reach a checkpoint would be lost with them. So workers ignore these signals. They end
with their loader, when Python exits, or when the training process is gone (`parent_watch` in base/workers.py).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.utils.data import DataLoader

from wdspec.base.errors import NO_SHARED_MEMORY, WdspecError, find_lack
from wdspec.base.process import MEMORY_UNIT, Owner, PerProcess
from wdspec.base.workers import parent_watch
from wdspec.planning.keys import key64
from wdspec.run.parcels import forget_sender
from wdspec.run.run import Run
from wdspec.run.steps import Step, Work
from wdspec.run.tasks import Delivery, TaskReader, WorkerSteps, deal_steps
from wdspec.stores import watchdog
from wdspec.stores.read_ahead import background_fetcher
from wdspec.urls.urls import has_lance

_CAUSES = {
    "SIGKILL": "; usually memory was short (see `dmesg` or the scheduler's log): use fewer workers, a smaller "
    "`shuffle` or smaller batches",
    "SIGBUS": f"; usually shared memory (`/dev/shm`) was full: {NO_SHARED_MEMORY}",
    "SIGSEGV": "; a library crashed, perhaps a decoder: PYTHONFAULTHANDLER=1 shows where",
}
_LOCK_TIMEOUT = 5.0
"""Seconds to wait for a lock that workers hold for microseconds."""
_PRELOAD = "wdspec.run.loader"
"""What every worker imports."""


def _leave_alone(inherited: weakref.WeakSet[Any]) -> None:
    """In a forked child, keep torch from ending the parent's workers when their iterator is collected."""
    for workers in list(inherited):
        workers._shutdown = True


_running: PerProcess[weakref.WeakSet[Any]] = PerProcess(weakref.WeakSet, _leave_alone)
"""Iterators of DataLoaders that have worker processes."""
_processes: PerProcess[weakref.WeakSet[Any]] = PerProcess(weakref.WeakSet)
"""Their processes: a stuck one outlives its iterator."""


def _reads_lance(run: Run) -> bool:
    """Whether workers read Lance data sets."""
    streams = (*run.plan.sources, *(each.stream for each in run.plan.companions))
    return any(has_lance(stream.shards) for stream in streams)


class Processes(WorkerSteps):
    """Reads steps in worker processes, with torch's DataLoader.

    Args:
        run: what to read.
        workers: number of processes, at least 1.
        arguments: arguments of torch's DataLoader.
    """

    def __init__(self, run: Run, workers: int, arguments: dict[str, Any]) -> None:
        super().__init__(run, workers)
        self._running: Callable[[], Any] = lambda: None
        """Weak reference to the DataLoader's iterator."""
        self._finalizer: weakref.finalize[..., Processes] | None = None
        """Ends the workers of that iterator: when called, or when this object is freed."""
        generator = arguments.pop("generator", None)
        if generator is None:  # torch's default would advance the user's global generator
            generator = torch.Generator().manual_seed(key64(run.spec.seed, "loader", run.seat.rank) >> 1)
        self._errors, sender = multiprocessing.Pipe(duplex=False)
        arguments["worker_init_fn"] = WorkerStart(arguments.get("worker_init_fn"), sender)
        if arguments.get("multiprocessing_context") is None and _reads_lance(run):
            arguments["multiprocessing_context"] = (
                "spawn"  # its library survives no fork, also one of a later epoch
            )
        warm_forkserver(arguments.get("multiprocessing_context"))
        self._loader = DataLoader(
            TaskReader(run),
            batch_size=None,
            sampler=self._tasks,
            num_workers=workers,
            generator=generator,
            **arguments,
        )

    def read(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order.

        If a worker dies or times out, all workers are ended, since torch would wait for the dead one. The next work
        starts new ones and sends them their states, so no batch is lost.

        Raises:
            WdspecError: a worker could not read something, or reported why it ended itself.
            RuntimeError: a worker died; the message says how.
        """
        if find_lost(self._loader._iterator):
            self.close()
        if not self._loader.persistent_workers:
            self.tally.settle()
        self._begin(work)
        peaks: dict[int, int] = {}  # worker -> bytes

        def note_peak(worker: int, delivery: Delivery) -> None:
            peaks[worker] = delivery.memory_peak

        finalizer = None
        try:
            running = self._start_workers()
            finalizer = self._finalizer
            _expect_deaths(running, True)
            for step in deal_steps(running, self._tasks, self.tally, note_peak):
                _expect_deaths(running, False)
                yield step
                _expect_deaths(running, True)
            _expect_deaths(running, False)
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except WdspecError:
            raise
        except Exception as error:
            death = None
            # OSError and EOFError: a worker died while it sent a batch, which torch does not report.
            if type(error) is RuntimeError or isinstance(error, (OSError, EOFError)):
                death = describe_death(self._running(), peaks)
                if death is None and (lack := find_lack(error)) is not None:
                    death = f"a worker failed, not because of the data; {lack}"
            self.close()
            if self._errors.poll():
                raise self._errors.recv() from None
            if death is not None:
                raise RuntimeError(death) from error
            raise
        finally:
            if finalizer is not None and not self._loader.persistent_workers:
                finalizer()

    def _start_workers(self) -> Iterator[Delivery]:
        """Return an iterator of the DataLoader, and register its workers to be ended when Python exits."""
        if isinstance(self._loader.worker_init_fn, WorkerStart):
            of_main_thread = threading.current_thread() is threading.main_thread()
            self._loader.worker_init_fn = replace(self._loader.worker_init_fn, of_main_thread=of_main_thread)
        # A fork copies the locks that threads hold, but not the threads. So end the idle ones, such as those that read
        # ahead the headers of a pass.
        background_fetcher().rest()
        watchdog.end_idle_watchdog()
        workers: Any = iter(self._loader)
        if workers is not self._running():
            # In a reference cycle, the garbage collector may close the queues to the workers before it calls `__del__`
            # of torch's iterator, which then waits in vain for workers to end. The finalizer is called before, and
            # keeps the iterator intact until then.
            self._running = weakref.ref(workers)
            self._finalizer = weakref.finalize(self, _end_own, workers, Owner())
            self._finalizer.atexit = False  # `_end_all` ends them, and not in forked children
            workers._workers_done_event = _DoneEvent(workers._workers_done_event, workers._workers)
            _running.value.add(workers)
            _processes.value.update(workers._workers)
        deliveries: Iterator[Delivery] = workers
        return deliveries

    def close(self) -> None:
        """End the workers."""
        self.tally.settle()
        self._loader._iterator = None
        if self._finalizer is not None:
            self._finalizer()


def end_workers(running: Any) -> None:
    """End the workers of a DataLoader's iterator; kill those that are stuck."""
    running._shutdown_workers()
    _kill(running._workers)
    for worker in running._workers:
        with contextlib.suppress(ValueError):  # a closed Process object
            forget_sender(worker.pid)


def _end_own(running: Any, owner: Owner) -> None:
    """End the workers of a DataLoader's iterator, unless this process was forked from the one that started them."""
    if not owner.is_other:
        end_workers(running)


class _DoneEvent:
    """The training process's view of the event by which torch ends workers.

    A worker that is killed while it holds the event's lock never releases it. torch asks `is_set` whenever it notices a
    lost worker, and would wait for that lock forever. Only the training process sets the event, so it need not ask.

    Args:
        event: the event that the workers have.
        workers: their processes.
    """

    def __init__(self, event: Any, workers: list[Any]) -> None:
        self._event = event
        self._workers = workers
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set the event; if its lock is lost, kill the workers, since they would wait for it as well."""
        self._is_set = True
        if self._event._cond.acquire(timeout=_LOCK_TIMEOUT):
            self._event._cond.release()
            self._event.set()
        else:
            _kill(self._workers)


@dataclass(frozen=True)
class WorkerStart:
    """The `worker_init_fn` of a Loader: shields the worker from signals, then calls the user's function, if any."""

    then: Callable[[int], object] | None
    errors: Connection
    """Where a stuck worker sends the reason before it ends."""
    of_main_thread: bool = False
    """Whether the main thread of the training process starts the workers; it lives as long as the process."""

    def __call__(self, worker: int) -> None:
        # What the process was started with is not garbage: without it, collections take less time, and write into fewer
        # pages that a forked worker shares with the training process.
        gc.freeze()
        parent_watch().start(tied=self.of_main_thread)
        watchdog.stuck = self._end_stuck
        for number in (signal.SIGTERM, signal.SIGINT):
            # No SIG_IGN: processes that the worker starts would inherit it.
            signal.signal(number, _survive)
        if self.then is not None:
            self.then(worker)

    def _end_stuck(self, error: WdspecError) -> None:
        """Send an error to the training process and exit, since no exception can end a read that hangs."""
        self.errors.send(error)
        os._exit(0)  # torch then notices the missing worker where its error can be caught


def warm_forkserver(context: Any) -> None:
    """Let the fork server import once what each worker would take seconds to import.

    Args:
        context: DataLoader's `multiprocessing_context`: a start method, a context, or None for the default.
    """
    if context is None:
        context = (
            multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
        )
    method = context if isinstance(context, str) else context.get_start_method()
    if method == "forkserver":
        from multiprocessing import forkserver

        server: Any = forkserver._forkserver  # the only place to read what is preloaded already
        if _PRELOAD not in server._preload_modules:
            server.set_forkserver_preload([*server._preload_modules, _PRELOAD])


def _expect_deaths(workers: Any, is_reading: bool) -> None:
    """Let torch raise an error at the death of a worker only while this process reads, not in the user's code.

    Its error, from the handler of a signal, has no cause and no remedy. When reading continues, it is raised here.
    """
    if workers._shutdown or is_reading == workers._worker_pids_set or sys.platform == "win32":
        return
    workers._worker_pids_set = is_reading
    if is_reading:
        torch._C._set_worker_pids(id(workers), tuple(worker.pid for worker in workers._workers))
        torch._C._error_if_any_worker_fails()
    else:
        torch._C._remove_worker_pids(id(workers))


def find_lost(workers: Any, wait: float = 0) -> list[Any]:
    """Return the workers of a DataLoader's iterator that have died, or die within `wait` seconds."""
    processes = {worker.sentinel: worker for worker in getattr(workers, "_workers", ())}
    if not processes:
        return []
    return [processes[end] for end in multiprocessing.connection.wait(list(processes), wait)]


def describe_death(workers: Any, peaks: Mapping[int, int]) -> str | None:
    """Return how a worker died unexpectedly; None if all are alive.

    Args:
        workers: the DataLoader's iterator.
        peaks: worker -> peak memory in bytes, as of its last batch.
    """
    import resource  # not on Windows

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
        f"worker {workers._workers.index(worker)} (process {worker.pid}) {end}{remedy}. Peak memory: "
        f"{known or 'unknown'} MiB in workers 0, 1, … up to their last batches, {reaped / 2**20:,.0f} MiB in any child "
        "process that has ended. The next iteration resumes here, with new workers"
    )


def _survive(number: int, frame: object) -> None:
    """Ignore the signal as long as the training process lives."""
    if parent_watch().is_gone:
        os._exit(128 + number)


def _end_all() -> None:
    for workers in list(_running.value):
        end_workers(workers)
    _kill(list(_processes.value))


def _kill(processes: list[Any]) -> None:
    for process in processes:
        with contextlib.suppress(ValueError):  # a closed Process object
            if process.is_alive():
                process.kill()
                process.join()


# Registered after torch's exit handler, so it runs before: afterwards torch leaves the workers to multiprocessing,
# which sends SIGTERM and waits.
atexit.register(_end_all)
