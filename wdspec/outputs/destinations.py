"""Outputs that are no local files: stores that fsspec can write, programs, standard output, open files."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from typing import IO, Any, BinaryIO

from wdspec.errors import UsageError
from wdspec.outputs.local_output import LocalOutput, Output
from wdspec.storage.environment import UrlEnvironment
from wdspec.storage.resolver import AIS_PREFIX, Resolver
from wdspec.stores.local.local_files import local_path
from wdspec.urls.schemes import scheme_of
from wdspec.urls.sequence import ShardUrl

OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "obs", "r2", "hf", "memory"}
)
"""Stores where an object appears when its upload is complete; elsewhere a temporary name is moved."""


def open_output(url: str | os.PathLike[str], *, overwrite: bool = True, since: int | None = None) -> Output:
    """Opens a path or URL to be written; `WDS_REWRITE` applies to it as it does to what is read.

    Args:
        url: a path, `file:`, a URL that fsspec can write, ``pipe:command`` (which gets the bytes on its
            standard input) or ``-`` for standard output. Neither of the last two can be taken back.
        overwrite: whether something of this name may be replaced.
        since: see `LocalOutput`.

    Raises:
        UsageError: the name is taken, another writer is at it, or its kind of URL cannot be written.
        UrlError: the URL cannot be understood, or WDS_SECURE forbids it.
        OSError: it cannot be opened.
    """
    text = os.fspath(url)
    location = destination(text)
    path = local_path(location)
    if path is not None:
        return LocalOutput(path, overwrite=overwrite, since=since)
    if location == "-":
        return StreamOutput(sys.stdout.buffer)
    if location.startswith(AIS_PREFIX):
        raise UsageError(
            "writing to AIStore is not built; write local shards and upload them, or unset USE_AIS_FOR to write "
            "to the store behind it",
            url=text,
        )
    if scheme_of(location) in ("http", "https"):
        raise UsageError(
            "there is no agreed way to write to an HTTP server; name a program that does, such as "
            "`pipe:curl -fsS -T - URL`, or write a local shard",
            url=text,
        )
    if scheme_of(location) == "pipe":
        return PipeOutput(location[len("pipe:") :])
    return StoreOutput(location, overwrite=overwrite)


def destination(url: str) -> str:
    """The absolute path or URL where something is written by this name, after `WDS_REWRITE`.

    Raises:
        UrlError: the URL cannot be understood, or WDS_SECURE forbids it.
    """
    environment = UrlEnvironment.read()
    return Resolver.of(environment)(ShardUrl(url, environment.directory)).location


class StreamOutput:
    """A file that somebody else has opened, and closes. `abort` cannot take back what it got."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: bytes, /) -> Any:
        return self._file.write(data)

    def commit(self) -> None:
        if hasattr(self._file, "flush"):
            self._file.flush()

    def abort(self) -> None:
        pass


class OpenedOutput(StreamOutput):
    """A file that an `opener` has made for us, so that we close it.

    One that is not to be kept is given to its own ``discard()`` or ``abort()``, where it has one.
    """

    def commit(self) -> None:
        self._file.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            take_back = getattr(self._file, "discard", None) or getattr(self._file, "abort", None)
            (take_back or self._file.close)()


class PipeOutput:
    """The standard input of a shell command; `abort` kills it.

    Raises:
        OSError: on `write` or `commit`, when the command does not take the bytes, or ends with a non-zero code.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, start_new_session=True)
        assert process.stdin is not None
        self._process: subprocess.Popen[bytes] | None = process
        self._stdin: IO[bytes] = process.stdin

    def write(self, data: bytes, /) -> int:
        return self._stdin.write(data)

    def commit(self) -> None:
        process = self._process
        assert process is not None
        broken: OSError | None = None
        try:
            self._stdin.close()
        except OSError as error:
            broken = error
        self._process = None
        code = process.wait()
        if code or broken:
            raise OSError(f"`{self._command}` ended with code {code}: what it was to write is not whole")

    def abort(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, 9)
        process.wait()
        with contextlib.suppress(OSError):
            self._stdin.close()


class StoreOutput:
    """An object of a store that fsspec can write: gathered in a local file, uploaded when it is whole.

    Needs as much room in the temporary folder as the object has bytes.
    """

    def __init__(self, url: str, *, overwrite: bool = True) -> None:
        import fsspec  # type: ignore[import-untyped]  # has none

        self._url = url
        self._overwrite = overwrite
        try:
            self._store, self._path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"this URL cannot be written: {error}", url=url) from error
        self._check_free()
        self._file: IO[bytes] | None = tempfile.NamedTemporaryFile(  # noqa: SIM115  # lives until `abort`
            prefix="wdspec-", suffix=".partial"
        )

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        return self._file.write(data)

    def commit(self) -> None:
        file = self._file
        assert file is not None
        try:
            file.flush()
            self._check_free()
            if scheme_of(self._url) in OBJECT_STORES:
                self._store.put_file(file.name, self._path)
            else:
                self._put_and_move(file.name)
        finally:
            self.abort()

    def abort(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _put_and_move(self, source: str) -> None:
        folder, _, name = self._path.rpartition("/")
        temporary = f"{folder}/.{name}.{secrets.token_hex(4)}.partial"
        with contextlib.suppress(NotImplementedError, OSError):
            self._store.makedirs(folder, exist_ok=True)
        try:
            self._store.put_file(source, temporary)
            self._store.mv(temporary, self._path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._store.rm_file(temporary)
            raise

    def _check_free(self) -> None:
        if not self._overwrite and self._store.exists(self._path):
            raise UsageError(
                "an object of this name exists; choose another name, or allow overwriting it", url=self._url
            )


def take_back(url: str) -> None:
    """Deletes what was written to a path or a store; what went into a program or a stream cannot be taken back."""
    environment = UrlEnvironment.read()
    location = Resolver.of(environment)(ShardUrl(url, environment.directory)).location
    path = local_path(location)
    with contextlib.suppress(Exception):
        if path is not None:
            os.unlink(path)
        elif scheme_of(location) not in ("pipe", "") and not location.startswith(AIS_PREFIX):
            import fsspec

            store, name = fsspec.core.url_to_fs(location)
            store.rm_file(name)
