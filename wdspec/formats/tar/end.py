"""The end of a tar: the marker, the padding that writers put behind it, and what else may be there.

Zeros are what files are made of that were preallocated, or lost their tail in a crash: a marker in a long run of them
is none that a writer made.
"""

from __future__ import annotations

from typing import NamedTuple

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, CHUNK, REFETCH, Blocks
from wdspec.formats.tar.headers import ZERO_BLOCK, look

PADDING = 10_240 + BLOCK
"""Zeros that a tar may end with, in bytes: tars come in records of 20 blocks, and the two of the marker may begin
in the last block of one."""

_LENIENT = "or set `tar: {end: lenient}`"


class End(NamedTuple):
    """What is to be said of a tar that has its end."""

    warning: str | None
    """What is not quite right with it."""
    beyond: ShardError | None
    """What comes behind it, though nothing should: all samples before it are whole."""


def check_end(blocks: Blocks, offset: int, *, lenient: bool = False, may_be_empty: bool = False) -> End:
    """Checks that a tar ends at `offset`: with two zero blocks, and no more than a writer's padding behind them.

    Args:
        blocks: of the shard.
        offset: the end of the last member.
        lenient: whether a missing marker, or too long a padding, is only warned of.
        may_be_empty: whether there may be no member.

    Raises:
        ShardError: it does not end there, or the last member may not be whole.
    """
    missing = _missing_marker(blocks, offset)
    zeros, beyond = _zeros(blocks, offset)
    if offset == 0 and not (may_be_empty and missing is None):
        raise ShardError(
            _empty(zeros), code="D103" if not zeros else "D104" if zeros > PADDING else "D105", offset=0
        )
    code = "D109"
    if missing is not None:
        remedy = f"{_LENIENT} if its writer leaves it out"
    elif zeros > PADDING:
        code = "D110"
        missing = (
            f"{zeros} zero bytes come at its end, where a writer puts at most {PADDING}: the shard was not written "
            "whole, or has lost a part"
        )
        remedy = f"{_LENIENT} if its writer fills up more"
    if missing is None or lenient:
        return End(missing, beyond)
    raise ShardError(f"{missing}; {REFETCH}, {remedy}", code=code, offset=offset)


def too_short(blocks: Blocks, start: bytes, offset: int) -> ShardError:
    """The error for a shard that ends within a header, of which `start` is there."""
    likeness = look(start) if offset == 0 else None
    if likeness is None:
        return blocks.truncated(offset + BLOCK)
    return ShardError(f"the shard is {len(start)} bytes long and no tar ({likeness}); {REFETCH}", code="D106")


def _empty(zeros: int) -> str:
    if not zeros:
        return f"the shard is empty: 0 bytes; {REFETCH}"
    if zeros > PADDING:
        return f"the shard is {zeros} zero bytes: it was set aside and not written, or has lost its data; {REFETCH}"
    return f"the shard has no members; {REFETCH}, or set `empty: allow` if shards may be empty"


def _missing_marker(blocks: Blocks, offset: int) -> str | None:
    """What to say of a shard that stops too soon; None if the two zero blocks are there. Raises for other bytes."""
    at = blocks.find(offset, 2 * BLOCK)
    marker = blocks.buffer[at : at + 2 * BLOCK]
    if marker == 2 * ZERO_BLOCK:
        return None
    if marker.strip(b"\0"):
        if len(marker) < BLOCK:
            raise too_short(blocks, marker, offset).at(offset=offset)
        found = len(marker) - len(marker.lstrip(b"\0"))
        raise ShardError(
            f"after {found // BLOCK} zero block there is more data, where two end a tar; {REFETCH}",
            code="D110",
            offset=offset,
        )
    seen = f"{len(marker)} of the 1024 zero bytes" if marker else "none of the zero bytes"
    return f"no end marker: the shard stops with {seen} that end a tar, so data may be missing"


def _zeros(blocks: Blocks, offset: int) -> tuple[int, ShardError | None]:
    """How many zeros there are from `offset` on, and what is wrong if they do not end the shard."""
    start = offset
    while True:
        at = blocks.find(offset, CHUNK)
        rest = blocks.buffer[at:]
        if not rest:
            return offset - start, None
        if rest.count(0) != len(rest):
            offset += len(rest) - len(rest.lstrip(b"\0"))
            at = blocks.find(offset)
            if blocks.buffer[at + 257 : at + 262] == b"ustar":
                code = "D111"
                seen = (
                    "concatenated tar: another one begins after the end marker, and readers stop there; "
                    "join tars with `tar --concatenate` or unpack and pack them anew"
                )
            else:
                code = "D112"
                seen = f"after the end marker come bytes other than zeros; {REFETCH}"
            return offset - start, ShardError(seen, code=code, offset=offset)
        offset += len(rest)
