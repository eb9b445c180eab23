"""Values of a process that its forked children must not share: connections, threads, tables of open things.

Ends a process that multiprocessing started once the process that started it is gone, however that ended.

Nothing else ends it for sure: a queue's feeder may sit in the write to a pipe whose reading end it has inherited too,
and then neither the closed pipe nor the wait for its threads lets a worker go.

How many cores this process may use.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Hashable
from multiprocessing.connection import wait
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MOST_WORKERS = 4096
"""Worker processes of one rank: more is a slip of the finger."""


class PerProcess(Generic[T]):
    """One value a process, made at once, and made anew in a forked child.

    A copy of the parent's value is of no use there: its threads do not run, its sockets are the parent's, and its
    locks may be held by threads that do not exist. For module-level values only: they live as long as the process.

    Args:
        make: makes the value; cheap, and starts no thread.
        at_fork: called in the child with the copy of the parent's value, which is then dropped. It must neither raise
            nor take locks.
    """

    def __init__(self, make: Callable[[], T], at_fork: Callable[[T], object] | None = None) -> None:
        self._make, self._at_fork = make, at_fork
        self.value = make()
        """The value of this process."""
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        inherited, self.value = self.value, self._make()
        if self._at_fork is not None:
            self._at_fork(inherited)


class Owner:
    """Which process something belongs to that a fork must not share: a descriptor, and so its place in the file."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_other(self) -> bool:
        """Whether this is another process, forked from the one that made this."""
        return os.getpid() != self._process


class KeyedValues(Generic[K, T]):
    """Values by key, each made on first use, by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[K, T] = {}

    def get(self, key: K, make: Callable[[], T]) -> T:
        """The value of a key. Raises what `make` raises, and then has none."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]


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
            _leave()
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
        _leave()

    def _is_gone(self, seconds: float) -> bool:
        return bool(wait(self._handles, seconds)) or (self._is_child and os.getppid() != self._pid)


_watch: PerProcess[ParentWatch] = PerProcess(ParentWatch)


def parent_watch() -> ParentWatch:
    """The watch of this process."""
    return _watch.value


def end_with_parent() -> None:
    """Ends this process within seconds of the one that started it; an initializer for pools of processes."""
    parent_watch().start()


def _leave() -> None:
    """Ends this process at once: nobody is left to take what it has, and to wait for its threads may be for ever."""
    os._exit(1)


def cores() -> int:
    """Those that it is bound to, where the system can say; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
