"""A shard as a sequence of members, read header by header: the plain walk.

`TarSamples` has its own faster loop for ordinary headers and comes here for everything rare, so this file is
where the format is decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from wdspec.errors import ShardError
from wdspec.formats.tar import headers
from wdspec.formats.tar.blocks import CHUNK, Blocks
from wdspec.formats.tar.headers import ASIDE, BLOCK, BODILESS, HARD_LINK, REFETCH, ZERO_BLOCK, Header, shown

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
        """Whether it has bytes that a sample may want: its own or those of the file it is a hard link to."""
        return self.is_file or self.type == HARD_LINK

    @property
    def end(self) -> int:
        """Offset of the next member's first header."""
        return self.data_offset if self.type in BODILESS else padded(self.data_offset + self.size)


def padded(offset: int) -> int:
    """The end of the block that `offset` lies in or ends."""
    return offset + -offset % BLOCK


def iter_members(file: BinaryIO, *, lenient_end: bool = False) -> Iterator[Member]:
    """All members of an uncompressed tar: files, links, directories and the rest; data is not read.

    Raises ShardError at whatever is not whole.
    """
    blocks = Blocks(file)
    offset = 0
    while member := member_at(blocks, offset):
        yield member
        offset = member.end
    check_marker(blocks, offset, lenient_end)
    check_rest(blocks, offset)


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
                raise ShardError(f"an extended header is followed by no member; {REFETCH}", offset=offset)
            return None
        if header.type not in headers.EXTENSIONS:
            break
        if header.size > MAX_EXTENSION:
            raise ShardError(
                f"an extended header claims {header.size} bytes, which is not credible", offset=at
            )
        try:
            end = padded(at + BLOCK + header.size)
            blocks.find(at + BLOCK, end - at - BLOCK)
            body = blocks.take(at + BLOCK, end - at - BLOCK)
            if body[header.size :].strip(b"\0"):
                raise ShardError(
                    f"an extended header is longer than the {header.size} bytes it claims; {REFETCH}"
                )
            body = body[: header.size]
            # Where several extended headers name one thing the outermost counts, as in tarfile.
            if header.type == headers.LONG_NAME:
                name = headers.text(body) if name is None else name
            elif header.type == headers.LONG_LINK:
                link = headers.text(body) if link is None else link
            else:
                new_name, new_link, new_size = _pax(body, header.type == headers.GLOBAL_PAX)
                if name is None and new_name is not None:
                    name, from_pax = new_name, True
                link = new_link if link is None else link
                size = new_size if size is None else size
        except ShardError as error:
            error.at(offset=at)
            raise
        at = end

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
        raise ShardError(SPARSE_ADVICE, offset=offset, member=shown(name))
    if header.type == headers.CONTINUATION:
        raise ShardError("a member continued from another volume: join the volumes first", offset=offset)
    return member


def check_marker(blocks: Blocks, offset: int, lenient: bool = False) -> str | None:
    """Checks that the two zero blocks that end a tar are at `offset`.

    Returns None when they are; with `lenient`, what to warn of when the shard ends without them. Raises
    ShardError.
    """
    at = blocks.find(offset, 2 * BLOCK)
    marker = blocks.buffer[at : at + 2 * BLOCK]
    if marker == 2 * ZERO_BLOCK:
        return None
    if marker.strip(b"\0"):
        if len(marker) < BLOCK:
            raise _too_short(blocks, marker, offset).at(offset=offset)
        found = len(marker) - len(marker.lstrip(b"\0"))
        raise ShardError(
            f"after {found // BLOCK} zero block there is more data, where two end a tar; {REFETCH}",
            offset=offset,
        )
    if not marker and offset == 0:
        raise ShardError(f"the shard is empty: 0 bytes; {REFETCH}", offset=0)
    seen = f"{len(marker)} of the 1024 zero bytes" if marker else "none of the zero bytes"
    message = f"no end marker: the shard stops with {seen} that end a tar, so data may be missing"
    if lenient:
        return message
    raise ShardError(
        f"{message}; {REFETCH}, or set `tar: {{end: lenient}}` if its writer leaves it out", offset=offset
    )


def check_rest(blocks: Blocks, offset: int) -> None:
    """Checks that only zeros follow from `offset` to the end of the shard. Raises ShardError."""
    while True:
        at = blocks.find(offset, CHUNK)
        rest = blocks.buffer[at:]
        if not rest:
            return
        if rest.count(0) != len(rest):
            offset += len(rest) - len(rest.lstrip(b"\0"))
            at = blocks.find(offset)
            if blocks.buffer[at + 257 : at + 262] == b"ustar":
                raise ShardError(
                    "concatenated tar: another one begins after the end marker, and readers stop there; "
                    "join tars with `tar --concatenate` or unpack and pack them anew",
                    offset=offset,
                )
            raise ShardError(f"after the end marker come bytes other than zeros; {REFETCH}", offset=offset)
        offset += len(rest)


def _header(blocks: Blocks, offset: int) -> Header | None:
    """The header at `offset`; None for zeros and at the end of the shard."""
    at = blocks.find(offset)
    block = blocks.buffer[at : at + BLOCK]
    if not block.strip(b"\0"):
        return None
    try:
        if len(block) < BLOCK:
            raise _too_short(blocks, block, offset)
        return headers.read_header(block)
    except ShardError as error:
        error.at(offset=offset)
        raise


def _too_short(blocks: Blocks, start: bytes, offset: int) -> ShardError:
    """The error for a shard that ends within a header, of which `start` is there."""
    likeness = headers.look(start) if offset == 0 else None
    if likeness is None:
        return blocks.truncated(offset + BLOCK)
    return ShardError(f"the shard is {len(start)} bytes long and no tar ({likeness}); {REFETCH}")


def _pax(body: bytes, is_global: bool) -> tuple[bytes | None, bytes | None, int | None]:
    records = headers.read_records(body)
    if any(key.startswith(b"GNU.sparse.") for key in records):
        raise ShardError(SPARSE_ADVICE)
    # POSIX: an empty value takes an earlier one back.
    name, link, size = (records.get(key) or None for key in (b"path", b"linkpath", b"size"))
    if is_global:
        if name or link or size:
            raise ShardError("a global pax header gives all members one name or size; pack the shard anew")
        return None, None, None
    if name and b"\0" in name:
        raise ShardError(f"a pax header holds a name with a NUL: {name[:60]!r}")
    if size and (not size.isdigit() or len(size) > 30):
        raise ShardError(f"a pax header holds {size!r} for a size; {REFETCH}")
    return name, link, int(size) if size else None
