"""Local files and directories, and standard input and output.

Directories are not listed by Python's ``glob``, which skips directories that it may not read: shards must never be
missing silently.
"""

from __future__ import annotations

import difflib
import errno
import io
import multiprocessing
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import BinaryIO, cast

from wdspec.base.errors import (
    MissingShardError,
    RefusedShardError,
    ShardError,
    UnusableStoreError,
    find_lack,
)
from wdspec.base.files import SPECIAL, RawStream
from wdspec.base.handles import FEW, ReleasableFile, retry_with_fewer
from wdspec.formats.compression import is_listed
from wdspec.stores.outputs import LocalOutput, Output, StreamOutput
from wdspec.stores.store import ObjectStat, Store, StoreSettings
from wdspec.urls.globs import match_glob
from wdspec.urls.urls import ShardUrl, local_path, tidy_path

TIME = "mtime "
"""Start of validators that are the time of a file."""
_ONE_SLASH = re.compile(r"/([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")


def open_file(path: str) -> BinaryIO:
    """The bytes of a local file, unbuffered.

    Raises:
        MissingShardError: it does not exist; the message says which part of its path does.
        ShardError: it cannot be read, or is a pipe or a device.
    """
    try:
        if kind := SPECIAL.get(stat.S_IFMT(os.stat(path).st_mode)):
            raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")
        return file if (file := open(path, "rb", buffering=0)).fileno() < FEW else _releasable(file, path)
    except (OSError, ValueError) as error:
        return _open_with_fewer(path, error)


def _open_with_fewer(path: str, error: OSError | ValueError) -> BinaryIO:
    """Open a file after an error, with fewer descriptors in use if there were too many. Raises as `open_file`."""
    try:
        return _releasable(retry_with_fewer(lambda: io.FileIO(path), error), path)
    except (OSError, ValueError) as last:
        raise translate_error(last, path) from None


def _releasable(file: io.FileIO, path: str) -> BinaryIO:
    """Return an open file as one whose descriptor may be closed while others are read."""
    whole = os.path.abspath(path)
    with file:
        descriptor = os.dup(file.fileno())
        return cast(BinaryIO, ReleasableFile(descriptor, path, lambda: os.open(whole, os.O_RDONLY)))


def stat_file(path: str) -> os.stat_result:
    """The `os.stat` of a local file. Raises as `open_file` does."""
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(path)
    except (OSError, ValueError) as error:
        raise translate_error(error, path) from None
    return found


def stat_open_file(file: BinaryIO) -> ObjectStat:
    """The size and the validator of an open local file."""
    return _describe(os.fstat(file.fileno()))


def _describe(found: os.stat_result) -> ObjectStat:
    return ObjectStat(found.st_size, f"{TIME}{found.st_mtime_ns}")


def translate_error(error: OSError | ValueError, path: str) -> ShardError:
    """Return our error for an error of the operating system: what is wrong with the path, and how to fix it."""
    if (lack := find_lack(error)) is not None:
        return UnusableStoreError(f"cannot be opened; {lack}", location=path)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return MissingShardError(_missing(path), location=path)
    if isinstance(error, IsADirectoryError):
        message = "a directory, not a file; "
        message += advise_on_classes(path) or "end its name with `/` to read the shards in it"
    elif isinstance(error, PermissionError):
        message = "no permission to read it; ask its owner, or check which user runs this process"
        return RefusedShardError(message, location=path)
    else:
        message = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
        if getattr(error, "errno", None) == errno.EINVAL:
            message += f"; to read from a pipe or a device, write `pipe:cat {path}`"
    found = ShardError(message, location=path)
    found.errno = getattr(error, "errno", None)  # a bad sector and a failing disk have the same one
    return found


def advise_on_classes(path: str) -> str:
    """Return how to make shards of a directory that has only folders, as those of classes; empty for others."""
    with suppress(OSError), os.scandir(path) as entries:
        first = [entry for entry, _ in zip(entries, range(100), strict=False)]
        if first and all(entry.is_dir() for entry in first):
            return (
                f"if its folders are classes, make shards of it: `wdspec create {path} -o 'train-%06d.tar' --classes "
                "--maxcount 10000 --shuffle 1`"
            )
    return ""


