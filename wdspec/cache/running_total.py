"""The bytes that all entries of an index stand for, kept in a file: nobody has to list them for each new copy."""

from __future__ import annotations

import contextlib
import os

from wdspec.cache.permissions import Permissions

MOST_BYTES = 64
"""Bytes that the file may take itself."""


class RunningTotal:
    """A number in a file, valid only for the index directory as it is; whoever uses it holds the directory's lock.

    `begin_change` makes it invalid until `set`, so that after a kill in between it is counted again. Changes that are
    made without it (by a user, or by a version of wdspec that did not keep a total) show in the directory's time.

    Args:
        path: of the file.
        entries: the directory of the entries.
        permissions: of the file.
    """

    def __init__(self, path: str, entries: str, permissions: Permissions) -> None:
        self._path, self._entries, self._permissions = path, entries, permissions

    def get(self) -> int | None:
        """The total; None where the entries have to be counted."""
        with contextlib.suppress(OSError, ValueError):
            with open(self._path, encoding="ascii") as file:
                total, time = map(int, file.read(MOST_BYTES).split())
            if time == os.stat(self._entries).st_mtime_ns:
                return total
        return None

    def begin_change(self) -> None:
        """Says that entries are about to change. Raises OSError where the directory cannot be written."""
        open(self._path, "w", opener=self._permissions.open).close()

    def set(self, total: int) -> None:
        """Says what the entries stand for as they are now."""
        with (
            contextlib.suppress(OSError),
            open(self._path, "w", encoding="ascii", opener=self._permissions.open) as file,
        ):
            file.write(f"{total} {os.stat(self._entries).st_mtime_ns}")
