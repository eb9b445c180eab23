"""Objects of S3, asked for by s3fs's client: one request says what the object is and gives its bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from wdspec.errors import ShardError
from wdspec.stores.fsspec.segments import SegmentedBody, first_end
from wdspec.streams.resuming_stream import RangeResponse

_CHUNK = 512 * 1024


def is_s3(system: Any) -> bool:
    """Whether a file system is s3fs's, whose client can be asked."""
    return type(system).__module__.startswith("s3fs.") and hasattr(system, "_call_s3")


class S3Object:
    """Asks for an object; every later request names the version, or the ETag, that the first one got.

    Raises:
        whatever s3fs raises; ShardError for an object that changed meanwhile.
    """

    def __init__(self, system: Any, path: str, location: str, timeout: float) -> None:
        self._system, self._location, self._timeout = system, location, timeout
        self._path = path
        self._bucket, self._key, self._version = system.split_path(path)
        self._etag: str | None = None

    def response(self, offset: int, connect_timeout: float) -> RangeResponse:
        """The object from an offset to its end."""
        from fsspec.asyn import sync  # type: ignore[import-untyped]  # has none

        begun = sync(self._system.loop, self._begun, offset, timeout=connect_timeout + self._timeout)
        if isinstance(begun, Mapping):  # what it says of an object without a byte there
            size = int(begun["size"])
            return RangeResponse(_nothing(self, size), size, size, _said(begun.get("ETag")))
        coming, total, validator = begun
        body = SegmentedBody(
            self._segment, self._system.loop, offset, total, self._timeout, (coming, first_end(offset))
        )
        return RangeResponse(body, offset, total, validator)

    async def _begun(self, offset: int) -> Any:
        try:
            answer = await self._asked(offset, first_end(offset))
        except FileNotFoundError:
            if (await self._system._info(self._path)).get("type") == "directory":
                raise IsADirectoryError(self._path) from None
            raise
        except OSError as error:
            if "InvalidRange" not in f"{error} {error.__cause__!r}":
                raise
            return await self._system._info(self._path)
        said = answer.get("ContentRange", "").rpartition("/")[2]
        total = int(said) if said.isdigit() else offset + int(answer["ContentLength"])
        self._etag = answer.get("ETag")
        if answer.get("VersionId") not in (None, "null"):
            self._version = answer["VersionId"]
        return _chunks(answer["Body"]), total, _said(self._etag or answer.get("LastModified"))

    async def _segment(self, start: int, end: int) -> AsyncIterator[bytes]:
        answer = await self._asked(start, end)
        if answer.get("ETag") != self._etag:
            answer["Body"].close()
            raise self._changed()
        async for chunk in _chunks(answer["Body"]):
            yield chunk

    async def _asked(self, start: int, end: int) -> Any:
        pins = (
            {"VersionId": self._version} if self._version else {"IfMatch": self._etag} if self._etag else {}
        )
        try:
            return await self._system._call_s3(
                "get_object", Bucket=self._bucket, Key=self._key, Range=f"bytes={start}-{end - 1}", **pins
            )
        except OSError as error:
            if "PreconditionFailed" in f"{error} {error.__cause__!r}":
                raise self._changed() from None
            if isinstance(error, FileNotFoundError) and self._etag:
                raise self._changed() from None
            raise

    def _changed(self) -> ShardError:
        return ShardError(
            "the object changed while it was read; start again from a saved state", location=self._location
        )


async def _chunks(body: Any) -> AsyncIterator[bytes]:
    """The bytes of an answer, in pieces that are worth a switch of threads."""
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


def _nothing(asked: S3Object, size: int) -> SegmentedBody:
    return SegmentedBody(asked._segment, asked._system.loop, size, size, asked._timeout)


def _said(tag: Any) -> str | None:
    return f"ETag {tag}" if tag else None
