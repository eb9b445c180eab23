"""`check` compares the values of Parquet files with the statistics of their columns."""

import datetime as dt
import json
import random
from decimal import Decimal
from struct import pack
from unittest.mock import ANY

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import within
from tables import mixed_table

PLAIN = {"use_dictionary": False, "compression": "none", "column_encoding": None}
"""Options with which values are in a page as they are."""


def write(folder, table, **options):
    """Write a shard and a spec for it; return the shard's path."""
    path = folder / "a.parquet"
    pq.write_table(table, path, **{**PLAIN, **options})
    (folder / "s.yaml").write_text("dataset: [{name: a, shards: a.parquet}]\n")
    return path


def replace(path, old, new):
    """Replace bytes of the pages, which have them once. The statistics, which are also in the pages, stay."""
    data = path.read_bytes()
    assert data.count(old) == 1, data.count(old)
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def check(folder, *more):
    """What `check` says, as JSON."""
    shown, _ = within(
        "check", "s.yaml", "--all", "--jobs", "0", "--format", "json", *more, folder=folder, code=ANY
    )
    return json.loads(shown)


def column(make, kind=None):
    """A column of 60 random values."""
    return pa.array([make() for _ in range(60)], kind)


def days(number):
    return dt.date(2020, 1, 1) + dt.timedelta(number)


