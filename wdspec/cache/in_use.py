"""Copies that are being read, marked so that nobody deletes them: by a lock that ends with their reader."""

from __future__ import annotations

import os
import stat

from wdspec.system.file_locks import lock_open_file


def mark_in_use(descriptor: int) -> bool:
    """Marks an open file as being read, until it is closed; False if it was deleted before that."""
    # Without locks in the file system, whoever has a file open keeps its bytes all the same, if that is a local one.
    lock_open_file(descriptor, shared=True, wait=True)
    return os.fstat(descriptor).st_nlink > 0


def is_in_use(descriptor: int) -> bool:
    """Whether any process reads the open file; if not, none marks it before the descriptor is closed."""
    return not lock_open_file(descriptor)


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
