"""What belongs to one process: values that its forked children must not share, its cores, its memory."""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Hashable
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


def cores() -> int:
    """Those that it is bound to, where the system can say; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024
"""The bytes in one unit of the memory that `getrusage` reports."""


def memory_peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MEMORY_UNIT
