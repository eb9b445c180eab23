"""Samples become columns of Arrow, and come back equal; a schema is obeyed or refused, never bent."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wdspec import FieldError
from wdspec.ray import columns
from wdspec.ray.columns import samples_of, table_of, tables_of


def through(values, schema=None):
    """The values of a column after the way to a table and back, in which None has left its sample."""
    samples = [{"__key__": str(n), "value": value} for n, value in enumerate(values)]
    return [sample.get("value") for sample in samples_of(table_of(samples, schema or {}))]


def kind(values):
    return table_of([{"__key__": "", "value": value} for value in values], {}).schema.field("value").type


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(json_values, min_size=1, max_size=6))
def test_json_values_round_trip(values):
    assert through(values) == values


@given(st.lists(st.binary(max_size=5) | st.none(), min_size=1) | st.lists(st.text() | st.none(), min_size=1))
def test_bytes_and_text_round_trip(values):
    assert through(values) == values


def test_numbers_keep_every_digit():
    assert through([1, 2**62]) == [1, 2**62]
    assert kind([1, 2**62]) == pa.int64()
    assert through([1, 2**64]) == [1, 2**64]
    assert through([2**53 + 1, 0.5]) == [2**53 + 1, 0.5]
    assert through([[2**53 + 1, 0.5]]) == [[2**53 + 1, 0.5]]
    assert kind([1, 0.5]) == pa.float64()
    assert through([1, True, "1"]) == [1, True, "1"]
    assert type(through([1, True])[1]) is bool
    assert math.isnan(through([math.nan, 1.0])[0])
    assert math.isnan(through([[math.nan], [1.0]])[0][0])


def test_text_with_lone_surrogates_round_trips():
    values = [json.loads('"\\ud800"'), "a"]
    assert through(values) == values
    assert through([values]) == [values]


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f2", "f4", "f8", "bool"])
def test_arrays_are_tensor_columns(dtype):
    arrays = [np.arange(6).reshape(2, 3).astype(dtype), np.ones((2, 3), dtype)]
    for before, after in zip(arrays, through(arrays), strict=True):
        np.testing.assert_array_equal(after, before)
        assert after.dtype == before.dtype


def test_arrays_can_have_different_shapes_or_be_missing():
    for arrays in (
        [np.arange(3), np.arange(5)],
        [np.zeros((2, 3, 1), "u1"), np.ones((4, 1, 3), "u1")],
        [np.arange(3), np.zeros((2, 2))],
        [np.arange(3), None],
        [np.zeros(0), np.zeros(2)],
        [np.array(["a", "b"]), np.array(["c"])],
        [np.array(3), np.array(4)],
    ):
        for before, after in zip(arrays, through(arrays), strict=True):
            np.testing.assert_array_equal(after, before)


def test_torch_tensors_round_trip_as_arrays():
    after = through([torch.arange(4), torch.arange(2)])
    assert [array.tolist() for array in after] == [[0, 1, 2, 3], [0, 1]]
    assert through([torch.ones(2, dtype=torch.bfloat16)])[0].dtype == torch.bfloat16


def test_other_values_are_python_objects():
    values = [{1, 2}, (np.arange(2), 16_000), {"a": b"b"}, np.float32(0.5)]
    after = through(values)
    assert after[0] == {1, 2}
    assert after[1][1] == 16_000
    assert after[2] == {"a": b"b"}
    assert through([np.float32(0.5), np.float32(1)]) == [0.5, 1]


def test_a_missing_field_stays_missing():
    samples = [{"__key__": "a", "x": 1}, {"__key__": "b", "y": [2]}, {"__key__": "c", "y": [], "x": None}]
    expected = [{"__key__": "a", "x": 1}, {"__key__": "b", "y": [2]}, {"__key__": "c", "y": []}]
    assert list(samples_of(table_of(samples, {}))) == expected
    same_number = [{"__key__": "a", "x": 1}, {"__key__": "b", "y": 2}]
    assert list(samples_of(table_of(same_number, {}))) == same_number


def test_pandas_rows_are_samples():
    import pandas as pd

    frame = pd.DataFrame({"__key__": ["a", "b"], "n": [1, 2], "t": ["x", None], "o": [{"a": 1}, [2]]})
    assert list(samples_of(frame)) == [
        {"__key__": "a", "n": 1, "t": "x", "o": {"a": 1}},
        {"__key__": "b", "n": 2, "o": [2]},
    ]


def test_a_schema_gives_every_table_the_same_columns():
    schema = {"json": pa.struct({"a": pa.int32()}), "more": pa.string()}
    tables = [table_of([{"__key__": "a", "json": value}], schema) for value in ({"a": 1}, {}, None)]
    assert {table.schema for table in tables} == {tables[0].schema}
    assert [table.column("json").to_pylist() for table in tables] == [[{"a": 1}], [{"a": None}], [None]]


def test_a_value_that_does_not_fit_the_schema_is_reported():
    samples = [
        {"__key__": "a", "__url__": "x.tar", "json": {"a": 1}},
        {"__key__": "b", "__url__": "x.tar", "json": {"a": "one"}},
    ]
    with pytest.raises(FieldError) as caught:
        table_of(samples, {"json": pa.struct({"a": pa.int32()})})
    assert caught.value.code == "D230"
    assert caught.value.place["key"] == "b"
    assert "`json` has the type struct<a: int32> in the schema" in str(caught.value)


def test_tables_have_limited_rows_and_bytes(monkeypatch):
    samples = [{"__key__": str(n), "x": b"0" * 1000} for n in range(5000)]
    monkeypatch.setattr(columns, "MOST_ROWS", 1000)
    assert [table.num_rows for table in tables_of(samples, {})] == [1000] * 5
    monkeypatch.setattr(columns, "MOST_BYTES", 100_000)
    tables = list(tables_of(samples, {}))
    assert max(table.nbytes for table in tables) < 120_000
    assert sum(table.num_rows for table in tables) == 5000
    assert list(tables_of([], {})) == []
