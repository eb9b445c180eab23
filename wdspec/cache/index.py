"""What a cache directory holds of ours, and the room that all of it may take.

Whoever changes an entry takes the directory's lock, which guards the sum, and the sum is kept in a file: a new copy
costs the same however many there are. After a kill in between it is counted anew; too much may be counted then, never
too little.

The files of a cache's index: one for each copy, or for the bytes set aside for one.

`.wdspec/index/<key>-<bytes>` holds the copy's name and URL, and what the store said of the object; its time is that of
the last use. There is no database that a kill could damage, or that a network file system would have to lock: making,
renaming and deleting a file are atomic everywhere, and one directory listing gives every size and time.

The bytes that all entries of an index stand for, kept in a file: nobody has to list them for each new copy.

Copies that are being read, marked so that nobody deletes them: by a lock that ends with their reader.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from wdspec.base.files import LockFile, lock_open_file
from wdspec.base.process import PerProcess
from wdspec.cache.names import OWN_FOLDER, TAG


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


_SIGNATURE = """\
Signature: 8a477f597d28d172789f06886806bc55
# This directory holds copies of shards that wdspec made; they may be deleted at any time.
# See https://bford.info/cachedir/
"""
BASE = len(_SIGNATURE) + MOST_BYTES
"""Bytes of ours that stand for no copy."""
_FEWEST_KEPT, _PART_KEPT = 64, 16
"""Of the entries listed for want of room, so many, and one in so many, are remembered as those to be deleted next."""


@dataclass
class _Count:
    total: int


_oldest: PerProcess[dict[str, deque[Entry]]] = PerProcess(dict)
"""Directory → the entries to be deleted next, the oldest first; used under the directory's lock."""


