"""Worker threads of this process: `loader: {kind: threads}`.

Each thread has its own copy of the run, as a worker process would get it, so threads share only what processes
cannot share either: connections, caches, and the thread that reads ahead. Tasks, their order and states are those of
worker processes; batches arrive as they were made.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from queue import Empty, SimpleQueue

from wdspec.base.errors import UsageError, WdspecError
from wdspec.planning.shares import ScheduleSegment
from wdspec.run.run import Run
from wdspec.run.stats import Tally
from wdspec.run.steps import Step, Work
from wdspec.run.tasks import Delivery, Task, TaskReader, Tasks, deal_steps

AHEAD = 2
"""Tasks that each worker is given ahead, as torch's DataLoader gives its workers."""
_END_WITHIN = 5.0
"""Seconds that a thread may take to end its task; one that is stuck is left alone, with its reader."""
_NAME = "wdspec-reader"


class Threads:
    """Reads steps in threads: a `Steps`.

    Args:
        run: is copied for each.
        workers: how many threads, at least 1.
        ahead: tasks that each is given ahead.
        timeout: seconds to wait for a delivery; 0 waits forever.
        pins: whether deliveries are copied into page-locked memory.

    Raises:
        UsageError: `ahead` or `timeout` is not a valid number.
    """

    def __init__(
        self, run: Run, workers: int, ahead: int = AHEAD, timeout: float = 0, pins: bool = False
    ) -> None:
        if type(ahead) is not int or ahead < 1:
            raise UsageError(f"`prefetch_factor` is a number of deliveries from 1 on, not {ahead!r}")
        if not isinstance(timeout, (int, float)) or not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise UsageError(f"`timeout` is a number of seconds from 0 on, not {timeout!r}")
        self.tally = Tally(run.slots)
        self._tasks = Tasks(run, workers)
        self._run = pickle.dumps(run)
        self._readers = [self._new_reader() for _ in range(workers)]
        self._ahead, self._timeout, self._pins = ahead, timeout, pins
        self._threads: list[_Thread] = []

    @property
    def requested(self) -> int:
        """No step from J on was asked for yet."""
        return self._tasks.requested

    def begin(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order; one work at a time.

        Raises:
            RuntimeError: nothing came in time.
            Exception: what reading raised.
        """
        self.tally.begin()
        self._tasks.start(work)
        try:
            yield from deal_steps(self._deliver(self._tasks), self._tasks, self.tally)
        except WdspecError:
            raise
        except Exception:
            self._end()
            raise

    def samples(self, work: Work) -> None:
        """None: states come with every step."""

    def fail(self, error: BaseException) -> None:
        """Do nothing: steps that fail raise."""

    def slots(self, noted: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """As noted."""
        return noted

    def draw_by(self, segments: tuple[ScheduleSegment, ...]) -> None:
        """Have later tasks drawn by the shares that were set."""
        self._tasks.segments = segments

    def forget(self) -> None:
        """Do nothing: workers are told where to resume."""

    def count(self) -> None:
        """Bring `tally` up to date."""
        for reader in self._readers:
            reader.add_to(self.tally)

    def close(self) -> None:
        """End the threads and close open shards."""
        self._end()
        for reader in self._readers:
            reader.close()

    def _deliver(self, tasks: Iterable[Task]) -> Iterator[Delivery]:
        """Yield what the tasks give, in their order; the threads take turns."""
        self._end()
        coming, threads = iter(tasks), [_Thread(reader, self._pins) for reader in self._readers]
        self._threads = threads
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

    def _end(self) -> None:
        """End the threads; their readers stay as they are, until the next task moves them."""
        deadline = time.monotonic() + _END_WITHIN
        for thread in self._threads:
            thread.stop()
        for number, thread in enumerate(self._threads):
            if not thread.has_ended(max(0.0, deadline - time.monotonic())):
                self._readers[number] = self._new_reader()
        self._threads = []

    def _new_reader(self) -> TaskReader:
        return TaskReader(pickle.loads(self._run))


def _ask(thread: _Thread, coming: Iterator[Task], asked: deque[_Thread]) -> None:
    """Gives a thread the next task, if there is one."""
    task = next(coming, None)
    if task is not None:
        thread.tasks.put(task)
        asked.append(thread)


class _Thread:
    """One thread that reads."""

    def __init__(self, reader: TaskReader, pins: bool) -> None:
        self.tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[Delivery | BaseException] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, args=(reader, pins), name=_NAME, daemon=True)

    def start(self) -> None:
        """Start; separately, so that an interrupt in between knows all the threads that have to be stopped."""
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
        """Let it end after its current task."""
        self._stopped = True
        self.tasks.put(None)

    def has_ended(self, within: float) -> bool:
        """Whether it has ended, or does so within some seconds."""
        if self._thread.ident is not None:  # else it never started
            self._thread.join(within)
        return not self._thread.is_alive()

    def _serve(self, reader: TaskReader, pins: bool) -> None:
        while (task := self.tasks.get()) is not None and not self._stopped:
            try:
                delivery = reader[task]
                self._done.put(delivery.pin_memory() if pins else delivery)
            except BaseException as error:
                self._done.put(error)
