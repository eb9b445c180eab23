"""`ParquetTable`: the row groups of a Parquet file.

The file is read by pyarrow, in this thread. Of a local file, pyarrow reads what it needs when it needs it, so that the
memory does not grow with the row group. Of a remote one, the bytes of the needed columns are fetched ahead, in a few
ranges for each row group, unless the row group is too large to be held.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, BinaryIO, cast

from wdspec.formats.footer import Bounds, Chunk, RowGroup, has_checksum, parse_footer, parse_statistics
from wdspec.formats.requests import FIRST, request_only
from wdspec.formats.tables import (
    BATCH_BYTES,
    BATCH_ROWS,
    Group,
    Range,
    SplicedRanges,
    TableFile,
    check_rows,
    join_near,
)
from wdspec.spec.language.decoders import library

LARGEST = 64 * 1024 * 1024
"""The largest part of a remote row group that is held, in bytes; columns of larger ones are read bit by bit."""
_BUFFER = 1024 * 1024
"""Bytes that are read at once of each column of a local or a large row group."""
_ROWS_PER_BYTE = 1024
"""The most rows for each byte of a row group. A column with a value in every row has fewer, unless most are equal."""
_PADDING = 128
"""Bytes after a column that pyarrow may read, too, since some old writers gave sizes that are too small."""
_PAGE = 32
"""The bytes at the start of a page that show whether it has a checksum."""


class ParquetTable:
    """An open Parquet file. See `Table`.

    Args:
        file: the file.
        fetch_ahead: see `TableSamples`.

    Raises:
        Exception: errors of pyarrow: the footer is damaged, or the file is encrypted.
    """

    group_name = "row group"

    def __init__(self, file: TableFile, fetch_ahead: Callable[[BinaryIO], BinaryIO] | None = None) -> None:
        self._parquet = library("pyarrow.parquet", "a shard of Parquet")
        self._file, self._fetch_ahead, self.size = file, fetch_ahead, file.size
        footer = self._read_footer()
        self._footer_size = len(footer)
        self.metadata = self._parquet.read_metadata(io.BytesIO(b"PAR1" + footer))
        self.schema = self.metadata.schema.to_arrow_schema()
        self._row_groups = parse_footer(footer[:-8], file.size)
        if any(group.rows and len(group.chunks) != self.metadata.num_columns for group in self._row_groups):
            raise ValueError("a row group has another number of columns than the schema")
        self.groups: list[Group] = []
        self._numbers: list[int] = []
        first = 0
        for number, found in enumerate(self._row_groups):
            if found.rows:
                check_rows(found.rows, _ROWS_PER_BYTE * _size_of(found.chunks))
                offset = min((chunk.start for chunk in found.chunks), default=0)
                self.groups.append(Group(offset, first, found.rows))
                self._numbers.append(number)
                first += found.rows
        self._opened: dict[int, Any] = {}
        self._stream: BinaryIO | None = None
        self._last_held = -1

    def batches(self, number: int, paths: Sequence[str]) -> Iterator[Any]:
        found = self._row_groups[self._numbers[number]]
        chunks = _choose(found, paths)
        is_held = self._fetch_ahead is not None and _size_of(chunks) <= LARGEST
        self._file.hold(self._fetch(number, paths) if is_held else [])
        if not is_held:
            request_only(self._file.file, None)
        rows = int(BATCH_BYTES / max(1, sum(chunk.unpacked for chunk in chunks) / found.rows))
        yield from self._open(0 if is_held else _BUFFER).iter_batches(
            batch_size=max(1, min(rows, BATCH_ROWS)),
            row_groups=[self._numbers[number]],
            columns=list(paths),
            use_threads=False,
        )

    def requested(self, paths: Sequence[str]) -> list[Range] | None:
        ranges = []
        for found in self._row_groups if paths else ():
            chunks = _choose(found, paths)
            if _size_of(chunks) > LARGEST:
                return None  # read bit by bit
            ranges += self._ranges(chunks) if found.rows else []
        first = min(FIRST, self.size)
        tails = []
        if first < self.size:  # what the first request has is not read again
            tails.append((max(first, self.size - first), self.size))
        if self._footer_size > first:
            tails.append((self.size - self._footer_size, self.size))
        return [(0, first), *tails, *join_near(ranges)]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def chunks(self, number: int, path: str) -> list[tuple[int, Chunk]]:
        """Return the column chunks of a path in a group, and the numbers of their columns."""
        found = self._row_groups[self._numbers[number]]
        chosen = _choose(found, [path])
        return [(place, chunk) for place, chunk in enumerate(found.chunks) if chunk in chosen]

    @cached_property
    def statistics(self) -> tuple[str, list[list[Bounds]]]:
        """The program that wrote the file, and what it states about the column chunks of its groups."""
        program, found = parse_statistics(self._read_footer()[:-8])
        return program, [found[number] for number in self._numbers]

    def has_checksums(self) -> bool:
        """Return whether its pages have checksums, judging by the first one."""
        request_only(self._file.file, _PAGE)
        self._file.seek(self._row_groups[self._numbers[0]].chunks[0].start)
        return has_checksum(self._file.read(_PAGE))

    def _read_footer(self) -> bytes:
        """Read the metadata with its length and the magic bytes after it."""
        size = min(self.size, FIRST)
        request_only(self._file.file, size)
        self._file.seek(-size, io.SEEK_END)
        tail = self._file.read(size)
        if tail[-4:] != b"PAR1":
            raise ValueError(f"it ends with {tail[-4:]!r}, not with the magic bytes of Parquet")
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length + 4 > self.size:
            raise ValueError(f"its footer says that it has {length} bytes")
        if length > len(tail):
            request_only(self._file.file, length)
            self._file.seek(-length, io.SEEK_END)
            tail = self._file.read(length)
        return tail[-length:]

    def _open(self, buffer: int) -> Any:
        """Return the file, opened to be read through buffers of a size; 0 reads whole columns."""
        if buffer not in self._opened:
            self._opened[buffer] = self._parquet.ParquetFile(
                self._file,
                metadata=self.metadata,
                buffer_size=buffer,
                pre_buffer=False,  # it would read in other threads
                page_checksum_verification=True,
            )
        return self._opened[buffer]

    def _fetch(self, number: int, paths: Sequence[str]) -> list[tuple[int, bytes]]:
        """Fetch the ranges of a row group. The ranges of the next ones follow in the same stream."""
        if self._stream is None or self._last_held != number - 1:
            ranges: list[Range] = []
            for each in self._numbers[number:]:
                chunks = _choose(self._row_groups[each], paths)
                if _size_of(chunks) > LARGEST:
                    break
                ranges += self._ranges(chunks)
            assert self._fetch_ahead is not None
            self._stream = self._fetch_ahead(cast(BinaryIO, SplicedRanges(self._file.file, ranges)))
        self._last_held = number
        chunks = _choose(self._row_groups[self._numbers[number]], paths)
        return [(start, self._file.take(self._stream, end - start)) for start, end in self._ranges(chunks)]

    def _ranges(self, chunks: Sequence[Chunk]) -> list[Range]:
        """Return the ranges of column chunks in the file, joined if they are near each other."""
        ends = ((chunk.start, min(chunk.start + chunk.size + _PADDING, self.size)) for chunk in chunks)
        return join_near(sorted(ends))


def _choose(group: RowGroup, paths: Sequence[str]) -> list[Chunk]:
    """Return the chunks that the columns of these paths need."""
    starts = tuple(f"{path}." for path in paths)
    return [chunk for chunk in group.chunks if f"{chunk.path}.".startswith(starts)]


def _size_of(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.size for chunk in chunks)
