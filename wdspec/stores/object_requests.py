"""Bodies fetched in a few large requests by the clients of s3fs, adlfs and other asynchronous file systems.

Each request costs a round trip, and each connection has its own speed. So a shard of the usual size is one request,
read while it arrives, and the segments of a larger one are fetched in parallel, as far as the memory of this process's
streams allows. For S3 and Azure the first answer has bytes and identifies the object; later requests are pinned to it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.stores.http_answers import read_number
from wdspec.stores.read_ahead import share
from wdspec.stores.resume import RangeResponse
from wdspec.stores.retry import TransientError

WHOLE = 32 * 1024 * 1024
"""Bytes of the first request from the start of an object: most shards are one request."""
SEGMENT = 16 * 1024 * 1024
"""Minimum size of each later request in bytes: the rest is cut into as many requests as run in parallel."""
LONGEST = 64 * 1024 * 1024
FIRST = 1024 * 1024
"""Bytes of the first request from another offset, if it is not known where reading ends: another seek may follow. Each
later one is 4 times as large."""
SIDES = 3
"""Parallel requests."""
_CHUNK = 512 * 1024

Ask = Callable[[int, int], AsyncIterator[bytes]]
"""The bytes of an object between two offsets, as they arrive, in the event loop."""


def first_end(start: int, stop: int | None = None) -> int:
    """The end of the first request of a body that starts there, and ends at `stop` or with the object."""
    if stop is None:
        return start + (FIRST if start else WHOLE)
    return min(start + (SEGMENT if start else WHOLE), stop)


def next_size(size: int, left: int) -> int:
    """The bytes of a request after one of some size, if some bytes are left."""
    return min(4 * size, min(max(left // SIDES + 1, SEGMENT), LONGEST))


def count_requests(total: int, first: int = WHOLE) -> int:
    """The number of requests for an object of some bytes, from its start; with `first=SEGMENT`, for a range."""
    count, end, size = 1, first, first
    while end < total:
        size = next_size(size, total - end)
        count, end = count + 1, end + size
    return count


class SegmentedBody:
    """The bytes of an object from an offset on; see `ResponseBody`.

    Args:
        total: where they end: bytes of the object.
        timeout: seconds to wait for the next bytes.
        first: the first request, if it is already made, and its end.
    """

    def __init__(
        self,
        ask: Ask,
        loop: asyncio.AbstractEventLoop,
        start: int,
        total: int,
        timeout: float,
        first: tuple[AsyncIterator[bytes], int] | None = None,
    ) -> None:
        self._ask, self._loop, self._total, self._timeout = ask, loop, total, timeout
        self._arrived = threading.Condition()
        self._room, self._is_full = asyncio.Event(), False
        """Set in the event loop once there may be room; and whether a request waits for that."""
        self._segments: deque[_Segment] = deque()
        self._next, self._size = start, first_end(start) - start
        self._held = 0
        self._closed = False
        self._rest = b""
        if first is not None:
            coming, end = first
            self._start(coming, min(end, total))

    def read(self, size: int) -> bytes:
        while not self._rest:
            while len(self._segments) < SIDES and self._next < self._total and self._has_room():
                end = min(self._next + self._size, self._total)
                self._start(self._ask(self._next, end), end)
            if not self._segments:
                return b""
            self._rest = self._take(self._segments[0])
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
            self._wake()

    def _has_room(self) -> bool:
        return not self._segments or share() >= 2 * SEGMENT

    def _start(self, coming: AsyncIterator[bytes], end: int) -> None:
        segment = _Segment(end - self._next)
        self._segments.append(segment)
        size = end - self._next
        self._next, self._size = end, next_size(size, self._total - end)
        segment.future = asyncio.run_coroutine_threadsafe(self._pump(segment, coming), self._loop)

    def _take(self, segment: _Segment) -> bytes:
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
                self._wake()
                return data
        if segment.error is not None:
            raise segment.error
        if segment.missing:
            raise TransientError(f"the bytes stopped {segment.missing} before the end of an answer")
        with self._arrived:
            self._segments.popleft()
            self._wake()  # the next segment may hold more, as the first one
        return b""

    def _wake(self) -> None:
        """Let requests that wait look for room again; the caller holds the lock."""
        if self._is_full:
            self._is_full = False
            self._loop.call_soon_threadsafe(self._room.set)

    async def _pump(self, segment: _Segment, coming: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in coming:
                with self._arrived:
                    segment.chunks.append(chunk)
                    segment.held += len(chunk)
                    segment.missing -= len(chunk)
                    self._held += len(chunk)
                    self._arrived.notify_all()
                while self._must_wait(segment):
                    await self._room.wait()
        except BaseException as error:
            segment.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            with self._arrived:
                segment.done = True
                self._arrived.notify_all()

    def _must_wait(self, segment: _Segment) -> bool:
        """Whether a segment waits for its reader, which then sets `_room`."""
        with self._arrived:
            if self._closed or not self._is_ahead(segment):
                return False
            self._is_full = True
            self._room.clear()
            return True

    def _is_ahead(self, segment: _Segment) -> bool:
        """Whether it holds more than its share. The segment that is read first must never wait for later ones."""
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


FirstAnswer = tuple[AsyncIterator[bytes], int, str | None]
"""The bytes of the first request, the size of the object, and its validator."""


def change_error(location: str) -> ShardError:
    return ShardError(
        "the object changed while it was read; start again from a saved state", location=location
    )


class PinnedObject(ABC):
    """Requests an object. Every later request names the version, or the ETag, of the first answer.

    Raises ShardError if the object changed, and whatever the file system raises.
    """

    tag_name: str
    """What `validator` calls the ETag."""

    def __init__(self, system: Any, path: str, location: str, timeout: float) -> None:
        self._system, self._path, self._location, self._timeout = system, path, location, timeout
        self._etag: str | None = None

    def response(self, offset: int, connect_timeout: float, stop: int | None = None) -> RangeResponse:
        """The object from an offset to its end, or before another offset."""
        from fsspec.asyn import sync

        end = first_end(offset, stop)
        first = sync(self._system.loop, self._start, offset, end, timeout=connect_timeout + self._timeout)
        if isinstance(first, Mapping):  # there is no byte at the offset
            size, tag = int(first["size"]), first.get("ETag") or first.get("etag")
            nothing = SegmentedBody(self._segment, self._system.loop, size, size, self._timeout)
            return RangeResponse(nothing, size, size, self._validator(tag))
        coming, total, validator = first
        upto = total if stop is None else min(stop, total)
        body = SegmentedBody(self._segment, self._system.loop, offset, upto, self._timeout, (coming, end))
        return RangeResponse(body, offset, total, validator, stop=None if stop is None else upto)

    @abstractmethod
    async def _start(self, offset: int, end: int) -> FirstAnswer | Mapping[str, Any]:
        """The first request, or what the store says about an object without a byte at the offset."""

    @abstractmethod
    def _segment(self, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes of a later request."""

    async def _raise_missing(self) -> None:
        """Raise for a directory, or if there is nothing at all."""
        if (await self._system._info(self._path)).get("type") == "directory":
            raise IsADirectoryError(self._path)

    def _validator(self, tag: Any) -> str | None:
        return f"{self.tag_name} {tag}" if tag else None


