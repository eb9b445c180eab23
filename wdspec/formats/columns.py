"""Columns of Arrow tables as values of samples, for the readers of Parquet and Arrow files.

A value is what the column naturally is in Python: text, bytes (which a decoder may decode), int, float, bool, dict for
a struct. A list of numbers is a numpy array of the column's dtype; nested lists of equal lengths are one array with
more dimensions. Any other list is a list. The structs `{bytes, path}`, in which Hugging Face stores images, audio and
video, are their bytes. A sample has no field for a null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np

from wdspec.base.amounts import show_value
from wdspec.base.errors import ShardError, in_one_line
from wdspec.formats.samples import no_field
from wdspec.spec.language.decoders import library

_OF_PANDAS = "__index_level_"
_MEDIA = {"bytes", "path"}


class Fault:
    """In place of a value that cannot be read: what is wrong with it."""

    def __init__(self, message: str) -> None:
        self.message = message


Convert = Callable[[Any], list[Any]]
"""Arrow array → its values; None for a null, and a `Fault` for a value that cannot be read."""


class Column(NamedTuple):
    """A column that a field needs."""

    name: str
    """Its name in the file."""
    stored: str
    """The name to store its values under; "" for the key."""
    path: str
    """The path of what is read of it: itself, or the bytes of a struct."""
    convert: Convert


class Columns:
    """What is read of the columns of a file.

    Args:
        schema: `pyarrow.Schema` of the file.
        field_of: see `RawSamples`.
        constants: see `RawSamples`.

    Raises:
        ShardError: two columns become one field.
    """

    def __init__(
        self, schema: Any, field_of: Callable[[str], str | None], constants: Mapping[str, Any]
    ) -> None:
        self.kinds: dict[str, str] = {}
        """Column that is read → what its values are, to compare files."""
        self._columns: list[Column] = []
        self._constants = dict(constants)
        taken: dict[str, str] = {}
        for field in schema:
            stored = _name_field(field.name, field_of, constants)
            if stored is None:
                continue
            if stored in taken:
                raise ShardError(
                    f"the columns {taken[stored]!r} and {field.name!r} both become the field {stored!r} (case is "
                    "ignored); rename one, or exclude it by `extensions`",
                    code="D206",
                    offset=0,
                )
            taken[stored] = field.name
            kind, convert = _choose(field.type)
            self.kinds[field.name] = kind
            path = f"{field.name}.bytes" if kind == _FILE else field.name
            self._columns.append(Column(field.name, stored, path, convert))

    @property
    def paths(self) -> list[str]:
        """The paths of the columns to read."""
        return [column.path for column in self._columns]

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the entries of a sample that has all fields."""
        return tuple(dict.fromkeys(("__key__", *self._constants, *(each.stored for each in self._columns))))

    @property
    def of_bytes(self) -> set[str]:
        """The fields whose values are bytes, or lists of them."""
        kinds = (_FILE, "bytes", f"lists of {_FILE}", "lists of bytes")
        return {each.stored for each in self._columns if self.kinds[each.name] in kinds}

    def samples(self, batch: Any, rows: range, stem: str, as_tuples: bool = False) -> tuple[list[Any], bool]:
        """Return a raw sample for each row of a `pyarrow.RecordBatch`, or a `Fault` that says what is wrong with it.

        Args:
            batch: not used if no column is read.
            rows: the indices of its rows in the shard.
            stem: the start of the keys of rows without a key.
            as_tuples: whether samples that have all fields are tuples of `entries` and their values.

        Returns:
            The samples, and whether each has all fields.
        """
        has_keys = any(column.stored == "__key__" for column in self._columns)
        values: dict[str, list[Any]] = {"__key__": [] if has_keys else [f"{stem}{row}" for row in rows]}
        has_holes = False
        for column in self._columns:
            array = batch.column(column.name)
            found = _convert(column, array)
            if column.stored == "__key__":
                found = [_key_of(value) for value in found]
            values[column.stored] = found
            has_holes = has_holes or bool(array.null_count) or Fault in map(type, found)
        if as_tuples and not has_holes:
            constants = {name: repeat(value, len(rows)) for name, value in self._constants.items()}
            names = self.entries
            parts = [values[name] if name in values else constants[name] for name in names]
            return [*zip(repeat(names, len(rows)), *parts, strict=True)], True
        # Copies of one dict, filled column by column: half the time of making each from its row.
        template: dict[str, Any] = {"__key__": "", **self._constants, **dict.fromkeys(values)}
        samples: list[Any] = [template.copy() for _ in rows]
        for name, found in values.items():
            for sample, value in zip(samples, found, strict=True):
                sample[name] = value
        return ([self._fill(sample) for sample in samples], False) if has_holes else (samples, True)

    def _fill(self, sample: Any) -> dict[str, Any] | Fault:
        """Leave out nulls, or return what is wrong."""
        for name, value in sample.items():
            if type(value) is Fault:
                return Fault(f"the column {name!r} {value.message}")
        return {name: value for name, value in sample.items() if value is not None or name in self._constants}


