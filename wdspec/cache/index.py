"""The copies that wdspec keeps in a cache directory, and the room that they may take together.

`.wdspec/index/<key>-<bytes>` is one file per copy, or per room reserved for one. It has the name and the URL of the
copy, and the validator of the object; its time is that of the last use. There is no database that a kill could damage,
or that a network file system would have to lock: making, renaming and deleting a file are atomic everywhere, and one
listing of the directory gives every size and time.

The sum of all entries is kept in a file, so that a new copy costs the same however many there are. It is guarded by the
lock of the directory. After a kill it is computed again; it may be too large then, never too small.

Copies that are being read have a lock that ends with their reader, so that no process deletes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from wdspec.base.files import LockFile, lock_open_file
from wdspec.base.process import PerProcess, process_counts
from wdspec.cache.names import OWN_FOLDER, TAG

_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Permissions:
    """The modes of wdspec's files in a cache directory.

    Copies may contain private data, so only the owner can read them, whatever the umask. If the group can write to the
    directory, it is shared, and so are all files in it.
    """

    folders: int = 0o700
    files: int = 0o600

    @classmethod
    def of(cls, directory: str) -> Permissions:
        """The modes for a directory, which may not exist."""
        with contextlib.suppress(OSError):
            if os.stat(directory).st_mode & stat.S_IWGRP:
                return cls(0o770, 0o660)
        return cls()

    def make_folders(self, path: str) -> None:
        """Make a directory and missing ones above it. Raises OSError."""
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
                # The umask took some of them.
                os.chmod(each, self.folders | (stat.S_ISGID & os.stat(each).st_mode))

    def open(self, path: str, flags: int) -> int:
        """Open a file, which may be new; return its descriptor. Raises OSError."""
        descriptor = os.open(path, flags | os.O_CLOEXEC, self.files)
        if self.files & stat.S_IRGRP:
            with contextlib.suppress(OSError):  # another user's, with the right modes
                os.chmod(path, self.files)
        return descriptor

    def close_to_others(self, folder: str) -> None:
        """Close a folder of wdspec to other users: older versions left it open."""
        with contextlib.suppress(OSError):
            if os.stat(folder).st_mode & 0o777 & ~self.folders:
                os.chmod(folder, self.folders)


class Entry(NamedTuple):
    """One copy, or the room reserved for one."""

    key: str
    size: int
    """Size of the copy in bytes, or the number of bytes reserved for it."""
    own: int
    """Bytes of the index file."""
    used: int
    """The time of the last use, in nanoseconds since 1970."""
    path: str
    """Of the index file."""

    @property
    def total(self) -> int:
        return self.size + self.own


_NO_CHECK = f"{'-' * 8} {0:020d}"
"""In place of a checksum, which is written over it, so that an entry keeps its length."""


def format_check(crc: int, written: int) -> str:
    """Return the text of a checksum and a time, see `Content.check`."""
    return f"{crc:08x} {written:020d}"


def crc_of(descriptor: int) -> int:
    """Return the CRC-32 of a file, without moving its position. Raises OSError."""
    crc = at = 0
    while piece := os.pread(descriptor, _PIECE, at):
        crc, at = zlib.crc32(piece, crc), at + len(piece)
    return crc


class Content(NamedTuple):
    """The text of an index file."""

    name: str
    """Path of the copy, relative to the cache directory."""
    url: str
    """Without its secrets."""
    made_of: str = ""
    """The validator of the object, as its ETag or the time of its last change; "" if the store gave none."""
    check: str = _NO_CHECK
    """Checksum and time of the file when it was complete; `read_check` reads it."""

    @property
    def read_check(self) -> tuple[int, int] | None:
        """CRC-32 of the bytes that were fetched, and when the file was last written (`st_mtime_ns`), if known."""
        crc, _, written = self.check.partition(" ")
        return (int(crc, 16), int(written)) if len(self.check) == len(_NO_CHECK) and "-" not in crc else None


def key_of(name: str) -> str:
    """The key of the copy with this name."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