class Index:
    """The copies of ours in a cache directory.

    Args:
        directory: absolute; need not exist yet.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._folder = os.path.join(directory, OWN_FOLDER)
        self.permissions = Permissions.of(directory)
        self.entries = Entries(os.path.join(self._folder, "index"), self.permissions)
        self._total = RunningTotal(os.path.join(self._folder, "total"), self.entries.folder, self.permissions)

    @property
    def is_marked(self) -> bool:
        """Whether wdspec has made copies in this directory."""
        return os.path.isdir(self.entries.folder)

    def ready(self) -> None:
        """Sees to it that copies can be made, by nobody else seen. Raises OSError."""
        if self.is_marked:
            self.permissions.close_to_others(self._folder)
        else:
            self.make()

    def make(self) -> None:
        """Makes the directory with its marks. Raises OSError.

        Only one that was empty gets the tag, which keeps backup programs away: others hold more than copies.
        """
        tag = os.path.join(self.directory, TAG)
        with contextlib.suppress(FileNotFoundError):
            tag = "" if os.listdir(self.directory) else tag
        for name in ("parts", "locks"):
            self.permissions.make_folders(os.path.join(self._folder, name))
        if tag:
            own = os.path.join(self._folder, f"tag-{os.getpid()}")
            with open(own, "w", encoding="ascii", opener=self.permissions.open) as file:
                file.write(_SIGNATURE)
            os.replace(own, tag)
        self.permissions.make_folders(self.entries.folder)

    def part(self, key: str) -> str:
        """The path of a copy while it is made."""
        return os.path.join(self._folder, "parts", key)

    def filling(self, key: str) -> LockFile:
        """The lock of whoever makes a copy."""
        return LockFile(os.path.join(self._folder, "locks", key), self.permissions.files)

    def reserve(self, key: str, content: Content, size: int, before: int | None, limit: int | None) -> bool:
        """Sets room aside for a copy, deleting those longest unused that nobody reads; False if there is none.

        Args:
            size: bytes of the copy, as far as known.
            before: what was set aside for it already, by whoever holds its lock.
            limit: bytes that all of ours may take.
        """
        text = "\n".join(content).encode("utf-8", "surrogateescape")
        if limit is not None and BASE + size + len(text) > limit:
            return False
        growth = size + len(text) if before is None else size - before
        with self._counting() as count:
            if limit is not None and not self._make_room(count, limit - growth, key, before):
                return False
            if before is None:
                count.total += self.entries.add(key, size, text)
            else:
                count.total += self.entries.resize(key, before, size)
        return True

    def commit(self, key: str, name: str, size: int, before: int) -> None:
        """Gives a finished part the name of its copy. Raises OSError.

        Whoever holds the copy's lock calls it. A file that somebody put there meanwhile stays.
        """
        final = os.path.join(self.directory, name)
        self.permissions.make_folders(os.path.dirname(final))
        if os.path.lexists(final):
            self.drop(key, before)
            return
        with self._counting() as count:
            # The size first: a kill in between must not leave a copy under a wrong size.
            count.total += self.entries.resize(key, before, size)
            try:
                os.replace(self.part(key), final)
            except OSError:
                self.entries.resize(key, size, before)
                raise
        self.entries.touch(key, size)

    def drop(self, key: str, before: int | None) -> None:
        """Removes a part and the room set aside for it."""
        _unlink(self.part(key))
        if before is not None:
            with self._counting() as count:
                count.total += remove(self.entries.path(key, before))

    def make_room(self, limit: int) -> None:
        """Deletes what has been unused longest until ours takes no more than the limit, if that can be."""
        with self._counting() as count:
            self._make_room(count, limit)

    def delete(self, entry: Entry) -> None:
        """Deletes a copy, unless it is being read or made."""
        with self._counting() as count:
            self._delete(count, entry)

    def delete_unused(self, since: int) -> None:
        """Deletes what was not used since then (nanoseconds since 1970), unless it is being read or made."""
        with self._counting() as count:
            for entry in self.entries.by_use():
                if entry.used < since:
                    self._delete(count, entry)

    def sweep(self) -> None:
        """Deletes parts that nobody makes and that no entry stands for."""
        with self._lock():
            known = {entry.key for entry in self.entries.by_use()}
            for key in os.listdir(os.path.join(self._folder, "parts")):
                if key not in known:
                    self._delete_unmade(Entry(key, 0, 0, 0, self.entries.path(key, 0)))

    def _lock(self) -> LockFile:
        """The lock of whoever counts."""
        return LockFile(os.path.join(self._folder, "lock"), self.permissions.files)

    @contextlib.contextmanager
    def _counting(self) -> Iterator[_Count]:
        """The directory's lock, and what all entries stand for: whoever changes the ones changes the other."""
        with self._lock():
            total = self._total.get()
            if total is None:
                total = sum(entry.total for entry in self._newest())
            count = _Count(total)
            self._total.begin_change()
            yield count
            self._total.set(count.total)

    def _newest(self) -> list[Entry]:
        """The entries by use, one for each key: older ones were left by killed processes."""
        newest: dict[str, Entry] = {}
        for entry in self.entries.by_use():
            if entry.key in newest:
                remove(newest.pop(entry.key).path)
            newest[entry.key] = entry
        return list(newest.values())

    def _make_room(self, count: _Count, limit: int, key: str = "", before: int | None = None) -> bool:
        """Deletes what has been unused longest, until no more than the limit is left; False if that cannot be.

        Entries are listed only when those that the last listing found oldest are used up: until they are used again,
        they are the oldest still.

        Args:
            key: of the copy that room is made for, which is not deleted itself.
            before: what is set aside for it; other entries of this key were left by a killed process.
        """
        limit -= BASE
        oldest = _oldest.value.setdefault(self.directory, deque())
        while count.total > limit and oldest:
            entry = oldest.popleft()
            if entry.key != key and last_use(entry.path) == entry.used:
                self._delete(count, entry)
        if count.total <= limit:
            return True
        entries = self._newest()
        count.total = sum(entry.total for entry in entries)
        for entry in entries:
            if entry.key == key and entry.size != before:
                count.total += remove(entry.path)
        others = deque(entry for entry in entries if entry.key != key)
        while count.total > limit and others:
            self._delete(count, others.popleft())
        oldest.extend(islice(others, max(_FEWEST_KEPT, len(others) // _PART_KEPT)))
        return count.total <= limit

    def _delete(self, count: _Count, entry: Entry) -> None:
        size = bytes_of(entry.path)
        if self._delete_copy(entry):
            count.total -= size

    def _delete_copy(self, entry: Entry) -> bool:
        content = self.entries.content(entry.key, entry.path)
        if content is None:
            return self._delete_unmade(entry)
        path = os.path.join(self.directory, content.name)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return self._delete_unmade(entry)
        except OSError:
            return False
        try:
            if is_in_use(descriptor):
                return False
            _unlink(path)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        remove(entry.path)
        return True

    def _delete_unmade(self, entry: Entry) -> bool:
        """Deletes what a killed process left of a copy; not if another one makes it now."""
        lock = self.filling(entry.key)
        try:
            if not lock.try_acquire():
                return False
        except OSError:
            return False
        try:
            content = self.entries.content(entry.key, entry.path)
            if content is not None and os.path.lexists(os.path.join(self.directory, content.name)):
                return False
            _unlink(self.part(entry.key))
            remove(entry.path)
        finally:
            lock.release()
        return True


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
