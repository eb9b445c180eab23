"""Whether a fetched file is a complete shard, as far as its first and last bytes show."""

from __future__ import annotations

import os
from contextlib import suppress

from wdspec.errors import ShardError, UsageError
from wdspec.formats.compression.decompressed_file import decompressed
from wdspec.formats.compression.kinds import LONGEST_MAGIC, recognised
from wdspec.formats.tar.headers import BLOCK, ZERO_BLOCK, read_header
from wdspec.redaction import answered

_PIECE = 1024 * 1024


def check_copy(descriptor: int, total: int | None, *, url: str, tar: bool, lenient_end: bool) -> None:
    """Checks a file that is about to become a copy: its length, that it is a shard, and that it has its end.

    Compressed shards whose length the store did not say are decompressed once, if what reads them is installed.

    Args:
        descriptor: of the file; left at its end, where it is written on.
        total: its length in bytes as the store announced it.
        url: that it came from, which a page of a server may repeat.
        tar: whether it must be a tar, compressed or not; else anything but a page of HTML or XML will do.
        lenient_end: whether the tar may lack its end marker.

    Raises:
        ShardError: says what was seen.
    """
    size = os.fstat(descriptor).st_size
    if total is not None and size != total:
        raise ShardError(f"{size} bytes came, where {total} were announced")
    start = os.pread(descriptor, BLOCK, 0)
    if recognised(start[:LONGEST_MAGIC]):
        if total is None:
            _decompress(descriptor)
    elif _begins_tar(start):
        end = os.pread(descriptor, 2 * BLOCK, max(0, size - 2 * BLOCK))
        if not lenient_end and (size % BLOCK or end != 2 * ZERO_BLOCK):
            raise ShardError(
                "truncated: the tar does not end with its end marker, two blocks of zeros; write the shard again, or "
                "set `tar: {end: lenient}` if it is known to lack one"
            )
    elif tar or not start or start.lstrip()[:1] == b"<":
        seen = f"begins with {answered(repr(start[:40]), url)}" if start else "is empty"
        raise ShardError(
            f"what came is no shard: it {seen}; nothing was kept. Does the URL lead to the file itself, and does the "
            "server want a login?"
        )


def _decompress(descriptor: int) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with suppress(UsageError), open(descriptor, "rb", buffering=0, closefd=False) as file:
        stream = decompressed(file)
        while stream.read(_PIECE):
            pass


def _begins_tar(start: bytes) -> bool:
    """Whether a block is the header of a tar's first member, or begins the end marker of an empty tar."""
    if start == ZERO_BLOCK:
        return True
    try:
        return len(start) == BLOCK and read_header(start) is not None
    except ShardError:
        return False
