"""`TableSamples`: reading a table, whose rows are samples, one group of rows after the other.

A `Table` knows the groups of one kind of file (`ParquetTable` in `parquet.py`, `ArrowTable` in `arrow.py`): where they
are, and their batches. A group plays the part of a block in a tar: it is the place in states and errors, and damage in
one group does not affect the others.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import length_hint
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from wdspec.base.errors import ShardError, UsageError, in_one_line
from wdspec.base.files import FileStream, SeekableStream
from wdspec.formats.blocks import MAY_BE_EMPTY, REFETCH, check_owner
from wdspec.formats.columns import Columns, Fault
from wdspec.formats.compression import stem_of
from wdspec.formats.requests import NEAR, request_only
from wdspec.formats.samples import RawSamples, no_field, only_key, page_error, tar_error

_PIECE = 64 * 1024 * 1024
_OVERLAP = 128
"""Bytes that a range may have in common with the one before."""
BATCH_BYTES = 4 * 1024 * 1024
"""Approximate size of the rows that are converted at once, in bytes."""
BATCH_ROWS = 4096
"""Maximum number of rows to read at once."""
SLICE_ROWS = 256
"""Maximum number of rows to turn into Python values at once: so few that they are still in the processor's cache when
they are used, although several shards are read in turn."""


Range = tuple[int, int]
"""The offsets of the first byte, and of the one after the last."""


class Group(NamedTuple):
    """Some rows of a table that are read by themselves."""

    offset: int
    """Byte offset in the shard."""
    first: int
    """Index of the first row in the shard."""
    rows: int
    """Number of rows."""


class Table(Protocol):
    """An open table."""

    schema: Any
    """`pyarrow.Schema`."""
    groups: Sequence[Group]
    """All groups with rows, in order."""
    group_name: str
    """What a group is called in messages."""
    size: int
    """The size of the file in bytes."""

    def batches(self, number: int, paths: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a group, with the columns of these paths, as `pyarrow.RecordBatch`es of limited size.

        Groups are read in order.

        Raises:
            Exception: errors of pyarrow about damaged data, and ShardError if the file cannot be read.
        """

    def requested(self, paths: Sequence[str]) -> list[Range] | None:
        """Return the ranges that are requested of a store to read the columns of these paths; None if unknown."""

    def close(self) -> None:
        """Close what it has opened besides the file."""


_ROWS_OF_NOTHING = 1 << 20
"""The rows that a table may have even if it has hardly any bytes, as if all are equal. Reading them takes a second."""


def check_rows(rows: int, most: int) -> None:
    """Raise ValueError if a table claims more rows than fit into it, before anything is done for each of them.

    Args:
        rows: the rows that it claims.
        most: the rows that fit into its bytes.
    """
    if rows > most + _ROWS_OF_NOTHING:
        raise ValueError(f"it claims {rows:,} rows, more than fit into its bytes")


class TableFile(SeekableStream):
    """A file that can seek, as pyarrow reads it: `read(n)` returns less than n bytes only at the end.

    Args:
        file: `read(n)` may return fewer bytes.
        on_read: called with the number of bytes of each piece that is read.
    """

    def __init__(self, file: BinaryIO, on_read: Callable[[int], object] | None = None) -> None:
        self._file, self._on_read, self._process = file, on_read, os.getpid()
        self.size = self._seek(0, io.SEEK_END)
        """The size of the file in bytes."""
        self._file_at = -1  # the position of the file itself, if it is known
        self._held: list[tuple[int, bytes]] = []

    @property
    def file(self) -> BinaryIO:
        """The file itself."""
        return self._file

    def take(self, stream: BinaryIO, size: int) -> bytes:
        """Read `size` bytes of the file from a stream that reads it in another way. Raises what the stream raises."""
        pieces: list[bytes] = []
        left = size
        while left and (piece := stream.read(left)):
            pieces.append(piece)
            left -= len(piece)
        if self._on_read is not None:
            self._on_read(size - left)
        return b"".join(pieces)

    def note(self, size: int) -> None:
        """Count bytes that were read in another way than through this file."""
        if self._on_read is not None:
            self._on_read(size)

    def hold(self, pieces: list[tuple[int, bytes]]) -> None:
        """Serve reads from these pieces, (offset, bytes), instead of the file."""
        self._held = pieces

    def seekable(self) -> bool:
        return True

    def _length(self) -> int:
        return self.size

    def read(self, size: int = -1) -> bytes:
        start = self._position
        size = max(0, self.size - start) if size < 0 else size
        held = next((each for each in self._held if each[0] <= start < each[0] + len(each[1])), None)
        if held is not None:
            at = start - held[0]
            data = held[1][at : at + size]
        else:
            data = self._read_file(start, size)
        self._position = start + len(data)
        return data

    def _read_file(self, start: int, size: int) -> bytes:
        if self._file_at != start:
            self._seek(start)
        pieces: list[bytes] = []
        left = min(size, max(0, self.size - start))  # not what damaged metadata claims
        try:
            while left and (piece := self._file.read(min(left, _PIECE))):
                pieces.append(piece)
                left -= len(piece)
        except ShardError:
            self._file_at = -1
            raise
        except OSError as error:
            self._file_at = -1
            raise ShardError(f"reading failed: {error}", offset=start) from error
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._file_at = start + len(data)
        if self._on_read is not None:
            self._on_read(len(data))
        return data

    def _seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        check_owner(self._process)
        try:
            return self._file.seek(offset, whence)
        except ShardError:
            raise
        except OSError as error:
            raise ShardError(f"seeking to byte {offset} failed: {error}") from error


