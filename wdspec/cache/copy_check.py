"""Whether a fetched file is a complete shard, as far as its bytes show: looked at while they come."""

from __future__ import annotations

import json

from wdspec.base.errors import ShardError
from wdspec.base.redaction import answered
from wdspec.formats.blocks import BLOCK
from wdspec.formats.decompress import IntegrityCheck
from wdspec.formats.tar.headers import ZERO_BLOCK, read_header

_KEPT = 64 * 1024
"""Bytes of each end that are looked at: a last line that is longer is not."""


class CopyCheck:
    """Takes the bytes of a file that is to become a copy, and says at its end whether it may.

    Compressed data must be whole and have its checksums, a tar its first header and its end marker, JSON lines a last
    line that is whole. CBOR and MessagePack have nothing by which to tell before they are read.

    Args:
        url: that it comes from, which a page of a server may repeat.
        format: `tar`, `jsonl`, `cbor` or `msgpack`.
        lenient_end: whether a tar may lack its end marker.
        may_be_empty: whether there may be nothing in it.
    """

    def __init__(self, url: str, format: str, *, lenient_end: bool, may_be_empty: bool) -> None:
        self._url, self._format, self._lenient_end = url, format, lenient_end
        self._may_be_empty = may_be_empty and format != "tar"
        self._content = IntegrityCheck(_KEPT)
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """The next bytes. Raises ShardError where they are damaged."""
        self._size += len(piece)
        self._content.feed(piece)

    def finish(self, total: int | None) -> None:
        """Says that this was all.

        Args:
            total: the length of the file in bytes, as the store announced it.

        Raises:
            ShardError: says what was seen.
        """
        if total is not None and self._size != total:
            raise ShardError(f"{self._size} bytes came, where {total} were announced", code="D107")
        content = self._content
        content.finish()
        if not content.known or (not content.size and self._may_be_empty):
            return
        start = content.start[:BLOCK]
        if _begins_tar(start):
            self._check_end(content)
        elif self._format == "tar" or not start or start.lstrip()[:1] == b"<":
            seen = f"begins with {answered(repr(start[:40]), self._url)}" if start else "is empty"
            raise ShardError(
                f"what came is no shard: it {seen}; nothing was kept. Does the URL lead to the file itself, and does "
                "the server want a login?",
                code="D106",
            )
        elif self._format == "jsonl":
            _check_last_line(content)

    def _check_end(self, content: IntegrityCheck) -> None:
        if self._lenient_end or (not content.size % BLOCK and content.end.endswith(2 * ZERO_BLOCK)):
            return
        raise ShardError(
            "truncated: the tar does not end with its end marker, two blocks of zeros; write the shard again, or "
            "set `tar: {end: lenient}` if it is known to lack one",
            code="D109",
        )


def _check_last_line(content: IntegrityCheck) -> None:
    last = content.end.rpartition(b"\n")[2]
    if not last.strip() or (len(last) == _KEPT and content.size > _KEPT):
        return
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        raise ShardError(
            f"truncated: the last line is no whole JSON: {last[:40]!r}…; fetch or write the shard again",
            code="D107",
        ) from None


def _begins_tar(start: bytes) -> bool:
    """Whether a block is the header of a tar's first member, or begins the end marker of an empty tar."""
    if start == ZERO_BLOCK:
        return True
    try:
        return len(start) == BLOCK and read_header(start) is not None
    except ShardError:
        return False