class Entries:
    """All entries of one index, in a folder that need not exist.

    Methods that change them return the change of their total size.
    """

    def __init__(self, folder: str, permissions: Permissions) -> None:
        self.folder, self._permissions = folder, permissions

    def path(self, key: str, size: int) -> str:
        return os.path.join(self.folder, f"{key}-{size}")

    def by_use(self) -> list[Entry]:
        """All entries, in the order of their last use."""
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
        """The text of an index file; None if it is gone or damaged."""
        try:
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                name, _, said = file.read().partition("\n")
        except OSError:
            return None
        url, _, said = said.partition("\n")
        made_of, _, check = said.partition("\n")
        return Content(name, url, made_of, check or _NO_CHECK) if key_of(name) == key else None

    def note_check(self, key: str, size: int, crc: int, written: int) -> None:
        """Write the checksum of a copy into its entry, which has room for it."""
        with contextlib.suppress(OSError), open(self.path(key, size), "r+b") as file:
            file.seek(-len(_NO_CHECK), os.SEEK_END)
            file.write(format_check(crc, written).encode())

    def add(self, key: str, size: int, text: bytes) -> int:
        """Add an entry, or nothing if this raises OSError."""
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
        """Change the size of an entry. Raises OSError."""
        if size == before:
            return 0
        path = self.path(key, size)
        replaced = bytes_of(path)
        os.replace(self.path(key, before), path)
        return size - before - replaced

    def touch(self, key: str, size: int) -> None:
        """Note that a copy is used now."""
        now = time.time_ns()
        with contextlib.suppress(OSError):  # not wdspec's, another user's, or read-only
            os.utime(self.path(key, size), ns=(now, now))


