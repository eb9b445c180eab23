"""Ends a process that multiprocessing started once the process that started it is gone, however that ended.

Nothing else ends it for sure: a queue's feeder may sit in the write to a pipe whose reading end it has inherited too,
and then neither the closed pipe nor the wait for its threads lets a worker go.

Integers that the DataLoader workers of a rank leave to those that come after them, such as passes begun.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import context, sharedctypes
from multiprocessing.connection import wait
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.process import MOST_WORKERS, PerProcess

PERIOD = 1.0
"""Seconds between two looks, where the system tells no better."""

_PR_SET_PDEATHSIG = 1


class ParentWatch:
    """The process that started this one, watched by what each system and start method has.

    The sentinel of multiprocessing alone does not do: under fork, siblings hold its other end. Nor does the number of
    the parent: under forkserver that is the server's.
    """

    def __init__(self) -> None:
        self._pid = 0
        """Of the parent; 0 as long as nobody watches it."""
        self._handles: list[int] = []
        """Ready to be read when it has ended."""
        self._is_child = False

    @property
    def is_gone(self) -> bool:
        """Whether the parent has ended. False as long as it is not watched."""
        return bool(self._pid) and self._is_gone(0)

    def start(self, tied: bool = False) -> None:
        """Ends this process within seconds of its parent from now on. Only the first call counts, and only in a
        process that multiprocessing has started.

        Args:
            tied: have the system kill this process together with the thread that started it, where it can: at once,
                and whatever this process is doing. Only for what the parent's main thread has started.
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
        os._exit(
            1
        )  # at once: nobody is left to take what it has, and to wait for its threads may be for ever

    def _is_gone(self, seconds: float) -> bool:
        return bool(wait(self._handles, seconds)) or (self._is_child and os.getppid() != self._pid)


_watch: PerProcess[ParentWatch] = PerProcess(ParentWatch)


def parent_watch() -> ParentWatch:
    """The watch of this process."""
    return _watch.value


def end_with_parent() -> None:
    """Ends this process within seconds of the one that started it; an initializer for pools of processes."""
    parent_watch().start()


class WorkerCounters:
    """A few integers for each DataLoader worker, and for the process itself, in shared memory; all 0 at first.

    Fresh worker processes find what the ones before them left. Under fork and spawn they are shared; a copy by
    pickle alone starts with the values of the original.

    Args:
        names: how many integers each has.
    """

    def __init__(self, names: int = 1) -> None:
        self._names = names
        self._values: Any = _zeros(names)

    def slot(self) -> int:
        """Where the integers of this process begin.

        Raises:
            UsageError: this is a worker beyond the number that there are counters for.
        """
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
        """Whether some process has counted since."""
        return any(bytes(self._values))

    def clear(self) -> None:
        """Sets all of them back to 0, for every process."""
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
    return sharedctypes.RawArray(ctypes.c_int64, names * (MOST_WORKERS + 1))
