"""Rows of tables in batches: everything that a run shows is the same as with a dict for each row."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import torch

import wdspec
from wdspec.read import reader
from wdspec.read.rows import TableRows


def write_tables(folder):
    """Write Parquet with and without nulls, Arrow with keys and lists, bytes, and a tar."""
    drawn = random.Random(3)
    for shard, rows in enumerate([37, 5, 64, 20]):
        texts = [f"{shard}/{row}" * drawn.randrange(1, 4) for row in range(rows)]
        table = pa.table({"text": texts, "score": [row / 4 for row in range(rows)]})
        pq.write_table(table, folder / f"text-{shard}.parquet", row_group_size=13)
        holes = [None if row % 7 == shard else text for row, text in enumerate(texts)]
        pq.write_table(
            pa.table({"text": holes, "score": table["score"]}),
            folder / f"holes-{shard}.parquet",
            row_group_size=9,
        )
        table = pa.table(
            {
                "__key__": [f"k{shard}-{row}" for row in range(rows)],
                "score": [float(row) for row in range(rows)],
                "text": texts,
            }
        )
        with pa.ipc.new_file(folder / f"keys-{shard}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=10)
        data = [str(row).encode() for row in range(rows)]
        pq.write_table(
            pa.table({"text": texts, "cls": data, "ids": [[row] * 3 for row in range(rows)]}),
            folder / f"bytes-{shard}.parquet",
        )
    with wdspec.TarWriter(folder / "tar-0.tar") as writer:
        for row in range(30):
            writer.write({"__key__": f"t{row}", "text": b"a", "score": b"1"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    return folder


def source(folder, name, suffix="parquet", **keys):
    return {"name": name, "shards": f"{folder}/{name}-*.{suffix}", "shuffle": 20, "interleave": 3, **keys}


CASES = {
    "texts": lambda folder: [source(folder, "text")],
    "one column": lambda folder: [source(folder, "text", extensions="text")],
    "in the order of the files": lambda folder: [source(folder, "text", shuffle=0, order="sequential")],
    "not shuffled, several shards in turn": lambda folder: [source(folder, "text", shuffle=0)],
    "nulls": lambda folder: [source(folder, "holes", extensions="score text", missing="none")],
    "nulls that are dropped": lambda folder: [
        source(folder, "holes", extensions="score text", missing="skip", errors="skip")
    ],
    "keys": lambda folder: [source(folder, "keys", "arrow")],
    "bytes": lambda folder: [source(folder, "bytes")],
    "bytes that are not read": lambda folder: [source(folder, "bytes", extensions="text ids")],
    "bytes that stay bytes": lambda folder: [source(folder, "bytes", decode="raw")],
    "rename": lambda folder: [source(folder, "text", rename={"caption": "text"})],
    "tags": lambda folder: [source(folder, "text", tags={"lang": "en"})],
    "a mix": lambda folder: [source(folder, "text"), source(folder, "keys", "arrow")],
    "a mix of other columns": lambda folder: [
        source(folder, "text", extensions="text score"),
        source(folder, "holes", extensions="text score", missing="none"),
        source(folder, "bytes", rename={"score": "cls"}, extensions="text cls"),
    ],
    "a mix with tars": lambda folder: [source(folder, "text"), source(folder, "tar", "tar", decode="raw")],
}


def as_text(value):
    """Any item as a text, with types."""
    if isinstance(value, dict):
        return {name: as_text(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(as_text, value)]
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"{type(value).__name__} {value.dtype} {value.tolist()}"
    return f"{type(value).__name__} {value!r}"


def observe(spec, start=None, batches=30, skip=()):
    """What a loader shows: batches, states, counts, or the error."""
    seen = []
    with wdspec.loader(spec, num_workers=0) as loader:
        if start is not None:
            loader.load_state_dict(start)
        if skip:
            loader.skip_steps(*skip)
        try:
            for number, batch in enumerate(loader):
                if number == batches:
                    break
                seen.append((as_text(batch), loader.state_dict()))
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
        stats = loader.stats()
        seen.append(str([(each.delivered, each.dropped, each.skipped) for each in stats.sources.values()]))
    return seen


@pytest.mark.parametrize("case", CASES)
def test_batches_states_and_counts_equal_those_of_dict_samples(folder, case, monkeypatch):
    spec = {"seed": 7, "dataset": CASES[case](folder), "batch": {"size": 6, "ragged": "list"}}
    ours = observe(spec)
    middle = ours[11][1]
    resumed, skipping = observe(spec, middle, 5), observe(spec, middle, 5, skip=(13, 15))
    monkeypatch.setattr(reader, "may_keep_rows", lambda source: False)
    assert ours == observe(spec)
    assert len(ours) == 31
    assert resumed == observe(spec, middle, 5)
    assert [batch for batch, _ in resumed[:5]] == [batch for batch, _ in ours[12:17]]
    assert skipping == observe(spec, middle, 5, skip=(13, 15))


@pytest.mark.parametrize(
    "changes",
    [
        {"to_tuple": ["text", "score"]},
        {"to_tuple": ["text", "nothing"]},
        {"fields": ["text"]},
        {"batch": {"size": 4, "accumulate": True}, "elastic": {"ranks": 2, "workers": 2}},
        {"batch": 4, "elastic": {"ranks": 4, "workers": 1}},
        {"batch": {"size": 5, "collate": {"text": "list"}}},
        {"epoch": "pass", "batch": 7},
    ],
    ids=str,
)
def test_all_kinds_of_batches_are_the_same(folder, changes, monkeypatch):
    sources = [
        source(folder, "text", **({"order": "sequential", "shuffle": 0} if "epoch" in changes else {}))
    ]
    spec = {"dataset": sources, "batch": 6, **changes}
    ours = observe(spec, batches=20)
    monkeypatch.setattr(reader, "may_keep_rows", lambda source: False)
    assert ours == observe(spec, batches=20)


@pytest.mark.parametrize("errors", [{}, {"errors": "skip"}], ids=["raised", "skipped"])
def test_a_damaged_row_group_is_the_same_error_at_the_same_step(folder, tmp_path, errors, monkeypatch):
    path = tmp_path / "text-0.parquet"
    data = bytearray((folder / "text-2.parquet").read_bytes())
    start = pq.read_metadata(folder / "text-2.parquet").row_group(2).column(0).data_page_offset
    data[start + 30 : start + 40] = b"damaged!!!"
    path.write_bytes(data)
    (tmp_path / "text-1.parquet").write_bytes((folder / "text-0.parquet").read_bytes())
    spec = {"dataset": [source(tmp_path, "text", **errors)], "batch": 4}
    ours = observe(spec)
    monkeypatch.setattr(reader, "may_keep_rows", lambda source: False)
    assert ours == observe(spec)
    assert ("row group 2" in str(ours)) is not bool(errors)


def test_rows_are_a_sequence_of_samples():
    rows = TableRows({"__key__": ["a", "b", "c"], "n": [1, 2, 3]})
    assert [*rows] == [{"__key__": key, "n": n} for key, n in zip("abc", (1, 2, 3), strict=True)]
    assert [*rows[1:]] == [*rows][1:]
    assert rows[-1] == {"__key__": "c", "n": 3}
    assert len(rows) == 3


def test_only_samples_that_need_a_transform_are_dicts(folder):
    def kind_of(case, **changes):
        with wdspec.loader({"dataset": CASES[case](folder), "batch": 6, **changes}, num_workers=0) as loader:
            (samples,) = loader.stream.run.reader().micro_batches(0)
            return type(samples)

    assert kind_of("texts") is kind_of("one column") is kind_of("bytes that are not read") is TableRows
    assert kind_of("a mix") is list  # its columns have another order
    assert kind_of("bytes") is kind_of("rename") is kind_of("tags") is list


def test_tokens_of_padded_rows_are_counted(tmp_path):
    lengths = [1 + row % 4 for row in range(24)]
    table = pa.table({"ids": [[7] * length for length in lengths], "score": [0.5] * 24})
    pq.write_table(table, tmp_path / "ids.parquet")
    spec = {
        "dataset": [{"name": "rows", "shards": str(tmp_path / "ids.parquet")}],
        "batch": {"size": 4, "collate": {"ids": "pad"}},
        "epoch": "pass",
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = list(loader)
        counted = loader.stats().sources["rows"]
    assert len(batches) == 6
    assert (counted.received, counted.tokens) == (24, sum(lengths))
