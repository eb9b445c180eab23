"""Files by their URLs, for reading and writing."""

from __future__ import annotations

import io
import sys
from typing import Any, BinaryIO

from wdspec.base.errors import UsageError
from wdspec.base.files import RawStream
from wdspec.base.process import Owner
from wdspec.base.replacements import WebdatasetModule
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import Output
from wdspec.urls.rewrite import rewrite
from wdspec.urls.urls import ShardUrl

_of_parents: list[Output] = []
"""Outputs that a fork copied: if they were dropped, their buffered data would be written a second time."""


def gopen(url: str, mode: str = "rb", bufsize: int = 8192, **options: Any) -> Any:
    """Open a file by its URL, for reading (`rb`) or writing (`wb`). A written file appears when it is closed.

    Args:
        bufsize: bytes to read at a time.
        options: arguments for webdataset's openers (`verbose`, `ignore_errors`, …); ignored.

    Raises:
        UsageError: the mode is invalid; while reading or writing, this process was forked from the one that opened it.
        ShardError: the file cannot be read or written.
    """
    if url == "-":
        if mode[:1] not in "rw":
            raise UsageError(f"the mode is {mode!r}; use `rb` to read a file, or `wb` to write it")
        return sys.stdin.buffer if mode[:1] == "r" else sys.stdout.buffer
    environment = Environment.read()
    storage = Storage.of(environment)
    if mode in ("r", "rb"):
        return io.BufferedReader(_Read(storage.open_watched(ShardUrl(url, environment.directory))), bufsize)
    if mode in ("w", "wb"):
        return _Written(storage.output(url))
    raise UsageError(f"the mode is {mode!r}; use `rb` to read a file, or `wb` to write it")


def rewrite_url(url: str) -> str:
    """Apply the first rule of `WDS_REWRITE` (or `GOPEN_REWRITE`) that changes the URL."""
    return rewrite(url, Environment.read().rules)[0]


class _Read(RawStream):
    """A stream of a storage, as a raw file of Python."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._owner = Owner()

    def _read(self, size: int) -> bytes:
        _check_owner(self._owner)
        return self._stream.read(size)

    def close(self) -> None:
        if not self.closed and not self._owner.is_other:
            self._stream.close()
        super().close()


def _check_owner(owner: Owner) -> None:
    if owner.is_other:
        raise UsageError(
            "this file was opened by another process, before a fork, and both would share its position; let each "
            "process open the file itself"
        )


class _Written:
    """An output as a file: `close` makes it appear, an error in `with` discards it."""

    def __init__(self, output: Output) -> None:
        self._output: Output | None = output
        self._owner = Owner()

    def write(self, data: bytes) -> int:
        """Write bytes."""
        if self._output is None:
            raise ValueError("I/O operation on closed file")
        _check_owner(self._owner)
        self._output.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the file appears at once, when it is closed."""

    def close(self) -> None:
        """Make the file appear."""
        if self._output is not None:
            _check_owner(self._owner)
            output, self._output = self._output, None
            output.commit()

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._abort()

    def _abort(self) -> None:
        output, self._output = self._output, None
        if output is not None and self._owner.is_other:
            _of_parents.append(output)
        elif output is not None:
            output.abort()

    def __del__(self) -> None:
        try:  # noqa: SIM105  # at exit, `contextlib` may be None
            self._abort()
        except (AttributeError, TypeError):  # at exit, names that this uses may be None
            pass


class _CallableModule(WebdatasetModule):
    """A module that can be called: importing it hides the function `wdspec.gopen`."""

    __module__ = gopen.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return gopen(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
