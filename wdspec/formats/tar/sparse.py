"""Sparse members: files with holes, of which a tar stores only the other parts and a map of their places.

GNU tar writes the map in the header (`tar --sparse`), in pax records (`--sparse-version` 0.0 and 0.1), or before the
data (1.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, Blocks
from wdspec.formats.tar.headers import read_number

MAX_SPARSE = 1 << 30
"""Maximum size of a file with its holes, in bytes: a damaged or hostile map could claim any size."""
_IN_HEADER, _IN_BLOCK = (386, 4), (0, 21)
"""Where the map is in a header of GNU tar and in the blocks after it, and how many pieces it has there."""


class Sparse(NamedTuple):
    """A file with holes."""

    size: int
    """Bytes of the whole file."""
    numbers: Sequence[int] | None
    """The map: offset and size of each piece in turn; None if it comes before the data."""

    @classmethod
    def of_records(cls, records: Mapping[bytes, bytes]) -> Sparse:
        """Read the records of a pax header."""
        size = records.get(b"GNU.sparse.realsize", records.get(b"GNU.sparse.size", b""))
        found = records.get(b"GNU.sparse.map")
        texts = found.split(b",") if found else []
        if not all(text.isdigit() and len(text) < 20 for text in (size, *texts)):
            raise _damaged("has a text in place of a number")
        if found is None and (records.get(b"GNU.sparse.major"), records.get(b"GNU.sparse.minor")) != (
            b"1",
            b"0",
        ):
            raise _damaged("is missing")
        return cls(int(size), None if found is None else [int(text) for text in texts])

    @classmethod
    def of_header(cls, blocks: Blocks, offset: int) -> tuple[Sparse, int]:
        """Read the header of GNU tar at an offset; also return the offset of its last block."""
        block = blocks.take(offset, BLOCK)
        size, more, numbers = read_number(block[483:495]), block[482], _pieces(block, *_IN_HEADER)
        while more:
            if len(numbers) > 1 << 20:
                raise _damaged("is too long")
            offset += BLOCK
            block = blocks.take(offset, BLOCK)
            numbers += _pieces(block, *_IN_BLOCK)
            more = block[504]
        return cls(size, numbers), offset

    def fill(self, stored: bytes) -> bytes:
        """Return the whole file, with zeros in its holes. Raises ShardError if the map is wrong."""
        numbers, at = self.numbers, 0
        if numbers is None:
            numbers, at = _read_map(stored)
        if self.size > MAX_SPARSE:
            raise _damaged(f"makes a file of {self.size:,} bytes, more than {MAX_SPARSE:,}")
        pieces = list(zip(numbers[::2], numbers[1::2], strict=False))
        ends = [(start, start + size) for start, size in pieces]
        in_order = all(
            end <= start for (_, end), (start, _) in pairwise([(0, 0), *ends, (self.size, self.size)])
        )
        if len(numbers) % 2 or not in_order or sum(size for _, size in pieces) != len(stored) - at:
            raise _damaged("does not fit the data")
        whole = bytearray(self.size)
        for start, end in ends:
            whole[start:end] = stored[at : at + end - start]
            at += end - start
        return bytes(whole)


def _pieces(block: bytes, at: int, most: int) -> list[int]:
    """The numbers of the pieces in a block; unused ones are empty."""
    fields = [block[at + 12 * n : at + 12 * n + 12] for n in range(2 * most)]
    return [read_number(field) for field in fields if field.strip(b"\0")]


def _read_map(stored: bytes) -> tuple[list[int], int]:
    """Read the map before the data, a number on each line, the first one how many pieces; also return its length."""
    count, found, _ = stored[:21].partition(b"\n")
    if not found or not count.isdigit() or 2 * int(count) > len(stored):
        raise _damaged("has no number of pieces")
    lines = stored.split(b"\n", 1 + 2 * int(count))[1:-1]
    if not all(line.isdigit() and len(line) < 20 for line in lines):
        raise _damaged("has a text in place of a number")
    length = len(count) + 1 + sum(len(line) + 1 for line in lines)
    return [int(line) for line in lines], length + -length % BLOCK


def _damaged(how: str) -> ShardError:
    return ShardError(
        f"the map of a sparse member {how}; pack the shard again without `tar --sparse`", code="D115"
    )
