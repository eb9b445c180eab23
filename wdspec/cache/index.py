"""What a cache directory holds of ours, and the room that all of it may take.

Whoever changes an entry takes the directory's lock, which guards the sum, and the sum is kept in a file: a new copy
costs the same however many there are. After a kill in between it is counted anew; too much may be counted then, never
too little.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from wdspec.cache.cache_names import OWN_FOLDER, TAG
from wdspec.cache.entries import Content, Entries, Entry, bytes_of, last_use, remove
from wdspec.cache.in_use import is_in_use
from wdspec.cache.permissions import Permissions
from wdspec.cache.running_total import MOST_BYTES, RunningTotal
from wdspec.system.file_locks import LockFile
from wdspec.system.per_process import PerProcess

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
