"""Objects whose first answer gives bytes and says what they are of: later requests are held to that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any

from wdspec.errors import ShardError
from wdspec.stores.fsspec.segments import SegmentedBody, first_end
from wdspec.streams.resuming_stream import RangeResponse

Begun = tuple[AsyncIterator[bytes], int, str | None]
"""The bytes of the first request, those of the whole object, and what tells it from others."""


class PinnedObject(ABC):
    """Asks for an object; every later request names the version, or the ETag, that the first one got.

    Raises:
        whatever the file system raises; ShardError for an object that changed meanwhile.
    """

    def __init__(self, system: Any, path: str, location: str, timeout: float) -> None:
        self._system, self._path, self._location, self._timeout = system, path, location, timeout

    def response(self, offset: int, connect_timeout: float) -> RangeResponse:
        """The object from an offset to its end."""
        from fsspec.asyn import sync

        begun = sync(self._system.loop, self._begun, offset, timeout=connect_timeout + self._timeout)
        if isinstance(begun, Mapping):  # what it says of an object without a byte there
            size, tag = int(begun["size"]), begun.get("ETag") or begun.get("etag")
            nothing = SegmentedBody(self._segment, self._system.loop, size, size, self._timeout)
            return RangeResponse(nothing, size, size, self.said(tag))
        coming, total, validator = begun
        body = SegmentedBody(
            self._segment, self._system.loop, offset, total, self._timeout, (coming, first_end(offset))
        )
        return RangeResponse(body, offset, total, validator)

    @abstractmethod
    async def _begun(self, offset: int) -> Begun | Mapping[str, Any]:
        """The first request, or what the store says of an object without a byte at the offset."""

    @abstractmethod
    def _segment(self, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes of a later request."""

    async def _raise_missing(self) -> None:
        """Raises where there is no object, but perhaps a directory."""
        if (await self._system._info(self._path)).get("type") == "directory":
            raise IsADirectoryError(self._path)

    @staticmethod
    @abstractmethod
    def said(tag: Any) -> str | None:
        """What tells an object from others, by its ETag."""

    def _changed(self) -> ShardError:
        return ShardError(
            "the object changed while it was read; start again from a saved state", location=self._location
        )
