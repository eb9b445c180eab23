"""Samples as rows of Parquet: what pyarrow reads of them, types, row groups, whole files or none."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from commandline import within

import wdspec
from wdspec.base.errors import FieldError, UsageError
from wdspec.testing import difference
from wdspec.write import parquet_writer

SAMPLES = [
    {
        "__key__": f"a/{n}",
        "text": f"text {n}",
        "label": n,
        "score": n / 2 if n % 2 else n,
        "raw": bytes([n]),
        "ids": np.arange(n, dtype=np.int32),
        "boxes": np.full((n, 4), n, np.float32),
        "meta": {"id": n, "tags": ["x"] * (n % 2)},
        **({"extra": "only some"} if n % 3 == 0 else {}),
    }
    for n in range(20)
]


def packed(samples, **options):
    file = io.BytesIO()
    with wdspec.ParquetWriter(file, **options) as writer:
        for sample in samples:
            writer.write(sample)
    return file.getvalue()


def test_pyarrow_reads_the_written_file(monkeypatch):
    monkeypatch.setattr(parquet_writer, "GROUP_ROWS", 7)
    data = packed(SAMPLES)
    found = pq.ParquetFile(io.BytesIO(data))
    assert [found.metadata.row_group(n).num_rows for n in range(3)] == [7, 7, 6]
    rows = found.read().to_pylist()
    for sample, row in zip(SAMPLES, rows, strict=True):
        expected = {"extra": None, **sample, "ids": sample["ids"].tolist(), "boxes": sample["boxes"].tolist()}
        assert difference({**expected, "score": float(sample["score"])}, row) is None
    assert packed(SAMPLES) == packed(SAMPLES)


def test_a_round_trip_gives_the_same_samples(tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%03d.parquet", maxcount=8, verbose=0) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    spec = {
        "dataset": [{"shards": f"{tmp_path}/a-*.parquet", "order": "sequential", "shuffle": 0}],
        "epoch": 20,
    }
    for sample, read in zip(SAMPLES, wdspec.compile(spec), strict=True):
        read = {name: value for name, value in read.items() if name not in ("__url__", "__source__")}
        boxes = read.pop("boxes")
        assert (
            difference({**sample, "boxes": None, "score": float(sample["score"])}, {**read, "boxes": None})
            is None
        )
        assert boxes.tolist() == sample["boxes"].tolist()


def test_tensors_and_pictures_are_stored():
    picture = np.zeros((4, 5, 3), np.uint8)
    data = packed(
        [{"__key__": "a", "png": picture, "npy": picture, "ids": torch.arange(3), "n": np.int64(3)}]
    )
    row = pq.read_table(io.BytesIO(data)).to_pylist()[0]
    assert row["png"].startswith(b"\x89PNG")
    assert difference(np.load(io.BytesIO(row["npy"])), picture) is None
    assert (row["ids"], row["n"]) == ([0, 1, 2], 3)


def test_values_of_two_types_are_an_error_and_the_others_are_written():
    file = io.BytesIO()
    with wdspec.ParquetWriter(file) as writer:
        writer.write({"__key__": "a", "x": 1})
        for wrong in ({"x": "text"}, {"x": {}}, {"x": 1 << 70}, {"x": object()}):
            with pytest.raises(FieldError) as caught:
                writer.write({"__key__": "b", **wrong})
            assert (caught.value.key, caught.value.k) == ("b", "x")
        with pytest.raises(FieldError, match="the same key"):
            writer.write({"__key__": "a", "x": 2})
        writer.write({"__key__": "c", "x": None})
    assert pq.read_table(file).to_pylist() == [{"__key__": "a", "x": 1}, {"__key__": "c", "x": None}]


def test_a_field_that_is_new_after_a_row_group_is_an_error(monkeypatch):
    monkeypatch.setattr(parquet_writer, "GROUP_ROWS", 1)
    with wdspec.ParquetWriter(io.BytesIO()) as writer:
        writer.write({"__key__": "a", "x": 1})
        with pytest.raises(FieldError, match="start another shard"):
            writer.write({"__key__": "b", "y": 1})


def test_nothing_appears_unless_the_file_is_complete(tmp_path):
    writer = wdspec.ParquetWriter(tmp_path / "a.parquet")
    writer.write(SAMPLES[0])
    writer.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="compresses its pages"):
        wdspec.ShardWriter(f"{tmp_path}/%d.parquet.gz", verbose=0).write(SAMPLES[0])
    with wdspec.ParquetWriter(tmp_path / "empty.parquet"):
        pass
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0


def test_the_commands_write_and_read_parquet(tmp_path):
    (tmp_path / "index.csv").write_text("id,txt,cls\n" + "".join(f"k{n},text {n},{n}\n" for n in range(10)))
    within(
        "create", "index.csv", "-o", "a-%03d.parquet", "--shards", "2", "--key-column", "id", folder=tmp_path
    )
    assert pq.read_table(tmp_path / "a-000.parquet").to_pylist()[1] == {
        "__key__": "k1",
        "cls": "1",
        "txt": "text 1",
    }
    out, _ = within("ls", "-s", "a-000.parquet", "a-001.parquet", folder=tmp_path)
    assert "cls, txt" in out
    within("cat", "a-000.parquet", "a-001.parquet", "-o", "all.tar", "--decode", folder=tmp_path)
    (tmp_path / "s.yaml").write_text(
        "dataset:\n  - {name: a, shards: 'a-*.parquet', map: 'steps:double'}\noutput: {from: '.*/?a-', to: out/a-}\n"
    )
    (tmp_path / "steps.py").write_text("def double(s):\n    return {**s, 'twice': 2 * int(s['cls'])}\n")
    within("process", "s.yaml", folder=tmp_path)
    rows = pa.concat_tables(
        pq.read_table(tmp_path / "out" / f"a-00{n}.parquet") for n in range(2)
    ).to_pylist()
    assert [row["twice"] for row in rows] == [2 * n for n in range(10)]
    out, _ = within("check", "s.yaml", folder=tmp_path)
    assert "no problems" in out
    out, _ = within("stats", "s.yaml", folder=tmp_path)
    assert "10" in out
    out, _ = within("head", "s.yaml", folder=tmp_path)
    assert "text" in out
