"""Objects in the stores that fsspec reads: as streams, and listed.

fsspec's own files ask for a block, wait, and ask for the next; here the next pieces are on their way while one is
used, and pieces grow, so that looking at a header costs little and reading a shard costs no waiting.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, cast

from wdspec.errors import ShardError
from wdspec.outputs.output import Output
from wdspec.redaction import harmless
from wdspec.stores.fsspec.filesystems import (
    alone,
    asked,
    described,
    explained,
    filesystem_of,
    heard,
    validator_of,
)
from wdspec.stores.fsspec.upload import Upload
from wdspec.stores.store import KeyStore, StoreSettings
from wdspec.streams.resuming_stream import RangeResponse, ResumingStream
from wdspec.streams.retrying import Retries, RetryPolicy, TransientError
from wdspec.urls.schemes import scheme_of

log = logging.getLogger("wdspec")

FIRST = 512 * 1024
LARGEST = 4 * 1024 * 1024
"""Bytes of the first piece; each is twice the one before, up to the largest."""
AHEAD = 2
"""Pieces that are on their way while one is used."""

_PINS = {"S3FileSystem": ("VersionId", "version_id"), "GCSFileSystem": ("generation", "generation")}
"""Where one version of an object can be asked for: what the store calls it, and the argument that says so."""


class FsspecStore(KeyStore):
    """Objects of all stores that fsspec reads."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """A stream; a missing object may show only on the first `read`.

        Raises:
            ShardError: the package for it is not installed, or its settings are wrong.
        """
        with contextlib.suppress(TransientError):  # it comes again with the first `read`, which tries again
            filesystem_of(location)
        return cast(
            BinaryIO, ResumingStream(_Fetch(location, settings.retry_policy), location, settings.retry_policy)
        )

    def keys(self, root: str, start: str, settings: StoreSettings, depth: int | None) -> list[str]:
        """Where all depths are wanted they are listed at once, which is what object stores do best; else level by
        level, so that `bucket/*.tar` does not list what lies deeper.
        """
        inner = start[: start.rfind("/") + 1]
        levels = None if depth is None else max(depth - inner.count("/"), 1)
        retries = Retries(settings.retry_policy, root)
        while True:
            try:
                names = [inner + name for name in _listed(root + inner, levels)]
                return [name for name in names if name.startswith(start)]
            except Exception as error:  # whatever a file system raises
                seen = explained(error, root)
                if not isinstance(seen, TransientError):
                    raise seen from harmless(error)
                retries.failed(seen)

    def output(self, location: str, *, overwrite: bool = True, since: int | None = None) -> Output:
        return Upload(location, overwrite=overwrite)

    def describe(self, location: str, settings: StoreSettings) -> str:
        return described(scheme_of(location))

    def exists(self, location: str) -> bool:
        return asked(location, lambda system, path: bool(system.exists(path)))

    def delete(self, location: str) -> None:
        asked(location, lambda system, path: system.rm_file(path))


class _Fetch:
    """Asks the store for an object from an offset on; see `wdspec.streams.resuming_stream.Fetch`."""

    def __init__(self, location: str, retry_policy: RetryPolicy) -> None:
        self._location, self._retry_policy = location, retry_policy

    def __call__(self, offset: int) -> RangeResponse:
        system, path = filesystem_of(self._location)
        try:
            with alone(system):
                info = _info(system, path, self._retry_policy)
                heard.add(scheme_of(self._location))
                if info.get("type") == "directory":
                    raise IsADirectoryError(path)
                total = info.get("size")
                validator = validator_of(info)
                body = self._body(system, path, offset, total, info)
        except Exception as error:  # whatever a file system raises
            raise explained(error, self._location) from harmless(error)
        return RangeResponse(body, offset, total, validator)

    def _body(self, system: Any, path: str, offset: int, total: int | None, info: Mapping[str, Any]) -> Any:
        from fsspec import AbstractFileSystem  # type: ignore[import-untyped]  # has none
        from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]  # has none

        if (
            total is not None
            and system.async_impl
            and type(system)._cat_file is not AsyncFileSystem._cat_file
        ):
            said, argument = _PINS.get(type(system).__name__, ("", ""))
            version = {argument: info[said]} if info.get(said) not in (None, "null", "") else {}

            async def piece(start: int, end: int) -> bytes:
                try:
                    data: bytes = await system._cat_file(path, start=start, end=end, **version)
                except FileNotFoundError:
                    if not version:
                        raise
                    raise _changed(self._location) from None
                if end == total and not version:  # the pieces must be of one object
                    now = await system._info(path)
                    if now.get("size") != total or validator_of(now) != validator_of(info):
                        raise _changed(self._location)
                return data

            return _Pieces(piece, system.loop, offset, total, self._retry_policy.read_timeout, self._location)
        if total is not None and type(system).cat_file is not AbstractFileSystem.cat_file:
            return _PlainPieces(system, path, offset, info, self._location)
        return _OpenFile(system, path, offset, self._location)


class _Pieces:
    """A body of pieces that are asked for ahead, in the event loop of the file system."""

    def __init__(
        self,
        piece: Callable[[int, int], Any],
        loop: asyncio.AbstractEventLoop,
        offset: int,
        total: int,
        timeout: float,
        location: str,
    ) -> None:
        self._piece, self._loop, self._timeout, self._location = piece, loop, timeout, location
        self._next, self._total, self._size = offset, total, FIRST
        self._coming: deque[concurrent.futures.Future[bytes]] = deque()
        self._current: concurrent.futures.Future[bytes] | None = None
        self._data = memoryview(b"")

    def read(self, size: int) -> bytes:
        if not self._data:
            self._ask()
            if not self._coming:
                return b""
            self._current = future = self._coming.popleft()
            try:
                self._data = memoryview(future.result(self._timeout))
            except concurrent.futures.TimeoutError as error:
                future.cancel()
                raise TransientError(f"no bytes for {self._timeout:.0f} s") from error
            except Exception as error:  # whatever a file system raises
                raise explained(error, self._location) from harmless(error)
            self._ask()
        data, self._data = bytes(self._data[:size]), self._data[size:]
        return data

    def close(self) -> None:
        while self._coming:
            self._coming.pop().cancel()

    def abort(self) -> None:
        if self._current is not None:
            self._current.cancel()

    def _ask(self) -> None:
        while len(self._coming) < AHEAD and self._next < self._total:
            end = min(self._next + self._size, self._total)
            self._coming.append(asyncio.run_coroutine_threadsafe(self._piece(self._next, end), self._loop))
            self._next, self._size = end, min(self._size * 2, LARGEST)


class _PlainPieces:
    """A body of pieces, one after the other, for file systems without an event loop."""

    def __init__(self, system: Any, path: str, offset: int, info: Mapping[str, Any], location: str) -> None:
        self._system, self._path, self._location = system, path, location
        self._next, self._total, self._validator = offset, int(info["size"]), validator_of(info)

    def read(self, size: int) -> bytes:
        end = min(self._next + size, self._total)
        if self._next >= end:
            return b""
        try:
            with alone(self._system):
                data: bytes = self._system.cat_file(self._path, start=self._next, end=end)
                if end == self._total and validator_of(self._system.info(self._path)) != self._validator:
                    raise _changed(self._location)
        except Exception as error:  # whatever a file system raises
            raise explained(error, self._location) from harmless(error)
        self._next += len(data)
        return data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass  # no file system of this kind can be interrupted; its own time-outs end it


class _OpenFile:
    """A body that is a file of the file system's own, read forward."""

    def __init__(self, system: Any, path: str, offset: int, location: str) -> None:
        self._system, self._location = system, location
        self._file = system.open(path, "rb", block_size=LARGEST)
        if offset:
            self._file.seek(offset)
        elif hasattr(getattr(self._file, "f", self._file), "prefetch"):  # paramiko asks for 32 KiB and waits
            getattr(self._file, "f", self._file).prefetch()

    def read(self, size: int) -> bytes:
        try:
            with alone(self._system):
                return bytes(self._file.read(size))
        except Exception as error:  # whatever a file system raises
            raise explained(error, self._location) from harmless(error)

    def close(self) -> None:
        try:
            with alone(self._system):
                self._file.close()
        except Exception as error:  # whatever a file system raises; nothing is lost
            log.debug("closing %s: %s", self._location, error)

    def abort(self) -> None:
        pass  # no file system of this kind can be interrupted; its own time-outs end it


def _changed(location: str) -> ShardError:
    return ShardError(
        "the object changed while it was read; start again from a saved state", location=location
    )


def _listed(location: str, levels: int | None) -> list[str]:
    system, path = filesystem_of(location)
    bare = path.rstrip("/")
    system.invalidate_cache()
    if levels == 1:
        found = system.ls(bare, detail=True)
    else:
        options = {} if levels is None else {"maxdepth": levels}
        found = system.find(bare, detail=True, **options).values()
        if not found and not system.isdir(bare):
            raise FileNotFoundError(bare)
    names = [str(each["name"]) for each in found if each.get("type") != "directory"]
    return [name[len(bare) + 1 :] for name in names if name.startswith(bare + "/") and not name.endswith("/")]


def _info(system: Any, path: str, retry_policy: RetryPolicy) -> Mapping[str, Any]:
    if not system.async_impl:
        system.invalidate_cache()
        return cast(Mapping[str, Any], system.info(path))
    from fsspec.asyn import sync

    timeout = retry_policy.connect_timeout + retry_policy.read_timeout
    return cast(Mapping[str, Any], sync(system.loop, system._info, path, timeout=timeout))
