"""Converts samples to Arrow tables, and rows of Ray's blocks to samples. A round trip returns equal values.

Each column gets the type that all of its values have: bytes, text, numbers, flat lists, or tensors for arrays. Values
that no Arrow type can store unchanged, such as dicts, become pickled objects, unless the schema has a type for them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from ray.data.block import Block
from ray.data.extensions import (
    ArrowConversionError,
    ArrowPythonObjectArray,
    ArrowPythonObjectType,
    ArrowTensorArray,
)

from wdspec.base.errors import FieldError

Sample = dict[str, Any]

MOST_ROWS = 1024
"""Samples in a table; Ray combines tables into blocks."""
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of values after which a table ends."""
WEIGH_EVERY = 8
"""The size of every n-th sample is estimated, for this n."""
MOST_EXACT = 2**53
"""Up to this value, every integer can be stored exactly as a float."""
_CONSTANTS = ("__url__", "__source__")
"""Fields that have the same value in all samples of a shard."""


def tables_of(samples: Iterable[Sample], schema: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """Yield the samples of a shard, in order, as tables of limited size.

    Args:
        samples: the samples. A field that a sample does not have is null.
        schema: the types of some columns, which every table has. Other types are inferred from the values.

    Raises:
        FieldError: a value does not match the type of its column in the schema.
    """
    batch: list[Sample] = []
    size = 0
    for sample in samples:
        if not len(batch) % WEIGH_EVERY:
            size += WEIGH_EVERY * _weigh(sample)
            if batch and (size >= MOST_BYTES or len(batch) >= MOST_ROWS):
                yield table_of(batch, schema)
                batch, size = [], WEIGH_EVERY * _weigh(sample)
        batch.append(sample)
    if batch:
        yield table_of(batch, schema)


def _weigh(sample: Sample) -> int:
    """Return the approximate size of a sample's values in bytes."""
    values = sample.values()
    return sum(len(v) if isinstance(v, (bytes, str, list)) else getattr(v, "nbytes", 32) for v in values)


def table_of(samples: Sequence[Sample], schema: Mapping[str, pa.DataType]) -> pa.Table:
    """Return samples as one table; see `tables_of`."""
    columns: dict[str, pa.Array] = {}
    for name, values in _columns_of(samples).items():
        if name in schema:
            columns[name] = _convert(values, schema[name], name, samples)
        elif type(first := values[0]) is str and name in _CONSTANTS and values.count(first) == len(values):
            columns[name] = pa.repeat(pa.scalar(first, pa.string()), len(values))
        else:
            columns[name] = column_of(values)
    for name, kind in schema.items():
        if name not in columns:
            columns[name] = pa.nulls(len(samples), kind)
    return pa.table(columns)


def _columns_of(samples: Sequence[Sample]) -> dict[str, Sequence[Any]]:
    """Return the values of each field that any of the samples has."""
    names = samples[0].keys()
    if {*map(len, samples)} == {len(names)}:
        with suppress(KeyError):  # samples have different fields
            return {name: [sample[name] for sample in samples] for name in names}
    every = dict.fromkeys(name for sample in samples for name in sample)
    return {name: [sample.get(name) for sample in samples] for name in every}


def column_of(values: Sequence[Any]) -> pa.Array:
    """Return values as a column of the narrowest type that holds all of them unchanged."""
    kinds = {*map(type, values)} - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    if len(kinds) == 1:
        kind = next(iter(kinds))
        if kind is bytes:
            return pa.array(values, pa.binary())
        if kind is str:
            return _text_column(values)
        if kind is bool:
            return pa.array(values, pa.bool_())
        if kind is np.ndarray or kind.__module__ == "torch":
            return _tensor_column(values)
        if issubclass(kind, np.generic):
            return _scalar_column(values)
        if kind is list:
            return _list_column(values)
    if kinds <= {int, float}:
        return _number_column(values, kinds)
    return _object_column(values)


def _object_column(values: Sequence[Any]) -> pa.Array:
    """Return values as pickles: plain ones if possible, because Ray's own take five times as long."""
    try:
        pickles = [pickle.dumps(value) for value in values]
    except (pickle.PicklingError, AttributeError, TypeError):
        return ArrowPythonObjectArray.from_objects(values)
    return ArrowPythonObjectType().wrap_array(pa.array(pickles, pa.large_binary()))


def _text_column(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # lone surrogates, which JSON can contain
        return _object_column(values)


def _number_column(values: Sequence[Any], kinds: set[type]) -> pa.Array:
    if kinds == {int}:
        try:
            return pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return _object_column(values)
    if int in kinds and any(type(value) is int and abs(value) > MOST_EXACT for value in values):
        return _object_column(values)
    return pa.array(values, pa.float64(), from_pandas=False)


def _scalar_column(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.from_numpy_dtype(next(v for v in values if v is not None).dtype))
    except (pa.ArrowException, TypeError, ValueError):
        return _object_column(values)


def _list_column(values: Sequence[Any]) -> pa.Array:
    try:
        inner = found = pa.infer_type(values)
        while pa.types.is_list(inner):
            inner = inner.value_type
        if pa.types.is_integer(inner) or pa.types.is_string(inner) or pa.types.is_boolean(inner):
            return pa.array(values, found)
        if pa.types.is_floating(inner) or pa.types.is_null(inner):
            return pa.array(values, found, from_pandas=False)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        pass
    return _object_column(values)


def _tensor_column(values: Sequence[Any]) -> pa.Array:
    """Return arrays or torch tensors as a column of tensors. Their shapes may differ."""
    try:
        arrays = [np.asarray(value) for value in values]
    except (TypeError, RuntimeError):  # a dtype that numpy does not have, or a tensor on a device
        return _object_column(values)
    dtypes = {array.dtype for array in arrays}
    dtype = next(iter(dtypes))
    if len(dtypes) > 1 or dtype.kind not in "biuf" or len({array.ndim for array in arrays}) > 1:
        return _object_column(values)
    if not arrays[0].ndim:
        return pa.array(np.stack(arrays))
    try:
        if len({array.shape for array in arrays}) == 1:
            return ArrowTensorArray.from_numpy(np.stack(arrays))
        ragged = np.empty(len(arrays), dtype=object)
        ragged[:] = arrays
        return ArrowTensorArray.from_numpy(ragged)
    except (ArrowConversionError, pa.ArrowException, TypeError, ValueError):
        return _object_column(values)


def _convert(values: Sequence[Any], kind: pa.DataType, name: str, samples: Sequence[Sample]) -> pa.Array:
    """Convert values to the type in the schema. Raises FieldError for the first value that does not match."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for value, sample in zip(values, samples, strict=True):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise FieldError(
                    f"`{name}` has the type {kind} in the schema, but this value is a {type(value).__name__} that does "
                    f"not match: {error}; correct the schema, or convert the value in `map`",
                    code="D230",
                    source=sample.get("__source__"),
                    url=sample.get("__url__"),
                    key=sample.get("__key__"),
                    field=name,
                ) from None
        raise


def samples_of(block: Block) -> Iterator[Sample]:
    """Yield the rows of a block as samples. Nulls are left out."""
    if isinstance(block, pd.DataFrame):
        names = [str(name) for name in block.columns]
        lists = [_values_of(block[name]) for name in block.columns]
    else:
        names = block.column_names
        lists = [block.column(name).to_pylist() for name in names]
    for values in zip(*lists, strict=True):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _values_of(series: pd.Series[Any]) -> list[Any]:
    """Return the values of a pandas column as Python objects. NaN is null, except in a column of floats."""
    values = [value.item() if isinstance(value, np.generic) else value for value in series]
    if series.dtype.kind == "f":
        return values
    return [None if pd.api.types.is_scalar(value) and pd.isna(value) else value for value in values]
