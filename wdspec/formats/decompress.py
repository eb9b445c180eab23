"""Decompressing shards, and checking that compressed data is complete while it arrives.

Compression is recognized by the first bytes, as names can be wrong (`.tar.gz` for a plain tar, or the reverse).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO, cast

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.files import FileStream
from wdspec.formats.compression import LONGEST_MAGIC, Compression, Decompressor, recognize

_INPUT = 64 * 1024
_PADDING = 64 * 1024
"""Maximum number of zeros after a compressed stream, as tapes and some stores add them. More may be a lost stream."""


def decompress(file: BinaryIO, is_plain: Callable[[bytes], bool] | None = None) -> BinaryIO:
    """Return the uncompressed bytes of a shard.

    This is the file itself, at its start, if it is not compressed (and can seek); otherwise a stream that only reads
    forward, and closes the file when it is closed. Several concatenated compressed streams are read as one.

    Args:
        is_plain: whether a shard with these first bytes is not compressed, even if they look like it.

    Raises:
        ShardError: the data is truncated or damaged, also while reading.
        UsageError: the library that reads zst is not installed.
    """
    start = b""
    try:
        while len(start) < LONGEST_MAGIC and (piece := file.read(LONGEST_MAGIC - len(start))):
            start += piece
    except ShardError:
        raise
    except OSError as error:
        raise ShardError(f"reading failed at the start of the shard: {error}") from error
    compression = None if is_plain is not None and is_plain(start) else recognize(start)
    if compression is not None:
        return cast(BinaryIO, DecompressedFile(file, compression, start))
    if file.seekable():
        file.seek(0)
        return file
    return cast(BinaryIO, _RejoinedFile(file, start))


class DecompressedFile(FileStream):
    """Reads concatenated compressed streams, and ignores zeros between and after them."""

    def __init__(self, file: Any, compression: Compression, start: bytes) -> None:
        self._file = file
        self.compression = compression
        """The compression of the file."""
        self._stream: Decompressor = compression.decompressor(None)
        self._started = False
        self._input = start
        self._consumed = len(start)

    def _read(self, size: int) -> bytes:
        while size:
            if self._stream.eof or not self._started:
                if not self._start_stream():
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
                    f"damaged {self.compression.title} data within its first {self._consumed} bytes: {error}; "
                    "fetch or write the shard again",
                    code="D114",
                ) from error
            if out:
                return out
        return b""

    def _start_stream(self) -> bool:
        """Find the start of the first or next stream; return False at the end of the file."""
        if self._started:
            self._input = self._stream.unused_data
            self._stream, self._started = self.compression.decompressor(None), False
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
                    f"{self._consumed}, which no writer adds, so other data is lost; fetch or write the shard again",
                    code="D114",
                )
        self._started = True
        return True

    def _fetch(self) -> bytes:
        try:
            piece: bytes = self._file.read(_INPUT)
        except ShardError as error:
            message = f"reading failed after {self._consumed} compressed bytes: {error.message}"
            raise ShardError(message, code=error.code, **error.place) from error
        except OSError as error:
            raise ShardError(f"reading failed after {self._consumed} compressed bytes: {error}") from error
        self._consumed += len(piece)
        return piece


class _RejoinedFile(FileStream):
    """A file that cannot seek, with the bytes that were read from its start put back."""

    def __init__(self, file: Any, start: bytes) -> None:
        self._file = file
        self._start = start

    def _read(self, size: int) -> bytes:
        if self._start:
            data, self._start = self._start[:size], self._start[size:]
            return data
        more: bytes = self._file.read(size)
        return more


_OUTPUT = 1024 * 1024


class IntegrityCheck:
    """Takes a file piece by piece, decompresses it if it is compressed, and keeps its first and last bytes.

    Args:
        kept: number of uncompressed bytes to keep of each end.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self.start = b""
        self.end = b""
        self.size = 0
        """The number of uncompressed bytes so far."""
        self.known = True
        """Whether the data can be checked, which zstd needs a library for."""
        self._magic: bytes | None = b""
        self._compression: Compression | None = None
        self._stream: Decompressor | None = None
        self._taken = 0

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the file. Raises ShardError if they are damaged."""
        if self._magic is not None:
            self._magic += piece
            if len(self._magic) < LONGEST_MAGIC:
                return
            piece = self._recognize()
        self._take(piece)

    def finish(self) -> None:
        """End the file. Raises ShardError if something is missing."""
        if self._magic is not None:
            self._take(self._recognize())
        if self._stream is not None and not self._stream.eof and self._compression is not None:
            raise ShardError(
                f"truncated: the {self._compression.title} data stops after {self._taken} bytes in the middle of a "
                "stream; fetch or write the shard again",
                code="D114",
            )

    def _recognize(self) -> bytes:
        start, self._magic = self._magic or b"", None
        self._compression = recognize(start)
        return start

    def _take(self, piece: bytes) -> None:
        compression = self._compression
        if compression is None:
            self._keep(piece)
            return
        self._taken += len(piece)
        try:
            while piece and self.known:
                if self._stream is None or self._stream.eof:
                    piece = piece.lstrip(b"\0")  # there may be zeros between and after streams
                    if not piece:
                        return
                    self._stream = compression.decompressor(None)
                self._keep(self._stream.decompress(piece, _OUTPUT))
                while not self._stream.eof and not self._stream.needs_input:
                    self._keep(self._stream.decompress(b"", _OUTPUT))
                piece = self._stream.unused_data if self._stream.eof else b""
        except UsageError:
            self.known, self._stream = False, None
        except Exception as error:  # zlib.error, OSError, LZMAError, EOFError, ZstdError
            raise ShardError(
                f"damaged {compression.title} data within its first {self._taken} bytes: {error}; "
                "fetch or write the shard again",
                code="D114",
            ) from error

    def _keep(self, data: bytes) -> None:
        if len(self.start) < self._kept:
            self.start += data[: self._kept - len(self.start)]
        self.end = data[-self._kept :] if len(data) >= self._kept else (self.end + data)[-self._kept :]
        self.size += len(data)
