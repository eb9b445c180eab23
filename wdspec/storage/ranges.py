"""An object of which parts are read: a file that can seek, read in blocks through few requests.

The index of an object, which readers need before each part, is kept while the process reads parts of the same object.
It is used for that very object only: each reading requests at least one block, whose validator must be that of the
index.
"""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.base.files import RawStream
from wdspec.base.process import PerProcess

BLOCK = 64 * 1024
FIRST = 4
"""Blocks of the first request from an offset. Each one that continues it is twice as large."""
LARGEST = 64
_KEPT = 16 * 1024 * 1024
"""Bytes of indexes that a process keeps."""


class ChangedIndexError(Exception):
    """The index that was kept is of another version of the object."""


@dataclass
class Index:
    """The blocks of an object that have its index."""

    size: int
    """Of the object, in bytes."""
    validator: str
    blocks: dict[int, bytes] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(map(len, self.blocks.values()))


class Indexes:
    """The indexes of the objects that were read last."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most, self._lock = most, threading.Lock()
        self._found: OrderedDict[Any, Index] = OrderedDict()

    def get(self, key: Any) -> Index | None:
        """Return the index of an object, if it is kept."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: Any, index: Index) -> None:
        """Keep an index, and forget those that were not used for the longest time."""
        with self._lock:
            self._found[key] = index
            self._found.move_to_end(key)
            held = sum(each.held for each in self._found.values())
            while held > self._most and self._found:
                held -= self._found.popitem(last=False)[1].held

    def drop(self, key: Any) -> None:
        """Forget an index."""
        with self._lock:
            self._found.pop(key, None)


indexes = PerProcess(Indexes)

_READERS = 16
"""Readers that a process keeps."""


class Readers:
    """Readers that opened an object, and are not in use: to open one takes longer than to read a short part.

    Each has its file, which has the index of the object.
    """

    def __init__(self, most: int = _READERS) -> None:
        self._most, self._lock = most, threading.Lock()
        self._idle: list[tuple[Any, RangedFile, Any]] = []

    def take(self, key: Any) -> tuple[RangedFile, Any] | None:
        """Return the file and the reader of an object for the caller alone, if there is one."""
        with self._lock:
            at = next((at for at, each in enumerate(self._idle) if each[0] == key), None)
            return None if at is None else self._idle.pop(at)[1:]

    def put(self, key: Any, file: RangedFile, reader: Any) -> None:
        """Keep a reader, and close the one that was not used for the longest time if there are too many."""
        with self._lock:
            self._idle.append((key, file, reader))
            old = self._idle.pop(0)[2] if len(self._idle) > self._most else None
        if old is not None:
            old.close()


readers = PerProcess(Readers)


class RangedFile(RawStream):
    """Reads an object in blocks, which it holds until it is closed.

    An error ends the file, and is in `error`: libraries that call it from C would lose it.

    Args:
        stream: the object; it can seek.
        reserve: called with the number of bytes that are held, before there are more; may raise.
        index: blocks of an earlier reading.
    """

    def __init__(self, stream: Any, reserve: Callable[[int], None], index: Index | None = None) -> None:
        self._stream, self._reserve, self._index = stream, reserve, index
        self._blocks = {} if index is None else dict(index.blocks)
        self._size = None if index is None else index.size
        self._held = self._at = 0
        self._following, self._count = -1, FIRST
        """The block after those of the last request, and the number of these."""
        self._requests = 0
        self.error: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        if self.error is not None:
            return b""
        try:
            end = self._end()
            stop = end if size < 0 else min(end, self._at + size)
            first = self._at // BLOCK
            pieces = [self._block(number, stop) for number in range(first, -(-stop // BLOCK))]
            data = b"".join(pieces)[self._at - first * BLOCK : stop - first * BLOCK]
        except Exception as error:
            self.error = error
            return b""
        self._at += len(data)
        return data

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
            self._at = max(0, offset + (self._end() if base is None else base))
        except Exception as error:
            self.error = error
        return self._at

    def index(self) -> Index | None:
        """Return what was read so far, for other readings; None if it cannot be recognized again."""
        validator = _validator_of(self._stream)
        if self._index is not None or validator is None or self._size is None:
            return self._index
        return Index(self._size, validator, dict(self._blocks))

    def rest(self, index: Index) -> None:
        """Forget all but the index, until `renew`."""
        self._index, self._blocks = index, dict(index.blocks)
        self._stream, self._reserve = None, _refuse_blocks

    def renew(self, stream: Any, reserve: Callable[[int], None]) -> None:
        """Read the object of the index through a stream from now on."""
        self._stream, self._reserve = stream, reserve
        self._held = self._requests = 0
        self._following, self._count = -1, FIRST

    def confirm(self) -> None:
        """Make sure that the object is the one of the index. Raises as a request does, and ChangedIndexError."""
        if self._requests == 0 and self._index is not None:
            self._load(0, 1)

    def _end(self) -> int:
        if self._size is None:
            self._load(0, FIRST)  # before the size is asked for, which would request all
            self._size = self._stream.seek(0, io.SEEK_END)
        return self._size

    def _block(self, number: int, stop: int) -> bytes:
        found = self._blocks.get(number)
        if found is None:
            self._count = min(2 * self._count, LARGEST) if number == self._following else FIRST
            needed = -(-stop // BLOCK) - number
            count, most = 1, -(-self._end() // BLOCK) - number
            while count < min(max(needed, self._count), most) and number + count not in self._blocks:
                count += 1
            self._load(number, count)
            found = self._blocks[number]
        return found

    def _load(self, number: int, count: int) -> None:
        """Request blocks."""
        self._held += count * BLOCK
        self._reserve(self._held)
        self._requests += 1
        self._following = number + count
        stream = self._stream
        if hasattr(stream, "span"):
            stream.span = count * BLOCK
        stream.seek(number * BLOCK)
        data, piece = bytearray(), b"-"
        while piece and len(data) < count * BLOCK:
            piece = stream.read(count * BLOCK - len(data))
            data += piece
            if self._index is not None and _validator_of(stream) != self._index.validator:
                raise ChangedIndexError
        view = memoryview(data)
        for at in range(0, len(data), BLOCK):
            self._blocks[number + at // BLOCK] = bytes(view[at : at + BLOCK])
        if self._size is not None and number * BLOCK + len(data) < min(self._size, (number + count) * BLOCK):
            raise ShardError(f"it ends at byte {number * BLOCK + len(data):,} of {self._size:,}")


def _refuse_blocks(size: int) -> None:
    raise ValueError("nobody reads this file now")


def _validator_of(stream: Any) -> str | None:
    """Return what two streams have in common only if they read the same object; None if it is not known."""
    if isinstance(stream, io.FileIO):
        about = os.fstat(stream.fileno())
        return f"{about.st_dev}-{about.st_ino}-{about.st_size}-{about.st_mtime_ns}"
    validator: str | None = getattr(stream, "validator", None)
    return validator