def _convert(column: Column, array: Any) -> list[Any]:
    """Convert an array; if that fails, row by row, to find the rows that cannot be read."""
    try:
        return column.convert(array)
    except Exception as error:  # text that is not UTF-8, times that Python cannot have
        if len(array) == 1:
            return [Fault(f"cannot be read: {in_one_line(error)}")]
        return [_convert(column, array.slice(row, 1))[0] for row in range(len(array))]


def _name_field(name: str, field_of: Callable[[str], str | None], constants: Mapping[str, Any]) -> str | None:
    """Return the name to store the values of a column under; None if it is not read."""
    if field_of is not no_field and len(name) > 4 and name.startswith("__") and name.endswith("__"):
        return None if name in constants or name.startswith(_OF_PANDAS) else name
    return field_of(name)


def _key_of(value: Any) -> str | Fault:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    return Fault(f"has the key {show_value(value)}; use text or an integer")


_FILE = "files"
_NUMBERS = "iufb"
"""Kinds of numpy's dtypes of which lists become arrays."""


def _choose(kind: Any) -> tuple[str, Convert]:
    """Choose how the values of an Arrow type are read, and what they are called in messages."""
    pa = library("pyarrow", "a shard of columns")
    types = pa.types
    if isinstance(kind, pa.FixedShapeTensorType):
        return f"arrays of {kind.value_type}", _tensors
    if isinstance(kind, pa.BaseExtensionType):
        name, convert = _choose(kind.storage_type)
        return name, lambda array: convert(array.storage)
    if types.is_dictionary(kind):
        name, convert = _choose(kind.value_type)
        return name, lambda array: convert(array.dictionary_decode())
    if types.is_fixed_size_list(kind):
        varying = pa.list_(kind.value_field)
        name, convert = _choose(varying)
        return name, lambda array: convert(array.cast(varying))
    if types.is_list(kind) or types.is_large_list(kind):
        if (dtype := _dtype_of(kind)) is not None:
            return f"arrays of {dtype}", partial(_arrays, dtype)
        name, convert = _choose(kind.value_type)
        return f"lists of {name}", partial(_lists, convert)
    if types.is_struct(kind):
        inner = {each.name: each.type for each in kind}
        is_binary = "bytes" in inner and _is_bytes(inner["bytes"], types)
        if is_binary and inner.keys() <= _MEDIA:
            return _FILE, _media
        parts = {name: _choose(each) for name, each in inner.items()}
        shown = ", ".join(f"{name}: {part[0]}" for name, part in parts.items())
        return f"maps {{{shown}}}", partial(_structs, {name: part[1] for name, part in parts.items()})
    if types.is_map(kind):
        return "maps", lambda array: array.to_pylist(maps_as_pydicts="strict")
    if types.is_timestamp(kind) and kind.unit == "ns":  # Python's own have microseconds
        return "times", lambda array: [
            value if valid else None
            for value, valid in zip(array.to_numpy(zero_copy_only=False), array.is_valid(), strict=True)
        ]
    if types.is_float16(kind):
        return "numbers", lambda array: [None if each is None else float(each) for each in array.to_pylist()]
    return _name_of(kind, types), _scalars


def _name_of(kind: Any, types: Any) -> str:
    if types.is_integer(kind):
        return "integers"
    if types.is_floating(kind):
        return "numbers"
    if types.is_boolean(kind):
        return "booleans"
    if _is_bytes(kind, types):
        return "bytes"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    return "nulls" if types.is_null(kind) else str(kind)