def bytes_of(path: str) -> int:
    """The bytes of an entry: of the copy and of the index file; 0 if it does not exist."""
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
    """Remove an index file, if it exists. Returns the change of the total size, a negative number."""
    size = bytes_of(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return -size


def mark_in_use(descriptor: int) -> bool:
    """Mark an open file as being read until it is closed; return False if it was deleted before."""
    # On a local file system without locks, an open file keeps its bytes anyway.
    lock_open_file(descriptor, shared=True, wait=True)
    return os.fstat(descriptor).st_nlink > 0


def is_in_use(descriptor: int) -> bool:
    """Whether a process is reading the open file; if not, none can mark it before the descriptor is closed."""
    return not lock_open_file(descriptor)


def open_marked(path: str) -> int:
    """Open a file and mark it as being read; return its descriptor.

    Raises:
        FileNotFoundError: it does not exist, or was just deleted.
        OSError: it cannot be read, or is not a regular file.
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
_MOST_BYTES = 64
"""Maximum size of the file with the total, in bytes."""
BASE = len(_SIGNATURE) + _MOST_BYTES
"""Bytes of wdspec's files that belong to no copy."""
_FEWEST_KEPT, _PART_KEPT = 64, 16
"""How many of the entries listed to make room are remembered as the next to delete: at least, and one in how many."""


@dataclass
class _Count:
    total: int


_oldest: PerProcess[dict[str, deque[Entry]]] = PerProcess(dict)
"""Directory → the entries to delete next, the oldest first; used under the directory's lock."""


class Index:
    """The copies of wdspec in a cache directory, given as an absolute path; it need not exist yet."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._folder = os.path.join(directory, OWN_FOLDER)
        self.permissions = Permissions.of(directory)
        self.entries = Entries(os.path.join(self._folder, "index"), self.permissions)
        self._total = os.path.join(self._folder, "total")

    @property
    def is_marked(self) -> bool:
        """Whether wdspec has made copies in this directory."""
        return os.path.isdir(self.entries.folder)

    def ready(self) -> None:
        """Prepare the directory for copies, closed to other users. Raises OSError."""
        if self.is_marked:
            self.permissions.close_to_others(self._folder)
        else:
            self.make()

    def make(self) -> None:
        """Make the directory and its marks. Raises OSError.

        Only an empty directory gets the tag that makes backup programs skip it: others contain more than copies.
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
        """The path of an unfinished copy."""
        return os.path.join(self._folder, "parts", key)

    def filling(self, key: str) -> LockFile:
        """The lock for making a copy."""
        return LockFile(os.path.join(self._folder, "locks", key), self.permissions.files)

    def reserve(self, key: str, content: Content, size: int, before: int | None, limit: int | None) -> bool:
        """Reserve room for a copy, deleting the oldest unused ones; return False if there is not enough.

        Args:
            size: bytes of the copy, as far as known.
            before: bytes that were already reserved for it, by the holder of its lock.
            limit: maximum number of bytes of all copies.
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

    def commit(self, key: str, name: str, size: int, before: int, crc: int | None = None) -> None:
        """Give a finished part the name of its copy; the caller holds its lock. Raises OSError.

        If another file has that name meanwhile, that file stays.
        """
        final = os.path.join(self.directory, name)
        self.permissions.make_folders(os.path.dirname(final))
        if os.path.lexists(final):
            self.drop(key, before)
            return
        with self._counting() as count:
            # The size first: a kill in between must not leave a copy with a wrong size.
            count.total += self.entries.resize(key, before, size)
            if crc is not None:
                self.entries.note_check(key, size, crc, os.stat(self.part(key)).st_mtime_ns)
            try:
                os.replace(self.part(key), final)
            except OSError:
                self.entries.resize(key, size, before)
                raise
        self.entries.touch(key, size)

    def drop(self, key: str, before: int | None) -> None:
        """Remove a part and the room reserved for it."""
        _unlink(self.part(key))
        if before is not None:
            with self._counting() as count:
                count.total += remove(self.entries.path(key, before))

    def make_room(self, limit: int) -> None:
        """Delete the oldest unused copies until the rest is within the limit, if possible."""
        with self._counting() as count:
            self._make_room(count, limit)

    def delete(self, entry: Entry) -> None:
        """Delete a copy, unless it is being read or made."""
        with self._counting() as count:
            self._delete(count, entry)

    def delete_unused(self, since: int) -> None:
        """Delete copies not used since a time (nanoseconds since 1970), unless they are being read or made."""
        with self._counting() as count:
            for entry in self.entries.by_use():
                if entry.used < since:
                    self._delete(count, entry)

    def sweep(self) -> None:
        """Delete parts without an entry, unless they are being made."""
        with self._lock():
            known = {entry.key for entry in self.entries.by_use()}
            for key in os.listdir(os.path.join(self._folder, "parts")):
                if key not in known:
                    self._delete_unmade(Entry(key, 0, 0, 0, self.entries.path(key, 0)))

    def _lock(self) -> LockFile:
        """The lock of the directory."""
        return LockFile(os.path.join(self._folder, "lock"), self.permissions.files)

    @contextlib.contextmanager
    def _counting(self) -> Iterator[_Count]:
        """Hold the directory's lock, and keep the total of all entries, which must change along with them.

        The file with the total is empty during a change, so that the total is computed again after a kill. Changes made
        without it (by a user, or by a version of wdspec without a total) show in the time of the directory.
        """
        with self._lock():
            total = self._read_total()
            count = _Count(sum(entry.total for entry in self._newest()) if total is None else total)
            open(self._total, "w", opener=self.permissions.open).close()
            yield count
            with (
                contextlib.suppress(OSError),
                open(self._total, "w", encoding="ascii", opener=self.permissions.open) as file,
            ):
                file.write(f"{count.total} {os.stat(self.entries.folder).st_mtime_ns}")

    @property
    def used(self) -> int:
        """Bytes of all copies, and of the room that is reserved for those being made."""
        total = self._read_total()
        return sum(entry.total for entry in self.entries.by_use()) if total is None else total

    def _read_total(self) -> int | None:
        """The total in the file; None if it is not that of the present entries."""
        with contextlib.suppress(OSError, ValueError):
            with open(self._total, encoding="ascii") as file:
                total, time = map(int, file.read(_MOST_BYTES).split())
            if time == os.stat(self.entries.folder).st_mtime_ns:
                return total
        return None

    def _newest(self) -> list[Entry]:
        """The entries by use, one per key: older ones were left by killed processes."""
        newest: dict[str, Entry] = {}
        for entry in self.entries.by_use():
            if entry.key in newest:
                remove(newest.pop(entry.key).path)
            newest[entry.key] = entry
        return list(newest.values())

    def _make_room(self, count: _Count, limit: int, key: str = "", before: int | None = None) -> bool:
        """Delete the oldest unused copies until no more than the limit is left; return False if impossible.

        Entries are listed only when the oldest of the last listing are used up: until they are used again, they are
        still the oldest.

        Args:
            key: of the copy that needs the room, which is not deleted itself.
            before: bytes reserved for it; other entries of this key were left by a killed process.
        """
        limit -= BASE
        oldest = _oldest.value.setdefault(self.directory, deque())
        while count.total > limit and oldest:
            entry = oldest.popleft()
            if entry.key != key and last_use(entry.path) == entry.used:
                process_counts.value.cache_evictions += self._delete(count, entry)
        if count.total <= limit:
            return True
        entries = self._newest()
        count.total = sum(entry.total for entry in entries)
        for entry in entries:
            if entry.key == key and entry.size != before:
                count.total += remove(entry.path)
        others = deque(entry for entry in entries if entry.key != key)
        while count.total > limit and others:
            process_counts.value.cache_evictions += self._delete(count, others.popleft())
        oldest.extend(islice(others, max(_FEWEST_KEPT, len(others) // _PART_KEPT)))
        return count.total <= limit

    def _delete(self, count: _Count, entry: Entry) -> bool:
        """Delete a copy, and return whether it was possible."""
        size, is_deleted = bytes_of(entry.path), self._delete_copy(entry)
        if is_deleted:
            count.total -= size
        return is_deleted

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
        """Delete what a killed process left of a copy, unless another process makes it now."""
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
