"""One thread a process that moves bytes from stores ahead of their readers.

One, because every thread that touches Python objects takes the GIL from the decoding one, 5 ms at a time. And no
reader depends on it: one that finds no bytes moves a piece itself, unless the thread is at that very job. So a store
that stalls, or that is waited for between two attempts, holds up nobody but its own reader.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from wdspec.system.per_process import PerProcess

log = logging.getLogger("wdspec")


class Job(Protocol):
    """One stream that is moved ahead of its reader."""

    lock: threading.Lock
    """Held by whoever moves: the thread, or the reader."""

    @property
    def ahead(self) -> int:
        """Bytes moved beyond the reader; the smallest comes first."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it may move now."""
        ...

    def move(self) -> bool:
        """Moves one piece, waiting for the store. False when there is no more to move. Raises nothing."""
        ...


class Mover:
    """Serves jobs piece by piece; the thread begins with the first job, and ends with the process."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, job: Job) -> None:
        """Takes a job on, until its `move` returns False or it is removed."""
        with self._changed:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="wdspec-mover", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, job: Job) -> None:
        """Gives a job up; a piece under way is moved to its end."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def wake(self) -> None:
        """Looks at the jobs again: one of them may have become ready."""
        with self._changed:
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            job = self._next()
            try:
                more = job.move()
            except Exception:  # the thread must go on for the others, and the reader will meet it by itself
                log.exception("a job of the reading thread failed")
                more = False
            finally:
                job.lock.release()
            if not more:
                self.remove(job)

    def _next(self) -> Job:
        """The job to serve, with its lock taken."""
        with self._changed:
            while True:
                for job in sorted(self._jobs, key=_ahead):
                    if job.ready and job.lock.acquire(blocking=False):
                        return job
                self._changed.wait()


def _ahead(job: Job) -> int:
    return job.ahead


_of_process = PerProcess(Mover)


def mover() -> Mover:
    """The mover of this process."""
    return _of_process.value
