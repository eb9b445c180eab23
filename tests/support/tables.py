"""Tables for tests, and what plain pyarrow reads of them: the reference for wdspec's readers."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from wdspec.formats.arrow import ArrowTable
from wdspec.formats.parquet import ParquetTable
from wdspec.formats.tables import TableSamples

KINDS = ("parquet", "arrow", "stream")


def pack(table, kind="parquet", rows=7, **options):
    """The bytes of a table, with groups of this many rows."""
    file = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, file, row_group_size=rows, **{"write_page_checksum": True, **options})
        return file.getvalue()
    make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
    with make(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return file.getvalue()


def reader(data, kind="parquet", **options):
    """A reader of the bytes."""
    return TableSamples(
        io.BytesIO(data),
        ParquetTable if kind == "parquet" else ArrowTable,
        **{"may_be_empty": True, **options},
    )


def plain_samples(table, name=""):
    """The samples that a table should give, from `Table.to_pylist`, one value after the other."""
    found = []
    for row, values in enumerate(table.to_pylist()):
        sample = {"__key__": f"{name}/{row}" if name else str(row)}
        for field in table.schema:
            value = _plain(values[field.name], field.type)
            if value is not None:
                sample[field.name] = value
        found.append(sample)
    return found


def _plain(value, kind):
    if value is None:
        return None
    if pa.types.is_struct(kind) and {each.name for each in kind} == {"bytes", "path"}:
        return value["bytes"]
    leaf = kind
    while pa.types.is_list(leaf) or pa.types.is_fixed_size_list(leaf) or pa.types.is_large_list(leaf):
        leaf = leaf.value_type
    if leaf is not kind and (
        pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)
    ):
        return _array(value, leaf.to_pandas_dtype())
    if pa.types.is_map(kind):
        return dict(value)
    return value


def _array(value, dtype):
    try:
        return np.array(value, dtype)
    except ValueError:
        return [_array(each, dtype) for each in value]


def mixed_table(rows=40):
    """A table with a column of every kind that samples are made of."""
    return pa.table(
        {
            "text": [f"text {n}" if n % 5 else None for n in range(rows)],
            "number": pa.array(range(rows), pa.int32()),
            "share": [n / 7 if n % 3 else None for n in range(rows)],
            "is_good": [n % 2 == 0 for n in range(rows)],
            "raw": [b"%d" % n * n for n in range(rows)],
            "kind": pa.array([["cat", "dog"][n % 2] for n in range(rows)]).dictionary_encode(),
            "tokens": pa.array([list(range(n % 4)) for n in range(rows)], pa.list_(pa.uint16())),
            "boxes": [[[0.5, 1.0, n, 2.0]] * (1 + n % 3) if n % 4 else None for n in range(rows)],
            "ragged": [[[1], [2, n]] for n in range(rows)],
            "pair": pa.array([[n, -n] for n in range(rows)], pa.list_(pa.int8(), 2)),
            "image": [
                {"bytes": b"\x89PNG%d" % n, "path": f"{n}.png"} if n % 6 else None for n in range(rows)
            ],
            "turns": [
                [{"role": "user", "content": str(n)}, {"role": "bot", "content": None}] for n in range(rows)
            ],
            "names": [["a", None, str(n)] for n in range(rows)],
            "meta": [{"id": n, "tags": ["x"] * (n % 2)} for n in range(rows)],
            "counts": pa.array([[("k", n)] for n in range(rows)], pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(rows),
        }
    )
