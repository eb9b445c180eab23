"""Kinds of compression, and the table of suffixes: the compression of a file, the format of a shard, packed fields.

All code that depends on kinds of compression or on suffixes uses this module: listing directories, reading shards,
choosing a writer by name, unpacking fields.

gzip is written by `zlib`, without a name and a time, so that the bytes are the same each time. It is read by `isal` if
that is installed, which takes 0.6 to 0.7 of the processor time for a `.tar.gz`.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from wdspec.base.errors import UsageError
from wdspec.spec.language.decoders import library
from wdspec.spec.language.values import SUFFIXES, Format
from wdspec.urls.urls import lance_url

try:
    from isal import isal_zlib

    inflating: Any = isal_zlib
except ImportError:
    inflating = zlib


class GzipDecompressor:
    """Reads one member of a gzip file and checks its checksum. `decompress` raises zlib.error with either library."""

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
    """One stream being compressed, with the interface of `bz2.BZ2Compressor`."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Decompressor(Protocol):
    """One compressed stream, with the interface of `bz2.BZ2Decompressor`: a call returns at most `max_length` bytes."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


@dataclass(frozen=True)
class Compression:
    """One kind of compression, whose streams `compressor()` writes and `decompressor(memory)` reads."""

    name: str
    """The name, which is also the last part of the suffix of a packed field."""
    title: str
    """The name for messages, which options also accept."""
    suffixes: tuple[str, ...]
    """Suffixes of names; writers use the first one."""
    tar_suffixes: tuple[str, ...]
    """Suffixes of names of compressed tars."""
    magic: re.Pattern[bytes]
    """Matches the first bytes, at most `LONGEST_MAGIC`."""
    compressor: Callable[[], Compressor]
    """Starts a stream. Raises UsageError if its library is not installed, like `decompressor`."""
    decompressor: Callable[[int | None], Decompressor]
    """Starts reading a stream, given the limit of memory for its window in bytes; None for the library's own limit."""

    def compress(self, data: bytes) -> bytes:
        """Compress data as one stream. The same data gives the same bytes."""
        stream = self.compressor()
        return stream.compress(data) + stream.flush()

    def decompress(self, data: bytes) -> bytes:
        """Decompress a packed field, of one stream or several.

        Raises:
            ValueError: the result has more than `MAX_DECOMPRESSED` bytes, which are never in memory.
            UsageError: the library that reads zst is not installed.
            EOFError: the data ends in the middle of a stream.
            zlib.error, OSError, lzma.LZMAError, ZstdError: the data is damaged, or needs too much memory.
        """
        limit = min(MAX_DECOMPRESSED, _AT_ONCE)
        parts: list[bytes] = []
        for piece in self._pieces(data, limit + 1):
            parts.append(piece)
            if sum(map(len, parts)) > limit:
                break
        else:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        # More bytes are counted first: joining the pieces of a bomb would take twice its size in memory.
        del parts
        total = 0
        for piece in self._pieces(data, _COUNTED):
            total += len(piece)
            check_size(total)
        return b"".join(self._pieces(data, total + 1))

    def _pieces(self, data: bytes, longest: int) -> Iterator[bytes]:
        """Yield the data of one stream or several in pieces of at most `longest` bytes."""
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
        # Level 9, the default of Python's `gzip`, is three times slower and saves 1%.
        compressor=lambda: zlib.compressobj(6, zlib.DEFLATED, wbits=31),
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
        # It may start with skippable frames.
        magic=re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        compressor=lambda: _zstd().ZstdCompressor(),
        decompressor=_zstd_decompressor,
    ),
)
MAX_DECOMPRESSED = 1 << 30
"""Maximum size of a decompressed field in bytes (1 GiB); more counts as a decompression bomb."""
_MAX_WINDOW = 1 << 28
"""Maximum memory for one xz or zstd stream of a field; `xz -9` needs 65 MiB, `zstd --ultra -22` 128 MiB."""
_AT_ONCE = 1 << 26
"""Bytes to decompress without counting them first."""
_COUNTED = 1 << 20
"""Bytes of a piece while counting."""
BY_NAME = {each.name: each for each in COMPRESSIONS}
LONGEST_MAGIC = 10

