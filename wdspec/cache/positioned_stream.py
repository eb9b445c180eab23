"""A store's stream read by offsets: what a reader goes on with when no copy is made."""

from __future__ import annotations

import os
from typing import BinaryIO

from wdspec.errors import ShardError
from wdspec.streams.resuming_stream import PIECE


class PositionedStream:
    """A store's stream, from `at` on: first what was taken from it already, then the stream itself.

    Args:
        stream: closed by `close`.
        at: offset in the shard of the first byte of `pending`.
        pending: bytes taken from the stream and not used.
    """

    def __init__(self, stream: BinaryIO, at: int = 0, pending: bytes = b"") -> None:
        self._stream, self.at, self._pending = stream, at, pending

    @property
    def seekable(self) -> bool:
        return self._stream.seekable()

    def length(self) -> int:
        """The length of the shard, of a stream that can seek."""
        self.at, self._pending = self._stream.seek(0, os.SEEK_END), b""
        return self.at

    def read_at(self, position: int, size: int) -> bytes:
        """At most so many bytes from a position on; b"" at the end. Raises ShardError."""
        if position != self.at and self.seekable:
            self._stream.seek(position)
            self.at, self._pending = position, b""
        while self.at < position and self._take(min(PIECE, position - self.at)):
            pass
        if self.at > position:
            raise ShardError(
                "this shard cannot be read again from an earlier offset: its store serves no ranges"
            )
        return self._take(size) if self.at == position else b""

    def close(self) -> None:
        self._stream.close()

    def _take(self, size: int) -> bytes:
        if self._pending:
            data, self._pending = self._pending[:size], self._pending[size:]
        else:
            data = self._stream.read(size)
        self.at += len(data)
        return data
