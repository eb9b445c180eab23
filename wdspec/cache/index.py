"""What a cache directory holds of ours: one small file for each copy, and the room that all may take.

`.wdspec/index/<key>-<bytes>` stands for a copy, or for the bytes set aside for one; its time is that of the last use.
There is no database that a kill could damage, or that a network file system would have to lock: making, renaming and
deleting a file are atomic everywhere, and one directory listing gives every size and time. Whoever needs room takes
the directory's lock, which only guards the sum: after a kill in between, too much is counted, never too little.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from wdspec.cache.cache_names import OWN_FOLDER, TAG
from wdspec.cache.in_use import is_in_use
from wdspec.system.file_locks import LockFile

_SIGNATURE = """\
Signature: 8a477f597d28d172789f06886806bc55
# This directory holds copies of shards that wdspec made; they may be deleted at any time.
# See https://bford.info/cachedir/
"""
BASE = len(_SIGNATURE)
"""Bytes of ours that stand for no copy."""


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


def key_of(name: str) -> str:
    """The key of the copy with this name."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


class Index:
    """The copies of ours in a cache directory.

    Args:
        directory: absolute; need not exist yet.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._folder = os.path.join(directory, OWN_FOLDER)
        self._entries = os.path.join(self._folder, "index")

    @property
    def is_marked(self) -> bool:
        """Whether wdspec has made copies in this directory."""
        return os.path.isdir(self._entries)

    def make(self) -> None:
        """Makes the directory with its marks. Raises OSError.

        Only one that was empty gets the tag, which keeps backup programs away: others hold more than copies.
        """
        tag = os.path.join(self.directory, TAG)
        with contextlib.suppress(FileNotFoundError):
            tag = "" if os.listdir(self.directory) else tag
        for name in ("parts", "locks"):
            os.makedirs(os.path.join(self._folder, name), exist_ok=True)
        if tag:
            own = os.path.join(self._folder, f"tag-{os.getpid()}")
            with open(own, "w", encoding="ascii") as file:
                file.write(_SIGNATURE)
            os.replace(own, tag)
        os.makedirs(self._entries, exist_ok=True)

    def part(self, key: str) -> str:
        """The path of a copy while it is made."""
        return os.path.join(self._folder, "parts", key)

    def filling(self, key: str) -> LockFile:
        """The lock of whoever makes a copy."""
        return LockFile(os.path.join(self._folder, "locks", key))

    def lock(self) -> LockFile:
        """The lock of whoever counts."""
        return LockFile(os.path.join(self._folder, "lock"))

    def entries(self) -> list[Entry]:
        """All copies, in no order."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._entries) as listed:
            for each in listed:
                key, dash, size = each.name.partition("-")
                if dash and size.isdigit():
                    with contextlib.suppress(OSError):
                        stat = each.stat()
                        found.append(Entry(key, int(size), stat.st_size, stat.st_mtime_ns, each.path))
        return found

    def content(self, entry: Entry) -> Content | None:
        """What an index file says; None if it is gone, or damaged."""
        try:
            with open(entry.path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                name, _, url = file.read().partition("\n")
        except OSError:
            return None
        return Content(name, url) if key_of(name) == entry.key else None

    def reserve(self, key: str, content: Content, size: int, before: int | None, limit: int | None) -> bool:
        """Sets room aside for a copy, deleting those longest unused that nobody reads; False if there is none.

        Args:
            size: bytes of the copy, as far as known.
            before: what was set aside for it already, by whoever holds its lock.
            limit: bytes that all of ours may take.
        """
        text = "\n".join(content).encode("utf-8", "surrogateescape")
        if limit is None:
            self._write(key, size, before, text)
            return True
        room = limit - size - len(text)
        if room < BASE:
            return False
        with self.lock():
            others = []
            for entry in self.entries():
                if entry.key != key:
                    others.append(entry)
                elif entry.size != before:  # left by a killed process
                    _unlink(entry.path)
            if not self._make_room(room, others):
                return False
            self._write(key, size, before, text)
        return True

    def make_room(self, limit: int) -> None:
        """Deletes what has been unused longest until ours takes no more than the limit, if that can be."""
        with self.lock():
            self._make_room(limit, self.entries())

    def delete(self, entry: Entry) -> bool:
        """Deletes a copy, unless it is being read or made; whoever counts holds the lock."""
        content = self.content(entry)
        if content is None:
            return self._delete_unmade(entry)
        try:
            descriptor = os.open(os.path.join(self.directory, content.name), os.O_RDONLY)
        except FileNotFoundError:
            return self._delete_unmade(entry)
        except OSError:
            return False
        try:
            if is_in_use(descriptor):
                return False
            _unlink(os.path.join(self.directory, content.name))
        except OSError:
            return False
        finally:
            os.close(descriptor)
        _unlink(entry.path)
        return True

    def sweep(self) -> None:
        """Deletes parts that nobody makes and that no index file stands for."""
        with self.lock():
            known = {entry.key for entry in self.entries()}
            for key in os.listdir(os.path.join(self._folder, "parts")):
                if key not in known:
                    self._delete_unmade(Entry(key, 0, 0, 0, self._entry(key, 0)))

    def commit(self, key: str, name: str, size: int, before: int) -> None:
        """Gives a finished part the name of its copy. Raises OSError.

        Whoever holds the copy's lock calls it. A file that somebody put there meanwhile stays.
        """
        final = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(final), exist_ok=True)
        with self.lock():
            if os.path.lexists(final):
                self.drop(key, before)
                return
            # The size first: a kill in between must not leave a copy whose size is said wrong.
            os.replace(self._entry(key, before), self._entry(key, size))
            try:
                os.replace(self.part(key), final)
            except OSError:
                os.replace(self._entry(key, size), self._entry(key, before))
                raise
        self.touch(key, size)

    def drop(self, key: str, before: int | None) -> None:
        """Removes a part and the room set aside for it."""
        _unlink(self.part(key))
        if before is not None:
            _unlink(self._entry(key, before))

    def touch(self, key: str, size: int) -> None:
        """Notes that a copy is used now."""
        now = time.time_ns()
        with contextlib.suppress(OSError):  # not ours, another user's, or read-only
            os.utime(self._entry(key, size), ns=(now, now))

    def _entry(self, key: str, size: int) -> str:
        return os.path.join(self._entries, f"{key}-{size}")

    def _write(self, key: str, size: int, before: int | None, text: bytes) -> None:
        path = self._entry(key, size)
        if before is not None:
            os.rename(self._entry(key, before), path)
            return
        try:
            with open(path, "wb") as file:
                file.write(text)
        except OSError:
            _unlink(path)
            raise

    def _make_room(self, limit: int, entries: Iterable[Entry]) -> bool:
        entries = sorted(entries, key=_used)
        used = BASE + sum(entry.total for entry in entries)
        for entry in entries:
            if used <= limit:
                break
            if self.delete(entry):
                used -= entry.total
        return used <= limit

    def _delete_unmade(self, entry: Entry) -> bool:
        """Deletes what a killed process left of a copy; not if another one makes it now."""
        lock = self.filling(entry.key)
        try:
            if not lock.try_acquire():
                return False
        except OSError:
            return False
        try:
            content = self.content(entry)
            if content is not None and os.path.lexists(os.path.join(self.directory, content.name)):
                return False
            _unlink(self.part(entry.key))
            _unlink(entry.path)
        finally:
            lock.release()
        return True


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _used(entry: Entry) -> int:
    return entry.used
