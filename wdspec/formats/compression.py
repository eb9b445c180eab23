"""Kinds of compression, and what the suffix of a name says: how a file is compressed, and of which format its shard is.

Whatever else knows a kind of compression has it from here: what a directory lists as shards, what is decompressed when
it is read, what a writer makes of a name, which fields are packed.

gzip is written by `zlib`, so that the bytes are the same everywhere, and read by `isal` where that is installed, with
which a `.tar.gz` is read in 0.6 to 0.7 of the processor time.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from wdspec.base.errors import UsageError
from wdspec.spec.language.decoders import library
from wdspec.spec.language.values import SUFFIXES, Format

try:
    from isal import isal_zlib

    inflating: Any = isal_zlib
except ImportError:
    inflating = zlib

# 10 bytes as RFC 1952 has them, without name and time: no trace of where and when.
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


class GzipCompressor:
    """Writes the same bytes for the same data, whenever and wherever.

    At zlib's own level 6: level 9, the default of Python's `gzip`, is three times slower and 1 % smaller.
    """

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._header = _HEADER
        self._crc = zlib.crc32(b"")
        self._size = 0

    def compress(self, data: bytes, /) -> bytes:
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        header, self._header = self._header, b""
        return header + self._deflate.compress(data)

    def flush(self) -> bytes:
        header, self._header = self._header, b""
        size = (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        return header + self._deflate.flush() + self._crc.to_bytes(4, "little") + size


class GzipDecompressor:
    """Reads one member of a gzip file, and checks its checksum; `decompress` raises zlib.error, whoever reads."""

    def __init__(self) -> None:
        self._inflate = inflating.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        try:
            plain: bytes = self._inflate.decompress(self._inflate.unconsumed_tail + data, max(max_length, 0))
        except inflating.error as error:
            raise zlib.error(str(error)) from error
        return plain

    @property
    def eof(self) -> bool:
        return bool(self._inflate.eof)

    @property
    def needs_input(self) -> bool:
        return not self._inflate.unconsumed_tail and not self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inflate.unused_data)


class Compressor(Protocol):
    """One stream being compressed, as `bz2.BZ2Compressor` has it."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Decompressor(Protocol):
    """One compressed stream, as `bz2.BZ2Decompressor` has it: no call returns more than `max_length` bytes."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


@dataclass(frozen=True)
class Compression:
    """One kind of compression. A stream of it is made by `compressor()` and read by `decompressor(memory)`."""

    name: str
    """Also the last part of the suffix of a packed field."""
    title: str
    """For messages; also accepted where a compression is asked for."""
    suffixes: tuple[str, ...]
    """Ends of names; the first one is its own."""
    tar_suffixes: tuple[str, ...]
    """Ends of names of tars that are compressed so."""
    magic: re.Pattern[bytes]
    """Matches the first bytes, of which it needs `LONGEST_MAGIC` at most."""
    compressor: Callable[[], Compressor]
    """Raises UsageError where the library for it is not installed, as `decompressor` does."""
    decompressor: Callable[[int | None], Decompressor]
    """Takes the most memory, in bytes, that the window of one stream may need; None for the library's own limit."""

    def compress(self, data: bytes) -> bytes:
        """All the data as one stream: the same bytes for the same data."""
        stream = self.compressor()
        return stream.compress(data) + stream.flush()

    def decompress(self, data: bytes) -> bytes:
        """All the data of a packed field, of one stream or several.

        Raises:
            ValueError: it is more than `MAX_DECOMPRESSED` bytes; so many are never held.
            UsageError: zst, and nothing that reads it is installed.
            EOFError: the data stops in the middle of a stream.
            zlib.error, OSError, lzma.LZMAError, ZstdError: it is damaged, or needs too much memory.
        """
        kept = min(MAX_DECOMPRESSED, _KEPT)
        parts: list[bytes] = []
        for piece in self._pieces(data, kept + 1):
            parts.append(piece)
            if sum(map(len, parts)) > kept:
                break
        else:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        # Beyond that, it is counted before it is kept: a bomb is twice as long in memory while its pieces are joined.
        del parts
        total = 0
        for piece in self._pieces(data, _COUNTED):
            total += len(piece)
            check_size(total)
        return b"".join(self._pieces(data, total + 1))

    def _pieces(self, data: bytes, longest: int) -> Iterator[bytes]:
        """The data of one stream or several in pieces of at most so many bytes."""
        while True:
            stream = self.decompressor(_MAX_WINDOW)
            piece = stream.decompress(data, longest)
            yield piece
            while not stream.eof and not stream.needs_input:
                yield stream.decompress(b"", longest)
            if not stream.eof:
                raise EOFError("the compressed data ends early" if data else "the file is empty")
            data = stream.unused_data.lstrip(b"\0")
            if not data:
                break


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14

        return zstd
    except ImportError:
        return library("backports.zstd", "what is compressed with zstd")