def join_near(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges of a file, in order, that are near each other."""
    joined: list[Range] = []
    for start, end in ranges:
        if joined and joined[-1][0] <= start <= joined[-1][1] + NEAR:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


class SplicedRanges(FileStream):
    """Ranges of a file one after the other, as a stream that only reads forward.

    A store is asked for those that are near each other at once, and for nothing after them.

    Args:
        file: closed with the stream.
        ranges: those to read, in order; one may start a few bytes before the end of the one before.
    """

    def __init__(self, file: BinaryIO, ranges: Sequence[Range]) -> None:
        self._file = file
        self._ranges = list(reversed(ranges))
        self._requests = list(reversed(join_near(ranges)))
        self._at = -1
        self._last = b""
        """The bytes before `_at`."""

    def _read(self, size: int) -> bytes:
        while self._ranges:
            start, end = self._ranges[-1]
            if start == end:
                self._ranges.pop()
                continue
            size = min(size, end - start)
            if 0 < self._at - start <= len(self._last):
                data = self._last[start - self._at :][:size]
            else:
                data = self._read_on(start, size)
            self._ranges[-1] = start + len(data), end
            return data
        return b""

    def _read_on(self, start: int, size: int) -> bytes:
        while not self._requests[-1][0] <= start < self._requests[-1][1]:
            self._requests.pop()
        if self._at != start:
            self._file.seek(start)
        request_only(self._file, self._requests[-1][1] - start)
        data: bytes = self._file.read(size)
        if not data:
            raise ShardError(f"truncated: the shard ends at byte {start}; {REFETCH}", code="D107")
        self._at = start + len(data)
        self._last = (self._last + data if len(data) < _OVERLAP else data)[-_OVERLAP:]
        return data

    def abort(self, error: Exception) -> None:
        """From another thread: end the current `read`."""
        abort = getattr(self._file, "abort", None)
        if abort is not None:
            abort(error)


class _Run(NamedTuple):
    """Samples that are yielded one after the other."""

    samples: Iterator[dict[str, Any]]
    """Of a list, so that it knows how many are left."""
    rows: range
    """Their rows."""
    offset: int
    """Of their group."""
    following: int
    """The offset of the next group, or the size of the file."""
    end: int
    """The row after the group."""

    def offset_after(self, count: int) -> int:
        """The offset of the sample after `count` ones."""
        return self.offset if self.rows[count - 1] + 1 < self.end else self.following


_NO_RUN = _Run(iter([]), range(0), 0, 0, 0)


class TableSamples(RawSamples):
    """The samples of one table: a row is a sample, a column is a field.

    Iterating (once) yields dicts: `__key__`, the constants, then the fields in the order of the columns; `columns.py`
    says what their values are. Columns that no field needs are not read. A null is a field that the sample does not
    have. `__key__` is that of the column of this name, a text or an integer; without one it is
    `<name of the shard>/<row>`.

    The offset of a sample is that of its group, and reading resumes within it. A group that is damaged is one
    ShardError, and reading continues with the next group.

    Args:
        file: see `RawSamples`. One that cannot seek is copied to a temporary file first.
        open_table: opens a table; its arguments are the file, and `fetch_ahead`.
        fetch_ahead: a stream that only reads forward → the same, fetched in the background; None for local files.
        like: returns what the columns of the source's first shard are (`Columns.kinds`); None if this is not known.
        takes_all: whether samples have all columns, and not only those that `extensions` names. Then other columns than
            in the first shard are an error.
        verify: sees the batches of a group before they are used: `(table, number of the group, paths, batches, what
            adds the place of an error)` → the batches.
        are_samples: whether raw samples with these entries, of which these are bytes, are samples as they are. If so,
            those with all fields are tuples: the names of the entries, then their values.
        options: of `RawSamples`.
    """

    def __init__(
        self,
        file: BinaryIO,
        open_table: Callable[..., Table],
        *,
        fetch_ahead: Callable[[BinaryIO], BinaryIO] | None = None,
        like: Callable[[], tuple[str, Mapping[str, str]] | None] | None = None,
        takes_all: bool = False,
        verify: Callable[..., Iterator[Any]] | None = None,
        are_samples: Callable[[tuple[str, ...], Collection[str]], bool] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(file, **options)
        self._are_samples, self._verify = are_samples, verify
        self._open_table, self._fetch_ahead, self._like = open_table, fetch_ahead, like
        self._takes_all = takes_all and self._field_of is not only_key
        stem = stem_of(str(self._constants.get("__url__", "")))
        self._stem = f"{stem}/" if stem else ""
        self._table: Table | None = None
        self._kinds: Mapping[str, str] | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Samples come from lists, without a call for each; how many are left in a list says where reading is.
        return chain.from_iterable(self._runs())

    @property
    def next_offset(self) -> int:
        """After each sample: the offset of the group of the next one."""
        return self._offset if not (taken := self._taken) else self._run.offset_after(taken)

    @next_offset.setter
    def next_offset(self, offset: int) -> None:
        self._offset, self._run = offset, _NO_RUN

    @property
    def next_index(self) -> int:
        """After each sample: the row of the next one."""
        return self._index if not (taken := self._taken) else self._run.rows[taken - 1] + 1

    @next_index.setter
    def next_index(self, index: int) -> None:
        self._index, self._run = index, _NO_RUN

    @property
    def _taken(self) -> int:
        """The number of samples taken from the current run."""
        return len(self._run.rows) - length_hint(self._run.samples)

    def _runs(self) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the samples in runs, of limited size."""
        start = self.next_index
        try:
            table = self._table = self._open()
            columns = self._choose_columns(table)
            self._kinds = columns.kinds
            self._check(table, columns)
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except ShardError as error:
            self._report_end(error, offset=self.next_offset)
            return
        try:
            for number, group in enumerate(table.groups):
                if group.first + group.rows > start:
                    yield from self._group(table, columns, number, max(start, group.first))
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except ShardError as error:
            self._report_end(error, offset=self.next_offset)

    def kinds(self) -> Mapping[str, str]:
        if self._kinds is None:
            self._kinds = self._choose_columns(self._open()).kinds
        return self._kinds

    def requested(self) -> list[Range] | None:
        table = self._open()
        return table.requested(self._choose_columns(table).paths)

    def close(self) -> None:
        if self._table is not None:
            self._table.close()
        super().close()

    def _open(self) -> Table:
        if not self._file.seekable():
            self._file = _copy_to_disk(self._file)
            self._fetch_ahead = None
        file = TableFile(self._file, self._on_read)
        if not file.size:
            raise ShardError(f"the shard has 0 bytes; {REFETCH}", code="D103", offset=0)
        try:
            return self._open_table(file, self._fetch_ahead)
        except (ShardError, UsageError):
            raise
        except Exception as error:  # whatever pyarrow raises for damaged metadata
            raise _recognize(file, error) from error

    def _choose_columns(self, table: Table) -> Columns:
        try:
            return Columns(table.schema, self._field_of, self._constants)
        except (ShardError, UsageError):
            raise
        except Exception as error:  # names of columns that are not UTF-8
            raise ShardError(
                f"a damaged shard: {in_one_line(error)}; {REFETCH}", code="D121", offset=0
            ) from error

    def _check(self, table: Table, columns: Columns) -> None:
        """Check that there are rows, that the columns are like those of other shards, and where reading starts."""
        rows = table.groups[-1].first + table.groups[-1].rows if table.groups else 0
        if not rows and not self._may_be_empty:
            raise ShardError(
                f"the shard has no rows; {REFETCH}, {MAY_BE_EMPTY}",
                code="D105",
                offset=0,
            )
        at = next(
            (each for each in table.groups if each.first <= self.next_index < each.first + each.rows), None
        )
        if self.next_index > rows or (self.next_index and at is not None and at.offset != self.next_offset):
            raise ShardError(
                f"the shard has changed: row {self.next_index} was in the {table.group_name} at byte "
                f"{self.next_offset} when the state was saved; restore the shard, or start a new run",
                code="D123",
            )
        if self._like is not None and self._field_of is not no_field and (first := self._like()) is not None:
            compare_kinds(columns.kinds, *first, self._takes_all)

    def _group(
        self, table: Table, columns: Columns, number: int, start: int
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the samples of a group from a row on, in runs."""
        group = table.groups[number]
        end = group.first + group.rows
        later = table.groups[number + 1 :]
        following = later[0].offset if later else table.size
        batches = table.batches(number, columns.paths) if columns.paths else None
        if batches is not None and self._verify is not None:
            batches = self._verify(table, number, columns.paths, batches, self._add_place)
        as_tuples = self._are_samples is not None and self._are_samples(columns.entries, columns.of_bytes)
        at = group.first
        while at < end:
            try:
                batch = None if batches is None else next(batches, None)
            except (ShardError, UsageError):
                raise
            except Exception as error:  # whatever pyarrow raises for damaged data
                self._lose(table, number, at, start, in_one_line(error))
                break
            rows = 0 if batch is None else batch.num_rows
            if batches is None:
                rows = min(BATCH_ROWS, end - at)
            if not rows or at + rows > end:
                self._lose(table, number, at, start, "it has another number of rows than its metadata says")
                break
            first = max(at, start)
            first += (self._residue - first) % self._stride
            wanted = range(first, at + rows, self._stride)
            if batch is not None and len(wanted) < rows:
                if self._stride > 1:
                    batch = batch.take(_integers(range(first - at, rows, self._stride)))
                else:
                    batch = batch.slice(first - at)
            at += rows
            for start_at in range(0, len(wanted), SLICE_ROWS):
                part = wanted[start_at : start_at + SLICE_ROWS]
                sliced = None if batch is None else batch.slice(start_at, SLICE_ROWS)
                samples, are_whole = columns.samples(sliced, part, self._stem, as_tuples)
                if are_whole:
                    run = iter(cast(list[dict[str, Any]], samples))
                    self._run = _Run(run, part, group.offset, following, end)
                    yield run
                    self._offset, self._index, self._run = self.next_offset, self.next_index, _NO_RUN
                else:
                    pairs = zip(part, samples, strict=True)
                    yield self._with_holes(pairs, group, following)
        self.next_offset, self.next_index = following, end

    def _with_holes(
        self, samples: Iterable[tuple[int, dict[str, Any] | Fault]], group: Group, following: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the samples of some rows, and report those that cannot be read."""
        for row, sample in samples:
            if isinstance(sample, Fault):
                self._report(
                    ShardError(f"row {row}: {sample.message}", code="D122"),
                    offset=group.offset,
                    key=f"{self._stem}{row}",
                )
                continue
            self.next_index = row + 1
            self.next_offset = group.offset if row + 1 < group.first + group.rows else following
            yield sample

    def _lose(self, table: Table, number: int, at: int, start: int, why: str) -> None:
        """Report the rest of a group that cannot be read, unless another reader reads its samples."""
        group = table.groups[number]
        first, last = max(at, start), group.first + group.rows - 1
        if len(range(first + (self._residue - first) % self._stride, last + 1, self._stride)):
            self._report(
                ShardError(
                    f"damaged {table.group_name} {number} of {len(table.groups)}: {why}; its rows {first} to {last} "
                    f"are lost; {REFETCH}",
                    code="D121",
                ),
                offset=group.offset,
            )


def _integers(numbers: range) -> Any:
    import pyarrow as pa

    return pa.array(numbers, pa.int64())


def compare_kinds(kinds: Mapping[str, str], url: str, first: Mapping[str, str], takes_all: bool) -> None:
    """Raise ShardError if columns have other values than in the first shard of the source."""
    for name, kind in kinds.items():
        if name in first and first[name] != kind and "nulls" not in (kind, first[name]):
            raise ShardError(
                f"the column {name!r} has {kind} here, but {first[name]} in the first shard of the source, {url}; "
                "write them alike, or put the shards into two sources",
                code="D123",
            )
    if takes_all:
        for here, there, names in ((kinds, first, "no"), (first, kinds, "a")):
            missing = sorted(there.keys() - here.keys())
            if missing:
                raise ShardError(
                    f"the shard has {names} column {missing[0]!r}, unlike the first shard of the source, {url}; name "
                    "the columns that are needed in `extensions`, or put the shards into two sources",
                    code="D123",
                )


def _copy_to_disk(file: BinaryIO) -> BinaryIO:
    """Copy a stream that cannot seek, such as that of a command, to a file that is deleted with its last use."""
    copy = tempfile.TemporaryFile(prefix="wdspec-")  # noqa: SIM115  # closed by the reader
    try:
        shutil.copyfileobj(file, copy, 1024 * 1024)
    except BaseException:
        copy.close()
        raise
    finally:
        file.close()
    copy.seek(0)
    return cast(BinaryIO, copy)


def _recognize(file: TableFile, error: Exception) -> ShardError:
    """The error for a file that pyarrow cannot open."""
    file.seek(0)
    start = file.read(512)
    if start[257:262] == b"ustar":
        return tar_error()
    if start.lstrip()[:1] in (b"<", b"{"):
        return page_error(start)
    why = in_one_line(error)
    if start[:4] == b"PAR1" and "magic bytes" in why:
        return ShardError(
            f"truncated: the shard ends at byte {file.size} without a footer; {REFETCH}",
            code="D107",
            offset=0,
        )
    return ShardError(f"a damaged shard: {why}; {REFETCH}", code="D121", offset=0)
