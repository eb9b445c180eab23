"""One tar header of 512 bytes, read strictly.

The layout is the same in every dialect (old V7, ustar, GNU, pax): name 100, mode 8, uid 8, gid 8, size 12, mtime 12,
checksum 8, typeflag 1, linkname 100, then magic, names of the owner and, in ustar only, a prefix of the name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import methodcaller
from typing import NamedTuple
from zlib import adler32

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, REFETCH

NAME = 100
"""Bytes of the fields for the name, and for the name of a link's target."""
ZERO_BLOCK = bytes(BLOCK)

HARD_LINK = b"1"
LONG_NAME = b"L"
LONG_LINK = b"K"
PAX = b"x"
SOLARIS_PAX = b"X"
GLOBAL_PAX = b"g"
EXTENSIONS = frozenset((LONG_NAME, LONG_LINK, PAX, SOLARIS_PAX, GLOBAL_PAX))
SPARSE = b"S"
CONTINUATION = b"M"

SYMLINK = b"2"
BODILESS = frozenset(b"%c" % c for c in b"123456")
"""Links, devices, directories and FIFOs: no data follows, even if the size is not 0."""

INDIRECT = BODILESS | {SPARSE}
"""Members whose bytes are not those after their header."""

UNREADABLE = {SYMLINK: "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a FIFO"}
"""Members without data that can be in place of a file, and what they are."""

ASIDE = frozenset(b"%c" % c for c in b"VDNAEI")
"""Volume labels, directory dumps, and notes of other programs (ACLs, inodes): data follows, but it is not a file.
Any other typeflag is a regular file, as POSIX requires for unknown ones."""


class Header(NamedTuple):
    """The contents of one header block."""

    name: bytes
    size: int
    type: bytes
    link: bytes
    name_field: bytes
    """The name without the prefix, which ustar has in another field."""


def read_number(field: bytes) -> int:
    """Read a number: octal text, or base-256 with the first bit set. Raises ShardError."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    # int() also accepts signs, underscores and a prefix, which are invalid here.
    if not digits.strip(b"01234567"):
        return int(digits, 8)
    raise ShardError(
        f"a tar header has {field!r} instead of a number, so the shard is damaged; {REFETCH}", code="D108"
    )


def byte_sum(data: bytes) -> int:
    """Return the sum of the bytes: the lower half of adler32 is the sum modulo 65521, exact for 256 bytes at a time."""
    return sum(adler32(data[at : at + 256], 0) & 0xFFFF for at in range(0, len(data), 256))


def read_header(block: bytes) -> Header:
    """Read one header block of 512 bytes and check it. Raises ShardError."""
    rest = block[:148] + b" " * 8 + block[156:]
    try:
        stored = read_number(block[148:156])
    except ShardError:
        stored = -1
    # Some old programs, such as Sun's tar, summed signed bytes.
    if stored != byte_sum(rest) and stored != sum(struct.unpack("512b", rest)):
        likeness = look(block) or describe_start(block)
        remedy = "" if _CREATE in likeness else f"; {REFETCH}"
        raise ShardError(
            f"bad checksum: these 512 bytes are not a tar header ({likeness}){remedy}",
            code="D106" if look(block) else "D108",
        )
    name = field = text(block[:NAME])
    kind = block[156:157]
    # Other formats have other data (times, sparse maps) in place of the prefix.
    prefix = text(block[345:500]) if block[257:263] == b"ustar\0" else b""
    if prefix and kind not in EXTENSIONS:
        name = prefix + b"/" + name
    return Header(name, read_number(block[124:136]), kind, text(block[157:257]), field)


_SPARSE_PIECE = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")


def read_records(body: bytes) -> dict[bytes, bytes]:
    """Read the records `"%d %s=%s\\n" % (length, key, value)` of a pax header.

    The pieces of a sparse file, each with records of its own, are joined as the newer `GNU.sparse.map` has them.

    Raises ShardError if their lengths are wrong.
    """
    records: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    at = 0
    while at < len(body) and body[at]:
        digits, space, _ = body[at : at + 24].partition(b" ")
        end = at + int(digits) if digits.isdigit() else 0
        record = body[at + len(digits) + 1 : end]
        key, equals, value = record.partition(b"=")
        if not space or not equals or end > len(body) or not record.endswith(b"\n"):
            raise ShardError(
                f"a pax header has a malformed record at its byte {at}: {body[at : at + 40]!r}; {REFETCH}",
                code="D113",
            )
        if key in _SPARSE_PIECE:
            pieces.append(value[:-1])
        else:
            records[key] = value[:-1]
        at = end
    if pieces:
        records[b"GNU.sparse.map"] = b",".join(pieces)
    if body[at:].strip(b"\0"):
        raise ShardError(
            f"a pax header has bytes after its records: {body[at : at + 40]!r}; {REFETCH}", code="D113"
        )
    return records


def text(field: bytes) -> bytes:
    """Return a field up to its first NUL."""
    return field.partition(b"\0")[0]


to_text: Callable[[bytes], str] = methodcaller("decode", "utf-8", "surrogateescape")
"""Returns the name of a member as text. Bytes that are not UTF-8 become surrogates."""


_CREATE = "`wdspec create` makes shards"
_LOOKS = (
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (b"<?xml", "an XML page, perhaps a store's error message"),
    (b"<", "an HTML page, perhaps an error message or a login form"),
    (b"{", "JSON, perhaps a store's error message; name JSON lines `*.jsonl`, or set `format: jsonl`"),
    (b"PK\3\4", f"a zip file: {_CREATE} of what is in it"),
    (b"\x04\x22\x4d\x18", "lz4: compress with gz, bz2, xz or zst"),
    (b"\x1f\x9d", "compress(1): use gz, bz2, xz or zst"),
    (b"\x89HDF", f"an HDF5 file: {_CREATE}"),
    (b"\xd9\xd9\xf7", "CBOR: name it `*.cbors`, or set `format: cbor`"),
    (b"PAR1", f"a Parquet file: {_CREATE}"),
    (b"ARROW1", f"an Arrow file: {_CREATE}"),
    (b"\xff\xd8\xff", f"a JPEG picture: {_CREATE}"),
    (b"\x89PNG", f"a PNG picture: {_CREATE}"),
)


def look(block: bytes) -> str | None:
    """Say what the first bytes of a file look like, if that is known."""
    for magic, what in _LOOKS:
        if block.startswith(magic):
            return f"they look like {what}"
    return None


def describe_start(data: bytes) -> str:
    """Say what bytes are that are not what they should be. A text may be secret, so it is never shown."""
    is_text = all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data[:16])
    return "they are text" if is_text else f"they start with the bytes {data[:4].hex(' ')}"


def begins_tar(start: bytes) -> bool:
    """Whether a block is the header of a tar's first member, or the end marker of an empty tar."""
    if start == ZERO_BLOCK:
        return True
    try:
        return len(start) == BLOCK and read_header(start) is not None
    except ShardError:
        return False
