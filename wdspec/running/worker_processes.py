"""Worker processes that serve to the end: signals to the whole job are for the training process to act on.

Schedulers, torchrun and Ctrl-C signal whole process groups. A worker that died of it would take along the batches
that the training process still needs on its way to a checkpoint. So workers go on, and end with their loader, with
Python, or with the training process (`system.parent_watch`), whatever that ended of.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.connection
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from torch.utils.data import DataLoader

from wdspec.errors import WdspecError
from wdspec.streams import watchdog
from wdspec.system.parent_watch import parent_watch
from wdspec.system.per_process import PerProcess


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


def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """An iterator of the loader, whose workers end before Python waits for them at its exit."""
    if isinstance(loader.worker_init_fn, WorkerStart):
        of_main_thread = threading.current_thread() is threading.main_thread()
        loader.worker_init_fn = replace(loader.worker_init_fn, of_main_thread=of_main_thread)
    workers = iter(loader)
    if loader.num_workers:
        _running.value.add(workers)
        _processes.value.update(workers._workers)  # type: ignore[attr-defined]  # torch has no public way
    return workers


def lost(workers: Any, wait: float = 0) -> bool:
    """Whether one of the workers of an iterator, if it has any, has died, or does so within some seconds."""
    ends = [worker.sentinel for worker in getattr(workers, "_workers", ())]
    return bool(ends and multiprocessing.connection.wait(ends, wait))


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
