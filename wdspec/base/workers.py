"""Ending processes together with the process that started them, and counters for DataLoader workers.

Nothing else ends a worker reliably. A queue's feeder may block in writing to a pipe whose reading end it has inherited
too; then neither the closed pipe nor the wait for its threads lets the worker end.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from multiprocessing import context, sharedctypes
from multiprocessing.connection import wait
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.process import MOST_WORKERS, PerProcess

PERIOD = 1.0
"""Seconds between two looks, if the system does not notify."""

_PR_SET_PDEATHSIG = 1


class ParentWatch:
    """The process that started this one, watched by all means of the system and the start method.

    The sentinel of multiprocessing alone is not enough: under fork, siblings hold its other end. Neither is the pid of
    the parent: under forkserver it is that of the server.
    """

    def __init__(self) -> None:
        self._pid = 0
        """Of the parent; 0 if it is not watched."""
        self._handles: list[int] = []
        """Readable after the parent has ended."""
        self._is_child = False

    @property
    def is_started(self) -> bool:
        """Whether this process is a worker, which ends with its parent."""
        return bool(self._pid)

    @property
    def is_gone(self) -> bool:
        """Whether the parent has ended. False if it is not watched."""
        return bool(self._pid) and self._is_gone(0)

    def start(self, tied: bool = False) -> None:
        """From now on, end this process within seconds of its parent. Only the first call counts, and only in a
        process that multiprocessing has started.

        Args:
            tied: let the system kill this process together with the thread that started it, if it can: at once, and
                whatever this process is doing. Only for a process that the parent's main thread has started.
        """
        parent = multiprocessing.parent_process()
        if self._pid or parent is None or parent.pid is None:
            return
        self._pid = pid = parent.pid
        self._handles.append(parent.sentinel)
        try:
            self._handles.append(os.pidfd_open(pid))
        except ProcessLookupError:
            os._exit(1)
        except (AttributeError, OSError):
            pass  # not Linux, or forbidden in this container
        self._is_child = os.getppid() == pid
        if tied and self._is_child and sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        threading.Thread(target=self._watch, name="wdspec-parent-watch", daemon=True).start()

    def _watch(self) -> None:
        while not self._is_gone(PERIOD):
            pass
        os._exit(1)  # at once: there is no one to take results, and waiting for threads may take forever

    def _is_gone(self, seconds: float) -> bool:
        return bool(wait(self._handles, seconds)) or (self._is_child and os.getppid() != self._pid)


_watch: PerProcess[ParentWatch] = PerProcess(ParentWatch)


def parent_watch() -> ParentWatch:
    """The watch of this process."""
    return _watch.value


def end_with_parent() -> None:
    """End this process within seconds of the one that started it; an initializer for pools of processes."""
    parent_watch().start()


class WorkerCounters:
    """A few integers for each DataLoader worker, and for the process itself, in shared memory; all 0 at first.

    New worker processes find the values of those before them, such as the number of passes. Under fork and spawn they
    are shared; a copy by pickle alone starts with the values of the original.
    """

    def __init__(self, names: int = 1) -> None:
        self._names = names
        self._values: Any = _zeros(names)

    def slot(self) -> int:
        """The index of the first integer of this process. Raises UsageError if there are too many workers."""
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        if info is None:
            return 0
        if info.id >= MOST_WORKERS:
            raise UsageError(
                f"this is DataLoader worker {info.id}, and a pipeline counts the passes of at most "
                f"{MOST_WORKERS:,} workers; give the DataLoader fewer (`num_workers`)"
            )
        return (1 + info.id) * self._names

    def __getitem__(self, index: int) -> int:
        return int(self._values[index])

    def __setitem__(self, index: int, value: int) -> None:
        self._values[index] = value

    def any(self) -> bool:
        """Whether any process has counted."""
        return any(bytes(self._values))

    def clear(self) -> None:
        """Set all of them to 0, for every process."""
        ctypes.memset(self._values, 0, ctypes.sizeof(self._values))

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is not None:
            return {"names": self._names, "shared": self._values}
        return {"names": self._names, "set": {i: v for i, v in enumerate(self._values) if v}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._names = state["names"]
        if "shared" in state:
            self._values = state["shared"]
            return
        self._values = _zeros(self._names)
        for index, value in state["set"].items():
            self._values[index] = value


def _zeros(names: int) -> Any:
    try:
        return sharedctypes.RawArray(ctypes.c_int64, names * (MOST_WORKERS + 1))
    except OSError as error:
        error.filename = error.filename or f"shared memory (a file in {tempfile.gettempdir()} or /dev/shm)"
        raise
