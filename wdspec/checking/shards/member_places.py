"""Where in a tar the member of a field lies, and where reading can go on behind damage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, Blocks
from wdspec.formats.tar.headers import read_header, shown
from wdspec.formats.tar.keys import splitter
from wdspec.formats.tar.members import member_at
from wdspec.spec.language.samples import KeyRule

MOST_SEARCHED = 64 * 1024 * 1024
"""Bytes behind damage that are searched for a header."""


class MemberPlace(NamedTuple):
    """A member of a sample."""

    name: str
    offset: int
    """Of its first header."""


def member_of(
    blocks: Blocks, offset: int, key: str, stored: str, rule: KeyRule, field_of: Callable[[str], str | None]
) -> MemberPlace | None:
    """The member that a field was read from.

    Args:
        blocks: of the uncompressed tar.
        offset: where the sample begins.
        key: of the sample.
        stored: the name under which the reader stored the field.
        rule, field_of: those of the reader.
    """
    split = splitter(rule)
    with suppress(ShardError):
        while (member := member_at(blocks, offset)) is not None:
            parts = split(member.name) if member.may_be_sampled else None
            if parts is not None:
                if shown(parts[0]) != key:
                    return None
                if field_of(shown(parts[1])) == stored:
                    return MemberPlace(shown(member.name), member.offset)
            offset = member.end
    return None


def next_header(blocks: Blocks, offset: int) -> int | None:
    """The offset of the next header of a member behind damage at `offset`; None where there is none in reach."""
    at = offset - offset % BLOCK + BLOCK
    with suppress(ShardError):
        while at < offset + MOST_SEARCHED:
            place = blocks.find(at)
            block = blocks.buffer[place : place + BLOCK]
            if len(block) < BLOCK:
                return None
            # Data of members may hold anything; only what calls itself a tar's header is tried.
            if block[257:262] == b"ustar":
                with suppress(ShardError):
                    read_header(block)
                    return at
            at += BLOCK
    return None
