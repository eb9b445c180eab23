"""A moving window of bytes over one shard: read in large pieces, and sliced by readers.

It reads into `bytes` and does not map the file: if a mapped shard is truncated, SIGBUS kills the process, while a short
read can be reported. 256 KiB fit in the second-level cache, so slicing a member out of the window costs hardly more
than reading it in place.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import BinaryIO

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.process import PerProcess

BLOCK = 512
"""Bytes of a block, the unit of tars."""
REFETCH = "fetch or write the shard again, and compare its size with the original's"
"""The remedy for a damaged shard of any format."""
MAY_BE_EMPTY = "or set `empty: allow` (in Python: `may_be_empty=True`) if shards may be empty"
"""The remedy for a shard without samples, where that is intended."""
LENIENT = "or set `tar: {end: lenient}` (in Python: `lenient_end=True`)"
"""The remedy for a tar without its usual end, where that is intended."""
CHUNK = 256 * 1024
LEAST_CHUNK = 32 * 1024
WINDOWS = 64 * 1024 * 1024
"""Bytes that the windows of a mix of many sources may have together."""
_BETWEEN = 8 * 1024
"""Bytes to read between members that are larger than a window of a mix of many: then a larger one is of no use."""
_JOINED = 16 * 1024
"""The most bytes to copy twice in order to save a read."""
_PIECE = 64 * 1024 * 1024


class _Windows:
    def __init__(self) -> None:
        self.chunk, self.count = CHUNK, 0


_windows = PerProcess(_Windows)


def narrow_windows(count: int) -> None:
    """Let windows that are opened from now on share their bytes with `count` more (or fewer) of a mix of many."""
    windows = _windows.value
    windows.count += count
    windows.chunk = chunk_among(windows.count)


def chunk_among(count: int) -> int:
    """Return the bytes that each of the windows of a mix of many sources reads at a time."""
    return max(LEAST_CHUNK, min(CHUNK, WINDOWS // max(1, count) // BLOCK * BLOCK))


def window_bytes() -> int:
    """Return the bytes that windows which are opened from now on read at a time."""
    return _windows.value.chunk


class Blocks:
    """The bytes of a shard from `base` on, in `buffer`. All offsets count from the start of the shard.

    Args:
        file: open at the start of the shard; `read(n)` may return fewer bytes than requested.
        offset: where to start. A file that cannot seek is read up to there.
        on_read: called with the number of bytes of each piece that is read.
    """

    __slots__ = ("_end", "_failure", "_next", "_on_read", "_process", "base", "buffer", "chunk", "file")

    def __init__(
        self, file: BinaryIO, offset: int = 0, on_read: Callable[[int], object] | None = None
    ) -> None:
        self.file = file
        self._on_read = on_read
        self._process = os.getpid()
        self.buffer, self.base = b"", 0
        self.chunk, self._next = _windows.value.chunk, 0  # bytes to read at a time; the next time, if not 0
        self._end = 0  # bytes that the shard has, at least
        self._failure: ShardError | None = None
        if offset:
            self.find(offset)

    @property
    def seekable(self) -> bool:
        """Whether the file can seek."""
        return self.file.seekable()

    @property
    def has_failed(self) -> bool:
        """Whether the window ends because reading failed, and not by choice or with the shard."""
        return self._failure is not None

    def find(self, offset: int, size: int = BLOCK, least: int | None = None) -> int:
        """Move the window so that it contains `size` bytes from `offset` on, or all that the shard has.

        With `least`, fewer new bytes are enough if reading then fails, but at least this number.

        Returns the index of `offset` in `buffer`, which is its length if the shard ends there. Raises ShardError if the
        shard ends before.
        """
        at = offset - self.base
        if at + size <= len(self.buffer):
            return at
        if 0 < (gap := at - len(self.buffer)) < BLOCK:  # the padding of a member, which is not worth a read
            self.take(offset - gap, gap)
            return self.find(offset, size, least)
        if gap > 0:
            self._skip(offset)
        rest = self.buffer[at:]
        # Each piece ends at the end of a block, so that headers are whole and pieces need not be joined.
        wanted, self._next = max(self._next or self.chunk, size - len(rest)), 0
        padding = -(offset + len(rest) + wanted) % BLOCK
        self.buffer, self.base = rest + self._read(wanted + padding, least or size - len(rest)), offset
        return 0

    def take(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, in the window or later. Raises ShardError if some are missing."""
        at = offset - self.base
        if at > len(self.buffer):
            at = self.find(offset)
        data = self.buffer[at : at + size]
        missing = size - len(data)
        if missing:
            if size > self.chunk < CHUNK:
                self._next = _BETWEEN
            if missing > _PIECE and self.seekable:  # before allocating what a damaged header claims
                if self.seek(0, io.SEEK_END) < offset + size:
                    raise self.truncated(offset + size)
                self.come_back()
            # The next piece starts a new window: of a large member, no byte is copied twice.
            self.buffer, self.base = b"", self.base + len(self.buffer)
            if missing <= _JOINED and size <= self.chunk:
                self.find(self.base, missing)
                rest = self.buffer[:missing]
            else:
                rest = self._read(missing, missing)
                self.base += len(rest)
            data += rest
            if len(data) < size:
                raise self.truncated(offset + size)
        return data

    def take_elsewhere(self, offset: int, size: int) -> bytes:
        """Return bytes from any place of a seekable shard, without moving the window."""
        self.seek(offset)
        pieces: list[bytes] = []
        self._read_into(pieces, size)
        data = b"".join(pieces)
        self.come_back()
        if len(data) < size:
            raise self.truncated(offset + size)
        return data

    def come_back(self) -> None:
        """Put the file back to the end of this window, after its position was changed."""
        self.seek(self.base + len(self.buffer))

    def _skip(self, offset: int) -> None:
        """Move the file to `offset`, after the window, which is then empty."""
        self.base += len(self.buffer)
        self.buffer = b""
        if self.seekable and offset - self.base > self.chunk:
            # Seeking past the end is not an error for the system, and would hide that data is missing.
            if offset > self._end:
                self._end = self.seek(0, io.SEEK_END)
            self.base = self.seek(min(offset, self._end))
        while self.base < offset:
            wanted = min(offset - self.base, CHUNK)
            piece = self._read(wanted, wanted)
            if not piece:
                raise self.truncated(offset)
            self.base += len(piece)

    def _read(self, size: int, least: int) -> bytes:
        """Read `size` bytes, or fewer if the shard ends, or if reading fails after at least `least` bytes.

        Such a failure is raised by the next read: the bytes before it are complete, and may be a sample.
        """
        if self._failure is not None:
            raise self._failure
        pieces: list[bytes] = []
        try:
            self._read_into(pieces, size)
        except ShardError as error:
            if sum(map(len, pieces)) < least:
                raise
            self._failure = error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_into(self, pieces: list[bytes], size: int) -> None:
        """Read `size` bytes into pieces, or fewer if the shard ends."""
        have = 0
        check_owner(self._process)
        try:
            while have < size and (data := self.file.read(min(size - have, _PIECE))):
                pieces.append(data)
                have += len(data)
        except ShardError:
            raise
        except OSError as error:
            raise ShardError(f"reading failed: {error}", offset=self.base + len(self.buffer)) from error
        finally:
            if self._on_read is not None:
                self._on_read(have)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the file, not the window, and return its position."""
        check_owner(self._process)
        try:
            return self.file.seek(offset, whence)
        except OSError as error:
            raise ShardError(f"seeking to byte {offset} failed: {error}") from error

    def truncated(self, wanted: int) -> ShardError:
        """Return the error for a shard that ends with the window, before offset `wanted`."""
        end = self.base + len(self.buffer)
        return ShardError(
            f"truncated: the shard ends at byte {end}, before byte {wanted}; {REFETCH}", code="D107"
        )


def check_owner(process: int) -> None:
    """Raise a UsageError unless this process has opened the shard."""
    if os.getpid() != process:
        raise UsageError(
            "this shard was opened by another process, before a fork, and both would share its position; let each "
            "process start its own iteration"
        )
