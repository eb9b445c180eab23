"""Streams fetched ahead of their readers, by one thread and within one budget per process.

There is only one thread, because every thread that touches Python objects takes the GIL from the decoding one, 5 ms at
a time. No reader depends on it: a reader without bytes fetches a piece itself, unless the thread is just fetching for
it. So a store that stalls or waits between two retries delays only its own readers.

A mix of many sources is an exception. Its streams hold too few bytes each for one thread to hide how far away the store
is, so they fetch what their next draws need, and nothing else, when they are told to (`prepare`): `Openers` do so side
by side, within the same budget.
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
from queue import Empty, SimpleQueue
from typing import BinaryIO, ClassVar, Protocol, runtime_checkable

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.files import SeekableStream
from wdspec.base.process import Owner, PerProcess
from wdspec.formats.requests import NEAR
from wdspec.stores.resume import FORKED, PIECE

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
LEAST_PIECE = 32 * 1024
MOST_PREPARED = 4 * 1024 * 1024
"""Bytes that a stream has fetched at most when it prepares."""
OPENERS = 16
"""Threads that start what is needed soon."""
IDLE = 5.0
"""Seconds after which one of them ends."""
_RECENT = 16
"""How many draws an average is of, about."""
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


class Openers:
    """Threads that start what is needed soon, each one task after the other; they end when there is none for a while.

    Nobody depends on them: who needs the result does the task itself, unless a thread is just doing it.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._busy = 0

    def add(self, task: Callable[[], object]) -> None:
        """Call a function in one of the threads; it must not raise."""
        self._tasks.put(task)
        with self._lock:
            if self._threads >= min(OPENERS, self._busy + self._tasks.qsize()):
                return
            self._threads += 1
        threading.Thread(target=self._serve, name="wdspec-opener", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if not self._tasks.empty():
                        continue
                    self._threads -= 1
                    return
            self._busy += 1
            try:
                task()
            except Exception:  # the thread has to serve the others, and the reader will meet the error itself
                log.exception("a task of an opening thread failed")
            finally:
                self._busy -= 1
            del task


_openers = PerProcess(Openers)


def openers() -> Openers:
    """The openers of this process."""
    return _openers.value


class Needs:
    """How many bytes the next draws of one of many sources probably need.

    Args:
        draws: how many draws to prepare for.
    """

    _usual: ClassVar[PerProcess[list[int]]] = PerProcess(lambda: [0, 0])
    """What streams of this process need for their first draws, which fill a buffer, and for later ones."""

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._read = 0
        """The bytes that a read asks for."""
        self._drawn, self._at = 0, 0
        self._draw: int | None = None
        """The bytes that a draw takes, on average; None before the first one."""

    @property
    def bytes(self) -> int:
        """The number of bytes."""
        first, later = self._usual.value
        drawn = first if self._draw is None else 2 * (self._draw or later) * self._draws
        return min(max(self._read * self._draws, drawn), MOST_PREPARED)

    def note_read(self, size: int) -> None:
        """Note that a read asks for so many bytes."""
        self._read = max(size, self._read - self._read // 8)

    def note_draw(self, position: int) -> None:
        """Note where a draw begins to read."""
        taken, self._at = position - self._at, position
        if taken < 0 or (self._draw is None and not taken):
            return
        is_later = self._draw is not None
        usual = self._usual.value
        usual[is_later] += (taken - usual[is_later]) // _RECENT
        if self._draw is None:
            self._draw = 0
        elif self._draw == 0:
            self._draw = taken
        else:
            self._draw += (taken - self._draw) // 4

    def jump(self, position: int) -> None:
        """Note that bytes are left out."""
        self._at = position


class ReadAhead(SeekableStream):
    """The bytes of a stream, fetched in the background within the budget.

    Fetching starts after the first piece, which is often only inspected before a seek.

    Args:
        inner: read and closed by this, and used by no one else; may be slow.
        reads: how many of its reads `prepare` has the bytes fetched for; 0: bytes are fetched all the time.
    """

    def __init__(self, inner: BinaryIO, reads: int = 0) -> None:
        self._inner = inner
        self._needs = Needs(reads) if reads else None
        self._is_preparing = False
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
        self._started = False
        self.has_reader = True
        """Whether it has a reader."""
        _open.value.add(self)
        self._choose_size()

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
        if self._needs is None:
            background_fetcher().add(self)

    def prepare(self) -> bool:
        """Have the bytes of the next reads fetched. Return whether the shard probably ends with them."""
        assert self._needs is not None, "others fetch all the time"
        self._needs.note_draw(self._position)
        if self._lacking <= 0 or self.closed:
            return False
        if not self._ended and not self._is_preparing:
            self._is_preparing = True
            openers().add(self._fetch_lacking)
        return self._ended

    @property
    def _lacking(self) -> int:
        """How many more bytes than are there the next reads need, if it is above 0."""
        return self._position + (0 if self._needs is None else self._needs.bytes) - self._next_at

    def _fetch_lacking(self) -> None:
        with self.lock:
            self._is_preparing = False
            self._fetch_rest()

    def _fetch_rest(self) -> None:
        """Fetch all bytes of a request, so that its connection is free for others; the caller holds the lock."""
        while self._needs is not None and self._lacking > 0 and not self.done:
            self.fetch_piece()

    def fetch_piece(self) -> None:
        """Fetch one piece; the caller holds the lock."""
        if self.done:
            return
        try:
            piece = self._inner.read(self._choose_size())
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
        if self._needs is not None and left == 0:
            self._ended = True
        soon = self._ended or (left is not None and left <= SOON)
        if soon and not self._soon:
            self._soon = True
            background_fetcher().wake()  # for tasks that wait for this

    def _choose_size(self) -> int:
        """Return how many bytes to fetch at a time; if only some are, the store is asked for no others."""
        if self._needs is None:
            return PIECE
        piece = least_piece(len(_open.value))
        if hasattr(self._inner, "span"):
            self._inner.span = max(piece, self._lacking)
        return piece  # in small pieces, as one stays until all of it is read

    def seekable(self) -> bool:
        with interruptible(self.lock):
            return self._inner.seekable()

    def _length(self) -> int:
        with interruptible(self.lock):
            length = self._inner.seek(0, io.SEEK_END)
            self._inner.seek(self._next_at)
        return length

    def _prepare(self, offset: int) -> None:
        if not self._piece_at <= offset <= self._next_at + NEAR:
            self._jump(offset)

    def _read(self, size: int) -> bytes:
        if self._needs is not None:
            self._needs.note_read(size)
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
                    self._fetch_rest()
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
            if self._needs is not None:
                self._needs.jump(offset)
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


def least_piece(streams: int) -> int:
    """Bytes that each of the streams which fetch only what is needed soon fetches at least."""
    return max(LEAST_PIECE, min(PIECE, BUDGET // max(1, streams)))


_open: PerProcess[weakref.WeakSet[ReadAhead]] = PerProcess(weakref.WeakSet)
