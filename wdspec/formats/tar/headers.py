"""One 512-byte tar header (its checksum, sizes, names), and the records of an extended one, read strictly.

The layout is the same in every dialect (old V7, ustar, GNU, pax): name 100, mode 8, uid 8, gid 8, size 12,
mtime 12, checksum 8, typeflag 1, linkname 100, then magic, owner names and, in ustar only, a prefix of the
name.
Names stay bytes here: a tar does not say in which encoding they are.

The headers of many members at once, by arithmetic on a whole window: what one program wrote is mostly alike.

A header costs two microseconds in a loop, and a third of one here. Only windows are taken whose headers the loop of
`tar_reader` would take as quickly, by the same checks; all others are left to that loop.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import adler32

import numpy as np
import numpy.typing as npt

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, REFETCH

NAME = 100
"""Bytes of the field for a name, and of that for the name that a link points to."""
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
"""Links, devices, directories and fifos: no data follows, whatever their size field says."""

UNREADABLE = {SYMLINK: "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a FIFO"}
"""Members in the place of a file that hold nothing to be read, and what they are."""

ASIDE = frozenset(b"%c" % c for c in b"VDNAEI")
"""Volume label, directory dumps, and notes of other tars (ACLs, inodes): data follows, but it is no file.
Every other typeflag is a regular file, as POSIX asks of a reader that does not know it."""


class Header(NamedTuple):
    """What one header block says of its member."""

    name: bytes
    size: int
    type: bytes
    link: bytes
    name_field: bytes
    """The name without the prefix that ustar keeps elsewhere."""


class Numbers(dict[bytes, int]):
    """The numbers in header fields by their spelling; a lookup costs a quarter of `int(text, 8)`.

    Bounded, as the sizes of large files hardly ever repeat.
    """

    def __missing__(self, field: bytes) -> int:
        if len(self) > 20_000:
            self.clear()
        value = self[field] = read_number(field)
        return value


def read_number(field: bytes) -> int:
    """A number as tar writes it: octal text, or base-256 with the first bit set. Raises ShardError."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    # int() also takes signs, underscores and a prefix, which are no way to write a size.
    if not digits.strip(b"01234567"):
        return int(digits, 8)
    raise ShardError(
        f"a tar header holds {field!r} where a number belongs; the shard is damaged: {REFETCH}", code="D108"
    )


def byte_sum(data: bytes) -> int:
    """The sum of the bytes: adler32's lower half is that sum modulo 65521, so exact for 256 bytes at once."""
    return sum(adler32(data[at : at + 256], 0) & 0xFFFF for at in range(0, len(data), 256))


def read_header(block: bytes) -> Header:
    """Reads one header block of 512 bytes, checksum and all. Raises ShardError."""
    rest = block[:148] + b" " * 8 + block[156:]
    try:
        stored = read_number(block[148:156])
    except ShardError:
        stored = -1
    # Some old tars (Sun's among them) summed signed bytes.
    if stored != byte_sum(rest) and stored != sum(struct.unpack("512b", rest)):
        likeness = look(block) or f"they begin {block[:16]!r}"
        remedy = "" if _CREATE in likeness else f"; {REFETCH}"
        raise ShardError(
            f"bad checksum: these 512 bytes are no tar header ({likeness}){remedy}",
            code="D106" if look(block) else "D108",
        )
    name = field = text(block[:NAME])
    kind = block[156:157]
    # Other magics keep other things (times, sparse maps) where ustar has the prefix.
    prefix = text(block[345:500]) if block[257:263] == b"ustar\0" else b""
    if prefix and kind not in EXTENSIONS:
        name = prefix + b"/" + name
    return Header(name, read_number(block[124:136]), kind, text(block[157:257]), field)


def read_records(body: bytes) -> dict[bytes, bytes]:
    """The records `"%d %s=%s\\n" % (length, key, value)` of a pax header.

    Raises ShardError if the lengths do not add up.
    """
    records: dict[bytes, bytes] = {}
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
        records[key] = value[:-1]
        at = end
    if body[at:].strip(b"\0"):
        raise ShardError(
            f"a pax header has bytes after its records: {body[at : at + 40]!r}; {REFETCH}", code="D113"
        )
    return records


def text(field: bytes) -> bytes:
    """A name field up to its first NUL."""
    return field.partition(b"\0")[0]


def shown(name: bytes) -> str:
    """A member's name as text; bytes that are not UTF-8 survive as surrogates."""
    return name.decode("utf-8", "surrogateescape")


