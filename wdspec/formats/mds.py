"""`MdsSamples`: reading a shard of MosaicML Streaming (MDS).

A shard describes itself: the number of samples, their offsets, a JSON text with the columns, then the samples. A sample
is the sizes of its values that vary, then its values, column after column. All numbers are little-endian. The format is
that of version 2 of `streaming/base/format/mds` (https://github.com/mosaicml/streaming).
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from wdspec.base.amounts import show_value
from wdspec.base.errors import ShardError, in_one_line
from wdspec.base.files import FileStream
from wdspec.formats.blocks import MAY_BE_EMPTY, REFETCH, Blocks
from wdspec.formats.compression import MAX_DECOMPRESSED, stem_of
from wdspec.formats.samples import RawSamples, no_field, only_key, page_error, tar_error
from wdspec.spec.language.decoders import library

MOST_SAMPLES = 1 << 25
"""Maximum number of samples of a shard. Their offsets, of 4 bytes each, are in memory."""
_LONGEST_HEADER = 1 << 24
"""Maximum size of the JSON text in bytes."""
_AT_ONCE = 4096
"""Offsets that are turned into Python's integers at once."""
_BYTES_OF_PIXEL = {
    **dict.fromkeys(("L", "P"), 1),
    **dict.fromkeys(("LA", "I;16"), 2),
    **dict.fromkeys(("RGB", "YCbCr", "LAB"), 3),
    **dict.fromkeys(("RGBA", "CMYK", "I", "F"), 4),
}
"""Bytes of a pixel in the modes of Pillow; mode `1` has 8 pixels in a byte."""
_DTYPES = {
    8: "u1", 9: "i1", 16: "u2", 17: "i2", 18: "f2", 32: "u4", 33: "i4", 34: "f4", 64: "u8", 65: "i8", 66: "f8",
}  # fmt: skip
"""Codes of the dtypes of arrays."""
_NAMES = {np.dtype(kind).name: np.dtype(f"<{kind}") for kind in _DTYPES.values()}

Decode = Callable[[bytes], Any]
"""Bytes of a value → the value. Raises ValueError and the like if they are damaged."""


class _Column(NamedTuple):
    """A column of a shard."""

    name: str
    size: int | None
    """Bytes of a value; None if it varies."""
    stored: str | None
    """The name to store its values under; None if it is not read."""
    decode: Decode


class _Columns:
    """The columns of a shard.

    Args:
        columns: in their order in the shard.
    """

    def __init__(self, columns: list[_Column]) -> None:
        self.all = columns
        self.are_read = any(column.stored is not None for column in columns)
        """Whether a field needs one of them."""
        self._sizes = struct.Struct(f"<{sum(column.size is None for column in columns)}I")
        self._least = self._sizes.size + sum(column.size or 0 for column in columns)

    def read_sizes(self, data: bytes) -> tuple[Iterable[int], int]:
        """Return the sizes of the values of a sample that vary, and where its values start."""
        if len(data) >= self._least:
            sizes = self._sizes.unpack_from(data)
            if self._least + sum(sizes) == len(data):
                return sizes, self._sizes.size
        raise _damage(f"its {len(data)} bytes are not what the sizes of its values add up to")


