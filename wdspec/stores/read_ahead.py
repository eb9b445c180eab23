"""Streams fetched ahead of their readers, by one thread and within one budget per process.

There is only one thread, because every thread that touches Python objects takes the GIL from the decoding one, 5 ms at
a time. No reader depends on it: a reader without bytes fetches a piece itself, unless the thread is just fetching for
it. So a store that stalls or waits between two retries delays only its own readers.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol, runtime_checkable

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.files import RawStream
from wdspec.base.process import Owner, PerProcess
from wdspec.stores.resume import FORKED, NEAR, PIECE

log = logging.getLogger("wdspec")


class FetchTask(Protocol):
    """A stream that is fetched ahead of its reader.

    The fetcher forgets a task that is `done`, at the latest when it is woken. To end one from outside, make it done
    and call `wake`; an `add` from another thread may come before or after that.
    """

    lock: threading.Lock
    """Held while a piece is fetched, by the thread or by the reader."""

    @property
    def buffered(self) -> int:
        """Bytes fetched and not read yet; the task with the fewest is served first."""

    @property
    def done(self) -> bool:
        """Whether there is nothing left to fetch, or no reader. Takes no lock."""

    @property
    def ready(self) -> bool:
        """Whether a piece may be fetched now. Takes no lock."""

    def fetch_piece(self) -> None:
        """Fetch one piece, waiting for the store. Raises nothing: errors are for the reader."""


class BackgroundFetcher:
    """Serves tasks piece by piece; the thread starts with the first task and ends with `rest` or the process."""

    def __init__(self) -> None:
        self._tasks: list[FetchTask] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, task: FetchTask) -> None:
        """Serve a task until it is done."""
        with self._changed:
            if task not in self._tasks:
                self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="wdspec-fetcher", daemon=True)
                self._thread.start()
            self._drop_done()
            self._changed.notify()

    def wake(self) -> None:
        """Look at the tasks again: one of them may have become ready, or done."""
        if sys.is_finalizing():  # the thread is gone, and may have taken the lock with it
            return
        with self._changed:
            self._drop_done()
            self._changed.notify()

    def call(self, function: Callable[[], object], buffered: int = 0) -> None:
        """Call a function once in the thread; it must not raise. `buffered` as for tasks."""
        self.add(_Call(function, buffered))

    def rest(self) -> None:
        """End the thread if there is nothing to fetch; the next task starts another."""
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
            except Exception:  # the thread has to serve the others, and the reader will meet the error itself
                log.exception("a task of the fetching thread failed")
                with self._changed:
                    self._tasks = [other for other in self._tasks if other is not task]
            finally:
                task.lock.release()
            del task  # keep no stream alive while waiting for the next task

    def _next(self) -> FetchTask | None:
        """The task to serve, with its lock taken; None if this thread is to end."""
        with self._changed:
            while self._thread is threading.current_thread():
                task = self._lock_ready_task()
                if task is not None:
                    return task
                self._changed.wait()
            return None

    def _lock_ready_task(self) -> FetchTask | None:
        """The ready task with the fewest bytes, with its lock taken."""
        self._drop_done()
        for task in sorted(self._tasks, key=lambda task: task.buffered):
            if task.ready and task.lock.acquire(blocking=False):
                return task
        return None


class _Call:
    """A task that calls a function once."""

    def __init__(self, function: Callable[[], object], buffered: int) -> None:
        self.lock = threading.Lock()
        self.buffered, self.done = buffered, False
        self._function = function

    @property
    def ready(self) -> bool:
        return not self.done

    def fetch_piece(self) -> None:
        self.done = True
        self._function()


_of_process = PerProcess(BackgroundFetcher)


def background_fetcher() -> BackgroundFetcher:
    """The fetcher of this process."""
    return _of_process.value


BUDGET = 64 * 1024 * 1024
"""Bytes that all streams of a process may hold, in equal parts."""
LATER = 1 << 40
"""Added to the bytes of a shard that is not read yet, so that it comes after all that are being read."""
SOON = 8 * 1024 * 1024
"""Bytes before the end of a shard at which the next one is requested: a response may take as long as these do."""


@runtime_checkable
class FetchesAhead(Protocol):
    """A stream that fetches bytes before they are read."""

    @property
    def nearly_fetched(self) -> bool:
        """Whether it has all its bytes, or will soon."""


class ReadAhead(RawStream):
    """The bytes of a stream, fetched in the background within the budget.

    Fetching starts after the first piece, which is often only inspected before a seek.

    Args:
        inner: read and closed by this, and used by no one else; may be slow.
    """

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self._owner = Owner()
        self.lock = threading.Lock()
        """Held while the inner stream is read."""
        self._arrived = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._next_at = 0  # offset of the inner stream
        self._ended = False
        self._soon = False
        self._error: Exception | None = None
        self._piece = b""
        self._piece_at = 0
        self._position = 0
        self._started = False
        self.has_reader = True
        """Whether it has a reader."""
        _open.value.add(self)

    @property
    def nearly_fetched(self) -> bool:
        return self._ended or self._soon

    @property
    def buffered(self) -> int:
        return self._held if self.has_reader else self._held + LATER

    @property
    def done(self) -> bool:
        return self._ended or self.closed

    @property
    def ready(self) -> bool:
        return self._held < share()

    def start(self) -> None:
        """Fetch in the background from now on."""
        self._started = True
        background_fetcher().add(self)

    def fetch_piece(self) -> None:
        """Fetch one piece; the caller holds the lock."""
        if self.done:
            return
        try:
            piece = self._inner.read(PIECE)
        except Exception as error:
            self._error, piece = error, b""
        if self.closed:
            self._inner.close()
            return
        with self._arrived:
            if piece:
                self._pieces.append(piece)
                self._held += len(piece)
                self._next_at += len(piece)
            else:
                self._ended = True
            self._arrived.notify()
        left = getattr(self._inner, "left", None)
        soon = self._ended or (left is not None and left <= SOON)
        if soon and not self._soon:
            self._soon = True
            background_fetcher().wake()  # for tasks that wait for this

    def seekable(self) -> bool:
        with interruptible(self.lock):
            return self._inner.seekable()

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            with interruptible(self.lock):
                offset += self._inner.seek(0, io.SEEK_END)
                self._inner.seek(self._next_at)
        if not self._piece_at <= offset <= self._next_at + NEAR:
            self._jump(offset)
        self._position = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        while (at := self._position - self._piece_at) >= len(self._piece):
            piece = self._take()
            self._piece_at += len(self._piece)
            self._piece = piece
            if not piece:
                return b""
        data = self._piece[at : at + size] if at or size < len(self._piece) else self._piece
        self._position += len(data)
        return data

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        _open.value.discard(self)
        background_fetcher().wake()
        self._pieces.clear()
        self._piece = b""
        if self.lock.acquire(blocking=False):
            try:
                self._inner.close()
            finally:
                self.lock.release()
        else:  # the thread that is fetching a piece closes it, and must not keep retrying
            self._abort_inner(ShardError("closed while it was read"))

    def abort(self, error: Exception) -> None:
        """From another thread: the current `read` raises the error, whichever thread fetches for it."""
        with self._arrived:
            self._error, self._ended = error, True
            self._arrived.notify_all()
        self._abort_inner(error)

    def _abort_inner(self, error: Exception) -> None:
        abort = getattr(self._inner, "abort", None)
        if abort is not None:
            abort(error)

    def _take(self) -> bytes:
        """The next piece; b"" at the end. Raises what the inner stream raised."""
        if self._owner.is_other:
            raise UsageError(FORKED)
        while True:
            with self._arrived:
                if self._pieces:
                    piece = self._pieces.popleft()
                    room = self._held >= share()
                    self._held -= len(piece)
                    break
                if self.closed:
                    raise ValueError("read of a closed stream")
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    return b""
            self._fetch_or_wait()
        if room:
            background_fetcher().wake()
        if not self._started and self._position:
            self.start()
        return piece

    def _fetch_or_wait(self) -> None:
        if self.lock.acquire(blocking=False):
            try:
                if not self._pieces:
                    self.fetch_piece()
            finally:
                self.lock.release()
            background_fetcher().wake()  # it skipped this task while the lock was held
        else:
            with self._arrived:
                if not self._pieces and not self._ended:
                    self._arrived.wait(0.1)

    def _jump(self, offset: int) -> None:
        with interruptible(self.lock):
            if self._error is not None:
                return
            self._inner.seek(offset)
            with self._arrived:
                self._pieces.clear()
                self._held = 0
            was_ended, self._ended, self._soon = self._ended, False, False
            self._next_at = self._piece_at = offset
            self._piece = b""
        if was_ended and self._started:
            self.start()


@contextmanager
def interruptible(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock; the watchdog can interrupt the wait for it."""
    while not lock.acquire(timeout=0.2):
        pass
    try:
        yield
    finally:
        lock.release()


def share() -> int:
    """Bytes that each stream of this process may hold now."""
    return max(PIECE, BUDGET // max(1, len(_open.value)))


_open: PerProcess[weakref.WeakSet[ReadAhead]] = PerProcess(weakref.WeakSet)
