"""The members of a tar, read one header at a time, and its end.

This file implements the format: extended headers, hard links, and what may follow the last member. `TarSamples` has a
faster loop for ordinary headers, and uses this file for everything else.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, CHUNK, LENIENT, MAY_BE_EMPTY, REFETCH, Blocks
from wdspec.formats.tar import headers
from wdspec.formats.tar.headers import to_text
from wdspec.formats.tar.sparse import Sparse

MAX_EXTENSION = 16 * 1024 * 1024


class Member(NamedTuple):
    """One member of a tar and its place. Offsets are bytes of the uncompressed shard."""

    name: bytes
    type: bytes
    offset: int
    """The offset of its first header: its extended headers come before its own."""
    data_offset: int
    size: int
    """Bytes that the shard stores of it."""
    link: bytes
    sparse: Sparse | None = None
    """The holes of the file, which are not stored."""

    @property
    def file_size(self) -> int:
        """Bytes of the file; 0 for a link, and for what is not a file."""
        return 0 if not self.is_file else self.size if self.sparse is None else self.sparse.size

    @property
    def is_file(self) -> bool:
        return self.type not in headers.BODILESS and self.type not in headers.ASIDE

    def is_ordinary(self, tail: bytes) -> bool:
        """Whether any header with this tail, the bytes from 156 on, is a file that its other bytes describe completely.

        This is not so with a ustar prefix (byte 345 of the header, 189 of the tail), nor with typeflag NUL, which can
        also be a directory.
        """
        if self.sparse or not self.is_file or self.data_offset != self.offset + BLOCK:
            return False
        return tail[0] != 0 and tail[189] == 0

    @property
    def may_be_sampled(self) -> bool:
        """Whether a sample may want its bytes: its own, those of the file it links to, or none, which is an error."""
        return self.is_file or self.type == headers.HARD_LINK or self.type in headers.UNREADABLE

    @property
    def end(self) -> int:
        """The offset of the first header of the next member."""
        return self.data_offset if self.type in headers.BODILESS else round_up(self.data_offset + self.size)


def round_up(offset: int) -> int:
    """Return the end of the block that contains `offset` or ends there."""
    return offset + -offset % BLOCK


def iter_members(
    file: BinaryIO, *, lenient_end: bool = False, may_be_empty: bool = False
) -> Iterator[Member]:
    """Yield all members of an uncompressed tar: files, links, directories and others. Data is not read.

    The file is open at its start.

    Raises ShardError if anything is incomplete.
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
    """Return the member whose first header is at `offset`; None for a zero block and at the end of the shard.

    Raises ShardError for anything that is not a complete header, and for multi-volume members.
    """
    at = offset
    name = link = size = sparse = None
    from_pax = False
    while True:
        header = _read_header(blocks, at)
        if header is None:
            if at > offset:
                raise ShardError(
                    f"no member follows an extended header; {REFETCH}", code="D113", offset=offset
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
            end = round_up(at + BLOCK + header.size)
            blocks.find(at + BLOCK, end - at - BLOCK)
            body = blocks.take(at + BLOCK, end - at - BLOCK)
            if body[header.size :].strip(b"\0"):
                raise ShardError(
                    f"an extended header is longer than the {header.size} bytes it claims; {REFETCH}",
                    code="D113",
                )
            body = body[: header.size]
            if header.type == headers.LONG_NAME:
                name = _agree(name, _read_long(body), "long names")
            elif header.type == headers.LONG_LINK:
                link = _agree(link, _read_long(body), "targets")
            else:
                new_name, new_link, new_size, sparse = _read_pax(body, header.type, sparse)
                from_pax = from_pax or new_name is not None
                name = _agree(name, new_name, "long names")
                link = _agree(link, new_link, "targets")
                size = new_size if size is None else size
        except ShardError as error:
            error.at(offset=at)
            raise
        at = end

    if at > offset:
        _check_extended(header, None if sparse else name, link, size, offset)
    name = header.name if name is None else name
    if header.type == headers.SPARSE:
        sparse, at = Sparse.of_header(blocks, at)
    # The first tars marked a directory only by a slash.
    is_directory = header.type == b"5" or (header.type == b"\0" and name.endswith(b"/"))
    member = Member(
        name.rstrip(b"/") if is_directory or from_pax else name,
        b"5" if is_directory else headers.SPARSE if sparse else header.type,
        offset,
        at + BLOCK,
        header.size if size is None else size,
        header.link if link is None else link,
        sparse,
    )
    if header.type == headers.CONTINUATION:
        raise ShardError(
            "a member continued from another volume; join the volumes first", code="D116", offset=offset
        )
    return member


def _read_header(blocks: Blocks, offset: int) -> headers.Header | None:
    """Read the header at `offset`; return None for zeros and at the end of the shard."""
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


def _read_long(body: bytes) -> bytes:
    """Read the name in a GNU header for a long name. Raises ShardError if it ends too soon."""
    name = headers.text(body)
    if body[len(name) :].strip(b"\0") or not name:
        raise ShardError(f"a NUL cuts off a long name: {body[:60]!r}…; {REFETCH}", code="D113")
    return name


def _read_pax(
    body: bytes, kind: bytes, sparse: Sparse | None
) -> tuple[bytes | None, bytes | None, int | None, Sparse | None]:
    """Read the name, the target of a link, the size and the holes, if no earlier one has them, in a pax header."""
    records = headers.read_records(body)
    if any(key.startswith(b"GNU.sparse.") for key in records):
        sparse = Sparse.of_records(records)
        records[b"path"] = records.get(b"GNU.sparse.name") or records.get(b"path", b"")
    for key in records:
        for known in _RELEVANT:
            if len(key) == len(known) and sum(map(int.__ne__, key, known)) == 1:
                raise ShardError(
                    f"a pax header has the key {to_text(key)!r}, which is a damaged {known.decode()!r}; {REFETCH}",
                    code="D113",
                )
    # POSIX: an empty value cancels an earlier one.
    name, link, size = (records.get(key) or None for key in (b"path", b"linkpath", b"size"))
    if kind == headers.GLOBAL_PAX:
        if name or link or size or sparse:
            raise ShardError(
                "a global pax header gives all members one name, size or map; pack the shard again",
                code="D113",
            )
        return None, None, None, None
    if name and b"\0" in name:
        raise ShardError(f"a pax header has a name with a NUL: {name[:60]!r}", code="D113")
    if size and (not size.isdigit() or len(size) > 30):
        raise ShardError(f"a pax header has {size!r} as a size; {REFETCH}", code="D113")
    return name, link, int(size) if size else None, sparse


_RELEVANT = (b"path", b"linkpath", b"size", b"hdrcharset")


def _agree(first: bytes | None, second: bytes | None, what: str) -> bytes | None:
    """Return the value that two extended headers of a member give. Raises ShardError if they differ."""
    if first is not None and second is not None and first != second:
        raise ShardError(
            f"a member has two {what}, {to_text(first)!r} and {to_text(second)!r}; {REFETCH}",
            code="D113",
        )
    return second if first is None else first


# A name of more than 100 bytes is stored twice: completely in its own block, which has no checksum, and truncated in
# the header of the member, which has one. Programs truncate in different ways: GNU and most others take the first 100
# bytes, Python replaces non-ASCII characters by `?`, Go omits them, libarchive keeps the end, tar-stream writes
# `PaxHeader`. Only what cannot be any of these is taken for damage.

_FEW = 2
"""Bytes in which a damaged name differs. Names that were truncated in another way differ in more."""
_ENOUGH = 8
"""Bytes that must be the same before a few different ones are taken for damage."""
_REPLACEMENTS = b"?_"
"""What programs write in place of a character that is not ASCII."""


def _check_extended(
    header: headers.Header, name: bytes | None, link: bytes | None, size: int | None, offset: int
) -> None:
    """Raise ShardError if extended headers contradict the header of the member."""
    if (
        name is not None
        and name != header.name
        and _contradict(name, header.name_field, header.name != header.name_field)
    ):
        both = f"gives the name {to_text(name)!r} to a member, while its own header says {to_text(header.name_field)!r}"
    elif link is not None and _contradict(link, header.link, False):
        both = (
            f"makes a member a link to {to_text(link)!r}, while its own header says {to_text(header.link)!r}"
        )
    elif size is not None and header.size not in (0, size) and size < 8**11:
        both = f"gives a member {size} bytes, while its own header says {header.size}"
    else:
        return
    raise ShardError(
        f"an extended header {both}, so one of them is damaged; {REFETCH}", code="D113", offset=offset
    )


def _contradict(long: bytes, short: bytes, is_split: bool) -> bool:
    """Whether a name cannot be a truncated form of another one.

    Args:
        long: the complete name.
        short: the contents of the field of 100 bytes.
        is_split: whether another field has more of the truncated name.
    """
    text = long.decode("utf-8", "surrogateescape")
    cuts = [long, text.encode("latin-1", "replace")]
    if text.encode("utf-8", "ignore") == long:  # otherwise a damaged byte would be omitted
        cuts.append(text.encode("ascii", "ignore"))
    counts = [
        _count_differences(cut[: headers.NAME], short)
        for cut in cuts
        if len(cut[: headers.NAME]) == len(short)
    ]
    if 0 in counts:
        return False
    if len(short) == headers.NAME and not is_split:
        return True
    return any(count <= _FEW and len(short) - count >= _ENOUGH for count in counts)


def _count_differences(cut: bytes, short: bytes) -> int:
    """Count the bytes in which two names differ, except replacements of characters that are not ASCII."""
    return sum(
        a != b and not ((a > 127 or a in _REPLACEMENTS) and (b > 127 or b in _REPLACEMENTS))
        for a, b in zip(cut, short, strict=True)
    )


class IndirectReader:
    """Reads sparse files and hard links, whose targets are in an index of all headers that the first link creates."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._files: dict[bytes, list[Member]] | None = None

    def read(self, link: Member) -> bytes:
        """Return the bytes of a sparse file, or of the target of a hard link. Raises ShardError if it is not possible.

        It also raises for other members without data: a symbolic link may lead out of the shard.
        """
        if link.sparse is not None:
            at = self._blocks.find(link.data_offset, link.size)
            stored = self._blocks.buffer[at : at + link.size]
            # Who reads on will report that the shard is truncated.
            return link.sparse.fill(stored) if len(stored) == link.size else b""
        if link.type != headers.HARD_LINK:
            to = f" to {to_text(link.link)!r}" if link.type == headers.SYMLINK else ""
            raise ShardError(
                f"{headers.UNREADABLE[link.type]}{to} is in place of a file; {_PACK_OTHERS}",
                code="D117" if link.type == headers.SYMLINK else "D118",
            )
        target = to_text(link.link)
        if not self._blocks.seekable:
            raise ShardError(
                f"a hard link to {target!r} in a shard that cannot be read twice; {_PACK_LINKS}", code="D119"
            )
        if self._files is None:
            self._files = self._index()
        # The last file of this name before the link, which unpacking in order would find.
        found = [file for file in self._files.get(_normalize(link.link), ()) if file.offset < link.offset]
        if not found:
            raise ShardError(
                f"a hard link to {target!r}, which is not an earlier file of the shard; {_PACK_LINKS}",
                code="D119",
            )
        data = self._blocks.take_elsewhere(found[-1].data_offset, found[-1].size)
        return data if found[-1].sparse is None else found[-1].sparse.fill(data)

    def _index(self) -> dict[bytes, list[Member]]:
        files: dict[bytes, list[Member]] = {}
        # Errors later in the shard are reported when reading gets there.
        with contextlib.suppress(ShardError):
            self._blocks.seek(0)
            for member in iter_members(self._blocks.file):
                name = _normalize(member.name)
                if member.is_file:
                    files.setdefault(name, []).append(member)
                elif member.type == headers.HARD_LINK and (targets := files.get(_normalize(member.link))):
                    target = targets[-1]
                    linked = member._replace(
                        data_offset=target.data_offset, size=target.size, sparse=target.sparse
                    )
                    files.setdefault(name, []).append(linked)
        self._blocks.come_back()
        return files


_PACK_LINKS = "pack the shard again with `tar --hard-dereference`"
_PACK_OTHERS = "pack the shard again with `tar --dereference`, which stores the files themselves"


def _normalize(name: bytes) -> bytes:
    return posixpath.normpath(name)


# Preallocated files consist of zeros, and so may files that lost their end in a crash: an end marker within many zeros
# was not written by a program.

PADDING = 10_240 + BLOCK
"""Maximum number of zero bytes at the end of a tar: tars come in records of 20 blocks, and the two blocks of the marker
may start in the last block of one."""
MOST_ZEROS = 64 * 1024 * 1024
"""The zeros that are read: records of tapes have at most 16 MiB. What follows more is not worth waiting for."""


class End(NamedTuple):
    """The end of a tar."""

    warning: str | None
    """A flaw of the end."""
    beyond: ShardError | None
    """The error for data after the end: all samples before it are complete."""


def check_end(blocks: Blocks, offset: int, *, lenient: bool = False, may_be_empty: bool = False) -> End:
    """Check that a tar ends at `offset`, with two zero blocks and not more zeros than a writer adds.

    Args:
        blocks: of the shard.
        offset: the end of the last member.
        lenient: whether a missing marker, or too many zeros, cause only a warning.
        may_be_empty: whether the tar may have no members.

    Raises:
        ShardError: the tar does not end there, or the last member may be incomplete.
    """
    flaw = _find_flaw(blocks, offset)
    zeros, beyond = _count_zeros(blocks, offset)
    if offset == 0 and not (may_be_empty and flaw is None):
        raise _empty(zeros)
    code = "D109"
    if flaw is not None:
        remedy = f"{LENIENT} if its writer does not add one"
    elif zeros > PADDING:
        code = "D110"
        flaw = (
            f"it ends with {zeros} zero bytes, while a writer adds at most {PADDING}: the shard was not written "
            "completely, or has lost a part"
        )
        remedy = f"{LENIENT} if its writer adds more"
    if flaw is None or lenient:
        return End(flaw, beyond)
    raise ShardError(f"{flaw}; {REFETCH}, {remedy}", code=code, offset=offset)


def _too_short(blocks: Blocks, start: bytes, offset: int) -> ShardError:
    """Return the error for a shard that ends within a header, given the start of the header."""
    likeness = headers.look(start) if offset == 0 else None
    if likeness is None:
        return blocks.truncated(offset + BLOCK)
    return ShardError(
        f"the shard has {len(start)} bytes and is not a tar ({likeness}); {REFETCH}", code="D106"
    )


def _empty(zeros: int) -> ShardError:
    """Return the error for a shard without members."""
    if not zeros:
        code, seen = "D103", f"the shard is empty: 0 bytes; {REFETCH}"
    elif zeros > PADDING:
        code = "D104"
        count = f"{'more than ' * (zeros == MOST_ZEROS)}{zeros} zero bytes"
        seen = f"the shard is {count}: it was allocated but not written, or has lost its data; {REFETCH}"
    else:
        code, seen = "D105", f"the shard has no members; {REFETCH}, {MAY_BE_EMPTY}"
    return ShardError(seen, code=code, offset=0)


def _find_flaw(blocks: Blocks, offset: int) -> str | None:
    """Describe a missing or incomplete end marker; return None if it is complete. Raises for other bytes."""
    at = blocks.find(offset, 2 * BLOCK)
    marker = blocks.buffer[at : at + 2 * BLOCK]
    if marker == 2 * headers.ZERO_BLOCK:
        return None
    if marker.strip(b"\0"):
        if len(marker) < BLOCK:
            raise _too_short(blocks, marker, offset).at(offset=offset)
        found = len(marker) - len(marker.lstrip(b"\0"))
        raise ShardError(
            f"more data follows after {found // BLOCK} zero block, while two end a tar; {REFETCH}",
            code="D110",
            offset=offset,
        )
    seen = f"{len(marker)} of the 1024 zero bytes" if marker else "none of the zero bytes"
    return f"no end marker: the shard ends with {seen} that end a tar, so data may be missing"


def _count_zeros(blocks: Blocks, offset: int) -> tuple[int, ShardError | None]:
    """Count the zeros from `offset` on, and return the error if they do not end the shard. Raises for too many."""
    start = offset
    while offset - start <= MOST_ZEROS:
        at = blocks.find(offset, CHUNK)
        if not (rest := blocks.buffer[at:]):
            return offset - start, None
        if rest.count(0) != len(rest):
            offset += len(rest) - len(rest.lstrip(b"\0"))
            at = blocks.find(offset)
            if blocks.buffer[at + 257 : at + 262] == b"ustar":
                code = "D111"
                seen = (
                    "concatenated tar: another tar starts after the end marker, where readers stop; join tars with "
                    "`tar --concatenate`, or unpack them and pack them again"
                )
            else:
                code, seen = "D112", f"the end marker is followed by bytes other than zeros; {REFETCH}"
            return offset - start, ShardError(seen, code=code, offset=offset)
        offset += len(rest)
    raise _endless(start)


def _endless(offset: int) -> ShardError:
    """Return the error for more zeros from `offset` on than are read."""
    if not offset:
        return _empty(MOST_ZEROS)
    return ShardError(
        f"more than {MOST_ZEROS:,} zero bytes follow the end, and the rest is not read; {REFETCH}, or cut them off "
        f"(`truncate --size={offset + PADDING - BLOCK}`)",
        code="D110",
        offset=offset,
    )
