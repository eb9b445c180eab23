"""Compressed fields to be written, as `unpacking` reads them: ``json.gz`` is json, then packed. No time, no name."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable

from wdspec.decoders.libraries import library


def gzipped(data: bytes) -> bytes:
    """One gzip member: the same bytes for the same data."""
    stream = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = stream.compress(data) + stream.flush()
    end = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + body + end


def zstandarded(data: bytes) -> bytes:
    """One zstd frame. Raises UsageError where no zstd is installed."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        packed: bytes = library("zstandard", "writing zst").compress(data)
        return packed
    return zstd.compress(data)  # type: ignore[no-any-return,unused-ignore]  # untyped before 3.14


PACKERS: dict[str, tuple[Callable[[bytes], bytes], bytes]] = {
    "gz": (gzipped, b"\x1f\x8b\x08"),
    "bz2": (bz2.compress, b"BZh"),
    "xz": (lzma.compress, b"\xfd7zXZ\0"),
    "zst": (zstandarded, b"\x28\xb5\x2f\xfd"),
}
"""Last part of a suffix → what packs the data, and how packed data begins."""