def _missing(path: str) -> str:
    if os.path.islink(path):
        return f"a symbolic link to `{os.readlink(path)}`, which does not exist; correct the link"
    if match := _ONE_SLASH.search(path):
        return f"no such file; if `{match.group(1)}` is the scheme of a URL, it needs two slashes: `{match.group(1)}://…`"
    parent, name = os.path.split(path.rstrip("/"))
    while parent not in ("", "/") and not os.path.isdir(parent):
        parent, name = os.path.split(parent)
    if os.path.lexists(os.path.join(parent, name)):
        return f"no such file: `{os.path.join(parent, name)}` is not a directory"
    close = difflib.get_close_matches(name, _some_names(parent or "."), 1)
    hint = (
        f"did you mean `{close[0]}`?"
        if close
        else "correct the path, or rewrite it with WDS_REWRITE or, in a spec, `rewrite:`"
    )
    return f"no such file: `{parent or '.'}` has no `{name}`; {hint}"


def _some_names(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in islice(entries, 5000)]
    except OSError:
        return []


def shards_in(directory: str) -> list[str]:
    """The names of the shards directly in a directory, in code point order. Raises as `open_file`."""
    return sorted(entry.name for entry in _entries(directory) if is_listed(entry.name) and not entry.is_dir())


def files_matching(root: str, pattern: str) -> list[str]:
    """The files below a directory that match a glob, relative to it; see `match_glob`. Raises as `open_file`.

    The root ends with `/`, and its characters are all literal.
    """
    return match_glob(_LocalTree(root), pattern)


class _LocalTree:
    def __init__(self, root: str) -> None:
        self._root = root

    def has(self, path: str) -> bool:
        return os.path.lexists(self._root + path)

    def is_file(self, path: str) -> bool:
        return not self.is_directory(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(self._root + path)

    def names(self, directory: str) -> list[str]:
        return [entry.name for entry in _entries(self._root + directory)]

    def folders(self, directory: str) -> list[str]:
        entries = _entries(self._root + directory)
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (OSError, ValueError) as error:
        raise translate_error(error, directory) from None


class LocalFiles:
    """Opens the shards of a reader that are all plain local paths.

    It replaces `storage.ahead.Ahead`: no location is resolved, fetched ahead or announced.

    Args:
        directory: absolute; the start of relative paths without a base.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, shard: ShardUrl) -> BinaryIO:
        """The bytes of a shard; see `open_file`."""
        return open_file(tidy_path(os.path.join(self._directory, shard.base, shard.text)))

    def expect(self, following: Callable[[int], Iterable[ShardUrl]], count: int = 1) -> None:
        """Do nothing: local files open at once."""

    def close(self) -> None:
        """Do nothing: no file was opened ahead."""


class LocalStore(Store):
    """Paths and `file:` URLs. Hidden and half-written files are not listed."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        return open_file(_path(location))

    def list(self, root: str, pattern: str, settings: StoreSettings) -> list[str]:
        return files_matching(root, pattern) if pattern else shards_in(root)

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> LocalOutput:
        return LocalOutput(_path(location), overwrite=overwrite, since=since)

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "local file"

    def count_requests(self, location: str, size: int) -> int | None:
        return 0

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        return _describe(stat_file(_path(location)))

    def exists(self, location: str, settings: StoreSettings) -> bool:
        return os.path.exists(_path(location))

    def delete(self, location: str, settings: StoreSettings) -> None:
        os.unlink(_path(location))


def _path(location: str) -> str:
    path = local_path(location)
    assert path is not None, "this store is for local locations only"
    return path


_reader = 0
"""The process that has read standard input."""


class StandardStreams(Store):
    """Standard input, forward only and once, in the process that was started with it; and standard output."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """The bytes of standard input. Raises ShardError if they cannot be read here."""
        global _reader
        if multiprocessing.parent_process() is not None:
            raise ShardError(
                "standard input belongs to the process that was started with it, not to its workers; set "
                "`loader: {workers: 0}` or num_workers=0",
                location=location,
            )
        if _reader == os.getpid():
            raise ShardError(
                "standard input can be read only once, and was read before: give the number of samples with `samples:` "
                "instead of counting them, stop after one pass with `epoch: pass` or `limit:`, or save it to a file",
                location=location,
            )
        if os.isatty(0):
            raise ShardError(
                "standard input is a terminal; write `… < shard.tar` or `… | wdspec …`", location=location
            )
        try:
            os.fstat(0)
        except OSError:
            raise ShardError("standard input is closed", location=location) from None
        _reader = os.getpid()
        return cast(BinaryIO, _StandardInput())

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        if sys.__stdout__ is None:  # `>&-`
            raise ShardError("standard output is closed", location=location)
        return StreamOutput(sys.stdout.buffer)

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "standard input"


class _StandardInput(RawStream):
    """Never seeks, even if it is a file: another program may have read a part of it."""

    def read(self, size: int = -1) -> bytes:
        return self.readall() if size < 0 else os.read(0, size)