_BY_REQUEST: dict[object, Compression | None] = {
    **{name: each for each in COMPRESSIONS for name in (each.name, each.title)},
    True: BY_NAME["gz"],
    **dict.fromkeys((False, "", "none")),
}
_BY_SUFFIX = {suffix: each for each in COMPRESSIONS for suffix in (*each.suffixes, *each.tar_suffixes)}
_FORMAT_BY_SUFFIX = {suffix: format for format, suffixes in SUFFIXES.items() for suffix in suffixes}


def _any_of(suffixes: Iterable[str]) -> str:
    return "|".join(map(re.escape, suffixes))


_find_ending = re.compile(
    rf"(?P<format>{_any_of(_FORMAT_BY_SUFFIX)})?(?P<packing>{_any_of(s for c in COMPRESSIONS for s in c.suffixes)})?\Z"
    rf"|(?P<tar>{_any_of(s for c in COMPRESSIONS for s in c.tar_suffixes)})\Z",
    re.IGNORECASE | re.ASCII,
).search
"""Finds the end of a name: the suffixes of the format and of the compression, or one for a compressed tar."""


def recognize(start: bytes) -> Compression | None:
    """Recognize compressed data by its first bytes; return None if it is not compressed."""
    return next((each for each in COMPRESSIONS if each.magic.match(start)), None)


def compression_of(name: str, requested: bool | str | None = None) -> Compression | None:
    """Choose the compression of a shard to write.

    Args:
        name: of the shard; its suffix decides if there is no request.
        requested: ``gz``, ``bz2``, ``xz``, ``zst``; True for gz, False for none; None to choose by the name.

    Raises:
        UsageError: the compression is unknown.
    """
    if requested is None:
        ending = _find_ending(name)
        return ending and _BY_SUFFIX.get((ending["packing"] or ending["tar"] or "").lower())
    try:
        return _BY_REQUEST[requested]
    except (KeyError, TypeError):
        raise UsageError(f"unknown compression {requested!r}; use gz, bz2, xz, zst, True or False") from None


TAR_SUFFIXES = (
    *SUFFIXES["tar"],
    *(suffix for each in COMPRESSIONS for suffix in each.tar_suffixes),
    *(f".tar{suffix}" for each in COMPRESSIONS for suffix in each.suffixes),
)
"""Suffixes of shards in a directory: only tars, as JSON lines are often lists of other things."""

ANY_START: frozenset[Format] = frozenset({"tokens", "mds"})
"""Formats whose shards begin with numbers, and so with any bytes."""

_HIDDEN_OR_PARTIAL = (".", "~")


def format_of(name: str, requested: str = "auto") -> Format:
    """Return the format of a shard.

    Args:
        name: its path or URL. A query and a fragment count only if the rest has no known suffix, as in
            `get?name=a.jsonl`.
        requested: the format, or ``auto`` to choose by the name. A name without a known suffix means tar. The content
            does not count, as an error message of a store may be JSON.
    """
    if requested != "auto":
        return requested  # type: ignore[return-value]  # the spec has been checked
    for text in (re.split("[?#]", name, maxsplit=1)[0], name):
        ending = _find_ending(text)
        if ending and ending["format"]:
            return _FORMAT_BY_SUFFIX[ending["format"].lower()]
        if ending and ending["tar"]:
            break
    return "tar"


def is_listed(name: str) -> bool:
    """Whether a file of a directory counts as a shard: a tar by its name.

    Hidden files (`.x.tar`) and those of editors and unfinished ones (`~x.tar`, `x.tar.tmp`) do not.
    """
    return name.lower().endswith(TAR_SUFFIXES) and not name.startswith(_HIDDEN_OR_PARTIAL)


def stem_of(name: str) -> str:
    """Return the name of a shard without folders, format and compression, as in the keys of its samples."""
    if (lance := lance_url(name)) is not None:
        name = lance.folder if lance.fragment is None else f"{lance.folder[:-6]}-{lance.fragment}.lance"
    base = name.rpartition("/")[2]
    ending = _find_ending(base)
    return base[: ending.start()] if ending else base


def check_size(size: int) -> None:
    """Raise ValueError if a decompressed field has more than `MAX_DECOMPRESSED` bytes."""
    if size > MAX_DECOMPRESSED:
        raise ValueError(f"it decompresses to more than {MAX_DECOMPRESSED:,} bytes; read it as `raw`")
