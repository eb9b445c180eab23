"""Tables of fields (`lookup`): every format gives what plain Python reads, and nothing is lost or mixed up silently."""

import csv
import gzip
import json
import os
import random
import sqlite3
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from commandline import within
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import ShardError
from wdspec.shards.lookup_tables import Rows, make_table
from wdspec.spec.language.joins import LookupOptions
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage

KEYS = [f"0/{number:04}" for number in range(300)]
ROWS = {
    key: {"score": number / 7, "count": number, "text": f"text of {key}"} for number, key in enumerate(KEYS)
}


@pytest.fixture(autouse=True)
def own_folder_of_tables(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


def write_table(path, rows):
    """Write rows, key → column → value, in a different order."""
    names = list(next(iter(rows.values())))
    shuffled = random.Random(5).sample(sorted(rows), len(rows))
    records = [{"key": key, **rows[key]} for key in shuffled]
    suffix = path.name.partition(".")[2]
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif suffix == "jsonl.gz":
        path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    elif suffix in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["key", *names], delimiter="," if suffix == "csv" else "\t")
            writer.writeheader()
            writer.writerows(records)
    elif suffix == "db":
        with sqlite3.connect(path) as base:
            base.execute(f"create table scores (key, {', '.join(names)})")
            marks = ", ".join("?" * (len(names) + 1))
            base.executemany(
                f"insert into scores values ({marks})", [tuple(each.values()) for each in records]
            )
        base.close()
    elif suffix == "npz":
        np.savez(path, **{name: np.array([record[name] for record in records]) for name in ("key", *names)})
    else:
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(records), path)
    return path


def spec_of(folder, keys=KEYS, **lookup):
    write_shard(folder / "a-0.tar", [(key, {"json": json.dumps({"id": key}).encode()}) for key in keys])
    return {
        "dataset": [
            {
                "name": "s",
                "shards": f"{folder}/a-0.tar",
                "order": "sequential",
                "shuffle": 0,
                "lookup": {"fields": "score count text", **lookup},
            }
        ],
        "epoch": "pass",
    }


def read(spec):
    dataset = wdspec.compile(spec)
    try:
        return [sample for sample in dataset if sample["__mask__"]]
    finally:
        dataset.close()


SUFFIXES = ["jsonl", "jsonl.gz", "csv", "tsv", "db", "npz", "parquet"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("on", ["__key__", "json.id"])
def test_every_format_adds_the_values_of_the_row(tmp_path, suffix, on):
    table = write_table(tmp_path / f"t.{suffix}", ROWS)
    samples = read(spec_of(tmp_path, table=str(table), on=on, key="key"))
    found = {
        sample["__key__"]: {name: sample[name] for name in ("score", "count", "text")} for sample in samples
    }
    assert found == ROWS
    assert {type(value) for sample in samples for value in (sample["score"], sample["count"])} == {int, float}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "npz"])
def test_values_of_all_types_are_unchanged(tmp_path, suffix):
    rng = np.random.default_rng(3)
    rows = {
        key: {
            "flag": bool(number % 2),
            "vector": [float(value) for value in rng.random(4)],
            "maybe": None if number % 3 else number,
            "nested": {"a": [1, number]},
            "word": "ü" * (number % 5),
        }
        for number, key in enumerate(KEYS)
    }
    if suffix == "npz":
        rows = {key: {"flag": row["flag"], "vector": row["vector"]} for key, row in rows.items()}
    table = write_table(tmp_path / f"t.{suffix}", rows)
    names = list(next(iter(rows.values())))
    for sample in read(spec_of(tmp_path, table=str(table), fields=names)):
        row = rows[sample["__key__"]]
        assert list(sample["vector"]) == row["vector"]
        assert all(sample[name] == row[name] for name in names if name != "vector")