def _is_bytes(kind: Any, types: Any) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _dtype_of(kind: Any) -> np.dtype[Any] | None:
    """The dtype of nested lists of numbers; None for other lists."""
    types = library("pyarrow", "a shard of columns").types
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        return None
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype


def _scalars(array: Any) -> list[Any]:
    found: list[Any] = (
        array.to_pylist() if array.null_count else array.to_numpy(zero_copy_only=False).tolist()
    )
    return found


def _media(array: Any) -> list[Any]:
    """The bytes of structs `{bytes, path}`."""
    found: list[Any] = array.field("bytes").to_pylist()
    if array.null_count or None in found:
        for row, is_valid in enumerate(array.is_valid().to_pylist()):
            if not is_valid:
                found[row] = None
            elif found[row] is None:
                found[row] = Fault(
                    "has only the path of a file, not its bytes; embed the files when writing (in Hugging Face "
                    "datasets: `push_to_hub` does, or `embed_table_storage`)"
                )
    return found


def _structs(parts: Mapping[str, Convert], array: Any) -> list[Any]:
    columns = [convert(array.field(name)) for name, convert in parts.items()]
    rows = zip(*columns, strict=True) if columns else ((),) * len(array)
    found: list[Any] = [_whole(dict(zip(parts, row, strict=True))) for row in rows]
    return _without_nulls(found, array)


def _lists(convert: Convert, array: Any) -> list[Any]:
    ends = array.offsets.to_pylist()
    values = convert(array.values.slice(ends[0], ends[-1] - ends[0]))
    found = [_whole(values[start - ends[0] : end - ends[0]]) for start, end in pairwise(ends)]
    return _without_nulls(found, array)


def _whole(value: Any) -> Any:
    """The value, or the first fault in it."""
    parts = value.values() if isinstance(value, dict) else value
    return next((part for part in parts if type(part) is Fault), value)


def _without_nulls(found: list[Any], array: Any) -> list[Any]:
    if not array.null_count:
        return found
    valid = array.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(found, valid, strict=True)]


def _tensors(array: Any) -> list[Any]:
    if array.null_count:  # a null has no shape
        return [None if each is None else each.to_numpy().copy() for each in array]
    return [each.copy() for each in array.to_numpy_ndarray()]


def _arrays(dtype: np.dtype[Any], array: Any) -> list[Any]:
    """Nested lists of numbers as arrays of their own: a view would keep the memory of the whole batch."""
    levels: list[Any] = []
    leaf, has_nulls = array, False
    while hasattr(leaf, "values"):
        if not hasattr(leaf, "offsets"):  # all lists have the same length
            leaf = leaf.cast(library("pyarrow", "a shard of columns").list_(leaf.type.value_field))
        has_nulls = has_nulls or bool(levels and leaf.null_count)
        ends = leaf.offsets.to_numpy()
        levels.append(ends - ends[0])
        leaf = leaf.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
    if has_nulls or leaf.null_count:
        return [
            Fault("has a null within a list of numbers, which no array can have; write another value")
            if value is not None and _has_null(value)
            else _array_of(value, dtype)
            for value in array.to_pylist()
        ]
    numbers = leaf.to_numpy(zero_copy_only=False)
    ends = levels.pop(0).tolist()
    if levels:
        found = [_block(levels, numbers, start, end) for start, end in pairwise(ends)]
    else:
        found = [numbers[start:end].copy() for start, end in pairwise(ends)]
    return _without_nulls(found, array)


def _block(levels: list[Any], numbers: Any, first: int, last: int) -> Any:
    """The lists first..last-1 of the first level as one array, or as a list of arrays if their lengths differ."""
    start, end, shape = first, last, [last - first]
    for ends in levels:
        lengths = np.diff(ends[start : end + 1])
        if len(lengths) and lengths.min() != lengths.max():
            parts = pairwise(levels[0][first : last + 1].tolist())
            if len(levels) == 1:
                return [numbers[start:end].copy() for start, end in parts]
            return [_block(levels[1:], numbers, start, end) for start, end in parts]
        shape.append(int(lengths[0]) if len(lengths) else 0)
        start, end = int(ends[start]), int(ends[end])
    return numbers[start:end].reshape(shape).copy()


def _array_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """One nested list as an array, or as a list of arrays if the lengths of its lists differ."""
    if value is None:
        return None
    try:
        return np.array(value, dtype)
    except ValueError:
        return [_array_of(each, dtype) for each in value]


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))
