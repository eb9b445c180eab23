"""Files by their URLs, for reading and writing."""

from __future__ import annotations

import io
import sys
from types import ModuleType, TracebackType
from typing import Any, BinaryIO

from wdspec.base.errors import UsageError
from wdspec.base.process import Owner
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import Output
from wdspec.urls.rewrite import rewrite
from wdspec.urls.urls import ShardUrl

_of_parents: list[Output] = []
"""Outputs that a fork brought here: dropped, what is buffered in them would be written a second time."""


def gopen(url: str, mode: str = "rb", bufsize: int = 8192, **options: Any) -> Any:
    """A file by its URL, for reading (`rb`) or writing (`wb`); what is written appears when it is closed.

    Args:
        bufsize: bytes that are read at once.
        options: what webdataset's programs give to its own openers (`verbose`, `ignore_errors`, …); ours need none.

    Raises:
        UsageError: another mode; on reading or writing, this process was forked from the one that opened it.
        ShardError: it cannot be read, or written.
    """
    if url == "-":
        if mode[:1] not in "rw":
            raise UsageError(f"a file is opened to read (`rb`) or to write (`wb`), not as {mode!r}")
        return sys.stdin.buffer if mode[:1] == "r" else sys.stdout.buffer
    environment = Environment.read()
    storage = Storage.of(environment)
    if mode in ("r", "rb"):
        return io.BufferedReader(_Read(storage.watched(ShardUrl(url, environment.directory))), bufsize)
    if mode in ("w", "wb"):
        return _Written(storage.output(url))
    raise UsageError(f"a file is opened to read (`rb`) or to write (`wb`), not as {mode!r}")


def rewrite_url(url: str) -> str:
    """The URL after the rules of `WDS_REWRITE` (or `GOPEN_REWRITE`), the first of which that changes it wins."""
    return rewrite(url, Environment.read().rules)[0]


class _Read(io.RawIOBase):
    """What storages give, as a raw file of Python."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._owner = Owner()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        _check(self._owner)
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and not self._owner.is_other:
            self._stream.close()
        super().close()


def _check(owner: Owner) -> None:
    if owner.is_other:
        raise UsageError(
            "this file was opened by another process, before a fork, and both would go on from one place in it; let "
            "each process open its own"
        )


class _Written:
    """An output as a file: `close` makes it appear, an error in `with` takes it back."""

    def __init__(self, output: Output) -> None:
        self._output: Output | None = output
        self._owner = Owner()

    def write(self, data: bytes) -> int:
        """Takes more bytes."""
        if self._output is None:
            raise ValueError("I/O operation on closed file")
        _check(self._owner)
        self._output.write(data)
        return len(data)

    def flush(self) -> None:
        """Does nothing: all of it appears at once."""

    def close(self) -> None:
        """Makes what was written appear."""
        if self._output is not None:
            _check(self._owner)
            output, self._output = self._output, None
            output.commit()

    def __enter__(self) -> _Written:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.__del__()

    def __del__(self) -> None:
        output, self._output = self._output, None
        if output is not None and self._owner.is_other:
            _of_parents.append(output)
        elif output is not None:
            output.abort()


class _Opening(ModuleType):
    """`wdspec.gopen` is a function too, which importing this module would hide."""

    __module__ = gopen.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return gopen(*args, **kwargs)


sys.modules[__name__].__class__ = _Opening