class MdsSamples(RawSamples):
    """The samples of one uncompressed MDS shard.

    Iterating (once) yields dicts: `__key__`, the constants, then the fields in the order of the columns. Values are
    text, int, float, numpy arrays, or what is in JSON. Images are the bytes of image files, to decode: JPEG and PNG as
    they are in the shard, raw ones of Pillow (`pil`) as TIFF. Lists of images are lists of bytes. Pickles are bytes and
    are never unpickled here. `__key__` is that of the column of this name, a text or an integer; without one it is
    `<name of the shard>/<index>`.

    Offsets that do not fit the shard end it; a sample that is damaged is one ShardError, and reading goes on with the
    next one.

    Args:
        file: see `RawSamples`. Its name, in the constants, says whether it is compressed with Brotli or Snappy, which
            have no mark of their own.
        options: of `RawSamples`.
    """

    def __init__(self, file: BinaryIO, **options: Any) -> None:
        super().__init__(file, **options)
        url = str(self._constants.get("__url__", "")).partition("?")[0]
        stem = stem_of(url)
        self._stem = f"{stem}/" if stem else ""
        self._packing = next((each for each in ("br", "snappy") if url.lower().endswith(f".{each}")), None)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        index = self.next_index
        try:
            self._decompress()
            blocks = Blocks(self._file, 0, self._on_read)
            offsets, columns = self._open(blocks)
            count = len(offsets) - 1
            while index < count:
                part = offsets[index : min(count, index + _AT_ONCE) + 1].tolist()
                for start, end in pairwise(part):
                    if index % self._stride == self._residue:
                        sample = {"__key__": f"{self._stem}{index}", **self._constants}
                        data = blocks.take(start, end - start) if columns.are_read else b""
                        try:
                            if columns.are_read:
                                self._fill(sample, columns, data)
                        except ShardError as error:
                            self._report(error, offset=start, key=f"{self._stem}{index}")
                        else:
                            self.next_offset, self.next_index = end, index + 1
                            yield sample
                    index += 1
            if not blocks.seekable:
                self._check_end(blocks, int(offsets[-1]))
            self.next_offset, self.next_index = int(offsets[-1]), max(index, self.next_index)
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except ShardError as error:
            self._report_end(error, offset=self.next_offset)

    def _decompress(self) -> None:
        if self._packing is not None:
            self._file, self._packing = _decompress(self._file, self._packing), None

    def _open(self, blocks: Blocks) -> tuple[np.ndarray[Any, Any], _Columns]:
        """Read and check the header: the offsets of the samples and of the end, and the columns."""
        at = blocks.find(0, least=1)
        head = blocks.buffer[at : at + 512]
        if not head:
            raise ShardError(f"the shard has 0 bytes; {REFETCH}", code="D103", offset=0)
        if not begins_mds(head):
            raise _recognize(head)
        count, first = struct.unpack_from("<II", head)
        begin = _header_size(count)
        offsets = np.frombuffer(blocks.take(4, begin - 4), "<u4")
        text = blocks.take(begin, first - begin)
        if (offsets[1:] < offsets[:-1]).any():
            raise ShardError(
                f"a damaged shard: the offsets of its samples decrease; {REFETCH}", code="D121", offset=4
            )
        columns = self._read_columns(text, begin)
        if not count and not self._may_be_empty:
            raise ShardError(f"the shard has no samples; {REFETCH}, {MAY_BE_EMPTY}", code="D105", offset=0)
        if self.next_index and (self.next_index > count or int(offsets[self.next_index]) != self.next_offset):
            raise ShardError(
                f"the shard has changed: sample {self.next_index} does not start at byte {self.next_offset}; restore "
                "it, or start a new run",
                code="D123",
            )
        if blocks.seekable:
            self._check_end(blocks, int(offsets[-1]))
        return offsets, columns

    def _check_end(self, blocks: Blocks, end: int) -> None:
        """Check that the shard ends where its last sample does."""
        if blocks.seekable:
            size = blocks.seek(0, io.SEEK_END)
            blocks.come_back()
        else:
            at = blocks.find(end, 1)
            size = blocks.base + len(blocks.buffer) if at < len(blocks.buffer) else end
        if size < end:
            raise ShardError(
                f"truncated: the shard ends at byte {size}, but its samples need {end}; {REFETCH}",
                code="D107",
            )
        if size > end:
            raise ShardError(
                f"a damaged shard: bytes follow its last sample, which ends at byte {end}; {REFETCH}",
                code="D121",
            )

    def _read_columns(self, text: bytes, offset: int) -> _Columns:
        try:
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError("it is no map")
            version, format = found.get("version"), found.get("format")
            if version != 2 or format != "mds":
                raise ValueError(f"it has version {show_value(version)} of the format {show_value(format)}")
            parts = [found.get(key) for key in ("column_names", "column_encodings", "column_sizes")]
            if not all(isinstance(part, list) and len(part) == len(parts[0] or ()) for part in parts):
                raise ValueError("its columns have no names, encodings or sizes")
            return _Columns(self._name_columns([*zip(*cast("list[list[Any]]", parts), strict=True)]))
        except (ValueError, RecursionError) as error:
            raise ShardError(
                f"a damaged shard: the description of its columns is wrong: {in_one_line(error)}; {REFETCH}",
                code="D121",
                offset=offset,
            ) from error

    def _name_columns(self, described: list[tuple[Any, Any, Any]]) -> list[_Column]:
        columns: list[_Column] = []
        taken: dict[str, str] = {}
        for name, encoding, size in described:
            if not isinstance(name, str) or not isinstance(encoding, str):
                raise ValueError(f"a column is {show_value(name)} with the encoding {show_value(encoding)}")
            right, decode = _choose_encoding(encoding)
            if size != right or isinstance(size, bool):
                raise ValueError(
                    f"values of {name!r} have {show_value(size)} bytes, but {encoding} has {right}"
                )
            stored = self._name_field(name)
            if stored is not None and stored in taken:
                raise ShardError(
                    f"the columns {taken[stored]!r} and {name!r} both become the field {stored!r} (case is ignored); "
                    "rename one, or exclude it by `extensions`",
                    code="D206",
                    offset=0,
                )
            if stored is not None:
                taken[stored] = name
            columns.append(_Column(name, right, stored, decode))
        return columns

    def _name_field(self, name: str) -> str | None:
        if name == "__key__":
            return None if self._field_of is no_field else name
        if len(name) > 4 and name.startswith("__") and name.endswith("__"):
            return None if name in self._constants or self._field_of in (no_field, only_key) else name
        return self._field_of(name)

    def _fill(self, sample: dict[str, Any], columns: _Columns, data: bytes) -> None:
        """Add the values of a sample to its constants."""
        found, at = columns.read_sizes(data)
        sizes = iter(found)
        name = ""
        try:
            for name, size, stored, decode in columns.all:  # noqa: B007  # messages have it
                end = at + (next(sizes) if size is None else size)
                if stored is not None:
                    sample[stored] = decode(data[at:end])
                at = end
        except (ValueError, IndexError, TypeError, struct.error, RecursionError, OverflowError) as error:
            raise _damage(f"the value of {name!r} is damaged: {in_one_line(error)}") from error
        key = sample["__key__"]
        if type(key) is not str:
            if type(key) is not int:
                raise _damage(f"it has the key {show_value(key)}; use text or an integer")
            sample["__key__"] = str(key)