def is_s3(system: Any) -> bool:
    """Whether a file system is s3fs's, so that its client can be used."""
    return type(system).__module__.startswith("s3fs.") and hasattr(system, "_call_s3")


class S3Object(PinnedObject):
    """An object of S3."""

    tag_name = "ETag"

    def __init__(self, system: Any, path: str, location: str, timeout: float) -> None:
        super().__init__(system, path, location, timeout)
        self._bucket, self._key, self._version = system.split_path(path)

    async def _start(self, offset: int, end: int) -> FirstAnswer | Mapping[str, Any]:
        try:
            answer = await self._get(offset, end)
        except FileNotFoundError:
            await self._raise_missing()
            raise
        except OSError as error:
            if "InvalidRange" not in f"{error} {error.__cause__!r}":
                raise
            found: Mapping[str, Any] = await self._system._info(self._path)
            return found
        said = answer.get("ContentRange", "").rpartition("/")[2]
        total = read_number(said)
        if total is None:
            total = offset + int(answer["ContentLength"])
        self._etag = answer.get("ETag")
        if answer.get("VersionId") not in (None, "null"):
            self._version = answer["VersionId"]
        return _chunks(answer["Body"]), total, self._validator(self._etag or answer.get("LastModified"))

    async def _segment(self, start: int, end: int) -> AsyncIterator[bytes]:
        answer = await self._get(start, end)
        if answer.get("ETag") != self._etag:
            answer["Body"].close()
            raise change_error(self._location)
        async for chunk in _chunks(answer["Body"]):
            yield chunk

    async def _get(self, start: int, end: int) -> Any:
        pins = (
            {"VersionId": self._version} if self._version else {"IfMatch": self._etag} if self._etag else {}
        )
        try:
            return await self._system._call_s3(
                "get_object", Bucket=self._bucket, Key=self._key, Range=f"bytes={start}-{end - 1}", **pins
            )
        except OSError as error:
            if "PreconditionFailed" in f"{error} {error.__cause__!r}":
                raise change_error(self._location) from None
            if isinstance(error, FileNotFoundError) and self._etag:
                raise change_error(self._location) from None
            raise


