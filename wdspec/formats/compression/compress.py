"""Compressed shards to be written: the same bytes for the same data, whenever and wherever."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any, Literal, Protocol

from wdspec.errors import UsageError

Compression = Literal["gz", "bz2", "xz", "zst"]

_SUFFIXES: tuple[tuple[str, Compression], ...] = (
    (".gz", "gz"),
    (".tgz", "gz"),
    (".bz2", "bz2"),
    (".tbz", "bz2"),
    (".tbz2", "bz2"),
    (".xz", "xz"),
    (".txz", "xz"),
    (".zst", "zst"),
    (".tzst", "zst"),
    (".zstd", "zst"),
)
_NAMES: dict[object, Compression | None] = {
    **dict.fromkeys((True, "gz", "gzip"), "gz"),
    **dict.fromkeys(("bz2", "bzip2"), "bz2"),
    "xz": "xz",
    **dict.fromkeys(("zst", "zstd"), "zst"),
    **dict.fromkeys((False, "", "none"), None),
}

# 10 bytes as RFC 1952 has them, without name and time: no trace of where and when.
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


class Compressor(Protocol):
    """One stream being compressed, as `bz2.BZ2Compressor` has it."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def compression_of(name: str, asked: bool | str | None = None) -> Compression | None:
    """How a shard is to be compressed.

    Args:
        name: its name, whose suffix decides where nothing is asked for.
        asked: ``gz``, ``bz2``, ``xz``, ``zst``; True for gz, False for none; None to go by the name.

    Raises:
        UsageError: another compression is asked for.
    """
    if asked is None:
        lowered = name.lower()
        return next((kind for suffix, kind in _SUFFIXES if lowered.endswith(suffix)), None)
    try:
        return _NAMES[asked]
    except (KeyError, TypeError):
        raise UsageError(f"there is no compression {asked!r}; use gz, bz2, xz, zst, True or False") from None


def without_compression(name: str) -> str:
    """A name without the suffix that says how it is compressed; `.tgz` and the like become `.tar`."""
    lowered = name.lower()
    for suffix, _ in _SUFFIXES:
        if lowered.endswith(suffix):
            return name[: -len(suffix)] + (".tar" if suffix[1] == "t" else "")
    return name


def compressor(kind: Compression) -> Compressor:
    """A new stream of this kind.

    Raises:
        UsageError: zst, and nothing that can write it is installed.
    """
    if kind == "gz":
        return _Gzip()
    if kind == "bz2":
        return bz2.BZ2Compressor()
    if kind == "xz":
        return lzma.LZMACompressor()
    stream: Compressor = _zstd()
    return stream


class _Gzip:
    """gzip at zlib's own level 6: level 9, the default of Python's `gzip`, is three times slower and 1 % smaller."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._start = _GZIP_HEADER
        self._crc = zlib.crc32(b"")
        self._size = 0

    def compress(self, data: bytes, /) -> bytes:
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        start, self._start = self._start, b""
        return start + self._deflate.compress(data)

    def flush(self) -> bytes:
        start, self._start = self._start, b""
        size = (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        return start + self._deflate.flush() + self._crc.to_bytes(4, "little") + size


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14

        return zstd.ZstdCompressor()
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError as error:
        raise UsageError("this Python cannot write zstd: pip install 'wdspec[zstd]'") from error
    return zstandard.ZstdCompressor(level=3).compressobj()
