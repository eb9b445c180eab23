"""Who may read what is in a cache: its owner, or the group that the directory was opened to."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass


@dataclass(frozen=True)
class Permissions:
    """The modes of what wdspec makes in a cache directory.

    Copies may be private data, so they are the owner's alone, whatever the umask; but a directory that its group may
    write to is one that people share, and then so is everything in it.
    """

    folders: int = 0o700
    files: int = 0o600

    @classmethod
    def of(cls, directory: str) -> Permissions:
        """Those for a directory; it need not exist."""
        with contextlib.suppress(OSError):
            if os.stat(directory).st_mode & stat.S_IWGRP:
                return cls(0o770, 0o660)
        return cls()

    def make_folders(self, path: str) -> None:
        """Makes a directory and those above it that are missing. Raises OSError."""
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for each in reversed(missing):
            try:
                os.mkdir(each, self.folders)
            except FileExistsError:
                if not os.path.isdir(each):
                    raise
            else:
                os.chmod(
                    each, self.folders | (stat.S_ISGID & os.stat(each).st_mode)
                )  # the umask took some away

    def open(self, path: str, flags: int) -> int:
        """Opens a file, perhaps a new one; gives its descriptor. Raises OSError."""
        descriptor = os.open(path, flags | os.O_CLOEXEC, self.files)
        if self.files & stat.S_IRGRP:
            with contextlib.suppress(OSError):  # another one's, whose own modes are right
                os.chmod(path, self.files)
        return descriptor

    def close_to_others(self, folder: str) -> None:
        """Takes a folder of ours from everybody else: older versions of wdspec left it open."""
        with contextlib.suppress(OSError):
            if os.stat(folder).st_mode & 0o777 & ~self.folders:
                os.chmod(folder, self.folders)
