"""Files and objects being written, which appear complete or not at all.

A local file is written next to its final name, as `.name.partial`: on the same file system, so that the last step is
one rename; hidden, and without `.tar` at its end, so that no glob and no reader takes it for a shard. The writer holds
a lock on it. A second writer of the same name is refused; what a killed writer left is overwritten. Objects of a store
are collected in a temporary file and uploaded at the end.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from typing import IO, Any, BinaryIO, Protocol, TypeGuard

from wdspec.base.errors import UsageError
from wdspec.base.files import lock_open_file
from wdspec.base.process import Owner


class Output(Protocol):
    """Something being written: invisible before `commit`, and gone after `abort`."""

    def write(self, data: bytes, /) -> Any:
        """Add bytes."""

    def commit(self) -> None:
        """Make it appear, complete and durable. Raises OSError or UsageError, after an abort."""

    def abort(self) -> None:
        """Discard it. Never raises, and may be called again, also after `commit`."""


def is_output(value: Any) -> TypeGuard[Output]:
    """Whether an object has the methods of `Output`."""
    return all(callable(getattr(value, name, None)) for name in ("write", "commit", "abort"))


class StreamOutput:
    """A file that the caller opened and will close. `abort` cannot take back its bytes."""

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
    """A file that an `opener` has opened and that we close.

    `abort` calls its own ``discard()`` or ``abort()``, if it has one.
    """

    def commit(self) -> None:
        self._file.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            take_back = getattr(self._file, "discard", None) or getattr(self._file, "abort", None)
            (take_back or self._file.close)()


_OPEN: weakref.WeakValueDictionary[str, LocalOutput] = weakref.WeakValueDictionary()
"""Unfinished partial files of this process, and their writers."""


def save(path: str, data: bytes, *, overwrite: bool = True) -> None:
    """Write a whole file. Raises as `LocalOutput`."""
    output = LocalOutput(path, overwrite=overwrite)
    try:
        output.write(data)
        output.commit()
    finally:
        output.abort()


class LocalOutput:
    """A file on a local or mounted file system; missing folders are made.

    Args:
        path: the final name.
        overwrite: whether a file of this name may be replaced.
        since: refuse to replace a file that is younger than this (`born` of an earlier output), because another
            writer has written it.

    Raises:
        UsageError: the name is taken, or another writer uses it.
        OSError: the folder cannot be written.
    """

    def __init__(self, path: str, *, overwrite: bool = True, since: int | None = None) -> None:
        self.path = path
        self._overwrite = overwrite
        self._since = since
        self._identity: tuple[int, ...] | None = None
        self._file: IO[bytes] | None = None
        self._owner = Owner()
        if os.path.isdir(path):
            raise UsageError("there is a directory of this name; give the name of a file", location=path)
        self._check_replaceable()
        folder, name = os.path.split(path)
        self._folder = folder or "."
        os.makedirs(self._folder, exist_ok=True)
        self._partial = os.path.join(folder, f".{name}.partial")
        self._abort_forgotten()
        self._file = _open_locked(self._partial, path)
        _OPEN[os.path.realpath(self._partial)] = self
        self.born = os.fstat(self._file.fileno()).st_mtime_ns
        """The time when writing started, by the clock of the file system, in nanoseconds."""

    def write(self, data: bytes, /) -> int:
        self._check_owner()
        if self._file is None:
            raise UsageError(
                "a newer writer of the same file has replaced this one; write to that one",
                location=self.path,
            )
        try:
            return self._file.write(data)
        except OSError as error:
            raise self._named(error) from None

    def _named(self, error: OSError) -> OSError:
        """The error with the name of the file, which the system leaves out when a disk is full."""
        if error.filename is None:
            error.filename = self.path
        return error

    def commit(self) -> None:
        self.write(b"")
        file = self._file
        assert file is not None
        try:
            file.flush()
            os.fsync(file.fileno())
            mode = self._check_replaceable()
            if mode is not None:
                os.chmod(self._partial, mode)
            os.replace(self._partial, self.path)
            self._identity = identity_of(self.path)
        except OSError as error:
            self.abort()
            raise self._named(error) from None
        except BaseException:
            self.abort()
            raise
        self._file = None
        file.close()
        _sync_folder(self._folder)

    def abort(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        if self._owner.is_other:
            _let_go(file)
            return
        # While the lock is held: afterwards the name may belong to another writer.
        with contextlib.suppress(OSError):
            os.unlink(self._partial)
        with contextlib.suppress(OSError):  # closing flushes the buffer, for which there may be no room
            file.close()

    def check_kept(self) -> None:
        """Raise UsageError if the file was replaced since `commit`."""
        if self._identity is not None and identity_of(self.path) not in (self._identity, None):
            raise UsageError(
                "another writer has replaced this file; give each process its own pattern, such as "
                "`out-w3-%06d.tar`, and write again",
                location=self.path,
            )

    def _abort_forgotten(self) -> None:
        """Abort the writer that a failed cell left in a notebook or at a prompt, when the cell runs again."""
        forgotten = _OPEN.get(os.path.realpath(self._partial)) if hasattr(sys, "ps1") else None
        if forgotten is not None and not forgotten._owner.is_other:
            forgotten.abort()

    def _check_owner(self) -> None:
        if self._owner.is_other:
            if self._file is not None:
                _let_go(self._file)
            raise UsageError(
                "this writer was made by another process, before a fork; let each process make its own",
                location=self.path,
            )

    def _check_replaceable(self) -> int | None:
        """The permissions of the file to replace, for the new one; None if there is none."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise UsageError("not a regular file, so it cannot be replaced by one", location=self.path)
        if not self._overwrite:
            raise name_taken("a file", location=self.path)
        if self._since is not None and found.st_mtime_ns > self._since:
            raise UsageError(
                "another writer has written this file meanwhile; give each process its own pattern, such as "
                "`out-w3-%06d.tar`",
                location=self.path,
            )
        return stat.S_IMODE(found.st_mode)


