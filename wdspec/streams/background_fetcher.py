"""One thread a process that fetches bytes from stores ahead of their readers.

One, because every thread that touches Python objects takes the GIL from the decoding one, 5 ms at a time. And no
reader depends on it: one that finds no bytes fetches a piece itself, unless the thread is fetching for it just then. So
a store that stalls, or that is waited for between two retries, delays its own reader only.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Protocol

from wdspec.system.per_process import PerProcess

log = logging.getLogger("wdspec")


class FetchTask(Protocol):
    """One stream that is fetched ahead of its reader.

    A task ends by itself: once `done`, the fetcher forgets it, at the latest when it is woken. So whoever ends one from
    outside sets what makes it done and calls `wake`, in whichever order it meets an `add` from another thread.
    """

    lock: threading.Lock
    """Held by whoever fetches: the thread, or the reader."""

    @property
    def buffered(self) -> int:
        """Bytes fetched and not read yet; the task with the fewest comes first."""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to fetch, or nobody to fetch it for. Takes no lock."""

    @property
    def ready(self) -> bool:
        """Whether a piece may be fetched now. Takes no lock."""

    def fetch_piece(self) -> None:
        """Fetches one piece, waiting for the store. Raises nothing: errors are for the reader."""


class BackgroundFetcher:
    """Serves tasks piece by piece; the thread starts with the first task, and ends with `rest` or the process."""

    def __init__(self) -> None:
        self._tasks: list[FetchTask] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, task: FetchTask) -> None:
        """Takes a task on, until it is done."""
        with self._changed:
            if task not in self._tasks:
                self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="wdspec-fetcher", daemon=True)
                self._thread.start()
            self._drop_done()
            self._changed.notify()

    def wake(self) -> None:
        """Looks at the tasks again: one of them may have become ready, or done."""
        if sys.is_finalizing():  # the thread is no more, and may have taken the lock with it
            return
        with self._changed:
            self._drop_done()
            self._changed.notify()

    def rest(self) -> None:
        """Ends the thread if there is nothing to fetch; the next task starts another."""
        with self._changed:
            self._drop_done()
            if self._tasks or self._thread is None:
                return
            thread, self._thread = self._thread, None
            self._changed.notify()
        thread.join(1)

    def _drop_done(self) -> None:
        self._tasks = [task for task in self._tasks if not task.done]

    def _serve(self) -> None:
        while (task := self._next()) is not None:
            try:
                task.fetch_piece()
            except Exception:  # the thread must go on for the others, and the reader will meet it by itself
                log.exception("a task of the fetching thread failed")
                with self._changed:
                    self._tasks = [other for other in self._tasks if other is not task]
            finally:
                task.lock.release()
            del task  # while it waits for the next one, it keeps no stream alive

    def _next(self) -> FetchTask | None:
        """The task to serve, with its lock taken; None where this thread is to end."""
        with self._changed:
            while self._thread is threading.current_thread():
                task = self._taken()
                if task is not None:
                    return task
                self._changed.wait()
            return None

    def _taken(self) -> FetchTask | None:
        """The ready task with the fewest bytes, with its lock taken."""
        self._drop_done()
        for task in sorted(self._tasks, key=lambda task: task.buffered):
            if task.ready and task.lock.acquire(blocking=False):
                return task
        return None


_of_process = PerProcess(BackgroundFetcher)


def background_fetcher() -> BackgroundFetcher:
    """The fetcher of this process."""
    return _of_process.value