async def _chunks(body: Any) -> AsyncIterator[bytes]:
    """The bytes of an answer, in pieces large enough to be worth a switch of threads."""
    parts: list[bytes] = []
    held = 0
    try:
        while part := await body.read(_CHUNK):
            parts.append(part)
            held += len(part)
            if held >= _CHUNK:
                yield b"".join(parts)
                parts, held = [], 0
        if parts:
            yield b"".join(parts)
    finally:
        body.close()


def is_azure(system: Any) -> bool:
    """Whether a file system is adlfs's, so that its client can be used."""
    return type(system).__module__.startswith("adlfs.") and hasattr(system, "service_client")


class AzureBlob(PinnedObject):
    """A blob of Azure; its client returns the bytes of each request at once."""

    tag_name = "etag"

    def __init__(self, system: Any, path: str, location: str, timeout: float) -> None:
        super().__init__(system, path, location, timeout)
        self._container, self._blob, self._version = system.split_path(path)

    async def _start(self, offset: int, end: int) -> FirstAnswer | Mapping[str, Any]:
        from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

        try:
            said, data = await self._get(offset, end)
        except ResourceNotFoundError:
            await self._raise_missing()
            raise
        except HttpResponseError as error:
            if error.status_code != 416:
                raise
            found: Mapping[str, Any] = await self._system._info(self._path)
            return found
        if str((said.metadata or {}).get("hdi_isfolder")).lower() == "true":
            raise IsADirectoryError(self._path)
        self._etag = said.etag
        total = read_number((said.content_range or "").rpartition("/")[2])
        if total is None:
            raise TransientError(
                f"the Content-Range `{said.content_range}` does not say how long the blob is"
            )
        return _whole(data), total, self._validator(said.etag)

    async def _segment(self, start: int, end: int) -> AsyncIterator[bytes]:
        from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError

        try:
            _, data = await self._get(start, end)
        except (ResourceModifiedError, ResourceNotFoundError):
            raise change_error(self._location) from None
        yield data

    async def _get(self, start: int, end: int) -> tuple[Any, bytes]:
        """The properties of the blob, and the bytes."""
        from azure.core import MatchConditions

        system, pins = self._system, {}
        if self._etag is not None:
            pins = {"etag": self._etag, "match_condition": MatchConditions.IfNotModified}
        if self._version is not None:
            pins["version_id"] = self._version
        async with system.service_client.get_blob_client(self._container, self._blob) as client:
            stream = await client.download_blob(
                offset=start,
                length=end - start,
                max_concurrency=system.max_concurrency,
                **pins,
                **getattr(system, "_timeout_kwargs", {}),
            )
            return stream.properties, await stream.readall()


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
