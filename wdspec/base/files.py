"""Files that can be read without waiting; locks between processes, which end with the process that holds them; a folder
that the processes of a user share; temporary files; and the base of all streams of bytes."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from wdspec.base.errors import UsageError

if TYPE_CHECKING:
    from filelock import BaseFileLock


try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]  # instead of the module


SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
"""Kinds of files from which reading may wait forever, or never end."""
DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Paths of files that are open already, such as that of `<(command)` in a shell."""


def open_regular(path: str | os.PathLike[str], buffering: int = -1, descriptors: bool = False) -> BinaryIO:
    """Open a file to read its bytes. A pipe or a device is refused, as reading it may wait forever or never end.

    Args:
        path: of the file.
        buffering: as for `open`.
        descriptors: whether the path may be that of an open descriptor, whatever that is: for the arguments of
            commands, as in ``wdspec validate <(generate)``.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    kind = SPECIAL.get(stat.S_IFMT(os.stat(path).st_mode))  # before it is opened, which may wait, too
    allowed = (os.devnull, *(DESCRIPTORS if descriptors else ()))  # the null device is an empty file
    if kind is not None and not os.fspath(path).startswith(allowed):
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", path)
    return open(path, "rb", buffering=buffering)


class LockFile:
    """A lock on a file, released by the system when the process is killed. The file stays.

    It excludes other processes and other threads; a forked child does not have it. A missing file is made.
    """

    def __init__(self, path: str, mode: int = 0o644) -> None:
        from filelock import FileLock

        # One thread may acquire it and another one release it.
        self._lock: BaseFileLock = FileLock(path, thread_local=False, mode=mode)

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free. Raises OSError if the file cannot be made or written."""
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
    """Lock an open file until it is closed; return False if another process (or another opening of it) has the lock.

    A shared lock only excludes exclusive ones. If the system or the file system has no locks, this returns True and
    excludes nothing.
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


def shared_folder(name: str) -> str:
    """Return a folder for files that all processes of this user on this node share. Others cannot write there.

    Args:
        name: of the folder in the user's folder of wdspec, below `TMPDIR`.

    Raises:
        UsageError: it cannot be made, or the user's folder belongs to another user.
    """
    user = os.getuid() if hasattr(os, "getuid") else None
    root = os.path.join(tempfile.gettempdir(), "wdspec" if user is None else f"wdspec-{user}")
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        about = os.lstat(root)
        if not stat.S_ISDIR(about.st_mode) or (user is not None and about.st_uid != user):
            raise UsageError(f"`{root}` is not a folder that you own; set TMPDIR to another one")
        folder = os.path.join(root, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder `{root}` cannot be made: {error.strerror}; set TMPDIR") from error
    return folder


class ScratchFile:
    """A temporary file. A context manager, which deletes it."""

    def __init__(self, purpose: str) -> None:
        self._file = tempfile.TemporaryFile(prefix=f"wdspec-{purpose}-")  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


_PIECE = 256 * 1024


class RawStream(io.RawIOBase):
    """A readable stream based on `_read(size)`, which returns b"" only at the end."""

    _read: Callable[[int], bytes]

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes (all for -1), and none only at the end."""
        return self.readall() if size < 0 else self._read(size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer)) or b""
        buffer[: len(data)] = data
        return len(data)

    def __del__(self) -> None:
        try:  # noqa: SIM105  # at exit, `contextlib` may be None
            self.close()
        except (AttributeError, TypeError):  # at exit, names that `close` uses may be None
            pass

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_PIECE), b""))


class SeekableStream(RawStream):
    """A `RawStream` with a position of its own, from which `read` starts."""

    _position = 0

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            offset += self._length()
        self._prepare(offset)
        self._position = offset
        return offset

    @abstractmethod
    def _length(self) -> int:
        """Return the bytes of the whole stream."""

    def _prepare(self, offset: int) -> None:
        """Get ready to read from another position; the last one stays if this fails."""


class FileStream(RawStream):
    """A `RawStream` over a file, which is closed with it."""

    _file: Any

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def expand_home(path: str, home: str) -> str:
    """A path with a `~` at its start replaced by the home directory."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path
