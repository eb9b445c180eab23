"""One 512-byte tar header, read strictly and written plainly.

The layout is the same in every dialect (old V7, ustar, GNU, pax): name 100, mode 8, uid 8, gid 8, size 12,
mtime 12, checksum 8, typeflag 1, linkname 100, then magic, owner names and, in ustar only, a prefix of the
name.
Names stay bytes here: a tar does not say in which encoding they are.

Written is plain ustar wherever that can say it, which every tar reads, and ours fastest. A header costs about a
microsecond here, and some fifty in `tarfile`: of the members that one writer packs, only the name, the size and so the
checksum differ.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple
from zlib import adler32

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


TarFormat = Literal["auto", "ustar", "gnu", "pax"]

END = ZERO_BLOCK * 20
"""The end marker, filled up to the 10,240 bytes that tars come in."""

_PREFIX = 155
_MOST_OCTAL = 8**11 - 1
"""The largest size that ustar can say: 8 GiB less one byte."""
_DIALECTS: dict[object, TarFormat] = {
    **dict.fromkeys((None, "auto"), "auto"),
    **dict.fromkeys((0, "ustar", "USTAR_FORMAT"), "ustar"),
    **dict.fromkeys((1, "gnu", "GNU_FORMAT"), "gnu"),
    **dict.fromkeys((2, "pax", "PAX_FORMAT"), "pax"),
}


def dialect(name: object) -> TarFormat:
    """What is meant by a name or by one of `tarfile`'s numbers; None is ``auto``. Raises ValueError."""
    try:
        return _DIALECTS[name]
    except (KeyError, TypeError):
        raise ValueError(f"{name!r} is no tar format; there are auto, ustar, gnu and pax") from None


class HeaderMaker:
    """Makes the headers of regular files that differ in name and size only.

    Args:
        user, group: names of the owner, at most 31 bytes each.
        mode: the permissions.
        mtime: seconds since 1970.
        format: for what ustar cannot say (names that do not fit in 100 bytes, or in 155 and 100 around a
            slash; sizes from 8 GiB on): ``auto`` and ``gnu`` write GNU headers, ``pax`` POSIX ones, and ``ustar``
            refuses. `gnu` differs from `auto` in never splitting a name.
    """

    def __init__(
        self, user: str = "", group: str = "", mode: int = 0o444, mtime: int = 0, format: TarFormat = "auto"
    ) -> None:
        self._format = format
        owner = b"".join(
            _padded(name.encode("utf-8", "surrogateescape"), 32, f"owner's name {name!r}")
            for name in (user, group)
        )
        self._middle = b"%07o\0" % (mode & 0o7777) + b"0000000\0" * 2
        self._time = _number(mtime, "mtime")
        self._tail = b"0" + bytes(100) + b"ustar\x0000" + owner + b"0000000\0" * 2
        fixed = (self._middle, self._time, self._tail + bytes(_PREFIX + 12))
        middle, time, rest = (part.replace(b"%", b"%%") for part in fixed)
        self._layout = b"%b" + middle + b"%b" + time + b"%06o\0 " + rest
        self._sum = byte_sum(self._middle + self._time + self._tail) + 8 * ord(" ")
        self._sizes: dict[int, tuple[bytes, int]] = {}

    def header(self, name: bytes, size: int) -> bytes:
        """All headers of a member: one block, or three where ustar cannot say its name or size.

        Raises:
            ValueError: format `ustar` cannot say it.
        """
        if len(name) > NAME or size > _MOST_OCTAL:
            return self._long(name, size)
        field = self._sizes.get(size)
        if field is None:
            if len(self._sizes) > 20_000:
                self._sizes.clear()
            digits = b"%011o\0" % size
            field = self._sizes[size] = digits, sum(digits)
        digits, total = field
        checksum = self._sum + total + sum(name)
        return self._layout % (name.ljust(NAME, b"\0"), digits, checksum)

    def _long(self, name: bytes, size: int) -> bytes:
        if self._format == "pax":
            return self._pax(name, size)
        if size <= _MOST_OCTAL and self._format != "gnu":
            parts = _split(name)
            if parts is not None:
                return self._finished(parts[1], b"%011o\0" % size, b"0", parts[0])
        if self._format == "ustar":
            raise ValueError(
                f"format ustar cannot hold {_what(name, size)}; leave `format` out, or make it gnu or pax"
            )
        longer = b""
        if len(name) > NAME:
            body = name + b"\0"
            longer = self._finished(b"././@LongLink", b"%011o\0" % len(body), b"L") + _filled(body)
        return longer + self._finished(name[:NAME], _number(size, "size"), b"0")

    def _pax(self, name: bytes, size: int) -> bytes:
        records = b""
        if len(name) > NAME:
            try:
                name.decode("utf-8")
            except UnicodeDecodeError:
                records += _record(b"hdrcharset", b"BINARY")
            records += _record(b"path", name)
        if size > _MOST_OCTAL:
            records += _record(b"size", b"%d" % size)
        header = self._finished(b"././@PaxHeader", b"%011o\0" % len(records), b"x")
        own = self._finished(name[:NAME], b"%011o\0" % (size if size <= _MOST_OCTAL else 0), b"0")
        return header + _filled(records) + own

    def _finished(self, name: bytes, size: bytes, kind: bytes, prefix: bytes = b"") -> bytes:
        head = name.ljust(NAME, b"\0") + self._middle + size + self._time
        tail = kind + self._tail[1:] + prefix.ljust(_PREFIX, b"\0") + bytes(12)
        return b"%b%06o\0 %b" % (head, byte_sum(head + tail) + 8 * ord(" "), tail)


def padding(size: int) -> bytes:
    """The zeros that fill a member of this size up to whole blocks."""
    return ZERO_BLOCK[: -size % BLOCK]


def _filled(body: bytes) -> bytes:
    return body + padding(len(body))


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """A name as (prefix, rest) at a slash, where both fit."""
    cut = name.rfind(b"/", 0, _PREFIX + 1)
    if cut <= 0 or not 0 < len(name) - cut - 1 <= NAME:
        return None
    return name[:cut], name[cut + 1 :]


def _record(key: bytes, value: bytes) -> bytes:
    """One pax record; its length counts the digits of the length too."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(b"%d" % length):
        length = len(rest) + len(b"%d" % length)
    return b"%d" % length + rest


def _number(value: int, what: str) -> bytes:
    """Twelve bytes: octal, or base-256 as GNU has it where that is too short."""
    if value < 0:
        raise ValueError(f"{what} {value} is negative")
    if value <= _MOST_OCTAL:
        return b"%011o\0" % value
    return b"\x80" + value.to_bytes(11, "big")


def _padded(data: bytes, size: int, what: str) -> bytes:
    if len(data) >= size or b"\0" in data:
        raise ValueError(
            f"the {what} does not fit in a tar header; use at most {size - 1} bytes, or leave it out"
        )
    return data.ljust(size, b"\0")


def _what(name: bytes, size: int) -> str:
    if size > _MOST_OCTAL:
        return f"a member of {size:,} bytes"
    return f"the {len(name)} bytes of the name {shown(name)[:60]!r}…"
