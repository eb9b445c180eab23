"""What a file claims is checked before anything is done or allocated for it."""

import contextlib
import io
import math
import struct
import time
from decimal import Decimal

import cbor2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tarblocks import BLOCK, filled, header

from wdspec.base.errors import ShardError
from wdspec.fields.codecs.arrays import read_numpy
from wdspec.formats.arrow import ArrowTable
from wdspec.formats.parquet import ParquetTable
from wdspec.formats.samples import no_field
from wdspec.formats.tables import TableSamples
from wdspec.formats.tar.headers import read_records
from wdspec.formats.tar.members import MOST_ZEROS, PADDING
from wdspec.shards.key_lists import _read_array
from wdspec.spec.language.expressions import parse_expression

HUGE = 2**40


@pytest.fixture(autouse=True)
def no_claim_takes_long():
    start = time.process_time()
    yield
    assert time.process_time() - start < 10


def arrow(table, *, as_stream):
    file = io.BytesIO()
    with (pa.ipc.new_stream if as_stream else pa.ipc.new_file)(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def count(data, open_table=ArrowTable):
    """The number of rows, which are counted without reading them."""
    return sum(1 for _ in TableSamples(io.BytesIO(data), open_table, field_of=no_field))


@pytest.mark.parametrize("as_stream", [False, True])
def test_a_flipped_bit_never_changes_the_number_of_rows(as_stream):
    data = arrow(pa.table({"n": [1, 2, 3], "text": ["a", "b", "c"]}), as_stream=as_stream)
    assert count(data) == 3
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(ShardError):
            assert count(bytes(damaged)) == 3, bit


@pytest.mark.parametrize("as_stream", [False, True])
@pytest.mark.parametrize("column", [pa.array([1] * 77), pa.nulls(77), pa.array([{}] * 77, pa.struct([]))])
def test_rows_that_do_not_fit_into_the_bytes_are_an_error_at_once(as_stream, column):
    data = arrow(pa.table({"n": column}), as_stream=as_stream)
    assert count(data) == 77
    lie = data.replace(struct.pack("<q", 77), struct.pack("<q", HUGE))
    assert lie != data
    with pytest.raises(ShardError, match="damaged shard") as caught:
        count(lie)
    assert caught.value.code == "D121"


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_many_equal_rows_in_few_bytes_are_read(compression):
    file = io.BytesIO()
    table = pa.table({"n": np.zeros(100_000, np.int64)})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)
    assert count(file.getvalue()) == 100_000


def test_rows_of_parquet_that_do_not_fit_into_the_bytes_are_an_error_at_once():
    file = io.BytesIO()
    rows = 1_100_000
    pq.write_table(pa.table({"n": np.zeros(rows, np.int8)}), file, row_group_size=2 * rows)
    data = file.getvalue()
    assert count(data, ParquetTable) == rows
    lie = data.replace(varint(rows), varint(2**27 - 1))
    assert lie != data
    with pytest.raises(ShardError, match="it claims 134,217,727 rows, more than fit into its bytes"):
        count(lie, ParquetTable)


def varint(number):
    """A number as in the footer of Parquet."""
    left, found = 2 * number, b""
    while left > 127:
        found, left = found + bytes([left & 127 | 128]), left >> 7
    return found + bytes([left])


@pytest.mark.parametrize("function", ["floor", "ceil"])
def test_a_decimal_with_millions_of_digits_is_an_error(function):
    value = cbor2.loads(cbor2.dumps(cbor2.CBORTag(4, [9_999_999, 1])))
    with pytest.raises(OverflowError, match="above the range of floats"):
        parse_expression(f"{function}(cbor.v)").evaluate(value)
    assert parse_expression(f"{function}(cbor.v)").evaluate(Decimal("2.5")) == getattr(math, function)(2.5)


def npy(shape, version=1, dtype="<f8"):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(head)) + head


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["<f8", "<U1", "<U0", "|V0"])
def test_an_array_that_claims_more_than_it_has_is_an_error(version, dtype):
    with pytest.raises(ValueError, match="its header says"):
        read_numpy(npy((HUGE,), version, dtype))


@pytest.mark.parametrize("shape", [(HUGE,), (-1,), (-HUGE,)])
@pytest.mark.parametrize("dtype", ["<U0", "|S0", "<u8", f"<U{2**28}"])
def test_a_list_of_keys_that_claims_more_than_it_has_is_an_error(shape, dtype):
    with pytest.raises(ShardError, match=r"this is not an array|the array "):
        list(_read_array(io.BufferedReader(io.BytesIO(npy(shape, 1, dtype)))))


def test_a_sparse_map_of_many_pieces_takes_time_in_proportion():
    record = b"24 GNU.sparse.offset=12\n"
    found = read_records(record * 200_000)
    assert found == {b"GNU.sparse.map": b",".join([b"12"] * 200_000)}


class Zeros(io.RawIOBase):
    """A file that ends with more zeros than can be read, and counts what is read of it."""

    def __init__(self, start):
        self._start, self._at, self.read_bytes = start, 0, 0

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        self._at = offset + (0 if whence == 0 else self._at if whence == 1 else 50 * 2**30)
        return self._at

    def read(self, size=-1):
        data = self._start[self._at : self._at + size].ljust(size, b"\0")
        self._at += size
        self.read_bytes += size
        return data


@pytest.mark.parametrize("lenient_end", [False, True])
def test_endless_zeros_after_the_end_are_an_error_that_says_where_to_cut(lenient_end, read):
    from wdspec.formats.tar.reader import TarSamples

    start = header(b"a.jpg", 1) + filled(b"1")
    file = Zeros(start)
    with pytest.raises(ShardError, match="more than 67,108,864 zero bytes follow the end") as caught:
        list(TarSamples(file, lenient_end=lenient_end))
    assert caught.value.code == "D110"
    assert file.read_bytes < 1.1 * MOST_ZEROS
    size = int(str(caught.value).partition("--size=")[2].partition("`")[0])
    assert read(start.ljust(size, b"\0")) == ([{"__key__": "a", "jpg": b"1"}], None)
    assert 2 * BLOCK <= size - len(start) <= PADDING


def test_a_shard_of_endless_zeros_has_lost_its_data():
    from wdspec.formats.tar.reader import TarSamples

    with pytest.raises(ShardError, match="more than 67108864 zero bytes: it was allocated but not written"):
        list(TarSamples(Zeros(b""), lenient_end=True))
