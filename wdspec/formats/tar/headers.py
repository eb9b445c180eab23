"""One tar header of 512 bytes, read strictly, and the name in it: the key of a sample and the suffix of a field.

The layout is the same in every dialect (old V7, ustar, GNU, pax): name 100, mode 8, uid 8, gid 8, size 12, mtime 12,
checksum 8, typeflag 1, linkname 100, then magic, names of the owner and, in ustar only, a prefix of the name. Names
stay bytes, as a tar does not specify their encoding.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple
from zlib import adler32

from wdspec.base.errors import ShardError, UrlError
from wdspec.formats.blocks import BLOCK, REFETCH
from wdspec.spec.language.samples import KeyRule
from wdspec.urls.rewrite import check_length

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


class Numbers(dict[bytes, int]):
    """The numbers of header fields by their bytes. A lookup takes a quarter of the time of `int(text, 8)`.

    The dict is limited, as sizes of large files hardly ever repeat.
    """

    def __missing__(self, field: bytes) -> int:
        if len(self) > 20_000:
            self.clear()
        value = self[field] = read_number(field)
        return value


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
        likeness = look(block) or f"they start with {block[:16]!r}"
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
            key, value = (
                b"GNU.sparse.map",
                b",".join((*filter(None, [records.get(b"GNU.sparse.map")]), value)),
            )
        records[key] = value[:-1]
        at = end
    if body[at:].strip(b"\0"):
        raise ShardError(
            f"a pax header has bytes after its records: {body[at : at + 40]!r}; {REFETCH}", code="D113"
        )
    return records


def text(field: bytes) -> bytes:
    """Return a field up to its first NUL."""
    return field.partition(b"\0")[0]


def to_text(name: bytes) -> str:
    """Return the name of a member as text. Bytes that are not UTF-8 become surrogates."""
    return name.decode("utf-8", "surrogateescape")


_CREATE = "`wdspec create` makes shards"
_LOOKS = (
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (b"<?xml", "an XML page, perhaps a store's error message"),
    (b"<", "an HTML page, perhaps an error message or a login form"),
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
    """Say what the first bytes of a file look like, if that is known."""
    for magic, what in _LOOKS:
        if block.startswith(magic):
            return f"they look like {what}"
    return None


KeySplitter = Callable[[bytes], "tuple[bytes, bytes] | None"]
"""Name → (key, suffix), or None for a member that belongs to no sample."""

_META = re.compile(rb"__[^/]*__(?:/|\Z)")
_UNDERSCORE = ord("_")


def splitter(rule: KeyRule) -> KeySplitter:
    """Return the function that splits names by a rule.

    Names are arbitrary bytes ('..', absolute, with newlines, not UTF-8), as they are only compared. Members belong to
    no sample if their base name starts with a dot (`.DS_Store`, `._a.jpg`), if they are `__meta__` files or in such
    folders, or if the rule cannot split their name.

    Args:
        rule: `first_dot` splits the base name at its first dot, `last_dot` at its last one. A regex matches the whole
            name, and its two groups are key and suffix.
    """
    if rule.kind == "regex":
        return _regex_splitter(re.compile(rule.regex or ""))
    return _split_at_first_dot if rule.kind == "first_dot" else _split_at_last_dot


def _split_at_first_dot(name: bytes) -> tuple[bytes, bytes] | None:
    base = name.rfind(b"/") + 1
    dot = name.find(b".", base)
    if dot <= base or (name[0] == _UNDERSCORE and _is_meta(name)):
        return None
    return name[:dot], name[dot + 1 :]


def _split_at_last_dot(name: bytes) -> tuple[bytes, bytes] | None:
    base = name.rfind(b"/") + 1
    dot = name.rfind(b".", base)
    if dot <= base or _is_hidden(name) or _is_meta(name):
        return None
    return name[:dot], name[dot + 1 :]


def _regex_splitter(regex: re.Pattern[str]) -> KeySplitter:
    def split(name: bytes) -> tuple[bytes, bytes] | None:
        if _is_hidden(name) or _is_meta(name):
            return None
        text = to_text(name)
        try:
            check_length(regex.pattern, text)
        except UrlError as error:
            raise ShardError(error.message) from None
        match = regex.fullmatch(text)
        if match is None or match[1] is None or match[2] is None:
            return None
        return match[1].encode("utf-8", "surrogateescape"), match[2].encode("utf-8", "surrogateescape")

    return split


def _is_hidden(name: bytes) -> bool:
    return name.startswith(b".", name.rfind(b"/") + 1)


def _is_meta(name: bytes) -> bool:
    return (name[:2] == b"__" and b"/" not in name and name.endswith(b"__")) or _META.match(name) is not None


class SuffixNode(dict[bytes, "tuple[str | None, SuffixNode]"]):
    """A place in the sequence of the members of a sample.

    It maps the suffix of the next member, as spelled in its header (padded with NULs or not), to the name its data is
    stored under (None: not needed) and the place after it. Samples of one shard mostly take the same path, so that one
    lookup per member finds its field and excludes duplicates.
    """

    __slots__ = ("fields", "suffixes")

    def __init__(self, suffixes: frozenset[str], fields: frozenset[str]) -> None:
        self.suffixes = suffixes
        self.fields = fields


class SuffixTree:
    """The tree of all sequences of suffixes that occurred.

    Args:
        field_of: suffix as in the file → stored name, or None if it is not needed.
        reserved: names that members cannot have (`__key__` and the constants).
    """

    def __init__(self, field_of: Callable[[str], str | None], reserved: Iterable[str]) -> None:
        self._field_of = field_of
        self._reserved = frozenset(reserved)
        self._steps = 0
        self.root = SuffixNode(frozenset(), self._reserved)

    def step(self, node: SuffixNode, spelling: bytes) -> tuple[str | None, SuffixNode]:
        """Add the step from `node` for a suffix, and return it. Raises ShardError for a duplicate."""
        suffix = to_text(text(spelling))
        lowered = suffix.lower()
        if lowered in node.suffixes:
            raise ShardError(
                f"duplicate member: the sample already has a file with the suffix {lowered!r} (case is ignored); was "
                "the shard appended to or packed twice? Pack it again, with each name once",
                code="D204",
            )
        field = self._field_of(suffix)
        if field in self._reserved:
            raise ShardError(
                f"a member with the suffix {suffix!r} would overwrite `{field}` of the sample; rename it",
                code="D206",
            )
        if field in node.fields:
            raise ShardError(
                f"two members of one sample, the second with the suffix {suffix!r}, both become the field {field!r}; "
                "give them different fields in `extensions` or `rename`",
                code="D206",
            )
        self._steps += 1
        if self._steps > 10_000:  # suffixes are unlimited, for example if a number follows the first dot
            self._steps = 0
            self.root = SuffixNode(frozenset(), self._reserved)
        fields = node.fields if field is None else node.fields | {field}
        step = node[spelling] = (field, SuffixNode(node.suffixes | {lowered}, fields))
        return step
