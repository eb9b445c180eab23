"""Compressed shards, recognised by their first bytes: names lie (`.tar.gz` on a plain tar, and the reverse)."""

from __future__ import annotations

from typing import Any, BinaryIO, cast

from wdspec.errors import ShardError
from wdspec.formats.compression.kinds import LONGEST_MAGIC, Compression, Decompressor, recognised
from wdspec.system.raw_stream import RawStream

_INPUT = 64 * 1024
_PADDING = 64 * 1024
"""Zeros that may follow a compressed stream, as tapes and some stores fill up. Another stream may have been there."""


def decompressed(file: BinaryIO) -> BinaryIO:
    """The uncompressed bytes of a shard.

    Returns the file itself, at its start, when it is not compressed (and can seek); else a stream that only
    reads forward and closes the file when it is closed. Several compressed streams one after the other are read too.

    Raises:
        ShardError: also on `read`: truncated or damaged data.
        UsageError: zst, and nothing that reads it is installed.
    """
    start = _peek(file)
    compression = recognised(start)
    if compression is not None:
        return cast(BinaryIO, DecompressedFile(_RejoinedFile(file, start), compression))
    if file.seekable():
        file.seek(0)
        return file
    return cast(BinaryIO, _RejoinedFile(file, start))


class DecompressedFile(RawStream):
    """Reads on through compressed streams laid end to end, zeros between and after them aside."""

    def __init__(self, file: Any, compression: Compression) -> None:
        self._file = file
        self.compression = compression
        """Of what is read."""
        self._stream: Decompressor = compression.decompressor(None)
        self._begun = False
        self._input = b""
        self._consumed = 0

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes (all for -1); empty only at the end. Raises ShardError."""
        if size < 0:
            return self.readall()
        while size:
            if self._stream.eof or not self._begun:
                if not self._begin_stream():
                    return b""
            elif self._stream.needs_input:
                self._input = self._fetch()
                if not self._input:
                    raise ShardError(
                        f"truncated: the {self.compression.title} data stops after {self._consumed} bytes in the "
                        "middle of a stream; fetch or write the shard again",
                        code="D114",
                    )
            data, self._input = self._input, b""
            try:
                out = self._stream.decompress(data, size)
            except Exception as error:  # zlib.error, OSError, LZMAError, EOFError, ZstdError
                raise ShardError(
                    f"corrupt {self.compression.title} data within its first {self._consumed} bytes: {error}; "
                    "fetch or write the shard again",
                    code="D114",
                ) from error
            if out:
                return out
        return b""

    def _begin_stream(self) -> bool:
        """Finds the start of the first or next stream; False at the end of the file."""
        if self._begun:
            self._input = self._stream.unused_data
            self._stream, self._begun = self.compression.decompressor(None), False
        zeros = len(self._input)
        self._input = self._input.lstrip(b"\0")
        zeros -= len(self._input)
        while not self._input:
            piece = self._fetch()
            if not piece:
                return False
            self._input = piece.lstrip(b"\0")
            zeros += len(piece) - len(self._input)
            if zeros > _PADDING:
                raise ShardError(
                    f"more than {_PADDING} zero bytes follow the {self.compression.title} data before byte "
                    f"{self._consumed}, which no writer puts there: other data is lost; fetch or write the shard "
                    "again",
                    code="D114",
                )
        self._begun = True
        return True

    def _fetch(self) -> bytes:
        try:
            piece: bytes = self._file.read(_INPUT)
        except ShardError as error:
            if not self._consumed:
                raise
            message = f"reading failed after {self._consumed} compressed bytes: {error.message}"
            raise ShardError(message, code=error.code, **error.place) from error
        except OSError as error:
            raise ShardError(f"reading failed after {self._consumed} compressed bytes: {error}") from error
        self._consumed += len(piece)
        return piece


class _RejoinedFile(RawStream):
    """A file that cannot seek, with the bytes already read from its start put back."""

    def __init__(self, file: Any, start: bytes) -> None:
        self._file = file
        self._start = start

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if self._start:
            data, self._start = self._start[:size], self._start[size:]
            return data
        more: bytes = self._file.read(size)
        return more


def _peek(file: BinaryIO) -> bytes:
    start = b""
    try:
        while len(start) < LONGEST_MAGIC:
            piece = file.read(LONGEST_MAGIC - len(start))
            if not piece:
                break
            start += piece
    except ShardError:
        raise
    except OSError as error:
        raise ShardError(f"reading failed at the start of the shard: {error}") from error
    return start
