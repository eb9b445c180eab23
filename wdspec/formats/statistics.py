"""Comparing the values of Parquet files with what their footers state about them, while they are read.

A page without a checksum may have changed: its values are then others of the same type. Only those outside of the range
that the footer states for their column chunk, and nulls that it does not count, show it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from wdspec.base.amounts import pluralize, show_value
from wdspec.base.errors import ShardError
from wdspec.formats.blocks import REFETCH
from wdspec.formats.footer import Bounds
from wdspec.formats.parquet import ParquetTable
from wdspec.formats.tables import Table
from wdspec.spec.language.decoders import library

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_FLOATS = {"FLOAT": "<f", "DOUBLE": "<d"}
_INTEGERS = {"INT32": 4, "INT64": 8}
_BYTES = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_SORT_DECIMALS = ("parquet-cpp", "parquet-mr")
"""Programs whose bounds of decimals in bytes are right; others have taken their bytes for numbers without a sign."""
_DIGITS = Context(prec=100)

Convert = Callable[[Any], Any]


@dataclass
class Verification:
    """Compares what is read of tables; see `TableSamples`."""

    report: Callable[[ShardError], object]
    """Called with each contradiction."""
    lacks_checksums: bool = False
    """Whether a table of Parquet has pages without checksums."""

    def __call__(
        self,
        table: Table,
        number: int,
        paths: Sequence[str],
        batches: Iterator[Any],
        place: Callable[..., ShardError],
    ) -> Iterator[Any]:
        """Yield the batches of a group, and report what contradicts the statistics of the table.

        Args:
            table: of any kind; only Parquet states something.
            number: of the group.
            paths: those of the columns that are read.
            batches: see `Table.batches`.
            place: adds the place of an error.
        """
        if not isinstance(table, ParquetTable):
            yield from batches
            return
        if not number and not table.has_checksums():
            self.lacks_checksums = True
        group, columns, left = table.groups[number], _columns(table, number, paths), table.groups[number].rows
        for batch in batches:
            for column in columns:
                column.add(batch)
            left -= batch.num_rows
            for column in columns if not left else ():
                for contradiction in column.contradictions():
                    lead = f"{table.group_name} {number} of {len(table.groups)}: the column {column.path!r}"
                    error = ShardError(f"{lead} {contradiction}; {REFETCH}", code="D229")
                    self.report(place(error, offset=group.offset))
            yield batch


class _Column:
    """The values of one column chunk.

    Args:
        path: of the column.
        leaf: the number of the chunk among those of the column.
        leaves: how many there are.
        bounds: what is stated.
        kind: of the chunk, as pyarrow describes it (`ColumnSchema`).
        program: see `parse_statistics`.
    """

    def __init__(self, path: str, leaf: int, leaves: int, bounds: Bounds, kind: Any, program: str) -> None:
        self.path = path
        self._leaf, self._leaves = leaf, leaves
        self._bounds, self._kind, self._program = bounds, kind, program
        self._least: Any = None
        self._most: Any = None
        self._nulls: int | None = 0 if leaves == 1 else None
        self._stated: tuple[Any, Any] | None = None
        self._is_comparable = True

    def add(self, batch: Any) -> None:
        """Take the values of a batch."""
        pa = library("pyarrow", "a shard of Parquet")
        if not self._is_comparable:
            return
        try:
            self._take(batch)
        except (pa.ArrowException, LookupError, ValueError, ArithmeticError, TypeError, struct.error):
            self._is_comparable = False  # a type whose order is not known here

    def _take(self, batch: Any) -> None:
        compute = library("pyarrow.compute", "a shard of Parquet")
        names = batch.schema.names
        top = batch.column(self.path if self.path in names else self.path.removesuffix(".bytes"))
        leaves = list(_leaves(top))
        if len(leaves) != self._leaves:
            raise LookupError
        array = leaves[self._leaf]
        if self._nulls is not None and array is top:
            self._nulls += array.null_count
        else:
            self._nulls = None  # an empty list counts as a null, too
        reads = _reading(array.type, self._kind, self._program)
        if reads is None or self._bounds.least is None or self._bounds.most is None:
            return
        decode, convert = reads
        self._stated = decode(self._bounds.least), decode(self._bounds.most)
        found = compute.min_max(convert(array)).as_py()
        if found["min"] is None or found["min"] != found["min"]:  # only nulls and NaN
            return
        self._least = found["min"] if self._least is None else min(self._least, found["min"])
        self._most = found["max"] if self._most is None else max(self._most, found["max"])

    def contradictions(self) -> Iterator[str]:
        """Yield what contradicts the statistics."""
        if not self._is_comparable:
            return
        if self._stated is not None and self._least is not None:
            least, most = self._stated
            outside = next((each for each in (self._least, self._most) if not least <= each <= most), None)
            if outside is not None and least <= most:
                yield (
                    f"has {_show(outside)}, but by the statistics of the file, its values are from {_show(least)} to "
                    f"{_show(most)}"
                )
        if self._nulls is not None and self._bounds.nulls is not None and self._nulls != self._bounds.nulls:
            yield f"has {pluralize(self._nulls, 'null')}, but the statistics of the file count {self._bounds.nulls:,}"


def _columns(table: ParquetTable, number: int, paths: Sequence[str]) -> list[_Column]:
    program, stated = table.statistics
    schema = table.metadata.schema
    found = []
    for path in paths:
        chunks = table.chunks(number, path)
        for leaf, (place, _) in enumerate(chunks):
            bounds = stated[number][place]
            if bounds != (None, None, None):
                found.append(_Column(path, leaf, len(chunks), bounds, schema.column(place), program))
    return found


def _leaves(array: Any) -> Iterator[Any]:
    """Yield the arrays of the values in lists and structs, in the order of the columns of Parquet."""
    pa = library("pyarrow", "a shard of Parquet")
    types, kind = pa.types, array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(array.storage)
    elif types.is_struct(kind):
        for each in array.flatten():
            yield from _leaves(each)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _leaves(array.flatten())
    elif types.is_nested(kind):
        raise LookupError
    elif types.is_dictionary(kind):
        yield array.dictionary_decode()
    else:
        yield array


def _reading(kind: Any, column: Any, program: str) -> tuple[Callable[[bytes], Any], Convert] | None:
    """Return how bounds are decoded, and what values of an Arrow type are converted to, so that both can be compared.

    None if the order of the values is not known.
    """
    pa = library("pyarrow", "a shard of Parquet")
    types, physical = pa.types, column.physical_type
    width = _INTEGERS.get(physical)
    if types.is_boolean(kind) and physical == "BOOLEAN":
        return lambda data: _unsigned(data, 1), lambda array: array.cast(pa.uint8())
    if types.is_floating(kind) and physical in _FLOATS:
        return lambda data: _number(_FLOATS[physical], data), _same
    if types.is_decimal(kind):
        order = "little" if width else "big" if program.startswith(_SORT_DECIMALS) else None
        return None if order is None else (lambda data: _decimal(data, order, kind.scale), _same)
    if physical in _BYTES and column.converted_type != "INTERVAL":
        if types.is_fixed_size_binary(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            return _same, _same
        if types.is_string(kind) or types.is_large_string(kind):
            return _same, lambda array: array.cast(pa.large_binary())
    if width is None:
        return None
    if types.is_unsigned_integer(kind):
        return lambda data: _unsigned(data, width), _same
    convert = _same if types.is_signed_integer(kind) else _of_times(kind, column)
    return None if convert is None else (lambda data: _signed(data, width), convert)


def _of_times(kind: Any, column: Any) -> Convert | None:
    """Return how dates and times become the integers of the file."""
    pa = library("pyarrow", "a shard of Parquet")
    types = pa.types
    if types.is_date(kind):
        return lambda array: array.cast(pa.date32()).cast(pa.int32())
    if types.is_duration(kind):
        return lambda array: array.cast(pa.int64())
    unit = _UNITS[json.loads(column.logical_type.to_json())["timeUnit"]]
    if types.is_timestamp(kind):
        return lambda array: array.cast(pa.timestamp(unit, kind.tz)).cast(pa.int64())
    if types.is_time(kind) and unit == "ms":
        return lambda array: array.cast(pa.time32(unit)).cast(pa.int32())
    return (lambda array: array.cast(pa.time64(unit)).cast(pa.int64())) if types.is_time(kind) else None


def _same(value: Any) -> Any:
    return value


def _signed(data: bytes, width: int) -> int:
    if len(data) != width:
        raise ValueError
    return int.from_bytes(data, "little", signed=True)


def _unsigned(data: bytes, width: int) -> int:
    """Decode a bound of numbers without a sign. Some programs have sorted the large ones as if they had one."""
    value = _signed(data, width)
    if value < 0:
        raise ValueError
    return value


def _number(form: str, data: bytes) -> float:
    (value,) = struct.unpack(form, data)
    if math.isnan(value):
        raise ValueError
    return float(value)


def _decimal(data: bytes, order: Any, scale: int) -> Decimal:
    return Decimal(int.from_bytes(data, order, signed=True)).scaleb(-scale, _DIGITS)


def _show(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else show_value(value)
