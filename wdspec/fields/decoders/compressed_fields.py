"""Compressed fields: ``json.gz`` is unpacked, then read as json. The suffix says so, and the data must agree."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from wdspec.decoders.libraries import library

MAX_DECOMPRESSED = 1 << 30
"""Bytes to which one compressed field may grow (1 GiB); beyond, it is taken for a decompression bomb."""
_MAX_DICTIONARY = 1 << 28
"""Memory that one xz or zstd stream may ask for; `xz -9` needs 65 MiB, `zstd --ultra -22` 128 MiB."""


def gunzip(data: bytes) -> bytes:
    """Decompresses a gzip field, of one member or several.

    Raises:
        ValueError: it grows beyond `MAX_DECOMPRESSED`. (OSError, EOFError, zlib.error: it is no whole gzip file.)
    """
    stream = zlib.decompressobj(31)
    result = stream.decompress(data, MAX_DECOMPRESSED + 1)
    check_size(len(result))
    if stream.eof and not stream.unused_data:
        return result
    if not data:
        raise EOFError("the file is empty")
    # Several members, padding or an error: rare, and gzip's own reader knows the rules.
    result = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_DECOMPRESSED + 1)
    check_size(len(result))
    return result


def unbzip2(data: bytes) -> bytes:
    """Decompresses a bzip2 field; raises as `gunzip`."""
    return _streams(data, bz2.BZ2Decompressor)


def unxz(data: bytes) -> bytes:
    """Decompresses an xz field; raises as `gunzip`, and lzma.LZMAError."""
    return _streams(data, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_DICTIONARY))


def unzstd(data: bytes) -> bytes:
    """Decompresses a zstd field; raises as `gunzip`, and UsageError where no zstd is installed."""
    return _streams(data, _zstd())


UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gunzip,
    "bz2": unbzip2,
    "xz": unxz,
    "zst": unzstd,
}
"""Last part of a suffix → what undoes it."""


def unpacked(suffix: str) -> tuple[str, tuple[str, ...]]:
    """A suffix without its packings, and these, outermost first: ``json.gz`` is ``json`` and ``(gz,)``."""
    layers: list[str] = []
    while True:
        rest, _, last = suffix.rpartition(".")
        if last not in UNPACKERS:
            return suffix, tuple(layers)
        suffix = rest
        layers.append(last)


def check_size(size: int) -> None:
    """Raises ValueError for a field that unpacks to more than `MAX_DECOMPRESSED` bytes."""
    if size > MAX_DECOMPRESSED:
        raise ValueError(f"it decompresses to more than {MAX_DECOMPRESSED:,} bytes; read it as `raw`")


def _streams(data: bytes, new: Callable[[], Any]) -> bytes:
    """Compressed streams, one after the other."""
    parts: list[bytes] = []
    size = 0
    while True:
        stream = new()
        part = stream.decompress(data, MAX_DECOMPRESSED + 1 - size)
        size += len(part)
        check_size(size)
        parts.append(part)
        if not stream.eof:
            raise EOFError("the compressed data ends early" if data else "the file is empty")
        data = stream.unused_data
        if not data:
            return parts[0] if len(parts) == 1 else b"".join(parts)


@lru_cache(maxsize=1)
def _zstd() -> Callable[[], Any]:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        zstandard = library("zstandard", "unpacking zst")
        return lambda: _Unzstd(zstandard.ZstdDecompressor(max_window_size=_MAX_DICTIONARY).decompressobj())
    options = {zstd.DecompressionParameter.window_log_max: _MAX_DICTIONARY.bit_length() - 1}
    return lambda: zstd.ZstdDecompressor(options=options)


class _Unzstd:
    """A stream of the `zstandard` package, which knows no limit and so gets little data at a time."""

    _STEP = 4096

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        parts: list[bytes] = []
        left = max_length
        for start in range(0, len(data), self._STEP):
            parts.append(self._stream.decompress(data[start : start + self._STEP]))
            left -= len(parts[-1])
            if self._stream.eof:
                self.unused_data = bytes(self._stream.unused_data) + data[start + self._STEP :]
            if left <= 0 or self._stream.eof:
                break
        return b"".join(parts)