EPOCH = dt.datetime(2020, 1, 1)
CASES = {
    # values, of which the one in the middle is replaced; its bytes; the new bytes
    "int": ([1, 1_234_567, 2_000_000], pa.int64(), pack("<q", 1_234_567), pack("<q", 1 << 40)),
    "negative": ([-5, 12_345, 20_000], pa.int32(), pack("<i", 12_345), pack("<i", -12_345)),
    "unsigned": ([1, 12_345, 20_000], pa.uint32(), pack("<I", 12_345), pack("<I", 1 << 31)),
    "float": ([0.5, 1.2345, 2.5], pa.float64(), pack("<d", 1.2345), pack("<d", -1.2345)),
    "float with NaN": ([float("nan"), 0.5, 1.2345, 2.5], pa.float32(), pack("<f", 1.2345), pack("<f", 9e9)),
    "text": (["a", "hello", "z"], pa.string(), b"hello", b"~ello"),
    "bytes": ([b"a", b"hello", b"z"], pa.binary(), b"hello", b"\x00ello"),
    "fixed bytes": ([b"aaaaa", b"hello", b"zzzzz"], pa.binary(5), b"hello", b"~ello"),
    "decimal": (
        [Decimal("0.01"), Decimal("123456.78"), Decimal("200000.00")],
        pa.decimal128(12, 2),
        (12345678).to_bytes(6, "big"),
        (-12345678).to_bytes(6, "big", signed=True),
    ),
    "time": (
        [EPOCH, EPOCH + dt.timedelta(seconds=77), EPOCH + dt.timedelta(days=1)],
        pa.timestamp("us"),
        pack("<q", 1_577_836_877_000_000),
        pack("<q", 2_577_836_877_000_000),
    ),
    "seconds, stored as milliseconds": (
        [EPOCH, EPOCH + dt.timedelta(seconds=77), EPOCH + dt.timedelta(days=1)],
        pa.timestamp("s"),
        pack("<q", 1_577_836_877_000),
        pack("<q", 2_577_836_877_000),
    ),
    "date": ([days(0), days(77), days(99)], pa.date32(), pack("<i", 18262 + 77), pack("<i", 99_999)),
    "lists": ([[1], [1_234_567, 3], [2_000_000]], pa.list_(pa.int64()), pack("<q", 1_234_567), pack("<q", -9)),
    "maps": (
        [{"x": [{"y": 1}]}, {"x": [{"y": 1_234_567}]}, {"x": [{"y": 2_000_000}]}],
        pa.struct({"x": pa.list_(pa.struct({"y": pa.int64()}))}),
        pack("<q", 1_234_567),
        pack("<q", -9),
    ),
    "images": (
        [{"bytes": each, "path": None} for each in (b"aaaa", b"hello", b"zzzz")],
        pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        b"hello",
        b"~ello",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_value_outside_of_the_statistics_is_an_error(case, tmp_path):
    values, kind, old, new = CASES[case]
    path = write(tmp_path, pa.table({"before": [1] * len(values), "x": pa.array(values, kind)}))
    found = check(tmp_path)
    assert "D229" not in [each["code"] for each in found["problems"]]
    replace(path, old, new)
    problems = [each for each in check(tmp_path)["problems"] if each["code"] == "D229"]
    assert len(problems) == 1
    assert "row group 0 of 1: the column 'x" in problems[0]["message"]


def test_booleans_and_nulls_that_the_statistics_do_not_count_are_errors(tmp_path):
    path = write(tmp_path, pa.table({"on": [True] * 300}), column_encoding={"on": "PLAIN"})
    data = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data[data.index(b"\xff" * 30, column.data_page_offset) + 3] ^= 16
    path.write_bytes(data)
    (problem,) = [each for each in check(tmp_path)["problems"] if each["code"] == "D229"]
    assert (
        "the column 'on' has 0, but by the statistics of the file, its values are from 1 to 1"
        in problem["message"]
    )
    write(tmp_path, pa.table({"m": [1] * 16, "n": [7] * 16}))
    data = path.read_bytes()
    levels = b"\x02\0\0\0\x20\x01"  # 16 times: not null
    at = data.rindex(levels)
    path.write_bytes(data[:at] + levels[:-1] + b"\0" + data[at + len(levels) :])
    (problem,) = [each for each in check(tmp_path)["problems"] if each["code"] == "D229"]
    assert "the column 'n' has 16 nulls, but the statistics of the file count 0" in problem["message"]


OPTIONS = [
    {"version": version, "data_page_version": page, "use_dictionary": dictionary, "compression": compression,
     "write_page_checksum": checksum, "row_group_size": rows, **more}
    for version, page, dictionary, compression, checksum, rows, more in (
        ("1.0", "1.0", True, "snappy", False, 7, {}),
        ("2.4", "2.0", False, "none", True, 50, {"coerce_timestamps": "ms", "allow_truncated_timestamps": True}),
        ("2.6", "1.0", True, "zstd", False, 1000, {"store_decimal_as_integer": True}),
        ("2.6", "2.0", False, "none", False, 3, {"use_deprecated_int96_timestamps": True}),
        ("2.6", "2.0", False, "none", False, 3, {"write_statistics": False}),
    )
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_values_of_every_type_agree_with_their_statistics(options, tmp_path):
    draw = random.Random(str(options))
    table, pick, number = mixed_table(60), draw.choice, draw.randrange
    texts = ["", "ä", "z" * 5000, "\x00", "\U0010ffff", None]
    nan = float("nan")
    more = {
        "floats": column(lambda: pick([nan, -0.0, 0.0, 1.5, None, float("inf")]), pa.float32()),
        "only nan": column(lambda: nan),
        "nothing here": column(lambda: None, pa.int32()),
        "texts": column(lambda: pick(texts)),
        "large": column(lambda: pick([0, 1 << 63, (1 << 64) - 1, None]), pa.uint64()),
        "half": column(lambda: np.float16(number(9))),
        "money": column(lambda: Decimal(number(-(10**9), 10**9)).scaleb(-3), pa.decimal128(30, 3)),
        "cents": column(lambda: Decimal(number(-(10**5), 10**5)).scaleb(-2), pa.decimal128(9, 2)),
        "seconds": column(lambda: number(-(10**9), 10**9), pa.timestamp("s", "Asia/Tokyo")),
        "clock": column(lambda: number(86_400), pa.time32("s")),
        "fine clock": column(lambda: number(86_400), pa.time64("us")),
        "took": column(lambda: number(-99, 99), pa.duration("s")),
        "day": column(lambda: number(-9999, 9999), pa.date32()),
        "lists": column(lambda: pick([None, [], [1, 2], [number(-9, 9)]]), pa.list_(pa.int8())),
        "parts": column(lambda: pick([None, {"a": None, "b": "x"}, {"a": draw.random(), "b": "y"}])),
        "named": column(lambda: pick(["b", "a", None])).dictionary_encode(),
    }
    for name, values in more.items():
        table = table.append_column(name, values)
    write(tmp_path, table, **options)
    found = check(tmp_path)
    assert [each for each in found["problems"] if each["code"] == "D229"] == []
    assert found["sources"]["a"]["samples"] == 60
    assert found["sources"]["a"]["without_checksums"] == (not options["write_page_checksum"])


def test_columns_that_become_one_field_are_one_problem(tmp_path):
    write(tmp_path, pa.table({"u": [1, 2], "U": [3, 4]}))
    assert [each["code"] for each in check(tmp_path)["problems"]] == ["D206"]


def test_check_says_that_a_file_has_no_page_checksums(tmp_path):
    table = pa.table({"x": [1, 2, 3]})
    for options, says in ({}, True), ({"write_page_checksum": True}, False):
        write(tmp_path, table, **options)
        shown, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=tmp_path)
        assert ("1 Parquet file without page checksums" in shown) == says
