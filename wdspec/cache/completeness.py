"""Whether what was fetched is a whole shard, as far as its first and last bytes show."""

from __future__ import annotations

import bz2
import lzma
import os
import re
import zlib
from typing import Any

from wdspec.errors import ShardError

NO_TAR = re.compile(
    r"\.(?:cbors?|msgpack|mps?|jsonl|ndjson)(?:\.(?:gz|bz2|xz|zst))?(?:[?#].*)?\Z", re.IGNORECASE
)
"""Ends of the names of shards that are no tars."""
_BLOCK = 512
_PIECE = 1024 * 1024
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def check_whole(descriptor: int, total: int | None, *, tar: bool, lenient_end: bool) -> None:
    """Checks a file that is about to become a copy: its length, that it is a shard, and that its end is there.

    Compressed shards whose length the store did not say are decompressed once (but zstd).

    Args:
        total: the length the store said, in bytes.
        tar: whether it must be a tar, compressed or not; else anything but a page of HTML or XML will do.
        lenient_end: whether the tar may lack its end marker.

    Raises:
        ShardError: says what was seen.
    """
    size = os.fstat(descriptor).st_size
    if total is not None and size != total:
        raise ShardError(f"{size} bytes came, where {total} were announced")
    start = os.pread(descriptor, _BLOCK, 0)
    kind = next((kind for magic, kind in _COMPRESSED.items() if start.startswith(magic)), None)
    if kind is not None:
        if total is None:
            _check_compressed(descriptor, kind)
    elif _is_tar(start):
        end = os.pread(descriptor, 2 * _BLOCK, max(0, size - 2 * _BLOCK))
        if not lenient_end and (size % _BLOCK or len(end) < 2 * _BLOCK or any(end)):
            raise ShardError(
                "truncated: the tar does not end with its end marker, two blocks of zeros; write the shard again, or "
                "set `tar: {end: lenient}` if it is known to lack one"
            )
    elif tar or start.lstrip()[:1] == b"<":
        seen = f"begins with {start[:40]!r}" if start else "is empty"
        raise ShardError(
            f"what came is no shard: it {seen}; nothing was kept. Does the URL lead to the file itself, and does the "
            "server want a login?"
        )


def _is_tar(start: bytes) -> bool:
    """Whether a block is the header of a tar's first member, or the end marker of an empty tar."""
    if len(start) < _BLOCK:
        return False
    if start[257:262] == b"ustar" or not any(start):
        return True
    try:
        said = int(start[148:156].strip(b" \0") or b"-", 8)
    except ValueError:
        return False
    return said == sum(start[:148]) + 8 * ord(" ") + sum(start[156:])


def _check_compressed(descriptor: int, kind: str) -> None:
    makers: dict[str, Any] = {
        "gzip": lambda: zlib.decompressobj(wbits=31),
        "bzip2": bz2.BZ2Decompressor,
        "xz": lzma.LZMADecompressor,
    }
    if kind not in makers:
        return
    stream, at = makers[kind](), 0
    try:
        while piece := os.pread(descriptor, _PIECE, at):
            at += len(piece)
            while piece:
                if stream.eof:
                    piece = piece.lstrip(b"\0")
                    if not piece:
                        break
                    stream = makers[kind]()
                stream.decompress(piece)
                piece = stream.unused_data
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ShardError(f"corrupt {kind} data: {error}") from error
    if not stream.eof:
        raise ShardError(f"truncated: the {kind} data stops after {at} bytes in the middle of a stream")