@pytest.mark.parametrize("missing", ["error", "skip", "none"])
def test_keys_that_the_table_lacks(tmp_path, missing):
    table = write_table(tmp_path / "t.jsonl", {key: row for key, row in ROWS.items() if key != KEYS[7]})
    spec = spec_of(tmp_path, table=str(table), missing=missing)
    if missing == "error":
        with pytest.raises(wdspec.ShardError) as caught:
            read(spec)
        place = caught.value.place
        assert caught.value.code == "D225"
        assert (place["key"], place["offset"], place["partner"]) == (KEYS[7], 7 * 1024, str(table))
        return
    found = {sample["__key__"]: sample["score"] for sample in read(spec)}
    assert found.get(KEYS[7]) is None
    assert (KEYS[7] in found) == (missing == "none")
    assert len(found) == len(KEYS) - (missing == "skip")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no rows"),
        ('{"key": "a", "score": 1}\n{"key": "b"', "line 2: this is not JSON"),
        ('{"key": "a", "score": 1}\n{"key": "a", "score": 2}\n', "occurs twice, in row 1 and row 2"),
        ('{"key": null, "score": 1}\n', "row 1 has the key None"),
        ('{"key": "a", "points": 1}\n', "no column `score`, .* it has `key`, `points`"),
        ('{"id": "a", "score": 1}\n', "no column .* with keys; it has `id`, `score`"),
        ("[1]\n", "line 1: a row must be an object"),
        ('{"key": "a", "score": 1}\n{"key": "b", "score": ' + "[" * 100_000, "line 2: .*recursion"),
        ('{"key": "a", "score": 1, "score": 2}\n', "line 1: the name 'score' occurs twice"),
    ],
)
def test_unusable_tables_are_errors_with_place_and_remedy(tmp_path, content, message):
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(wdspec.ShardError, match=message) as caught:
        wdspec.compile(spec_of(tmp_path, table=f"{tmp_path}/t.jsonl", fields="score"))
    assert caught.value.code == "D226"
    assert "t.jsonl" in str(caught.value)


def test_two_columns_of_one_name_are_an_error_and_not_the_first(tmp_path):
    (tmp_path / "t.csv").write_text("key,score,score,other,other\na,1,2,3,4\n")
    with pytest.raises(wdspec.ShardError, match="its header has two columns `score`; rename one"):
        wdspec.compile(spec_of(tmp_path, table=f"{tmp_path}/t.csv", fields="score"))


@pytest.mark.parametrize("suffix", ["parquet", "db", "npz"])
def test_damaged_files_are_errors(tmp_path, suffix):
    (tmp_path / f"t.{suffix}").write_bytes(b"damaged" * 100)
    with pytest.raises(wdspec.ShardError, match="or damaged") as caught:
        wdspec.compile(spec_of(tmp_path, table=f"{tmp_path}/t.{suffix}"))
    assert caught.value.code == "D226"


def test_a_missing_table_is_an_error(tmp_path):
    with pytest.raises(wdspec.MissingShardError, match=r"t\.jsonl"):
        wdspec.compile(spec_of(tmp_path, table=f"{tmp_path}/t.jsonl"))


def test_a_csv_row_of_another_length_is_an_error_with_its_line(tmp_path):
    (tmp_path / "t.csv").write_text("key,score\na,1\nb,2,3\n")
    with pytest.raises(wdspec.ShardError, match="line 3 has 3 values, but the header has 2") as caught:
        wdspec.compile(spec_of(tmp_path, table=f"{tmp_path}/t.csv", fields="score"))
    assert caught.value.place["line"] == 3


def test_a_quote_that_does_not_end_is_an_error_and_not_a_row_less(tmp_path):
    (tmp_path / "t.csv").write_text('key,score\na,"1\nb,2\nc,3\n')
    with pytest.raises(wdspec.ShardError, match=r"line 2: a cell has a .* does not end") as caught:
        wdspec.compile(spec_of(tmp_path, table=f"{tmp_path}/t.csv", fields="score"))
    assert caught.value.place["line"] == 2


def test_a_lookup_does_not_replace_a_field(tmp_path):
    table = write_table(tmp_path / "t.jsonl", ROWS)
    spec = spec_of(tmp_path, table=str(table), fields="score text", rename={"json": "text"})
    with pytest.raises(wdspec.ShardError, match="both the sample and the table") as caught:
        read(spec)
    assert caught.value.code == "D224"


