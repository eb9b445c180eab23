"""Workers that are threads of this process: `loader: {kind: threads}`.

Each has a copy of the run of its own, as a worker process would get it, so that they share nothing but what processes
cannot share either: connections, caches, and the thread that fetches ahead. Tasks, their order and states are those of
worker processes; batches arrive as they were made.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue

from wdspec.base.errors import UsageError
from wdspec.run.run import Run
from wdspec.run.stats import Tally
from wdspec.run.tasks import Delivery, Task, TaskDataset

AHEAD = 2
"""Tasks that each worker is given ahead, as torch's DataLoader gives its workers."""
_END_WITHIN = 5.0
"""Seconds that a thread may take to end its task; one that is stuck is left alone, with its reader."""
_NAME = "wdspec-reader"


class WorkerThreads:
    """The threads of one Loader, and what they read by.

    Args:
        run: is copied for each.
        count: of threads, at least 1.
        ahead: tasks that each is given ahead.
        timeout: seconds to wait for a delivery; 0 waits for ever.
        pins: whether deliveries are copied into page-locked memory.

    Raises:
        UsageError: a number of tasks, or of seconds, that is none.
    """

    def __init__(
        self, run: Run, count: int, ahead: int = AHEAD, timeout: float = 0, pins: bool = False
    ) -> None:
        if type(ahead) is not int or ahead < 1:
            raise UsageError(f"`prefetch_factor` is a number of deliveries from 1 on, not {ahead!r}")
        if not isinstance(timeout, (int, float)) or not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise UsageError(f"`timeout` is a number of seconds from 0 on, not {timeout!r}")
        self._run = pickle.dumps(run)
        self._readers = [self._new_reader() for _ in range(count)]
        self._ahead, self._timeout, self._pins = ahead, timeout, pins
        self._reading: list[_Thread] = []

    def deliveries(self, tasks: Iterable[Task]) -> Iterator[Delivery]:
        """What the tasks give, in their order; the threads take turns. One iteration at a time.

        Raises:
            RuntimeError: nothing came in time.
            Exception: what reading raised.
        """
        self.end()
        coming, threads = iter(tasks), [_Thread(reader, self._pins) for reader in self._readers]
        self._reading = threads
        asked: deque[_Thread] = deque()
        try:
            for thread in threads:
                thread.start()
            for number in range(self._ahead * len(threads)):
                _ask(threads[number % len(threads)], coming, asked)
            while asked:
                thread = asked.popleft()
                yield thread.take(self._timeout)
                _ask(thread, coming, asked)
        finally:
            for thread in threads:
                thread.stop()

    def add_to(self, tally: Tally) -> None:
        """Adds what was read."""
        for reader in self._readers:
            reader.add_to(tally)

    def end(self) -> None:
        """Ends the threads; their readers stay as they are, to be told where to go on."""
        deadline = time.monotonic() + _END_WITHIN
        for thread in self._reading:
            thread.stop()
        for number, thread in enumerate(self._reading):
            if not thread.ended(max(0.0, deadline - time.monotonic())):
                self._readers[number] = self._new_reader()
        self._reading = []

    def close(self) -> None:
        """Ends the threads and closes open shards."""
        self.end()
        for reader in self._readers:
            reader.close()

    def _new_reader(self) -> TaskDataset:
        run: Run = pickle.loads(self._run)
        return TaskDataset(run)


def _ask(thread: _Thread, coming: Iterator[Task], asked: deque[_Thread]) -> None:
    """Gives a thread the next task, if there is one."""
    task = next(coming, None)
    if task is not None:
        thread.tasks.put(task)
        asked.append(thread)


class _Thread:
    """One that reads."""

    def __init__(self, reader: TaskDataset, pins: bool) -> None:
        self.tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[Delivery | BaseException] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, args=(reader, pins), name=_NAME, daemon=True)

    def start(self) -> None:
        """Begins; apart, so that whatever breaks in on it knows of all that are to be stopped."""
        self._thread.start()

    def take(self, timeout: float) -> Delivery:
        """The next delivery. Raises what reading raised."""
        try:
            done = self._done.get(timeout=timeout or None)
        except Empty:
            raise RuntimeError(
                f"no batch came within {timeout:g} s (`loader: {{timeout: …}}`); see whether the store, network or "
                "mount of the shards hangs"
            ) from None
        if isinstance(done, BaseException):
            raise done
        return done

    def stop(self) -> None:
        """Lets it end behind the task it is at."""
        self._stopped = True
        self.tasks.put(None)

    def ended(self, within: float) -> bool:
        """Whether it has ended, or does so within some seconds."""
        if self._thread.ident is not None:  # else it has not begun
            self._thread.join(within)
        return not self._thread.is_alive()

    def _serve(self, reader: TaskDataset, pins: bool) -> None:
        while (task := self.tasks.get()) is not None and not self._stopped:
            try:
                delivery = reader[task]
                self._done.put(delivery.pin_memory() if pins else delivery)
            except BaseException as error:
                self._done.put(error)
