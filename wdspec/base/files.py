"""Locks between processes that end with the process that holds them, however it ends.

The base of all streams of bytes: whoever implements `read` has the rest of the protocol.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from filelock import BaseFileLock


try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]  # stands for the module


class LockFile:
    """A lock on a file of its own, released by the system when the process is killed. The file stays.

    A forked child does not have it; threads of a process exclude each other by it too.

    Args:
        path: of the file; made if need be.
        mode: of the file, if it is made.
    """

    def __init__(self, path: str, mode: int = 0o644) -> None:
        from filelock import FileLock

        # One thread may take it and another one give it back.
        self._lock: BaseFileLock = FileLock(path, thread_local=False, mode=mode)

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

    def __enter__(self) -> LockFile:
        self._lock.acquire(poll_interval=0.005)
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def lock_open_file(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Locks an open file until it is closed; False if another process (or another opening of it) has the lock.

    A shared lock only excludes exclusive ones. Where the system or the file system has no locks, this is True all
    the same: nothing is excluded there.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


_PIECE = 256 * 1024


class RawStream(io.RawIOBase):
    """A readable stream by its `read(size)`, which gives b"" at the end only, and for -1 returns `readall()`."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer)) or b""
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_PIECE), b""))


def expand_home(path: str, home: str) -> str:
    """A path with the home directory in place of a `~` at its start."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path
