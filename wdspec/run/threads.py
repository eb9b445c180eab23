"""Worker threads of this process: `loader: {kind: threads}`.

Each thread has its own copy of the run, as a worker process would, so threads share only what processes cannot share
either: connections, caches, and the thread that reads ahead. Tasks, order and states are those of worker processes;
batches arrive without being pickled.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from wdspec.base.errors import WdspecError
from wdspec.run.run import Run
from wdspec.run.steps import Step, Work
from wdspec.run.tasks import Delivery, Task, TaskReader, WorkerSteps, check_requests, deal_steps

AHEAD = 2
"""Tasks queued for each thread, as many as torch's DataLoader queues for each worker."""
_END_WITHIN = 5.0
"""Seconds that a thread may take to end its task; one that is stuck is abandoned together with its reader."""
_NAME = "wdspec-reader"


class Threads(WorkerSteps):
    """Reads steps in threads.

    Args:
        run: what to read; each thread gets a copy.
        workers: number of threads, at least 1.
        ahead: tasks queued for each thread.
        timeout: seconds to wait for a delivery; 0 waits forever.
        pins: whether deliveries are copied into page-locked memory.

    Raises:
        UsageError: `ahead` or `timeout` is not a valid number.
    """

    def __init__(
        self, run: Run, workers: int, ahead: int = AHEAD, timeout: float = 0, pins: bool = False
    ) -> None:
        check_requests(ahead, timeout)
        super().__init__(run, workers)
        self._run = pickle.dumps(run)
        self._readers = [self._new_reader() for _ in range(workers)]
        self._ahead, self._timeout, self._pins = ahead, timeout, pins
        self._threads: list[_Thread] = []

    def read(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order; one work at a time.

        Raises:
            RuntimeError: nothing arrived in time.
            Exception: what reading raised.
        """
        self._begin(work)
        try:
            yield from deal_steps(self._deliver(), self._tasks, self.tally)
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except WdspecError:
            raise
        except Exception:
            self._end()
            raise

    def count(self) -> None:
        """Bring `tally` up to date."""
        for reader in self._readers:
            reader.add_to(self.tally)

    def close(self) -> None:
        """End the threads and close open shards."""
        self._end()
        for reader in self._readers:
            reader.close()

    def _deliver(self) -> Iterator[Delivery]:
        """Yield the deliveries for the tasks in order; the threads take turns."""
        self._end()
        tasks = iter(self._tasks)
        self._threads = threads = [_Thread(reader, self._pins) for reader in self._readers]
        busy: deque[_Thread] = deque()

        def assign_task(thread: _Thread) -> None:
            if (task := next(tasks, None)) is not None:
                thread.tasks.put(task)
                busy.append(thread)

        try:
            for thread in threads:
                thread.start()
            for thread in threads * self._ahead:
                assign_task(thread)
            while busy:
                thread = busy.popleft()
                yield thread.take(self._timeout)
                assign_task(thread)
        finally:
            for thread in threads:
                thread.stop()

    def _end(self) -> None:
        """End the threads; their readers stay where they are until the next task moves them."""
        deadline = time.monotonic() + _END_WITHIN
        for thread in self._threads:
            thread.stop()
        for number, thread in enumerate(self._threads):
            if not thread.has_ended(max(0.0, deadline - time.monotonic())):
                self._readers[number].add_to(self.tally)
                self._readers[number] = self._new_reader()
        self._threads = []

    def _new_reader(self) -> TaskReader:
        return TaskReader(pickle.loads(self._run))


class _Thread:
    """One thread that reads."""

    def __init__(self, reader: TaskReader, pins: bool) -> None:
        self.tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._results: SimpleQueue[Delivery | BaseException] = SimpleQueue()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._serve, args=(reader, pins), name=_NAME, daemon=True)

    def start(self) -> None:
        """Start the thread; a separate step, so that after an interrupt all threads are known and can be stopped."""
        self._thread.start()

    def take(self, timeout: float) -> Delivery:
        """Return the next delivery, or raise what reading raised."""
        try:
            result = self._results.get(timeout=timeout or None)
        except Empty:
            raise RuntimeError(
                f"no batch came within {timeout:g} s (`loader: {{timeout: …}}`); check whether the store, network or "
                "mount of the shards hangs"
            ) from None
        if isinstance(result, BaseException):
            raise result
        return result

    def stop(self) -> None:
        """Let the thread end after its current task."""
        self._is_stopped = True
        self.tasks.put(None)

    def has_ended(self, within: float) -> bool:
        """Whether the thread has ended, or ends within this many seconds."""
        if self._thread.ident is not None:  # else it never started
            self._thread.join(within)
        return not self._thread.is_alive()

    def _serve(self, reader: TaskReader, pins: bool) -> None:
        while (task := self.tasks.get()) is not None and not self._is_stopped:
            try:
                delivery = reader[task]
                self._results.put(delivery.pin_memory() if pins else delivery)
            except BaseException as error:
                self._results.put(error)