def test_a_table_that_changes_after_the_start_is_an_error(tmp_path):
    rows = {key: {**row, "score": 0.5} for key, row in ROWS.items()}
    table = write_table(tmp_path / "t.jsonl", rows)
    spec = spec_of(tmp_path, table=str(table)) | {"epoch": {"samples": 600}, "batch": 10}
    dataset = wdspec.compile(spec)
    write_table(table, {key: {**row, "score": -1.0} for key, row in ROWS.items()})
    os.utime(table, ns=(1, 1))
    with pytest.raises(wdspec.ShardError, match="changed after the run started") as caught:
        next(iter(dataset))
    assert caught.value.code == "D227"
    dataset.close()


def test_a_state_depends_on_the_rows_of_a_lookup_table(tmp_path):
    table = write_table(tmp_path / "t.jsonl", ROWS)
    spec = spec_of(tmp_path, table=str(table)) | {"epoch": {"samples": 60}}
    dataset = wdspec.compile(spec)
    next(iter(dataset))
    state = dataset.state_dict()
    dataset.close()
    lines = table.read_text().splitlines()
    table.write_text("\n".join(reversed(lines)))
    os.utime(table, ns=(1, 1))
    dataset = wdspec.compile(spec)
    dataset.load_state_dict(state)
    dataset.close()
    write_table(table, {key: {**row, "score": -1.0} for key, row in ROWS.items()})
    os.utime(table, ns=(2, 2))
    dataset = wdspec.compile(spec)
    with pytest.raises(wdspec.UsageError, match=r"files\.lookup: a table has other rows"):
        dataset.load_state_dict(state)
    dataset.close()


def test_workers_share_one_folder_and_read_the_same(tmp_path):
    table = write_table(tmp_path / "t.parquet", ROWS)
    spec = spec_of(tmp_path, table=str(table)) | {"epoch": {"batches": 20}, "batch": 10}
    with wdspec.loader(spec, num_workers=2, rank=0, world_size=1) as loader:
        for batch in loader:
            assert [ROWS[key]["count"] for key in batch["__key__"]] == batch["count"].tolist()
    (folder,) = (tmp_path / "tmp").glob("wdspec-*/tables")
    assert len(list(folder.glob("*/table.json"))) == 1


def test_a_lookup_can_set_the_cost_of_a_sample(tmp_path):
    table = write_table(tmp_path / "t.jsonl", {key: {"tokens": 1 + len(key) % 7} for key in KEYS})
    spec = spec_of(tmp_path, table=str(table), fields="tokens")
    spec["batch"] = {"cost": "tokens", "max_cost": 40}
    spec["epoch"] = {"batches": 4}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        assert all(0 < batch["tokens"].sum() <= 40 for batch in loader)


def test_rows_match_a_dict_for_many_keys(tmp_path):
    rng = random.Random(1)
    rows = {
        f"{rng.getrandbits(60):x}{'é' * (rng.random() < 0.1)}": number
        for number in range(20_000)
        for _ in "x"
    }
    with (tmp_path / "t.jsonl").open("w") as file:
        for key, value in rows.items():
            file.write(json.dumps({"key": key, "value": value}) + "\n")
    options = LookupOptions(table="t.jsonl", base=str(tmp_path), fields=("value",))
    table = make_table(options, Storage.of(Environment.read()))
    found = Rows(table.folder)
    (get,) = found.columns
    assert {key: get(found.find(key)) for key in rows} == rows
    assert all(found.find(f"{key}-") == -1 for key in rows)
    keys = rng.sample(sorted(rows), 5000)
    started = time.thread_time()
    for key in keys:
        get(found.find(key))
    assert (time.thread_time() - started) / len(keys) < 30e-6  # ten times what the benchmark allows


@pytest.mark.parametrize("more", [{"extensions": "txt"}, {}])
def test_the_lookup_file_is_read_even_if_no_field_needs_it(tmp_path, more):
    table = write_table(tmp_path / "t.jsonl", ROWS)
    spec = spec_of(tmp_path, table=str(table), on="json.id", key="key", fields="score")
    files = [
        (f"n{number}", {"json": json.dumps({"id": key}).encode(), "txt": b"x"})
        for number, key in enumerate(KEYS)
    ]
    write_shard(tmp_path / "a-0.tar", files)
    spec["dataset"][0] |= more
    samples = read(spec | {"fields": "score"})
    assert [sample["score"] for sample in samples] == [ROWS[key]["score"] for key in KEYS]
    assert {name for sample in samples for name in sample if not name.startswith("__")} == {"score"}