def _damage(message: str) -> ShardError:
    return ShardError(f"a damaged sample: {message}; {REFETCH}", code="D120")


def _choose_encoding(encoding: str) -> tuple[int | None, Decode]:
    """Return the bytes of each value of an encoding, None if they vary, and how it is decoded.

    Raises:
        ValueError: there is no such encoding.
    """
    name, colon, options = encoding.partition(":")
    if name == "ndarray":
        return _choose_arrays(options)
    if (dtype := _NAMES.get(name)) is not None and not colon:
        return dtype.itemsize, lambda data: np.frombuffer(data, dtype)[0].item()
    if name not in _ENCODINGS or colon:
        raise ValueError(f"the encoding {show_value(encoding)} is unknown")
    return _ENCODINGS[name]


def _choose_arrays(options: str) -> tuple[int | None, Decode]:
    """Read `int32:3,4`, the dtype and the shape, which both may be missing."""
    name, _, dimensions = options.partition(":")
    dtype = _NAMES.get(name)
    if (name and dtype is None) or not re.fullmatch(r"(?:[1-9]\d{0,8}(?:,[1-9]\d{0,8})*)?", dimensions):
        raise ValueError(f"arrays of {show_value(options)} are unknown")
    shape = tuple(map(int, dimensions.split(","))) if dimensions else None

    def decode(data: bytes) -> np.ndarray[Any, Any]:
        at, kind, sides = 0, dtype, shape
        if kind is None:
            at, kind = 1, np.dtype(f"<{_DTYPES.get(data[0], 'V0')}")
            if not kind.itemsize:
                raise ValueError(f"no dtype has the code {data[0]}")
        if sides is None:
            count, code = data[at] >> 2, data[at] % 4
            sides = struct.unpack_from(f"<{count}{'BHIQ'[code]}", data, at + 1)
            at += 1 + (count << code)
        if math.prod(sides) * kind.itemsize != len(data) - at:
            raise ValueError(f"{len(data) - at} bytes are no array of {kind.name} and of shape {sides}")
        return np.frombuffer(data, kind, offset=at).reshape(sides).copy()

    return (None if dtype is None or shape is None else math.prod(shape) * dtype.itemsize), decode


