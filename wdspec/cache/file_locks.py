"""Locks between processes that end with whoever holds them, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock


class FileLocked:
    """A lock on a file of its own, released by the system when the process is killed. The file stays.

    A forked child does not have it; threads of a process exclude each other by it too.

    Args:
        path: of the lock's file; made if need be.
    """

    def __init__(self, path: str) -> None:
        from filelock import FileLock

        # Taken by a reader, given back by the mover's thread.
        self._lock: BaseFileLock = FileLock(path, thread_local=False)

    def try_acquire(self) -> bool:
        """Takes the lock if nobody has it. Raises OSError where the file cannot be made or written."""
        from filelock import Timeout

        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> FileLocked:
        self._lock.acquire(poll_interval=0.005)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def mark_in_use(descriptor: int) -> bool:
    """Marks an open file as being read, until it is closed; False if it was deleted before that."""
    # Without locks in the file system, whoever has a file open keeps its bytes all the same, if that is a local one.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return os.fstat(descriptor).st_nlink > 0


def is_in_use(descriptor: int) -> bool:
    """Whether any process reads the open file; if not, none marks it before the descriptor is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def open_marked(path: str) -> int:
    """Opens a file and marks it as being read; gives its descriptor.

    Raises:
        FileNotFoundError: it does not exist, or was deleted just now.
        OSError: it cannot be read, or is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # or a named pipe would wait
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(path)
        if not mark_in_use(descriptor):
            raise FileNotFoundError(path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
