"""Finished copies: plain local files that note when they were used."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

from wdspec.base.process import PerProcess
from wdspec.cache.index import Index, key_of, open_marked
from wdspec.cache.names import Copies


class CopyFile(io.FileIO):
    """A finished copy of a shard, ours or one that somebody put there. Reads are the file's own."""

    @property
    def copy_file(self) -> CopyFile:
        """Itself; also through what is laid around it."""
        return self

    def discard(self) -> None:
        """Closes it, and deletes it if it is ours and nobody else reads it: it is damaged."""
        self.close()


class Copy(CopyFile):
    """A finished copy of ours; it is not deleted while it is open."""

    def __init__(self, descriptor: int, copies: Copies) -> None:
        super().__init__(descriptor, "rb")
        self.name: str = copies.path
        self._copies = copies
        self._touch()

    @property
    def made_of(self) -> tuple[int, str]:
        """Its length in bytes, and what the store said of the object that it was made of; see `Content.made_of`."""
        size, entries = os.fstat(self.fileno()).st_size, Index(self._copies.directory).entries
        key = key_of(self._copies.own)
        content = entries.content(key, entries.path(key, size))
        return size, "" if content is None else content.made_of

    def close(self) -> None:
        if not self.closed:
            self._touch()
            if self.name in _condemned.value:
                _condemned.value.discard(self.name)
                super().close()
                self._delete()
        super().close()

    def discard(self) -> None:
        super().discard()
        self._delete()

    def _delete(self) -> None:
        index, key = Index(self._copies.directory), key_of(self._copies.own)
        with contextlib.suppress(OSError):  # read-only, or another user's
            for entry in index.entries.by_use():  # its length may not be what it was
                if entry.key == key:
                    index.delete(entry)

    def _touch(self) -> None:
        Index(self._copies.directory).entries.touch(key_of(self._copies.own), os.fstat(self.fileno()).st_size)


_condemned: PerProcess[set[str]] = PerProcess(set)


def condemn(path: str) -> None:
    """Has a copy of ours deleted when this process is done with it: it is damaged."""
    _condemned.value.add(path)


def find_copy(copies: Copies) -> CopyFile | None:
    """The finished copy of a shard, ours or one that somebody put there; None if none can be read."""
    with contextlib.suppress(OSError):
        return Copy(open_marked(copies.path), copies)
    for path in _filled(copies):
        with contextlib.suppress(OSError):
            return CopyFile(path, "rb")
    return None


def path_of_copy(copies: Copies) -> str | None:
    """Where `find_copy` would find it; opens nothing."""
    return copies.path if os.path.isfile(copies.path) else next(_filled(copies), None)


def _filled(copies: Copies) -> Iterator[str]:
    for name in copies.filled:
        path = os.path.join(copies.directory, name)
        if os.path.isfile(path):
            yield path
