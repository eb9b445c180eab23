"""Objects in the stores that fsspec reads: read as streams, listed and written.

fsspec's own files request one block after another. Here a shard of the usual size is one request, and the next
segments of a larger one are fetched while one is used (`object_requests.py`).
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from typing import IO, Any, BinaryIO, cast

from wdspec.base.errors import RefusedShardError, UnusableStoreError
from wdspec.base.redaction import redact
from wdspec.stores import filesystems, object_requests
from wdspec.stores.outputs import GatheredOutput, Output
from wdspec.stores.resume import RangeResponse, ResponseBody, ResumingStream
from wdspec.stores.retry import RetryPolicy, TransientError, with_retries
from wdspec.stores.settings import ObjectLogin
from wdspec.stores.store import KeyStore, ObjectStat, StoreSettings
from wdspec.urls.urls import ROWS, scheme_of


class Upload(GatheredOutput):
    """An object of a store that fsspec can write."""

    def __init__(self, url: str, login: ObjectLogin | None = None, *, overwrite: bool = True) -> None:
        self._login = login
        super().__init__(url, overwrite)

    def _put(self, file: IO[bytes]) -> None:
        # A store that shows an object only when its upload is complete needs no temporary name.
        row = ROWS.get(scheme_of(self._url))
        put = _put_whole if row is not None and row.uploads_whole else _put_and_move
        filesystems.ask(self._url, self._login, partial(put, file.name))

    def _is_taken(self) -> bool:
        # Also asked if it may be replaced, so that a missing package is reported before the work starts.
        return filesystems.ask(
            self._url, self._login, lambda system, path: not self._overwrite and system.exists(path)
        )


def _put_whole(source: str, system: Any, path: str) -> None:
    system.put_file(source, path)


def _put_and_move(source: str, system: Any, path: str) -> None:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{secrets.token_hex(4)}.partial"
    with contextlib.suppress(NotImplementedError, OSError):
        system.makedirs(folder, exist_ok=True)
    try:
        system.put_file(source, temporary)
        system.mv(temporary, path)
    except BaseException:
        with contextlib.suppress(Exception):
            system.rm_file(temporary)
        raise


log = logging.getLogger("wdspec")

LARGEST = 4 * 1024 * 1024
"""Block size of the files that a file system opens: bytes that it requests besides those that are read."""
FIRST = 64 * 1024
"""The same for the first request that does not start at the beginning; it doubles with each read."""

_READ_AHEAD = ("readahead", "bytes")
"""Caches of fsspec's files whose block size only says how many bytes are requested besides those that are read. In
others, it numbers the blocks, so that it cannot change."""

_PINS = {"GCSFileSystem": ("generation", "generation")}
"""File systems that can request one version of an object: the name of the version, and of the argument."""

_COMMIT = re.compile(r"^[^@]*@[0-9a-f]{40}/")
"""Paths at a commit of the Hugging Face Hub: what it says of them never changes, and is not requested for each file."""


class FsspecStore(KeyStore):
    """Objects of all stores that fsspec reads."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """A stream; a missing object may be reported only by the first `read`.

        Raises ShardError if the package for it is not installed, or its settings are wrong.
        """
        with contextlib.suppress(TransientError):  # the first `read` tries again
            filesystems.filesystem_of(location, settings.login)
        return cast(BinaryIO, ResumingStream(_Fetch(location, settings), location, settings.retry_policy))

    def keys(self, root: str, start: str, settings: StoreSettings, depth: int | None) -> list[str]:
        """List all depths at once, which object stores do best, or else level by level, so that `bucket/*.tar` does
        not list deeper levels.
        """
        inner = start[: start.rfind("/") + 1]
        levels = None if depth is None else max(depth - inner.count("/"), 1)

        def attempt() -> list[str]:
            with filesystems.explaining(root):
                names = [inner + name for name in _list(root + inner, levels, settings)]
                return [name for name in names if name.startswith(start)]

        return with_retries(settings.retry_policy, root, attempt)

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        def attempt() -> ObjectStat:
            with filesystems.explaining(location):
                system, path = filesystems.filesystem_of(location, settings.login)
                with filesystems.alone(system):
                    info = _info(system, path, settings.retry_policy)
                if info.get("type") == "directory":
                    raise IsADirectoryError(path)
                return ObjectStat(info.get("size"), filesystems.validator_of(info))

        return with_retries(settings.retry_policy, location, attempt)

    def count_requests(self, location: str, size: int) -> int | None:
        is_segmented = scheme_of(location) in (*ROWS["s3"].schemes, *ROWS["az"].schemes)
        return object_requests.count_requests(size) if is_segmented else None

    def pin(self, location: str, settings: StoreSettings) -> tuple[str, str] | None:
        if scheme_of(location) != "hf":
            return None

        def attempt() -> tuple[str, str] | None:
            with filesystems.explaining(location):
                from huggingface_hub import HfApi

                system, path = filesystems.filesystem_of(location, settings.login)
                with filesystems.alone(system):
                    found = system.resolve_path(path)
                    revision = getattr(found, "revision", None)  # a bucket has none
                    if revision is None or re.fullmatch("[0-9a-f]{40}", revision):
                        return None
                    hub = HfApi(system.endpoint, token=system.token)
                    about = hub.repo_info(found.repo_id, repo_type=found.repo_type, revision=revision)
                kind = found.root.partition(found.repo_id)[0]
                start = location.removesuffix(found.path_in_repo)
                return start, f"hf://{kind}{found.repo_id}@{about.sha}/"

        return with_retries(settings.retry_policy, location, attempt)

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        return Upload(location, settings.login, overwrite=overwrite)

    def describe(self, location: str, settings: StoreSettings) -> str:
        login = settings.login
        where = f" at {redact(login.said.endpoint)}" if login and login.said.endpoint else ""
        return filesystems.describe_scheme(scheme_of(location)) + where

    def exists(self, location: str, settings: StoreSettings) -> bool:
        return filesystems.ask(location, settings.login, lambda system, path: bool(system.exists(path)))

    def delete(self, location: str, settings: StoreSettings) -> None:
        filesystems.ask(location, settings.login, lambda system, path: system.rm_file(path))


class _Fetch:
    """Requests an object from an offset on; see `wdspec.stores.resume.Fetch`."""

    def __init__(self, location: str, settings: StoreSettings) -> None:
        self._location, self._retry_policy, self._login = location, settings.retry_policy, settings.login

    def __call__(self, offset: int, stop: int | None = None) -> RangeResponse:
        try:
            return self._request(offset, stop)
        except (UnusableStoreError, RefusedShardError):
            if not filesystems.renew(self._location, self._login):
                raise
            return self._request(offset, stop)

    def _request(self, offset: int, stop: int | None) -> RangeResponse:
        system, path = filesystems.filesystem_of(self._location, self._login)
        with filesystems.explaining(self._location):
            if (
                kind := object_requests.S3Object
                if object_requests.is_s3(system)
                else object_requests.AzureBlob
                if object_requests.is_azure(system)
                else None
            ) is not None:
                return self._request_pinned(kind, system, path, offset, stop)
            with filesystems.alone(system):
                info = _info(system, path, self._retry_policy)
                filesystems.reached.add(scheme_of(self._location))
                if info.get("type") == "directory":
                    raise IsADirectoryError(path)
                total = info.get("size")
                body = self._body(system, path, offset, total, info, stop)
                end = None if stop is None or total is None else min(stop, total)
                has_end = isinstance(body, _TranslatingBody)  # the others keep no connection
                validator = filesystems.validator_of(info)
                return RangeResponse(body, offset, total, validator, stop=end if has_end else None)

    def _request_pinned(
        self,
        kind: type[object_requests.PinnedObject],
        system: Any,
        path: str,
        offset: int,
        stop: int | None,
    ) -> RangeResponse:
        policy = self._retry_policy
        found = kind(system, path, self._location, policy.read_timeout).response(
            offset, policy.connect_timeout, stop
        )
        filesystems.reached.add(scheme_of(self._location))
        return replace(found, body=_TranslatingBody(found.body, self._location))

    def _body(
        self,
        system: Any,
        path: str,
        offset: int,
        total: int | None,
        info: Mapping[str, Any],
        stop: int | None,
    ) -> Any:
        from fsspec import AbstractFileSystem
        from fsspec.asyn import AsyncFileSystem

        if (
            total is not None
            and system.async_impl
            and type(system)._cat_file is not AsyncFileSystem._cat_file
        ):
            said, argument = _PINS.get(type(system).__name__, ("", ""))
            version = {argument: info[said]} if info.get(said) not in (None, "null", "") else {}

            async def segment(start: int, end: int) -> AsyncIterator[bytes]:
                try:
                    data: bytes = await system._cat_file(path, start=start, end=end, **version)
                except FileNotFoundError:
                    if not version:
                        raise
                    raise object_requests.change_error(self._location) from None
                if end == total and not version:  # all pieces must be of the same object
                    now = await system._info(path)
                    if now.get("size") != total or filesystems.validator_of(now) != filesystems.validator_of(
                        info
                    ):
                        raise object_requests.change_error(self._location)
                yield data

            upto = total if stop is None else min(stop, total)
            body = object_requests.SegmentedBody(
                segment, system.loop, offset, upto, self._retry_policy.read_timeout
            )
            return _TranslatingBody(body, self._location)
        if total is not None and type(system).cat_file is not AbstractFileSystem.cat_file:
            return _PlainPieces(system, path, offset, info, self._location)
        return _OpenFile(system, path, offset, self._location)


class _TranslatingBody:
    """A body that raises our errors."""

    def __init__(self, body: ResponseBody, location: str) -> None:
        self._body, self._location = body, location
        self.close, self.abort = body.close, body.abort

    def read(self, size: int) -> bytes:
        with filesystems.explaining(self._location):
            return self._body.read(size)


class _PlainPieces:
    """A body read piece by piece, for file systems without an event loop."""

    def __init__(self, system: Any, path: str, offset: int, info: Mapping[str, Any], location: str) -> None:
        self._system, self._path, self._location = system, path, location
        self._next, self._total, self._validator = offset, int(info["size"]), filesystems.validator_of(info)

    def read(self, size: int) -> bytes:
        end = min(self._next + size, self._total)
        if self._next >= end:
            return b""
        with filesystems.explaining(self._location), filesystems.alone(self._system):
            data: bytes = self._system.cat_file(self._path, start=self._next, end=end)
            if (
                end == self._total
                and filesystems.validator_of(self._system.info(self._path)) != self._validator
            ):
                raise object_requests.change_error(self._location)
        self._next += len(data)
        return data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass  # such a file system cannot be interrupted; its own timeouts end it


class _OpenFile:
    """A body that is a file opened by the file system, read forward."""

    def __init__(self, system: Any, path: str, offset: int, location: str) -> None:
        self._system, self._location = system, location
        self._file = system.open(path, "rb", block_size=LARGEST)
        self._grow: Any = None
        """The cache of the file, whose block size grows."""
        if offset:
            self._file.seek(offset)
            cache = getattr(self._file, "cache", None)
            if getattr(cache, "name", None) in _READ_AHEAD:
                self._grow = cache
                self._grow.blocksize = FIRST  # perhaps only a column of a table is needed
        elif hasattr(getattr(self._file, "f", self._file), "prefetch"):  # paramiko asks for 32 KiB and waits
            getattr(self._file, "f", self._file).prefetch()

    def read(self, size: int) -> bytes:
        with filesystems.explaining(self._location), filesystems.alone(self._system):
            data = bytes(self._file.read(size))
        if self._grow is not None:
            self._grow.blocksize = min(2 * self._grow.blocksize, LARGEST)
        return data

    def close(self) -> None:
        try:
            with filesystems.alone(self._system):
                self._file.close()
        except Exception as error:  # whatever a file system raises; nothing is lost
            log.debug("closing %s: %s", self._location, error)

    def abort(self) -> None:
        pass  # such a file system cannot be interrupted; its own timeouts end it


def _list(location: str, levels: int | None, settings: StoreSettings) -> list[str]:
    system, path = filesystems.filesystem_of(location, settings.login)
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
        if not _COMMIT.search(path):
            system.invalidate_cache()
        return cast(Mapping[str, Any], system.info(path))
    from fsspec.asyn import sync

    timeout = retry_policy.connect_timeout + retry_policy.read_timeout
    return cast(Mapping[str, Any], sync(system.loop, system._info, path, timeout=timeout))