def test_stats_count_a_selection_by_a_table_until_its_rows_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = [f"k{number:03}" for number in range(50)]

    def write_scores(limit):
        rows = [{"key": key, "score": number} for number, key in enumerate(keys) if number < limit]
        Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def count_places():
        dataset = wdspec.compile("s.yaml")
        places = list(dataset)
        dataset.close()
        return len(places), sum(sample["__mask__"] for sample in places)

    write_scores(50)
    spec = spec_of(tmp_path, keys, table="t.jsonl", key="key", missing="none", fields="score")
    spec["dataset"][0]["where"] = "default(score, 99) < 10 or __key__ == 'k040'"
    Path("s.yaml").write_text(json.dumps({"stats": "s.stats.json", **spec}))
    with pytest.warns(UserWarning, match="wdspec stats"):
        assert count_places() == (50, 11)
    within("stats", "s.yaml", "--jobs", "0")
    assert count_places() == (11, 11)
    write_scores(5)
    assert count_places() == (50, 6)
    within("stats", "s.yaml", "--jobs", "0")
    assert count_places() == (6, 6)


def test_the_newline_at_the_end_of_a_text_file_is_no_part_of_a_key(tmp_path):
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"alpha\n"}), ("1", {"txt": b"beta\r\n"})])
    (tmp_path / "t.csv").write_text("key,v\nalpha,1\nbeta,2\n")
    source = {"shards": f"{tmp_path}/a.tar", "extensions": "txt"}
    found = wdspec.compile(
        {
            "wdspec": 1,
            "epoch": "pass",
            "dataset": [{**source, "lookup": {"table": f"{tmp_path}/t.csv", "on": "txt", "fields": "v"}}],
        }
    )
    assert [sample["v"] for sample in found] == [1, 2]
    listed = {**source, "keys_of": "txt", "keys": ["beta"]}
    found = wdspec.compile({"wdspec": 1, "epoch": "pass", "dataset": [listed]})
    assert {sample["txt"] for sample in found} == {"beta\r\n"}  # and a copy for the dropped one


def test_a_line_without_an_end_is_an_error_before_it_is_in_memory(tmp_path):
    for name in ("t.jsonl", "t.csv", "t.tsv"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(5 * 2**30)
        with pytest.raises(
            ShardError, match=r"line 1 has more than 67,108,864 characters; give each row a line"
        ):
            table_of(tmp_path / name)


def test_an_array_that_claims_more_than_it_has_is_an_error(tmp_path):
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }\n"
    claim = b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("key.npy", claim)
        archive.writestr("score.npy", claim)
    with pytest.raises(
        ShardError, match=r"`key` says 8,796,093,022,208 bytes of values, and the file has fewer"
    ):
        table_of(tmp_path / "t.npz")


def test_a_view_whose_rows_never_end_is_refused_and_the_remedy_works(tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as base:
        base.execute(
            "create view v as with recursive c(x) as (select 1 union all select x + 1 from c) select x as key, "
            "x as score from c"
        )
        base.execute("create view w as select 'a' as key, 1.5 as score")
    with pytest.raises(ShardError, match="`v` is a view, whose rows have to be computed"):
        table_of(tmp_path / "t.db#v")
    with pytest.raises(ShardError) as caught:
        table_of(tmp_path / "t.db#w")
    with sqlite3.connect(tmp_path / "t.db") as base:
        base.execute(str(caught.value).partition("(")[2].partition(")")[0].strip("`"))
    table_of(tmp_path / "t.db#stored")


def table_of(path):
    """The rows of a table with the column `score`."""
    options = LookupOptions(table=path.name, base=str(path.parent), on="key", fields=("score",))
    return make_table(options, Storage.of(Environment.read()))
