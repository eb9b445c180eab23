"""Shards of Parquet and Arrow: every value as plain pyarrow reads it, exact resumption, and errors with their place."""

import io
import json
import random
import re
import struct
import subprocess
import sys
import textwrap

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from commandline import within
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import KINDS, mixed_table, pack, plain_samples, reader

import wdspec
from wdspec.base.errors import ShardError
from wdspec.formats import tables
from wdspec.formats.samples import no_field
from wdspec.testing import difference

TABLE = mixed_table()


def texts(rows):
    """Texts that fill their pages."""
    return [random.Random(row).randbytes(150).hex() for row in range(rows)]


def damage(data, group):
    """Change a byte in the middle of the last column of a row group."""
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(group).column(1)
    data[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size // 2] ^= 1


def read(data, kind="parquet", **options):
    """The samples, and the errors that were reported."""
    errors = []
    return list(reader(data, kind, on_error=errors.append, **options)), errors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_each_row_is_a_sample_with_the_values_that_pyarrow_reads(kind, rows, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 3)
    found, errors = read(pack(TABLE, kind, rows), kind)
    assert errors == []
    assert difference(plain_samples(TABLE), found) is None


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 50), batch=st.integers(1, 20), start=st.integers(0, 40), stride=st.integers(1, 4),
    residue=st.integers(0, 3),
)  # fmt: skip
def test_reading_resumes_at_any_row_in_any_part_of_the_shard(kind, rows, batch, start, stride, residue):
    expected = plain_samples(TABLE)
    residue %= stride
    data = pack(TABLE, kind, rows)
    first = reader(data, kind)
    places = [(0, 0), *((first.next_offset, first.next_index) for _ in first)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wdspec.formats.parquet.BATCH_ROWS", batch)
        patch.setattr("wdspec.formats.arrow.BATCH_ROWS", batch)
        offset, index = places[start]
        later = reader(data, kind, offset=offset, index=index, stride=stride, residue=residue)
        wanted = [n for n in range(start, len(expected)) if n % stride == residue]
        samples = iter(later)
        for number in wanted:
            assert difference(expected[number], next(samples)) is None
            assert later.next_index == number + 1
            assert (later.next_offset, later.next_index) == places[number + 1]
        if wanted:
            assert next(samples, None) is None
            assert (later.next_offset, later.next_index) == places[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_unneeded_columns_are_not_read(kind):
    table = pa.table(
        {"a": range(1000), "big": [b"x" * 1000] * 1000, "image": [{"bytes": b"1", "path": "p"}] * 1000}
    )
    table = table.set_column(1, "big", [pa.array([n.to_bytes(2, "big") * 500 for n in range(1000)])])
    data = pack(table, kind, 100, **({"compression": "none"} if kind == "parquet" else {}))
    counts = []
    found, _ = read(
        data, kind, field_of=lambda name: {"a": "n", "image": "image"}.get(name), on_read=counts.append
    )
    assert found[17] == {"__key__": "17", "n": 17, "image": b"1"}
    if kind == "parquet":
        assert sum(counts) < 0.2 * len(data)
    counts.clear()
    found, _ = read(data, kind, field_of=no_field, on_read=counts.append)
    assert [each["__key__"] for each in found] == [str(n) for n in range(1000)]
    if kind == "parquet":
        assert sum(counts) < 0.1 * len(data)


def test_names_keys_and_constants_are_as_in_other_formats():
    table = pa.table(
        {"__key__": ["a", "b"], "TXT": ["1", "2"], "__note__": [1, 2], "__index_level_0__": [5, 6]}
    )
    found, _ = read(pack(table), constants={"__url__": "x/y.parquet", "__source__": "s"})
    assert found[1] == {
        "__key__": "b",
        "__url__": "x/y.parquet",
        "__source__": "s",
        "txt": "2",
        "__note__": 2,
    }
    found, _ = read(pack(pa.table({"a": [1]})), constants={"__url__": "x/y.parquet"})
    assert found == [{"__key__": "y/0", "__url__": "x/y.parquet", "a": 1}]
    found, _ = read(pack(pa.table({"__key__": [7], "a": [1]})))
    assert found == [{"__key__": "7", "a": 1}]


def test_two_columns_mapped_to_one_field_are_an_error():
    _, errors = read(pack(pa.table({"a": [1], "A": [2]})))
    assert [error.code for error in errors] == ["D206"]
    assert "'a' and 'A'" in str(errors[0])


def test_unsupported_values_are_errors_of_their_rows():
    table = pa.table(
        {
            "n": range(4),
            "tokens": [[1], [2, None], [3], [4]],
            "image": [{"bytes": b"x", "path": None}] * 2 + [{"bytes": None, "path": "a.jpg"}] + [None],
        }
    )
    found, errors = read(pack(table, rows=3), constants={"__url__": "x/y.parquet"})
    assert [sample["n"] for sample in found] == [0, 3]
    assert "image" not in found[1]
    assert [(error.code, error.place["key"]) for error in errors] == [("D122", "y/1"), ("D122", "y/2")]
    assert "row 1: the column 'tokens' has a null within a list of numbers" in str(errors[0])
    assert "only the path of a file" in str(errors[1])


def test_text_that_is_not_unicode_is_an_error_of_its_row():
    raw = pa.array([b"a", b"\xff\xfe", b"c"]).cast(pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    found, errors = read(pack(pa.table({"text": text, "n": [1, 2, 3]})))
    assert found == [{"__key__": "0", "text": "a", "n": 1}, {"__key__": "2", "text": "c", "n": 3}]
    assert [(error.code, "row 1: the column 'text' cannot be read" in str(error)) for error in errors] == [
        ("D122", True)
    ]


@pytest.mark.parametrize("takes_all", [False, True])
def test_a_row_of_nulls_is_a_sample_without_fields(takes_all):
    found, errors = read(pack(pa.table({"text": ["a", None, "c"]})), takes_all=takes_all)
    assert found == [{"__key__": "0", "text": "a"}, {"__key__": "1"}, {"__key__": "2", "text": "c"}]
    assert not errors


@pytest.mark.parametrize("inserted", [b"\xff\xff\xff\xff\x08" + bytes(195), bytes(200)])
def test_bytes_that_are_inserted_into_the_last_record_batch_are_an_error(inserted):
    """They move the end of the values into what is read as the next message, or as the end marker."""
    out = io.BytesIO()
    table = pa.table({"data": [b"x" * 400] * 4})
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    whole = out.getvalue()
    end = whole.index(b"x" * 1600) + 1600
    for size, rows in (0, 4), (len(inserted), 0):
        found, errors = read(whole[: end - size] + inserted[:size] * 2 + whole[end - size :], "arrow")
        assert len(found) == rows
        assert [error.code for error in errors] == ["D121"] * (rows == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_and_damaged_files_are_identified_in_errors(kind):
    data = pack(TABLE, kind)
    for wrong, code in (
        (b"", "D103"),
        (b"<html>not found</html>", "D106"),
        (b"\0" * 257 + b"ustar\0" + b"\0" * 1000, "D106"),
        (data[: len(data) // 2], "D107" if kind == "parquet" else "D121"),
        (data[:-3], "D107" if kind == "parquet" else "D121"),
        (pack(TABLE.slice(0, 0), kind), "D105"),
    ):
        with pytest.raises(ShardError) as caught:
            list(reader(wrong, kind, may_be_empty=False, constants={"__url__": "a.parquet"}))
        assert (caught.value.code, caught.value.place["url"]) == (code, "a.parquet")


def test_a_damaged_row_group_is_one_error_and_the_others_are_read():
    table = pa.table({"n": range(100), "text": texts(100)})
    data = bytearray(pack(table, rows=10))
    damage(data, 4)
    found, errors = read(bytes(data), constants={"__url__": "a.parquet"})
    assert [sample["n"] for sample in found] == [*range(40), *range(50, 100)]
    assert [error.code for error in errors] == ["D121"]
    assert re.search(
        r"damaged row group 4 of 10: .*; its rows 40 to 49 are lost; .* \[url a.parquet, byte \d+",
        str(errors[0]),
    )


def arrow_file(table, rows, *, as_stream=False):
    file = io.BytesIO()
    with (pa.ipc.new_stream if as_stream else pa.ipc.new_file)(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return file.getvalue()


def with_other_length(data, group, rows):
    """Arrow with another number of rows in the header of a record batch."""
    starts = [match.start() for match in re.finditer(b"\xff\xff\xff\xff", data)]
    found = 0
    for start in starts:
        (size,) = struct.unpack_from("<i", data, start + 4)
        try:
            message = pa.ipc.read_message(pa.BufferReader(data[start : start + 8 + size] + bytes(1 << 16)))
        except pa.ArrowInvalid:
            continue
        if message.type == "record batch":
            if found == group:
                at = data.index(struct.pack("<q", 10), start)
                return data[:at] + struct.pack("<q", rows) + data[at + 8 :]
            found += 1
    raise AssertionError(f"{found} batches")


@pytest.mark.parametrize("as_stream", [False, True])
@pytest.mark.parametrize("rows", [0, 9, 11])
def test_a_record_batch_with_another_length_than_its_columns_is_an_error(as_stream, rows):
    data = arrow_file(pa.table({"n": range(30)}), 10, as_stream=as_stream)
    assert len(read(data, "arrow")[0]) == 30
    found, errors = read(with_other_length(data, 1, rows), "arrow")
    assert [error.code for error in errors] == ["D121"]
    assert len(found) in (0, 20)


def test_messages_of_arrow_that_contradict_the_footer_or_the_end_are_errors():
    table = pa.table({"name": range(30)})
    stream = arrow_file(table, 10, as_stream=True)
    file, other = arrow_file(table, 10), arrow_file(table.rename_columns(["nbme"]), 10)
    where = file.rindex(b"name")  # in the footer
    end = stream.rindex(b"\xff\xff\xff\xff")
    for damaged in (
        file[:where] + b"nbme" + file[where + 4 :],
        other[:where] + file[where:],
        stream[:end] + bytes(8) + stream[end:],  # an end marker before the end
        file[:1000].replace(b"name", b"n\xffme") + file[1000:],
        stream.replace(b"name", b"n\xffme"),
    ):
        found, errors = read(damaged, "arrow")
        assert ([error.code for error in errors], found) == (["D121"], []), damaged


@pytest.mark.parametrize("kind", KINDS)
def test_every_changed_byte_in_a_file_with_checksums_is_detected(kind):
    table = TABLE.slice(0, 20).select(["text", "number", "tokens", "image", "kind"])
    data = pack(table, kind, rows=5)
    expected = plain_samples(table)
    missed = 0
    for at in range(0, len(data), 23):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        try:
            found, errors = read(bytes(damaged), kind)
        except ShardError:
            continue
        if not errors and difference(expected, found) is not None:
            missed += 1
    # Arrow has no checksums, and statistics and names in the footer of Parquet none either.
    assert missed <= (0.02 if kind == "parquet" else 0.9) * len(data) / 23, missed


def test_a_shard_that_has_changed_since_the_state_was_saved_is_an_error():
    data, later = pack(TABLE, rows=10), pack(TABLE, rows=9, compression="none")
    first = reader(data)
    samples = iter(first)
    for _ in range(25):
        next(samples)
    with pytest.raises(ShardError, match="the shard has changed"):
        list(reader(later, offset=first.next_offset, index=first.next_index))


@pytest.mark.parametrize("kind", KINDS)
def test_an_unseekable_stream_is_read(kind):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *arguments):
            raise OSError("not seekable")

    file = Pipe(pack(TABLE, kind))
    samples = reader(b"", kind)
    samples._file = file
    assert difference(plain_samples(TABLE), list(samples)) is None
    samples.close()


def write_one_row_group(path, rows, size, compression="none"):
    """Write rows of some bytes and a number, into one row group."""
    some = pa.array([n.to_bytes(4, "big") * (size // 4) for n in range(1000)], pa.binary())
    table = pa.table({"a": pa.chunked_array([some] * (rows // 1000)), "n": range(rows)})
    pq.write_table(table, path, row_group_size=rows, compression=compression, use_dictionary=False)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1


def read_in_a_process(path):
    """Return the number of rows, and by how many MB reading them let the memory of a process grow."""
    code = """
        import resource, sys, pyarrow as pa, numpy
        from wdspec.formats.tables import TableSamples
        from wdspec.formats.parquet import ParquetTable
        start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = sum(1 for _ in TableSamples(open(sys.argv[1], "rb", buffering=0), ParquetTable))
        print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) // 1024)
    """
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), path], capture_output=True, text=True, check=True
    )
    return tuple(map(int, output.stdout.split()))


def test_memory_does_not_grow_with_the_row_group(tmp_path):
    """One row group of 300 MB, uncompressed: pyarrow's `read_row_group` would hold all of it."""
    write_one_row_group(tmp_path / "a.parquet", 30_000, 10_000)
    count, grown = read_in_a_process(tmp_path / "a.parquet")
    assert count == 30_000
    assert grown < 80


@pytest.mark.long
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_row_group_of_more_than_2_gb_is_read_in_the_same_memory(tmp_path, compression):
    """More than a 32-bit offset can address, so that pyarrow cannot hold the column in one array either."""
    write_one_row_group(tmp_path / "a.parquet", 250_000, 10_000, compression)
    count, grown = read_in_a_process(tmp_path / "a.parquet")
    assert count == 250_000
    assert grown < 80, f"{grown} MB"


def test_a_loader_counts_what_it_skips(tmp_path):
    table = pa.table(
        {"n": range(100), "text": [None if n % 10 == 3 else text for n, text in enumerate(texts(100))]}
    )
    data = bytearray(pack(table, rows=10))
    damage(data, 4)
    (tmp_path / "a.parquet").write_bytes(data)
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.parquet", "extensions": "n text", "missing": "skip"}],
        "errors": "skip", "batch": 1, "epoch": 81,
    }  # fmt: skip
    with wdspec.loader(spec, num_workers=0) as loader:
        found = sorted(int(batch["n"]) for batch in loader)
        stats = loader.stats()
    assert found == [n for n in range(100) if n % 10 != 3 and n // 10 != 4]
    assert (stats.sources["a"].dropped, stats.sources["a"].skipped) == ({"missing": 9}, {"D121": 1})
    spec["errors"] = "raise"
    with wdspec.loader(spec, num_workers=0) as loader, pytest.raises(ShardError, match="row group 4 of 10"):
        list(loader)


def test_a_pass_counts_rows_by_the_footer_and_reports_lost_ones(tmp_path):
    data = bytearray(pack(pa.table({"n": range(50), "text": texts(50)}), rows=10))
    damage(data, 2)
    (tmp_path / "a.parquet").write_bytes(data)
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.parquet"}],
        "batch": 5,
        "epoch": "pass",
        "errors": "skip",
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        assert len(loader) == 10
        rows = [
            int(n) for batch in loader for n, mine in zip(batch["n"], batch["__mask__"], strict=True) if mine
        ]
    assert rows == [*range(20), *range(30, 50)]


def test_files_with_other_columns_than_the_first_one_are_errors(tmp_path):
    write = lambda name, **columns: pq.write_table(pa.table(columns), tmp_path / name)  # noqa: E731
    write("a-0.parquet", n=range(5), text=["x"] * 5)
    write("a-1.parquet", n=[str(n) for n in range(5)], text=["x"] * 5)
    write("a-2.parquet", n=range(5))
    write("a-3.parquet", n=pa.array(range(5), pa.int16()), text=pa.array(["x"] * 5, pa.large_string()))
    write("a-4.parquet", n=range(5), text=["x"] * 5, more=range(5))

    def failures(shards, **keys):
        spec = {"dataset": [{"name": "a", "shards": [f"{tmp_path}/a-{n}.parquet" for n in shards], **keys}],
                "batch": 1, "epoch": 5 * len(shards)}  # fmt: skip
        try:
            with wdspec.loader(spec, num_workers=0) as loader:
                assert len(list(loader)) == 5 * len(shards)
        except wdspec.WdspecError as error:
            return error.code, str(error)

    assert failures([0, 3]) is None
    assert "'n' has text here, but integers in the first shard" in failures([0, 1])[1]
    assert "no column 'text'" in failures([0, 2])[1]
    assert "a column 'more'" in failures([0, 4])[1]
    assert failures([0, 4], extensions="n text") is None
    assert failures([0, 2], extensions="n text")[0] == "D201"


@pytest.mark.parametrize("choice", [{"fields": "a"}, {"to_tuple": "a"}, {}])
def test_unused_columns_are_not_compared_with_the_first_shard(tmp_path, choice):
    for shard in range(3):
        rows = {"a": list(range(10)), "b": ["x"] * 10}
        pq.write_table(pa.table(rows), tmp_path / f"p-{shard}.parquet")
    spec = {"dataset": [{"shards": f"{tmp_path}/p-{{0..2}}.parquet", "shuffle": 0}], "epoch": 30, **choice}
    assert sum(1 for _ in wdspec.compile(spec)) == 30


def write(path, **columns):
    pq.write_table(pa.table(columns), path)


def test_check_reports_each_set_of_columns_once(tmp_path):
    for n in range(6):
        write(tmp_path / f"a-{n}.parquet", n=range(5), text=["x"] * 5)
    for n in (2, 4):
        write(tmp_path / f"a-{n}.parquet", n=["1"] * 5, text=["x"] * 5)
    write(tmp_path / "a-5.parquet", n=range(5))
    (tmp_path / "s.yaml").write_text(f"dataset:\n  - {{name: a, shards: '{tmp_path}/a-{{0..5}}.parquet'}}\n")
    out, _ = within("check", "s.yaml", "--all", "--format", "json", folder=tmp_path, code=1)
    problems = [each for each in json.loads(out)["problems"] if each["code"] == "D228"]
    assert [each["shard"][-11:] for each in problems] == ["a-2.parquet", "a-5.parquet"]
    assert problems[0]["message"].startswith(
        "2 shards from this one on have other columns: the column 'n' has text"
    )
    assert "no column 'text'" in problems[1]["message"]


def test_columns_of_cached_copies_are_compared_too(tmp_path, nginx):
    (nginx.root / "kinds").mkdir()
    write(nginx.root / "kinds" / "a-0.parquet", n=range(5))
    write(nginx.root / "kinds" / "a-1.parquet", n=["1"] * 5)
    source = {"shards": f"{nginx.url}/kinds/a-{{0..1}}.parquet", "order": "sequential", "shuffle": 0}
    spec = {"dataset": [source], "cache": str(tmp_path), "epoch": 10}
    for _ in range(2):
        with pytest.raises(ShardError, match="'n' has text here, but integers in the first shard"):
            list(wdspec.compile(spec))


def cut(data):
    del data[len(data) // 2 :]


def break_page(data):
    damage(data, 1)


def break_footer(data):
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[start + 2 : start + 40] = bytes(38)


MATRIX = {
    # what happens to the second file of two, the code, the rows that are left with `errors: skip`
    "a page": (break_page, "D121", 90),
    "the footer": (break_footer, "D121", 50),
    "a truncated file": (cut, "D107", 50),
    "an empty file": (lambda data: data.clear(), "D103", 50),
    "another type": (pack(pa.table({"n": ["x"] * 50, "text": ["x"] * 50})), "D123", 50),
    "a missing column": (pack(pa.table({"n": range(50)})), "D123", 50),
    "a value that no field can have": (
        pack(pa.table({"n": range(50), "text": pa.array([*[b"x"] * 49, b"\xff"]).view(pa.utf8())})),
        "D122",
        99,
    ),
    "no rows": (
        pack(pa.table({"n": pa.array([], pa.int64()), "text": pa.array([], pa.string())})),
        "D105",
        50,
    ),
}


@pytest.mark.parametrize("case", MATRIX)
def test_file_problems_are_errors_with_a_place_or_counted_skips(case, tmp_path):
    change, code, left = MATRIX[case]
    data = bytearray(pack(pa.table({"n": range(50), "text": texts(50)}), rows=10, write_page_checksum=True))
    (tmp_path / "a-0.parquet").write_bytes(data)
    if isinstance(change, bytes):
        data = change
    else:
        change(data)
    (tmp_path / "a-1.parquet").write_bytes(data)
    source = {"name": "a", "shards": f"{tmp_path}/a-{{0..1}}.parquet", "order": "sequential", "shuffle": 0}
    with pytest.raises(wdspec.WdspecError) as caught:
        for _ in zip(range(100), wdspec.compile({"dataset": [source]}), strict=False):
            pass
    assert (caught.value.code, caught.value.place["url"]) == (code, f"{tmp_path}/a-1.parquet")
    spec = {"dataset": [{**source, "errors": "skip"}], "epoch": left + 1, "batch": 1}
    with wdspec.loader(spec, num_workers=0) as loader:
        numbers = [int(batch["n"][0]) for batch in loader]
        counts = loader.stats().sources["a"]
    assert (numbers[:50], numbers[-1]) == ([*range(50)], 0), "the last one is of the next pass"
    assert sum(counts.skipped.values()) == 1


def test_a_file_that_is_replaced_while_a_run_is_interrupted_is_an_error(tmp_path):
    """Of the same size and number of rows, but with other row groups. A file that is open keeps its old bytes."""
    path = tmp_path / "a-0.parquet"
    path.write_bytes(pack(pa.table({"n": range(50), "text": texts(50)}), rows=10))
    source = {"shards": str(path), "order": "sequential", "shuffle": 0}
    dataset = wdspec.compile({"dataset": [source]})
    for _ in zip(range(25), dataset, strict=False):
        pass
    state = dataset.state_dict()
    dataset.close()
    path.write_bytes(pack(pa.table({"n": range(50), "text": texts(50)}), rows=25))
    dataset = wdspec.compile({"dataset": [source]})
    dataset.load_state_dict(state)
    with pytest.raises(ShardError) as caught:
        next(iter(dataset))
    assert (caught.value.code, caught.value.place["url"]) == ("D123", str(path))
