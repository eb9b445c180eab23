"""What is being written: it appears when it is whole, or not at all."""

from __future__ import annotations

import contextlib
from typing import Any, BinaryIO, Protocol, TypeGuard


class Output(Protocol):
    """Something being written; nobody sees it before `commit`, and never after `abort`."""

    def write(self, data: bytes, /) -> Any:
        """Takes more bytes."""

    def commit(self) -> None:
        """Makes what was written appear, whole and durable. Raises OSError or UsageError, and then has aborted."""

    def abort(self) -> None:
        """Forgets what was written. Never raises, and may be called again, also after `commit`."""


def is_output(given: Any) -> TypeGuard[Output]:
    """Whether it is an `Output`, by its methods."""
    return all(callable(getattr(given, name, None)) for name in ("write", "commit", "abort"))


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
