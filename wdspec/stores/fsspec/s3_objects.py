"""Objects of S3, asked for by s3fs's client: one request says what the object is and gives its bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from wdspec.stores.fsspec.pinned_objects import Begun, PinnedObject
from wdspec.stores.fsspec.segments import first_end

_CHUNK = 512 * 1024


def is_s3(system: Any) -> bool:
    """Whether a file system is s3fs's, whose client can be asked."""
    return type(system).__module__.startswith("s3fs.") and hasattr(system, "_call_s3")


class S3Object(PinnedObject):
    """An object of S3."""

    def __init__(self, system: Any, path: str, location: str, timeout: float) -> None:
        super().__init__(system, path, location, timeout)
        self._bucket, self._key, self._version = system.split_path(path)
        self._etag: str | None = None

    async def _begun(self, offset: int) -> Begun | Mapping[str, Any]:
        try:
            answer = await self._asked(offset, first_end(offset))
        except FileNotFoundError:
            await self._raise_missing()
            raise
        except OSError as error:
            if "InvalidRange" not in f"{error} {error.__cause__!r}":
                raise
            found: Mapping[str, Any] = await self._system._info(self._path)
            return found
        said = answer.get("ContentRange", "").rpartition("/")[2]
        total = int(said) if said.isdigit() else offset + int(answer["ContentLength"])
        self._etag = answer.get("ETag")
        if answer.get("VersionId") not in (None, "null"):
            self._version = answer["VersionId"]
        return _chunks(answer["Body"]), total, self.said(self._etag or answer.get("LastModified"))

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

    @staticmethod
    def said(tag: Any) -> str | None:
        return f"ETag {tag}" if tag else None


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