def _as_tiff(data: bytes) -> bytes:
    """Turn the pixels of an image of Pillow into an uncompressed TIFF, which the decoders of images read."""
    width, height, length = struct.unpack_from("<III", data)
    mode = data[12 : 12 + length].decode("ascii")
    pixels = data[12 + length :]
    row = -(-width // 8) if mode == "1" else width * _BYTES_OF_PIXEL.get(mode, 0)
    if not row or not height or row * height != len(pixels):
        raise ValueError(f"{len(pixels)} bytes are no {width}×{height} image of the mode {show_value(mode)}")
    file = io.BytesIO()
    library("PIL.Image", "images in a shard of MDS").frombytes(mode, (width, height), pixels).save(
        file, "TIFF"
    )
    return file.getvalue()


def _split(start: int, decode: Decode) -> Decode:
    """Return how to decode a list of values: their number at `start`, their sizes, then the values."""

    def split(data: bytes) -> list[Any]:
        (count,) = struct.unpack_from("<I", data, start)
        at = start + 4 + 4 * count
        if at > len(data):
            raise ValueError(f"{len(data)} bytes are no list of {count} values")
        sizes = struct.unpack_from(f"<{count}I", data, start + 4)
        if at + sum(sizes) != len(data):
            raise ValueError(f"its {len(data)} bytes are not what the sizes of its values add up to")
        found = []
        for size in sizes:
            found.append(decode(data[at : at + size]))
            at += size
        return found

    return split


_ENCODINGS: dict[str, tuple[int | None, Decode]] = {
    **dict.fromkeys(("bytes", "jpeg", "png", "pkl"), (None, bytes)),
    "str": (None, bytes.decode),
    "int": (8, lambda data: int.from_bytes(data, "little", signed=True)),
    "str_int": (None, lambda data: int(data.decode())),
    "str_float": (None, lambda data: float(data.decode())),
    "str_decimal": (None, bytes.decode),
    "json": (None, lambda data: json.loads(data.decode())),
    "pil": (None, _as_tiff),
    **dict.fromkeys(("list[jpeg]", "list[png]"), (None, _split(4, bytes))),
    **dict.fromkeys(("jpeg_array", "jpegarray"), (None, _split(0, bytes))),
    "list[pil]": (None, _split(4, _as_tiff)),
}
"""Encoding → the bytes of each value, None if they vary, and how it is decoded. Decimals stay text, which is exact."""


def _decompress(file: BinaryIO, packing: str) -> BinaryIO:
    """Return the bytes of a shard that was compressed with Brotli or Snappy."""
    pa = library("pyarrow", f"a shard that is compressed with {packing}")
    data = file.read() if packing == "snappy" else b""
    try:
        if packing == "br":
            return cast(BinaryIO, _Brotli(file, pa))
        size = shift = 0
        for byte in data[:5]:  # the size, 7 bits in each byte
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if size > min(MAX_DECOMPRESSED, 64 * len(data)):
            raise ValueError(f"{len(data)} bytes claim {size:,}")
        return io.BytesIO(pa.Codec("snappy").decompress(data, size, asbytes=True))
    except (ValueError, OSError) as error:
        raise ShardError(
            f"damaged Snappy data: {in_one_line(error)}; {REFETCH}", code="D114", offset=0
        ) from error


class _Brotli(FileStream):
    """A stream of the bytes that were compressed with Brotli."""

    def __init__(self, file: BinaryIO, pa: Any) -> None:
        self._file = file
        self._stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "brotli")

    def _read(self, size: int) -> bytes:
        try:
            return cast(bytes, self._stream.read(size))
        except OSError as error:
            raise ShardError(f"damaged Brotli data: {in_one_line(error)}; {REFETCH}", code="D114") from error


def begins_mds(start: bytes) -> bool:
    """Whether these are the first bytes of a shard, 8 or more: where its first sample is fits their number."""
    if len(start) < 8:
        return False
    count, first = struct.unpack_from("<II", start)
    return bool(count <= MOST_SAMPLES and 0 < first - _header_size(count) <= _LONGEST_HEADER)


def _header_size(count: int) -> int:
    """The bytes before the description of the columns: the number of samples, their offsets, and the end."""
    return 4 + 4 * (count + 1)


def _recognize(head: bytes) -> ShardError:
    """The error for a file that does not begin as a shard."""
    if head[257:262] == b"ustar":
        return tar_error()
    if head.lstrip()[:1] in (b"<", b"{"):
        return page_error(head)
    if len(head) < 8:
        return ShardError(f"truncated: the shard has {len(head)} bytes; {REFETCH}", code="D107", offset=0)
    why = f"not a shard of MDS: it does not start with the number of samples and their offsets; {REFETCH}"
    return ShardError(why, code="D106", offset=0)