def identity_of(path: str) -> tuple[int, ...] | None:
    """Values that identify a file, and change if another takes its place; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _open_locked(partial: str, path: str) -> IO[bytes]:
    """Open the partial file, emptied, for this writer alone."""
    while True:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            if not lock_open_file(descriptor):
                raise UsageError(
                    "another writer is writing this file now; give each process its own name or pattern, such as "
                    "`out-w3-%06d.tar`",
                    location=path,
                )
            if not _is_still(descriptor, partial):  # its writer has finished since `os.open`
                os.close(descriptor)
                continue
            os.ftruncate(descriptor, 0)
            os.utime(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        return open(descriptor, "wb", buffering=1 << 20)


def _let_go(file: IO[bytes]) -> None:
    """In a forked child, keep the parent's buffered bytes from being written when the file is collected."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def _is_still(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: str) -> None:
    """Make the rename durable, if the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def name_taken(what: str = "an object", **place: str) -> UsageError:
    """The error for a file or object that exists and may not be overwritten."""
    remedy = "choose another name, or allow overwriting it (`--force`, or in Python `overwrite=True`)"
    return UsageError(f"{what} of this name exists; {remedy}", **place)


class GatheredOutput(ABC):
    """An object collected in a temporary file of the same size, and uploaded by `commit`."""

    def __init__(self, url: str, overwrite: bool) -> None:
        self._url, self._overwrite = url, overwrite
        self._check_free()
        self._file: IO[bytes] | None = tempfile.NamedTemporaryFile(  # noqa: SIM115  # lives until `abort`
            prefix="wdspec-", suffix=".partial"
        )

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        return self._file.write(data)

    def commit(self) -> None:
        """Upload the object; the temporary file is gone afterwards, also after an error."""
        file = self._file
        assert file is not None
        try:
            file.flush()
            self._check_free()
            self._put(file)
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard the temporary file."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _check_free(self) -> None:
        if self._is_taken():
            raise name_taken(url=self._url)

    @abstractmethod
    def _is_taken(self) -> bool:
        """Whether the object exists and may not be overwritten; called before writing, and again before `_put`."""

    @abstractmethod
    def _put(self, file: IO[bytes]) -> None:
        """Upload the file, whose position may be anywhere."""
