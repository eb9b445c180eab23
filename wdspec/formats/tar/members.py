"""A shard as a sequence of members, read header by header: the plain walk, up to the marker at the end.

`TarSamples` has its own faster loop for ordinary headers and comes here for everything rare, so this file is
where the format is decided: extended headers, hard links, and what may follow the last member.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, CHUNK, REFETCH, Blocks
from wdspec.formats.tar import headers
from wdspec.formats.tar.headers import (
    ASIDE,
    BODILESS,
    HARD_LINK,
    NAME,
    SYMLINK,
    UNREADABLE,
    ZERO_BLOCK,
    Header,
    look,
    shown,
)

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


_FEW = 2
"""Bytes in which a name that was damaged differs from the other one. Another way of cutting differs in more."""
_ENOUGH = 8
"""Bytes that have to agree before a few that do not are taken for damage."""
_STANDING_IN = b"?_"
"""What writers put for a letter that is no ASCII."""
_MATTERING = (b"path", b"linkpath", b"size", b"hdrcharset")


def check_name(long: bytes, header: Header) -> None:
    """Raises ShardError if a long name and the member's header contradict each other."""
    if long != header.name and _contradict(long, header.name_field, header.name != header.name_field):
        raise ShardError(
            f"an extended header gives the member the name {shown(long)!r}, and its own header says "
            f"{shown(header.name_field)!r}: one of them is damaged; {REFETCH}",
            code="D113",
        )


def check_link(long: bytes, header: Header) -> None:
    """Raises ShardError if a long name of what a link points to and the member's header contradict each other."""
    if _contradict(long, header.link, False):
        raise ShardError(
            f"an extended header has the member be a link to {shown(long)!r}, and its own header says "
            f"{shown(header.link)!r}: one of them is damaged; {REFETCH}",
            code="D113",
        )


def check_size(long: int, header: Header) -> None:
    """Raises ShardError if both sizes are said, and differ."""
    if header.size not in (0, long) and long < 8**11:
        raise ShardError(
            f"a pax header says that the member has {long} bytes, and its own header says {header.size}: one of them "
            f"is damaged; {REFETCH}",
            code="D113",
        )


def check_key(key: bytes) -> None:
    """Raises ShardError for a key of a pax header that only damage makes of one that matters."""
    for known in _MATTERING:
        if len(key) == len(known) and sum(map(int.__ne__, key, known)) == 1:
            raise ShardError(
                f"a pax header has the key {shown(key)!r}, which is a damaged {known.decode()!r}; {REFETCH}",
                code="D113",
            )


def same(first: bytes | None, second: bytes | None, what: str) -> bytes | None:
    """Of what two extended headers of one member say, what is said. Raises ShardError where they differ."""
    if first is not None and second is not None and first != second:
        raise ShardError(
            f"a member has two {what}, {shown(first)!r} and {shown(second)!r}; {REFETCH}", code="D113"
        )
    return second if first is None else first


def _contradict(long: bytes, short: bytes, split: bool) -> bool:
    """Whether a name cannot be what was cut from another.

    Args:
        long: the whole.
        short: what stands in the field of 100 bytes.
        split: whether more of it stands in another field.
    """
    cuts = [long]
    with contextlib.suppress(UnicodeDecodeError):
        text = long.decode("utf-8")
        cuts += [text.encode("latin-1", "replace"), text.encode("ascii", "ignore")]
    differing = [_differences(cut[:NAME], short) for cut in cuts if len(cut[:NAME]) == len(short)]
    if 0 in differing:
        return False
    if len(short) == NAME and not split:
        return True
    return any(difference <= _FEW and len(short) - difference >= _ENOUGH for difference in differing)


def _differences(cut: bytes, short: bytes) -> int:
    """In how many places two texts of one length differ, where neither has put something for what is no ASCII."""
    return sum(
        a != b and not ((a > 127 or a in _STANDING_IN) and (b > 127 or b in _STANDING_IN))
        for a, b in zip(cut, short, strict=True)
    )


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


_ADVICE = "pack the shard anew with `tar --hard-dereference`"
_ADVICE_FOR_OTHERS = "pack the shard anew with `tar --dereference`, which puts the files themselves in"


class HardLinks:
    """Finds what hard links point to, by an index made on the first link: one more walk over the headers."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._files: dict[bytes, list[Member]] | None = None

    def read(self, link: Member) -> bytes:
        """The bytes of the file that a hard link names. Raises ShardError when they cannot be had.

        So for whatever else has no bytes of its own: a symbolic link may lead out of the shard.
        """
        if link.type != HARD_LINK:
            to = f" to {shown(link.link)!r}" if link.type == SYMLINK else ""
            raise ShardError(
                f"{UNREADABLE[link.type]}{to} stands where a file is wanted: {_ADVICE_FOR_OTHERS}",
                code="D117" if link.type == SYMLINK else "D118",
            )
        target = shown(link.link)
        if not self._blocks.seekable:
            raise ShardError(
                f"a hard link to {target!r} in a shard that cannot be read twice: {_ADVICE}", code="D119"
            )
        if self._files is None:
            self._files = self._index()
        # The latest file of that name before the link, as unpacking in order would have it.
        found = [file for file in self._files.get(_normal(link.link), ()) if file.offset < link.offset]
        if not found:
            raise ShardError(
                f"a hard link to {target!r}, which is no earlier file of the shard: {_ADVICE}", code="D119"
            )
        return self._blocks.take_elsewhere(found[-1].data_offset, found[-1].size)

    def _index(self) -> dict[bytes, list[Member]]:
        files: dict[bytes, list[Member]] = {}
        # What breaks the shard further on is reported by the walk that gets there.
        with contextlib.suppress(ShardError):
            for member in iter_members(self._blocks.file):
                name = _normal(member.name)
                if member.is_file:
                    files.setdefault(name, []).append(member)
                elif member.type == HARD_LINK and (targets := files.get(_normal(member.link))):
                    linked = member._replace(data_offset=targets[-1].data_offset, size=targets[-1].size)
                    files.setdefault(name, []).append(linked)
        self._blocks.come_back()
        return files


def _normal(name: bytes) -> bytes:
    return posixpath.normpath(name)
