"""Bytes fetched before they are asked for, within one budget a process."""

from __future__ import annotations

import io
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol, runtime_checkable

from wdspec.errors import ShardError, UsageError
from wdspec.streams.background_fetcher import background_fetcher
from wdspec.streams.resuming_stream import FORKED, NEAR, PIECE
from wdspec.system.per_process import Owner, PerProcess
from wdspec.system.raw_stream import RawStream

BUDGET = 64 * 1024 * 1024
"""Bytes that all streams of a process may hold together; each may hold an equal part."""
LATER = 1 << 40
"""Bytes by which a shard that is not read yet comes after all that are being read."""
SOON = 8 * 1024 * 1024
"""Bytes before the end of one shard at which the next is requested: a response may take as long as these do."""


@runtime_checkable
class FetchesAhead(Protocol):
    """A stream that fetches its bytes without being read."""

    @property
    def nearly_fetched(self) -> bool:
        """Whether it has all its bytes, or will have them soon."""


class ReadAhead(RawStream):
    """The bytes of a stream, fetched in the background as far as the budget goes.

    That begins with the second piece: the first one is often only looked at, before a seek to elsewhere.

    Args:
        inner: read and closed by this; may be slow, must not be used by others.
    """

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self._owner = Owner()
        self.lock = threading.Lock()
        """Held by whoever reads the inner stream."""
        self._arrived = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._next_at = 0  # offset of what the inner stream gives next
        self._ended = False
        self._soon = False
        self._error: Exception | None = None
        self._piece = b""
        self._piece_at = 0
        self._position = 0
        self._started = False
        self.wanted = True
        """Whether a reader has come for it."""
        _open.value.add(self)

    @property
    def nearly_fetched(self) -> bool:
        return self._ended or self._soon

    @property
    def buffered(self) -> int:
        return self._held if self.wanted else self._held + LATER

    @property
    def done(self) -> bool:
        return self._ended or self.closed

    @property
    def ready(self) -> bool:
        return self._held < share()

    def start(self) -> None:
        """Has it fetched in the background from now on."""
        self._started = True
        background_fetcher().add(self)

    def fetch_piece(self) -> None:
        """Fetches one piece; the caller holds the lock."""
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
            background_fetcher().wake()  # whatever waits for that

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
        else:  # whoever fetches a piece just now closes it, and must not go on retrying
            self._abort_inner(ShardError("closed while it was read"))

    def abort(self, error: Exception) -> None:
        """From another thread: a `read` under way raises the error, whoever fetches its bytes just now."""
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
            background_fetcher().wake()  # it has passed this by while the lock was held
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
    """With the lock, waited for in such a way that the watchdog can end it."""
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