def _zstd_decompressor(memory: int | None) -> Decompressor:
    zstd = _zstd()
    options = memory and {zstd.DecompressionParameter.window_log_max: memory.bit_length() - 1}
    stream: Decompressor = zstd.ZstdDecompressor(options=options)
    return stream


COMPRESSIONS = (
    Compression(
        "gz",
        "gzip",
        suffixes=(".gz",),
        tar_suffixes=(".tgz",),
        magic=re.compile(rb"\x1f\x8b"),
        compressor=GzipCompressor,
        decompressor=lambda memory: GzipDecompressor(),
    ),
    Compression(
        "bz2",
        "bzip2",
        suffixes=(".bz2",),
        tar_suffixes=(".tbz", ".tbz2"),
        # A first block, or the end of an empty stream.
        magic=re.compile(rb"BZh.(?:1AY&SY|\x17rE8P\x90)", re.DOTALL),
        compressor=bz2.BZ2Compressor,
        decompressor=lambda memory: bz2.BZ2Decompressor(),
    ),
    Compression(
        "xz",
        "xz",
        suffixes=(".xz",),
        tar_suffixes=(".txz",),
        magic=re.compile(rb"\xfd7zXZ\0"),
        compressor=lzma.LZMACompressor,
        decompressor=lambda memory: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=memory),
    ),
    Compression(
        "zst",
        "zstd",
        suffixes=(".zst", ".zstd"),
        tar_suffixes=(".tzst",),
        # It may begin with frames to be skipped.
        magic=re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        compressor=lambda: _zstd().ZstdCompressor(),
        decompressor=_zstd_decompressor,
    ),
)
MAX_DECOMPRESSED = 1 << 30
"""Bytes to which one compressed field may grow (1 GiB); beyond, it is taken for a decompression bomb."""
_MAX_WINDOW = 1 << 28
"""Memory that one xz or zstd stream of a field may ask for; `xz -9` needs 65 MiB, `zstd --ultra -22` 128 MiB."""
_KEPT = 1 << 26
"""Bytes that are decompressed at once; of more it is found out first how many they are."""
_COUNTED = 1 << 20
"""Bytes that are held at once while they are only counted."""
BY_NAME = {each.name: each for each in COMPRESSIONS}
LONGEST_MAGIC = 10

_BY_REQUEST: dict[object, Compression | None] = {
    **{name: each for each in COMPRESSIONS for name in (each.name, each.title)},
    True: BY_NAME["gz"],
    **dict.fromkeys((False, "", "none")),
}
_BY_SUFFIX = {suffix: each for each in COMPRESSIONS for suffix in (*each.suffixes, *each.tar_suffixes)}


def recognised(start: bytes) -> Compression | None:
    """The compression of data that begins so, by its first bytes; None for what is not compressed."""
    return next((each for each in COMPRESSIONS if each.magic.match(start)), None)


