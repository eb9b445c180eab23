"""Where a worker process begins, and serves to the end: signals to the whole job are left to the training process.

Schedulers, torchrun and Ctrl-C signal whole process groups. A worker that died of it would take along the batches
that the training process still needs on its way to a checkpoint. So workers go on, and end with their loader, with
Python, or with the training process (`system.parent_watch`), whatever that ended of.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from torch.utils.data import DataLoader

from wdspec.base.errors import WdspecError
from wdspec.base.parent_watch import parent_watch
from wdspec.base.process import PerProcess
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
_MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes, of what getrusage counts memory in."""


def _leave_alone(inherited: weakref.WeakSet[Any]) -> None:
    """In a forked child: torch would end the parent's workers when it collects their iterator here."""
    for workers in list(inherited):
        workers._shutdown = True


_running: PerProcess[weakref.WeakSet[Any]] = PerProcess(weakref.WeakSet, _leave_alone)
"""Iterators of DataLoaders that have worker processes."""
_processes: PerProcess[weakref.WeakSet[Any]] = PerProcess(weakref.WeakSet)
"""Their processes: one that is stuck outlives its iterator."""


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


def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """An iterator of the loader, whose workers end before Python waits for them at its exit."""
    if isinstance(loader.worker_init_fn, WorkerStart):
        of_main_thread = threading.current_thread() is threading.main_thread()
        loader.worker_init_fn = replace(loader.worker_init_fn, of_main_thread=of_main_thread)
    if loader.num_workers:
        # Threads do not come along in a fork, but the locks that they hold do. What was read ahead here, such as the
        # headers of a pass, must not have one that has nothing to do any more.
        background_fetcher().rest()
        watchdog.end_idle_watchdog()
    workers = iter(loader)
    if loader.num_workers:
        _running.value.add(workers)
        _processes.value.update(workers._workers)  # type: ignore[attr-defined]  # torch has no public way
    return workers


def lost(workers: Any, wait: float = 0) -> list[Any]:
    """Those of the workers of an iterator, if it has any, that have died, or do so within some seconds."""
    processes = {worker.sentinel: worker for worker in getattr(workers, "_workers", ())}
    return (
        [processes[end] for end in multiprocessing.connection.wait(list(processes), wait)]
        if processes
        else []
    )


def memory_peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MEMORY_UNIT


def obituary(workers: Any, peaks: Mapping[int, int]) -> str | None:
    """What is known of the end of a worker that nobody had asked to end; None where none has.

    Args:
        workers: the iterator.
        peaks: the most memory that each of its workers had when it sent its last batch, in bytes.
    """
    dead = lost(workers, wait=1)
    if not dead:
        return None
    worker = dead[0]
    worker.join(1)
    status, known = worker.exitcode, ", ".join(f"{peaks[w] / 2**20:,.0f}" for w in sorted(peaks))
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _MEMORY_UNIT
    end, remedy = f"exited unexpectedly with status {status}", ""
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        end, remedy = f"was killed by {name}", _CAUSES.get(name, "")
    return (
        f"worker {workers._workers.index(worker)} (process {worker.pid}) {end}{remedy}. Memory at most: "
        f"{known or 'unknown'} MiB of workers 0, 1, … up to their last batches, {reaped / 2**20:,.0f} MiB of any "
        "process that this one has seen end. The next iteration goes on from here, with new workers"
    )


def end(workers: Any) -> None:
    """Ends the workers of an iterator, if it has any, by force those that are stuck."""
    if hasattr(workers, "_workers"):
        workers._shutdown_workers()
        _kill(workers._workers)


def _go_on(number: int, frame: object) -> None:
    """Goes on as long as there is somebody to go on for."""
    if parent_watch().is_gone:
        os._exit(128 + number)


def _end_all() -> None:
    for workers in list(_running.value):
        end(workers)
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
