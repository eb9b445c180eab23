"""Compressed shards, recognised by their first bytes: names lie (`.tar.gz` on a plain tar, and the reverse)."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any, BinaryIO, Protocol, cast

from wdspec.errors import ShardError
from wdspec.system.raw_stream import RawStream

_INPUT = 64 * 1024
_LONGEST_MAGIC = 10
_BZ2_STARTS = (b"1AY&SY", b"\x17rE8P\x90")  # the first block, or the end of an empty stream


class Decompressor(Protocol):
    """One compressed stream, as `bz2.BZ2Decompressor` has it."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def decompressed(file: BinaryIO) -> BinaryIO:
    """The uncompressed bytes of a shard.

    Returns the file itself, at its start, when it is not compressed (and can seek); else a stream that only
    reads forward and closes the file when it is closed. gz, bz2, xz and zst are known, several compressed
    streams one after the other too. Truncated or corrupt data raises ShardError on `read`; so does zst, at once,
    on a Python without it.
    """
    start = _peek(file)
    if start.startswith(b"\x1f\x8b"):
        return _reader(file, start, "gzip", _Gunzip)
    if start[:3] == b"BZh" and start[4:] in _BZ2_STARTS:
        return _reader(file, start, "bzip2", bz2.BZ2Decompressor)
    if start.startswith(b"\xfd7zXZ\0"):
        return _reader(file, start, "xz", _unxz)
    # Zstandard data may begin with frames to be skipped, as pzstd writes them.
    if start[:4] == b"\x28\xb5\x2f\xfd" or (start[1:4] == b"\x2a\x4d\x18" and 0x50 <= start[0] <= 0x5F):
        return _reader(file, start, "zstd", _zstd())
    if file.seekable():
        file.seek(0)
        return file
    return cast(BinaryIO, _Rejoined(file, start))


class DecompressedFile(RawStream):
    """Reads on through compressed streams laid end to end, zeros between and after them aside."""

    def __init__(self, file: Any, kind: str, new: Any) -> None:
        self._file = file
        self._kind = kind
        self._new = new
        self._stream: Decompressor | None = None
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
            stream = self._stream
            if stream is None or stream.eof:
                if stream is not None:
                    self._input = stream.unused_data
                    self._stream = None
                self._input = self._input.lstrip(b"\0")
                while not self._input:
                    piece = self._fetch()
                    if not piece:
                        return b""
                    self._input = piece.lstrip(b"\0")
                stream = self._stream = self._new()
            elif stream.needs_input:
                self._input = self._fetch()
                if not self._input:
                    raise ShardError(
                        f"truncated: the {self._kind} data stops after {self._consumed} bytes in the middle of a "
                        "stream; fetch or write the shard again"
                    )
            data, self._input = self._input, b""
            try:
                out = stream.decompress(data, size)
            except Exception as error:  # zlib.error, OSError, LZMAError, EOFError, ZstdError
                raise ShardError(
                    f"corrupt {self._kind} data within its first {self._consumed} bytes: {error}; "
                    "fetch or write the shard again"
                ) from error
            if out:
                return out
        return b""

    def _fetch(self) -> bytes:
        try:
            piece: bytes = self._file.read(_INPUT)
        except ShardError as error:
            if not self._consumed:
                raise
            message = f"reading failed after {self._consumed} compressed bytes: {error.message}"
            raise ShardError(message, **error.place) from error
        except OSError as error:
            raise ShardError(f"reading failed after {self._consumed} compressed bytes: {error}") from error
        self._consumed += len(piece)
        return piece


class _Gunzip:
    """`zlib` in the manner of the other decompressors."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max(max_length, 0))

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail and not self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data


class _Unzstd:
    """The `zstandard` package in the manner of the other decompressors.

    It cannot limit its output, so it gets little input at a time and what is too much waits here.
    """

    _STEP = 4096

    def __init__(self, zstandard: Any) -> None:
        self._stream = zstandard.ZstdDecompressor().decompressobj()
        self._input = b""
        self._output = b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        self._input += data
        if not self._output:
            piece, self._input = self._input[: self._STEP], self._input[self._STEP :]
            self._output = self._stream.decompress(piece)
        end = len(self._output) if max_length < 0 else max_length
        out, self._output = self._output[:end], self._output[end:]
        return out

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof) and not self._output

    @property
    def needs_input(self) -> bool:
        return not self._input and not self._output and not self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return bytes(self._stream.unused_data) + self._input


class _Rejoined(RawStream):
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
        while len(start) < _LONGEST_MAGIC:
            piece = file.read(_LONGEST_MAGIC - len(start))
            if not piece:
                break
            start += piece
    except ShardError:
        raise
    except OSError as error:
        raise ShardError(f"reading failed at the start of the shard: {error}") from error
    return start


def _reader(file: BinaryIO, start: bytes, kind: str, new: Any) -> BinaryIO:
    return cast(BinaryIO, DecompressedFile(_Rejoined(file, start), kind, new))


def _unxz() -> Decompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ)


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14

        return zstd.ZstdDecompressor
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError as error:
        raise ShardError(
            "the shard is compressed with zstd, which this Python cannot read: pip install 'wdspec[zstd]'"
        ) from error
    return lambda: _Unzstd(zstandard)
