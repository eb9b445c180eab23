"""Values of one process that its forked children must not share; its cores and its memory."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

try:
    import resource as resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]  # instead of the module

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MOST_WORKERS = 4096
"""Maximum number of worker processes of one rank; a larger number is a typo."""


class PerProcess(Generic[T]):
    """One value per process, made at once, and made again in a forked child.

    A copy of the parent's value is useless there: its threads do not run, its sockets are the parent's, and its locks
    may be held by threads that do not exist. For module-level values only: they live as long as the process.

    Args:
        make: makes the value; cheap, and starts no thread.
        at_fork: called in the child with the copy of the parent's value, which is then dropped. It must neither raise
            nor take locks.
    """

    def __init__(self, make: Callable[[], T], at_fork: Callable[[T], object] | None = None) -> None:
        self._make, self._at_fork = make, at_fork
        self.value = make()
        """The value of this process."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        inherited, self.value = self.value, self._make()
        if self._at_fork is not None:
            self._at_fork(inherited)


@dataclass
class ProcessCounts:
    """What a process counts besides what it reads from each source."""

    retries: int = 0
    """Requests to stores that were repeated."""
    cache_evictions: int = 0
    """Cached copies that were deleted to make room."""
    cache_bypasses: int = 0
    """Shards that were read from their store because no copy could be kept: no room, no permission, or `size: 0`."""


process_counts = PerProcess(ProcessCounts)
"""The counts of this process; its threads may lose one when they count at the same moment."""

PARSING = PerProcess(threading.Lock)
"""Held while Python code is parsed, also by numpy in headers of arrays.

Before Python 3.13, `ast` counts its depth for all threads together, and fails with SystemError if two of them parse at
the same time (https://github.com/python/cpython/issues/106905).
"""


class Owner:
    """The process that owns something that a fork must not share, such as a descriptor and its position."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_other(self) -> bool:
        """Whether this process was forked from the owner."""
        return os.getpid() != self._process


class KeyedValues(Generic[K, T]):
    """Values by key, each made on first use, by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[K, T] = {}

    def get(self, key: K, make: Callable[[], T]) -> T:
        """The value of a key. Raises what `make` raises, and then keeps no value."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def drop(self, key: K) -> None:
        """Forget the value of a key, which is made again on its next use."""
        with self._lock:
            self._values.pop(key, None)


def cores() -> int:
    """The number of cores that this process may use, if the system says it; otherwise of all cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024
"""The bytes in one unit of the memory that `getrusage` reports."""


def memory_peak() -> int:
    """The most memory that this process ever used, in bytes; 0 if the system does not say it."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MEMORY_UNIT