def compression_of(name: str, asked: bool | str | None = None) -> Compression | None:
    """How a shard is to be compressed.

    Args:
        name: its name, whose suffix decides where nothing is asked for.
        asked: ``gz``, ``bz2``, ``xz``, ``zst``; True for gz, False for none; None to go by the name.

    Raises:
        UsageError: another compression is asked for.
    """
    if asked is None:
        return _BY_SUFFIX.get(_suffix(name))
    try:
        return _BY_REQUEST[asked]
    except (KeyError, TypeError):
        raise UsageError(f"there is no compression {asked!r}; use gz, bz2, xz, zst, True or False") from None


def without_compression(name: str) -> str:
    """A name without the suffix that says how it is compressed; `.tgz` and the like become `.tar`."""
    suffix = _suffix(name)
    compression = _BY_SUFFIX.get(suffix)
    if compression is None:
        return name
    return name[: -len(suffix)] + (".tar" if suffix in compression.tar_suffixes else "")


def _suffix(name: str) -> str:
    return name[name.rfind(".") :].lower() if "." in name else ""


TAR_SUFFIXES = (
    *SUFFIXES["tar"],
    *(suffix for each in COMPRESSIONS for suffix in each.tar_suffixes),
    *(f".tar{suffix}" for each in COMPRESSIONS for suffix in each.suffixes),
)
"""Ends of names that are shards when a directory is read: tars only, for lists of other things are often JSON lines."""

_HIDDEN_OR_PARTIAL = (".", "~")

_FORMAT_BY_SUFFIX = {suffix: format for format, suffixes in SUFFIXES.items() for suffix in suffixes}


def format_of(name: str, asked: str = "auto") -> Format:
    """The format of a shard.

    Args:
        name: its path or URL; a query and a fragment count only where what is before them says nothing, as in
            `get?name=a.jsonl`.
        asked: the format, or ``auto`` to go by the name. What has none of the known suffixes is a tar: content is
            not asked, as an error message of a store may well be JSON.
    """
    if asked != "auto":
        return asked  # type: ignore[return-value]  # the spec has been checked
    for text in (re.split("[?#]", name, maxsplit=1)[0], name):
        suffix = _format_suffix(text.rpartition("/")[2])
        if suffix:
            return _FORMAT_BY_SUFFIX[suffix]
    return "tar"


def is_listed(name: str) -> bool:
    """Whether a file is a shard when the directory that it lies in is read: a tar by its name.

    Hidden files (`.x.tar`), those of editors and half-written ones (`~x.tar`, `x.tar.tmp`) are not.
    """
    return name.lower().endswith(TAR_SUFFIXES) and not name.startswith(_HIDDEN_OR_PARTIAL)


def stem_of(name: str) -> str:
    """A shard's name without folders, format and compression: what its samples are called after."""
    base = without_compression(name.rpartition("/")[2])
    return base[: len(base) - len(_format_suffix(base))]


def _format_suffix(name: str) -> str:
    """The end of a name that says the format, as in the table; empty if none does."""
    base = without_compression(name).lower()
    return next((suffix for suffix in _FORMAT_BY_SUFFIX if base.endswith(suffix)), "")


def unpacked(suffix: str) -> tuple[str, tuple[str, ...]]:
    """A suffix without its packings, and these, outermost first: ``json.gz`` is ``json`` and ``(gz,)``."""
    layers: list[str] = []
    while True:
        shorter, _, last = suffix.rpartition(".")
        if last not in BY_NAME:
            return suffix, tuple(layers)
        suffix = shorter
        layers.append(last)


def check_size(size: int) -> None:
    """Raises ValueError for a field that unpacks to more than `MAX_DECOMPRESSED` bytes."""
    if size > MAX_DECOMPRESSED:
        raise ValueError(f"it decompresses to more than {MAX_DECOMPRESSED:,} bytes; read it as `raw`")
