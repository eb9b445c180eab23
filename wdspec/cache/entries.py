"""The files of a cache's index: one for each copy, or for the bytes set aside for one.

`.wdspec/index/<key>-<bytes>` holds the copy's name and URL, and what the store said of the object; its time is that of
the last use. There is no database that a kill could damage, or that a network file system would have to lock: making,
renaming and deleting a file are atomic everywhere, and one directory listing gives every size and time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import NamedTuple

from wdspec.cache.permissions import Permissions


class Entry(NamedTuple):
    """One copy, or the room kept for one that is being fetched."""

    key: str
    size: int
    """Bytes of the copy, or set aside for it."""
    own: int
    """Bytes of the index file."""
    used: int
    """When it was used last, in nanoseconds since 1970."""
    path: str
    """Of the index file."""

    @property
    def total(self) -> int:
        return self.size + self.own


class Content(NamedTuple):
    """What an index file says."""

    name: str
    """Of the copy, relative to the cache directory."""
    url: str
    """Without its secrets."""
    made_of: str = ""
    """What the store said of the object, as its ETag or the time of its last change; "" where it said nothing."""


def key_of(name: str) -> str:
    """The key of the copy with this name."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


class Entries:
    """All entries of one index. What changes them returns by how many bytes they then stand for more, or less.

    Args:
        folder: where they are; need not exist yet.
        permissions: of those that are made.
    """

    def __init__(self, folder: str, permissions: Permissions) -> None:
        self.folder, self._permissions = folder, permissions

    def path(self, key: str, size: int) -> str:
        return os.path.join(self.folder, f"{key}-{size}")

    def by_use(self) -> list[Entry]:
        """All entries, those used last at the end."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as listed:
            for each in listed:
                key, dash, size = each.name.partition("-")
                if dash and size.isdigit():
                    with contextlib.suppress(OSError):
                        stat = each.stat()
                        found.append(Entry(key, int(size), stat.st_size, stat.st_mtime_ns, each.path))
        return sorted(found, key=lambda entry: entry.used)

    def content(self, key: str, path: str) -> Content | None:
        """What an index file says; None if it is gone, or damaged."""
        try:
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                name, _, said = file.read().partition("\n")
        except OSError:
            return None
        url, _, made_of = said.partition("\n")
        return Content(name, url, made_of) if key_of(name) == key else None

    def add(self, key: str, size: int, text: bytes) -> int:
        """Raises OSError, and then has added nothing."""
        path = self.path(key, size)
        before = bytes_of(path)
        try:
            with open(path, "wb", opener=self._permissions.open) as file:
                file.write(text)
        except OSError:
            remove(path)
            raise
        return size + len(text) - before

    def resize(self, key: str, before: int, size: int) -> int:
        """Raises OSError."""
        if size == before:
            return 0
        path = self.path(key, size)
        replaced = bytes_of(path)
        os.replace(self.path(key, before), path)
        return size - before - replaced

    def touch(self, key: str, size: int) -> None:
        """Notes that a copy is used now."""
        now = time.time_ns()
        with contextlib.suppress(OSError):  # not ours, another user's, or read-only
            os.utime(self.path(key, size), ns=(now, now))


def bytes_of(path: str) -> int:
    """What an index file stands for, itself included; 0 if it does not exist."""
    try:
        return int(path.rpartition("-")[2]) + os.stat(path).st_size
    except FileNotFoundError:
        return 0


def last_use(path: str) -> int | None:
    """The time of an index file; None if it does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def remove(path: str) -> int:
    """Removes an index file, if it exists. Returns the change of what all entries stand for: a negative number."""
    size = bytes_of(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return -size
