"""Blobs of Azure, asked for by adlfs's client: one request says what the blob is and gives its bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from wdspec.stores.fsspec.pinned_objects import Begun, PinnedObject
from wdspec.stores.fsspec.segments import first_end


def is_azure(system: Any) -> bool:
    """Whether a file system is adlfs's, whose client can be asked."""
    return type(system).__module__.startswith("adlfs.") and hasattr(system, "service_client")


class AzureBlob(PinnedObject):
    """A blob; its client gives each request's bytes whole."""

    def __init__(self, system: Any, path: str, location: str, timeout: float) -> None:
        super().__init__(system, path, location, timeout)
        self._container, self._blob, self._version = system.split_path(path)
        self._etag: str | None = None

    async def _begun(self, offset: int) -> Begun | Mapping[str, Any]:
        from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

        try:
            said, data = await self._asked(offset, first_end(offset))
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
        return _whole(data), int(said.content_range.rpartition("/")[2]), self.said(said.etag)

    async def _segment(self, start: int, end: int) -> AsyncIterator[bytes]:
        from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError

        try:
            _, data = await self._asked(start, end)
        except (ResourceModifiedError, ResourceNotFoundError):
            raise self._changed() from None
        yield data

    async def _asked(self, start: int, end: int) -> tuple[Any, bytes]:
        """What the store says of the blob, and the bytes."""
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

    @staticmethod
    def said(tag: Any) -> str | None:
        return f"etag {tag}" if tag else None


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
