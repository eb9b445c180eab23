"""A moving window of bytes over one shard: read in large pieces, sliced by whoever walks it.

Plain reads into `bytes`, no memory map: a shard that is truncated under a map kills the process with SIGBUS,
while a short read is an error that can be told. 256 KiB stays in the second-level cache, so slicing a member
out of the window hardly costs more than reading it in place.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.process import Owner

BLOCK = 512
"""Bytes of a tar's unit."""
REFETCH = "fetch or write the shard again, and compare its size with the original's"
"""What to do about a shard that is damaged, of any format."""
CHUNK = 256 * 1024
_PIECE = 64 * 1024 * 1024


class Blocks:
    """The bytes `buffer` of a shard from `base` on; every offset here counts from the start of the shard.

    Args:
        file: opened at the start of the shard; `read(n)` may return fewer bytes than asked.
        offset: where to start. A file that cannot seek is read up to there.
        on_read: called with the number of bytes of each piece that is read.
    """

    __slots__ = ("_failure", "_on_read", "_owner", "base", "buffer", "file", "seekable")

    def __init__(
        self, file: BinaryIO, offset: int = 0, on_read: Callable[[int], object] | None = None
    ) -> None:
        self.file = file
        self._on_read = on_read
        self._owner = Owner()
        self.seekable = file.seekable()
        self.buffer = b""
        self.base = 0
        self._failure: ShardError | None = None
        if self.seekable:
            self._seek(0)
        if offset:
            self.find(offset)

    @property
    def has_failed(self) -> bool:
        """Whether the window ends where reading failed, and not by choice or with the shard."""
        return self._failure is not None

    def find(self, offset: int, size: int = BLOCK, least: int | None = None) -> int:
        """Moves the window so that it holds `size` bytes from `offset` on, as far as the shard has them.

        With `least`, it may also hold less, by as little as so many new bytes, where reading fails behind them.

        Returns the index of `offset` in `buffer`: equal to its length when the shard ends just there. Raises
        ShardError when it ends before.
        """
        at = offset - self.base
        if at + size <= len(self.buffer):
            return at
        if at <= len(self.buffer):
            kept = self.buffer[at:]
        else:
            self._skip(offset)
            kept = b""
        # Ending each piece on a block keeps headers whole, which saves joining pieces.
        end = offset + len(kept)
        wanted = max(CHUNK, size - len(kept))
        piece = self._more(wanted + -(end + wanted) % BLOCK, size - len(kept) if least is None else least)
        self.buffer = kept + piece if kept else piece
        self.base = offset
        return 0

    def take(self, offset: int, size: int) -> bytes:
        """The `size` bytes at `offset`, in the window or later. Raises ShardError if some are missing."""
        at = offset - self.base
        if at > len(self.buffer):
            at = self.find(offset)
        data = self.buffer[at : at + size]
        missing = size - len(data)
        if missing:
            if missing > _PIECE and self.seekable and self._seek(0, io.SEEK_END) < offset + size:
                raise self.truncated(offset + size)  # before asking for memory that a damaged header wants
            # Only what is missing: the next piece then starts fresh, and no byte moves more than once.
            self.base += len(self.buffer)
            self.buffer = b""
            rest = self._more(missing, missing)
            self.base += len(rest)
            if len(rest) < missing:
                raise self.truncated(offset + size)
            data = data + rest if data else rest
        return data

    def take_elsewhere(self, offset: int, size: int) -> bytes:
        """Bytes from any place of a seekable shard; the window stays where it is."""
        self._seek(offset)
        pieces: list[bytes] = []
        self._read_into(pieces, size)
        data = b"".join(pieces)
        self.come_back()
        if len(data) < size:
            raise self.truncated(offset + size)
        return data

    def come_back(self) -> None:
        """Puts the file where this window goes on after somebody else has moved it."""
        self._seek(self.base + len(self.buffer))

    def _skip(self, offset: int) -> None:
        """Leaves the file at `offset`, beyond the window, which is then empty."""
        self.base += len(self.buffer)
        self.buffer = b""
        if self.seekable and offset - self.base > CHUNK:
            # Seeking past the end is no error to the system, and would hide that data is missing.
            end = self._seek(0, io.SEEK_END)
            if offset <= end:
                self.base = self._seek(offset)
            else:
                self.base = end
        while self.base < offset:
            wanted = min(offset - self.base, CHUNK)
            piece = self._more(wanted, wanted)
            if not piece:
                raise self.truncated(offset)
            self.base += len(piece)

    def _more(self, size: int, least: int) -> bytes:
        """Reads on: `size` bytes, fewer only where the shard ends, or where reading fails after `least` bytes.

        Such a failure is raised when more is asked for: what came before it is whole, and maybe a sample.
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
        """Reads `size` bytes, fewer only where the shard ends."""
        have = 0
        self._check_owner()
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

    def _check_owner(self) -> None:
        if self._owner.is_other:
            raise UsageError(
                "this shard was opened by another process, before a fork, and both would read on from one place in "
                "the file; let each process begin an iteration of its own"
            )

    def _seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_owner()
        try:
            return self.file.seek(offset, whence)
        except OSError as error:
            raise ShardError(f"seeking to byte {offset} failed: {error}") from error

    def truncated(self, wanted: int) -> ShardError:
        """The error for a shard that ends with the window, short of offset `wanted`."""
        end = self.base + len(self.buffer)
        return ShardError(
            f"truncated: the shard ends at byte {end}, before byte {wanted}; {REFETCH}", code="D107"
        )
