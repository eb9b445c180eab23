"""The descriptors of a process: at most a budget of them is open, for any number of shards that are read in turn.

    files by use:   a b c … x y │ z         z is opened, so a is closed. It is opened again, at the same offset,
                    ─▶ released             when it is next read, and then it is the one used last.

A mix of many sources reads each of its shards rarely, and often opens more of them than a process may have descriptors.
What is read does not change: a file that is not the same one when it is opened again is an error.
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from wdspec.base.errors import ShardError, lacks_descriptors
from wdspec.base.process import PerProcess, resource

FEW = 32
"""A descriptor below this number is never released. The system gives the lowest free one, so at most this many are
below it, and a process that opens few files has no others."""
MOST = 48
"""The most further files of a process."""
MOST_RESPONSES = 60
"""The most responses of stores that a process has open, each with a connection."""
LEAST = 4


Identity = tuple[int, int, int]
T = TypeVar("T")


class Handle(Protocol):
    """Something with a descriptor that can be given up between two uses."""

    def release(self) -> bool:
        """Close the descriptor, unless it is in use right now. Return whether it is closed."""


class Handles:
    """The open handles of a process, the one that was not used for longest first; they are not kept alive.

    Handles that are collected forget themselves at any point, also within a method of this class, so nothing here
    waits for a lock that such a point may hold.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """How many handles are open at most, as long as the others can be released."""
        self._lock = threading.RLock()
        self._open: dict[int, weakref.ref[Handle]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, handle: Handle) -> None:
        """Note a handle that is about to be opened, and release others so that the budget is kept."""
        with self._lock:
            self._release(len(self._open) + 1 - self.limit)
            self._open[id(handle)] = weakref.ref(handle)

    def use(self, handle: Handle) -> None:
        """Note that an open handle is used."""
        found = self._open.pop(id(handle), None)
        if found is not None:
            self._open[id(handle)] = found

    def drop(self, handle: Handle) -> None:
        """Forget a handle that is closed."""
        self._open.pop(id(handle), None)

    def release_half(self) -> bool:
        """Release half of the handles, since the system gives no more descriptors. Return whether any was released."""
        with self._lock:
            before = len(self._open)
            self._release((before + 1) // 2)
            return len(self._open) < before

    def _release(self, surplus: int) -> None:
        if surplus <= 0:
            return
        for number in list(self._open):
            found = self._open.get(number)
            handle = None if found is None else found()
            if handle is None or handle.release():
                self._open.pop(number, None)
                surplus -= 1
                if not surplus:
                    return


def _budget(most: int, before: int) -> int:
    """The most handles of a kind in this process: fewer if half of its limit of descriptors would not suffice for them.

    Args:
        most: if there are enough.
        before: descriptors that others may have.
    """
    soft = -1 if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if soft < 0 else max(LEAST, min(most, soft // 2 - before))


_files = PerProcess(lambda: Handles(_budget(MOST, FEW)))
_responses = PerProcess(lambda: Handles(_budget(MOST_RESPONSES, FEW + MOST)))


def handles() -> Handles:
    """The files of this process, and copies in caches."""
    return _files.value


def responses() -> Handles:
    """The responses of stores to this process."""
    return _responses.value


idle_closers: list[Callable[[], bool]] = []
"""Functions that close descriptors which nobody uses, and return whether there were any."""


def retry_with_fewer(open_one: Callable[[], T], error: Exception) -> T:
    """Open something that could not be opened, with fewer descriptors in use; raise the error if that is no remedy."""
    ways = *idle_closers, responses().release_half, handles().release_half
    while lacks_descriptors(error) and any(way() for way in ways):
        try:
            return open_one()
        except Exception as again:
            error = again
    raise error


class ReplacedFileError(ShardError):
    """A file was replaced, changed or removed while it was read."""

    code = "D256"


class ReleasableFile(io.FileIO):
    """An open file whose descriptor may be closed between two reads, which opens it again.

    Args:
        descriptor: of the open file, at its start; it belongs to this object from now on.
        path: of the file, for `name`.
        open_again: opens it again. Raises OSError.
    """

    _at: int | None = None
    """The offset at which a released file is opened again; None if it is open."""

    def __init__(self, descriptor: int, path: str, open_again: Callable[[], int]) -> None:
        self._using, self._open_again = threading.Lock(), open_again
        with self._using:  # another thread may not release it yet
            handles().add(self)
            io.FileIO.__init__(self, descriptor, "rb")
            self.name = path
            self._about = identity_of(descriptor)

    @property
    def closed(self) -> bool:  # a file that is released is not closed
        return self._at is None and bool(_is_closed(self))

    def release(self) -> bool:
        """See `Handle`."""
        if not self._using.acquire(blocking=False):
            return False
        try:
            if self._at is None and not _is_closed(self):
                self._at = io.FileIO.tell(self)
                io.FileIO.close(self)
            return True
        finally:
            self._using.release()

    def reopen(self) -> Any:
        """Open the file again, at the same offset. Return what to use in place of it from now on, or None.

        Raises:
            ReplacedFileError: it is not the same file.
            OSError: it cannot be opened.
        """
        assert self._at is not None, "it was released"
        handles().add(self)
        try:
            descriptor = self._open_same()
        except BaseException:
            handles().drop(self)
            raise
        name = self.name
        io.FileIO.__init__(self, descriptor, "rb")
        io.FileIO.seek(self, self._at)
        self.name, self._at = name, None
        return None

    def _open_same(self) -> int:
        try:
            descriptor = self._open_again()
        except FileNotFoundError:
            raise self.replaced("it was removed") from None
        except OSError as error:
            descriptor = retry_with_fewer(self._open_again, error)
        if identity_of(descriptor) == self._about:
            return descriptor
        os.close(descriptor)
        raise self.replaced("it was replaced or changed")

    def replaced(self, what: str) -> ReplacedFileError:
        """The error for a file that is not the same one any more."""
        return ReplacedFileError(
            f"{what} while it was read; leave the shards of a run as they are, and resume from a saved state, with the "
            "shards as they were",
            location=str(self.name),
        )

    def close(self) -> None:
        handles().drop(self)
        super().close()
        self._at = None

    def __del__(self) -> None:
        try:  # noqa: SIM105  # at exit, `contextlib` may be None
            self.close()
        except (AttributeError, TypeError):  # at exit, names that `close` uses may be None
            pass


_is_closed = io.FileIO.closed.__get__


def identity_of(descriptor: int) -> Identity:
    """What is the same as long as nobody replaces or changes an open file."""
    about = os.fstat(descriptor)
    return about.st_ino, about.st_size, about.st_mtime_ns


def _when_open(name: str) -> Any:
    """Return a method of files that opens a released one first."""
    method = getattr(io.FileIO, name)

    def call(self: ReleasableFile, *arguments: Any) -> Any:
        with self._using:
            if self._at is None:
                handles().use(self)
            elif (instead := self.reopen()) is not None:
                return getattr(instead, name)(*arguments)
            return method(self, *arguments)

    call.__name__ = name
    return call


for _name in ("read", "readall", "readinto", "seek", "seekable", "tell", "fileno"):
    setattr(ReleasableFile, _name, _when_open(_name))
