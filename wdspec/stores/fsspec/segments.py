"""A body in few large requests, side by side where the object is large, in the event loop of a file system.

Each request costs a way to the store and back, and each connection has a speed of its own. So a whole shard of usual
size is one request, whose bytes are given while they come, and of larger ones the next segments come meanwhile, as far
as the memory of this process's streams allows.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future

from wdspec.streams.read_ahead import share
from wdspec.streams.retrying import TransientError

WHOLE = 32 * 1024 * 1024
"""Bytes that are asked for at once from the start of an object: most shards are one request."""
SEGMENT = 16 * 1024 * 1024
"""Bytes of each later request, at least: what is left is cut into as few as are under way at once."""
LONGEST = 64 * 1024 * 1024
FIRST = 1024 * 1024
"""Bytes of the first request from elsewhere: who jumps may jump again. Each later one is four times as large."""
SIDES = 3
"""Requests under way at once."""
_CHUNK = 512 * 1024
_NAP = 0.002

Ask = Callable[[int, int], AsyncIterator[bytes]]
"""The bytes of an object from an offset to another, as they come, in the event loop."""


def first_end(start: int) -> int:
    """Where the first request of a body ends that begins there."""
    return start + (FIRST if start else WHOLE)


class SegmentedBody:
    """The bytes of an object from an offset to its end; see `ResponseBody`.

    Args:
        ask: makes one request.
        loop: where it runs.
        start: offset of the first byte.
        total: bytes of the object.
        timeout: seconds in which the next bytes must come.
        begun: the first request, if it is made already, and where it ends.
    """

    def __init__(
        self,
        ask: Ask,
        loop: asyncio.AbstractEventLoop,
        start: int,
        total: int,
        timeout: float,
        begun: tuple[AsyncIterator[bytes], int] | None = None,
    ) -> None:
        self._ask, self._loop, self._total, self._timeout = ask, loop, total, timeout
        self._arrived = threading.Condition()
        self._segments: deque[_Segment] = deque()
        self._next, self._size = start, first_end(start) - start
        self._held = 0
        self._closed = False
        self._rest = b""
        if begun is not None:
            coming, end = begun
            self._begin(coming, min(end, total))

    def read(self, size: int) -> bytes:
        while not self._rest:
            while len(self._segments) < SIDES and self._next < self._total and self._has_room():
                end = min(self._next + self._size, self._total)
                self._begin(self._ask(self._next, end), end)
            if not self._segments:
                return b""
            self._rest = self._taken(self._segments[0])
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        self._closed = True
        for segment in self._segments:
            segment.future.cancel()
        self._segments.clear()

    def abort(self) -> None:
        self._closed = True
        with self._arrived:
            self._arrived.notify_all()

    def _has_room(self) -> bool:
        return not self._segments or share() >= 2 * SEGMENT

    def _begin(self, coming: AsyncIterator[bytes], end: int) -> None:
        segment = _Segment(end - self._next)
        self._segments.append(segment)
        part = min(max((self._total - end) // SIDES + 1, SEGMENT), LONGEST)
        self._next, self._size = end, min(4 * self._size, part)
        segment.future = asyncio.run_coroutine_threadsafe(self._pump(segment, coming), self._loop)

    def _taken(self, segment: _Segment) -> bytes:
        """The next bytes of the first segment; b"" at its end."""
        deadline = time.monotonic() + self._timeout
        with self._arrived:
            while not segment.chunks and not segment.done:
                left = deadline - time.monotonic()
                if self._closed:
                    raise TransientError("closed while it was read")
                if left <= 0:
                    raise TransientError(f"no bytes for {self._timeout:.0f} s")
                self._arrived.wait(left)
            if segment.chunks:
                data = segment.chunks.popleft()
                self._held -= len(data)
                segment.held -= len(data)
                return data
        if segment.error is not None:
            raise segment.error
        if segment.missing:
            raise TransientError(f"the bytes stopped {segment.missing} before the end of an answer")
        self._segments.popleft()
        return b""

    async def _pump(self, segment: _Segment, coming: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in coming:
                with self._arrived:
                    segment.chunks.append(chunk)
                    segment.held += len(chunk)
                    segment.missing -= len(chunk)
                    self._held += len(chunk)
                    self._arrived.notify_all()
                while not self._closed and self._is_ahead(segment):
                    await asyncio.sleep(_NAP)
        except BaseException as error:
            segment.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            with self._arrived:
                segment.done = True
                self._arrived.notify_all()

    def _is_ahead(self, segment: _Segment) -> bool:
        """Whether it holds more than its part; what is read first must never wait for what comes later."""
        first = bool(self._segments) and self._segments[0] is segment
        return (segment.held if first else self._held) > max(share(), 4 * _CHUNK)


class _Segment:
    def __init__(self, size: int) -> None:
        self.chunks: deque[bytes] = deque()
        self.held = 0
        self.missing = size
        self.done = False
        self.error: BaseException | None = None
        self.future: Future[None] = Future()