_CREATE = "`wdspec create` makes shards"
_LOOKS = (
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (b"<?xml", "an XML page, perhaps a store's error message"),
    (b"<", "an HTML page, perhaps an error message or a log-in form"),
    (b"{", "JSON, perhaps a store's error message; for JSON lines set `format: jsonl`"),
    (b"PK\3\4", f"a zip file: {_CREATE} of what is in it"),
    (b"\x04\x22\x4d\x18", "lz4: compress with gz, bz2, xz or zst"),
    (b"\x1f\x9d", "compress(1): use gz, bz2, xz or zst"),
    (b"\x89HDF", f"an HDF5 file: {_CREATE}"),
    (b"\xd9\xd9\xf7", "CBOR: set `format: cbor`"),
    (b"PAR1", f"a Parquet file: {_CREATE}"),
    (b"ARROW1", f"an Arrow file: {_CREATE}"),
    (b"\xff\xd8\xff", f"a JPEG picture: {_CREATE}"),
    (b"\x89PNG", f"a PNG picture: {_CREATE}"),
)


def look(block: bytes) -> str | None:
    """What the first bytes of a file seem to be, if that is known and no tar."""
    for magic, what in _LOOKS:
        if block.startswith(magic):
            return f"they look like {what}"
    return None


FEWEST = 64
"""Members from which on numpy's cost for each call is small beside what it saves."""

_WORD, _HEAD, _TAIL, _MAGIC = 8, 148, 156, 256
_NAME = np.dtype([("name", f"S{NAME}"), ("rest", f"V{BLOCK - NAME}")])
_COLUMNS = np.concatenate([np.arange(124, 136), np.arange(148, 156)])
"""The size, and the checksum."""
_LOWEST = np.frombuffer(b"0" * 11 + b"\0" + b"0" * 6 + b"\0 ", np.uint8)
"""Of each of these bytes what is least; there are seven more digits, and of what ends a number nothing else."""
_MORE = np.frombuffer(b"\7" * 11 + b"\0" + b"\7" * 6 + b"\0\0", np.uint8)
_EIGHTS = np.array([*range(30, -3, -3), 0, *range(15, -3, -3), 0, 0], dtype=np.int64)
"""How far each digit is shifted."""


class HeaderRun(NamedTuple):
    """Members that lie one behind the other."""

    names: list[bytes]
    data: npt.NDArray[np.int64]
    """Where the bytes of each begin, in the window; the header is the block before."""
    ends: npt.NDArray[np.int64]
    """And where they end."""


def headers_from(buffer: bytes, at: int, tail: bytes, tail_sum: int) -> HeaderRun | None:
    """The ordinary members from a header on, as far as they follow one another in a window; None for few.

    Args:
        buffer, at: the window, and where in it the header is.
        tail: all from byte 156 on of the header of an ordinary file; only members with the same are taken.
        tail_sum: the sum of its bytes, with the blanks of the checksum.
    """
    words = (len(buffer) - at) // BLOCK * (BLOCK // _WORD)
    blocks = np.frombuffer(buffer, "<u8", words, at).reshape(-1, BLOCK // _WORD)
    likely = np.flatnonzero(blocks[:, _MAGIC // _WORD] == np.frombuffer(tail, "<u8", 1, _MAGIC - _TAIL)[0])
    if len(likely) < FEWEST or likely[0]:
        return None
    found = blocks.take(likely, axis=0)
    places = found.view(np.uint8)
    digits = places.take(_COLUMNS, axis=1) - _LOWEST  # what is below becomes large
    weighed = digits << _EIGHTS
    checksums = weighed[:, 12:].sum(axis=1)
    data = at + BLOCK + likely * BLOCK
    ends = data + weighed[:, :12].sum(axis=1)
    count = len(found)
    gaps = data[1:] - (ends[:-1] + (BLOCK - 1) & -BLOCK) != BLOCK
    if gaps.any():
        count = int(gaps.argmax()) + 1
        if count < FEWEST:
            return None
        found, places, digits = found[:count], places[:count], digits[:count]
    sums = np.add.reduce(places[:, :_HEAD], axis=1, dtype=np.uint16)  # at most 148 times 255
    if (
        (digits > _MORE).any()
        or places[:, _TAIL:].tobytes() != tail * count
        or (checksums[:count] - sums != tail_sum).any()
    ):
        return None
    names: list[bytes] = found.view(_NAME)["name"].ravel().tolist()
    return HeaderRun(names, data[:count], ends[:count])
