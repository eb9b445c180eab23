"""A shard as a sequence of members, read header by header: the plain walk.

`TarSamples` has its own faster loop for ordinary headers and comes here for everything rare, so this file is
where the format is decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from wdspec.errors import ShardError
from wdspec.formats.blocks import BLOCK, REFETCH, Blocks
from wdspec.formats.tar import headers
from wdspec.formats.tar.told_twice import check_key, check_link, check_name, check_size, same
from wdspec.formats.tar.headers import ASIDE, BODILESS, HARD_LINK, UNREADABLE, Header, shown
from wdspec.formats.tar.shard_end import check_end, too_short

MAX_EXTENSION = 16 * 1024 * 1024
SPARSE_ADVICE = "a sparse member, whose holes are not stored: pack the shard anew without `tar --sparse`"


class Member(NamedTuple):
    """One member of a tar and where it lies; offsets are bytes of the uncompressed shard."""

    name: bytes
    type: bytes
    offset: int
    """Of its first header: extended headers that belong to it come before its own."""
    data_offset: int
    size: int
    link: bytes

    @property
    def is_file(self) -> bool:
        return self.type not in BODILESS and self.type not in ASIDE

    @property
    def may_be_sampled(self) -> bool:
        """Whether a sample may want its bytes: its own, those of the file it is a hard link to, or none at all."""
        return self.is_file or self.type == HARD_LINK or self.type in UNREADABLE

    @property
    def end(self) -> int:
        """Offset of the next member's first header."""
        return self.data_offset if self.type in BODILESS else padded(self.data_offset + self.size)


def padded(offset: int) -> int:
    """The end of the block that `offset` lies in or ends."""
    return offset + -offset % BLOCK


def iter_members(
    file: BinaryIO, *, lenient_end: bool = False, may_be_empty: bool = False
) -> Iterator[Member]:
    """All members of an uncompressed tar: files, links, directories and the rest; data is not read.

    Raises ShardError at whatever is not whole.
    """
    blocks = Blocks(file)
    offset = 0
    while member := member_at(blocks, offset):
        yield member
        offset = member.end
    _, beyond = check_end(blocks, offset, lenient=lenient_end, may_be_empty=may_be_empty)
    if beyond is not None:
        raise beyond


def member_at(blocks: Blocks, offset: int) -> Member | None:
    """The member whose first header is at `offset`; None where a zero block or the end of the shard is.

    Raises ShardError for anything that is no whole header, and for sparse and multi-volume members.
    """
    at = offset
    name = link = size = None
    from_pax = False
    while True:
        header = _header(blocks, at)
        if header is None:
            if at > offset:
                raise ShardError(
                    f"an extended header is followed by no member; {REFETCH}", code="D113", offset=offset
                )
            return None
        if header.type not in headers.EXTENSIONS:
            break
        if header.size > MAX_EXTENSION:
            raise ShardError(
                f"an extended header claims {header.size} bytes, which is not credible",
                code="D113",
                offset=at,
            )
        try:
            end = padded(at + BLOCK + header.size)
            blocks.find(at + BLOCK, end - at - BLOCK)
            body = blocks.take(at + BLOCK, end - at - BLOCK)
            if body[header.size :].strip(b"\0"):
                raise ShardError(
                    f"an extended header is longer than the {header.size} bytes it claims; {REFETCH}",
                    code="D113",
                )
            body = body[: header.size]
            if header.type == headers.LONG_NAME:
                name = same(name, _long(body), "long names")
            elif header.type == headers.LONG_LINK:
                link = same(link, _long(body), "targets")
            else:
                new_name, new_link, new_size = _pax(body, header.type == headers.GLOBAL_PAX)
                from_pax = from_pax or new_name is not None
                name = same(name, new_name, "long names")
                link = same(link, new_link, "targets")
                size = new_size if size is None else size
        except ShardError as error:
            error.at(offset=at)
            raise
        at = end

    try:
        if name is not None:
            check_name(name, header)
        if link is not None:
            check_link(link, header)
        if size is not None:
            check_size(size, header)
    except ShardError as error:
        error.at(offset=offset)
        raise
    name = header.name if name is None else name
    # The first tars knew a directory by its slash alone.
    is_directory = header.type == b"5" or (header.type == b"\0" and name.endswith(b"/"))
    member = Member(
        name.rstrip(b"/") if is_directory or from_pax else name,
        b"5" if is_directory else header.type,
        offset,
        at + BLOCK,
        header.size if size is None else size,
        header.link if link is None else link,
    )
    if header.type == headers.SPARSE:
        raise ShardError(SPARSE_ADVICE, code="D115", offset=offset, member=shown(name))
    if header.type == headers.CONTINUATION:
        raise ShardError(
            "a member continued from another volume: join the volumes first", code="D116", offset=offset
        )
    return member


def _header(blocks: Blocks, offset: int) -> Header | None:
    """The header at `offset`; None for zeros and at the end of the shard."""
    at = blocks.find(offset)
    block = blocks.buffer[at : at + BLOCK]
    if not block.strip(b"\0"):
        return None
    try:
        if len(block) < BLOCK:
            raise too_short(blocks, block, offset)
        return headers.read_header(block)
    except ShardError as error:
        error.at(offset=offset)
        raise


def _long(body: bytes) -> bytes:
    """The name in a GNU header for it. Raises ShardError if it ends too soon."""
    name = headers.text(body)
    if body[len(name) :].strip(b"\0") or not name:
        raise ShardError(f"a long name is broken off by a NUL: {body[:60]!r}…; {REFETCH}", code="D113")
    return name


def _pax(body: bytes, is_global: bool) -> tuple[bytes | None, bytes | None, int | None]:
    records = headers.read_records(body)
    if any(key.startswith(b"GNU.sparse.") for key in records):
        raise ShardError(SPARSE_ADVICE, code="D115")
    for key in records:
        check_key(key)
    # POSIX: an empty value takes an earlier one back.
    name, link, size = (records.get(key) or None for key in (b"path", b"linkpath", b"size"))
    if is_global:
        if name or link or size:
            raise ShardError(
                "a global pax header gives all members one name or size; pack the shard anew", code="D113"
            )
        return None, None, None
    if name and b"\0" in name:
        raise ShardError(f"a pax header holds a name with a NUL: {name[:60]!r}", code="D113")
    if size and (not size.isdigit() or len(size) > 30):
        raise ShardError(f"a pax header holds {size!r} for a size; {REFETCH}", code="D113")
    return name, link, int(size) if size else None
