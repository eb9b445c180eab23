"""`wdspec.ray.read` gives every sample of a spec once, or an error; `wdspec.ray.write` gives whole shards, or none."""

import json
import os
import re
import sys
import textwrap
from collections import Counter
from contextlib import chdir
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from offlinejobs import write_job
from shardmaking import write_shard, write_source

import wdspec
from wdspec.cli.process import process
from wdspec.cli.stats import stats

pytestmark = pytest.mark.usefixtures("two_cpus")
long = pytest.mark.long
ROOT = Path(__file__).parents[2]

MORE = """
    def number_objects(sample):
        return {**sample, "json": {"n": sample["cls"], sample["txt"]: [1, "a"]}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a job that draws random numbers and drops samples."""
    folder = tmp_path_factory.mktemp("job")
    write_job(folder, map="functions:double", defaults="{select: functions:odd}")
    with open(folder / "functions.py", "a") as file:
        file.write(textwrap.dedent(MORE))
    return folder


@pytest.fixture
def job(folder, monkeypatch):
    """The job's folder is the working directory."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("functions", None)
    yield folder
    sys.modules.pop("functions", None)


def compile_pass(shards, **keys):
    """Every sample of the shards, by key, as one process reads them."""
    spec = {"dataset": [{"shards": shards}], "epoch": {"pass": "drop"}, **keys}
    return {sample["__key__"]: sample for sample in wdspec.compile(spec)}


def only_fields(samples):
    return {
        sample["__key__"]: {name: value for name, value in sample.items() if not name.startswith("__")}
        for sample in samples
    }


def test_a_spec_is_read_like_process_and_written_as_complete_shards(job):
    import wdspec.ray

    assert CliRunner().invoke(process, ["job.yaml", "--output", "processed"]).exit_code == 0
    expected = only_fields(compile_pass("processed/*.tar").values())
    assert len({sample["draw.txt"] for sample in expected.values()}) == 20

    dataset = wdspec.ray.read("job.yaml")
    rows = dataset.take_all()
    assert only_fields(rows) == expected
    assert {row["__source__"] for row in rows} == {"a"}
    assert {row["__url__"] for row in rows} == {f"in/a-00{n}.tar" for n in range(4)}

    written = wdspec.ray.write(dataset, "written/", samples=7)
    assert sorted([*os.listdir("written")]) == sorted(["shards.txt", *(shard.name for shard in written)])
    assert sum(shard.samples for shard in written) == 20
    assert only_fields(compile_pass("@written/shards.txt").values()) == expected
    again = wdspec.ray.write(dataset, "again", suffix=".jsonl.gz")
    assert [shard.samples for shard in again] == [20]
    assert only_fields(compile_pass("again/*.jsonl.gz").values()) == expected


def damage(data, kind):
    """A tar of 20 samples of two members, with one fault in the middle."""
    block = 4 * 512  # two members of one block each, with their headers
    middle = 10 * block
    match kind:
        case "cut between samples":
            return data[:middle]
        case "cut after a member":
            return data[: middle + 1024]
        case "a bad header":
            return data[:middle] + b"x" * 100 + data[middle + 100 :]
        case "zeros":
            return data[:middle] + bytes(block) + data[middle + block :]


@long
@pytest.mark.parametrize("kind", ["cut between samples", "cut after a member", "a bad header", "zeros"])
def test_a_damaged_shard_is_an_error_and_never_fewer_rows(tmp_path, kind):
    import ray

    import wdspec.ray

    path = tmp_path / "a.tar"
    write_shard(path, [(f"{n:02}", {"cls": b"%d" % n, "txt": b"a"}) for n in range(20)])
    assert len(ray.data.read_webdataset(str(path)).take_all()) == 20
    assert len(wdspec.ray.read({"dataset": [{"shards": str(path)}]}).take_all()) == 20
    path.write_bytes(damage(path.read_bytes(), kind))
    assert len(ray.data.read_webdataset(str(path)).take_all()) in (10, 11)  # silently
    with pytest.raises(wdspec.ShardError) as caught:
        wdspec.ray.read({"dataset": [{"shards": str(path)}]}).take_all()
    assert str(path) in str(caught.value)
    skipping = wdspec.ray.read({"dataset": [{"shards": str(path)}], "defaults": {"errors": "skip"}})
    assert 9 <= len(skipping.take_all()) <= 19


@long
def test_every_shard_is_a_task_with_its_metadata(tmp_path):
    import wdspec.ray

    shards = write_source(tmp_path, "a", shards=3, samples=10)
    spec = {"dataset": [{"name": "a", "shards": shards}], "stats": str(tmp_path / "stats.json")}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    with pytest.warns(UserWarning, match="stats"):
        unmeasured = wdspec.ray.read(spec)
    size = sum(os.path.getsize(path) for path in tmp_path.glob("*.tar"))
    assert unmeasured.size_bytes() == size
    assert unmeasured.count() == 30
    with chdir(tmp_path):
        assert CliRunner().invoke(stats, ["spec.yaml", "-o", "stats.json"]).exit_code == 0
    (tmp_path / "a-000.tar").rename(tmp_path / "moved")
    (tmp_path / "moved").rename(tmp_path / "a-000.tar")
    dataset = wdspec.ray.read(spec)
    assert sorted(dataset.input_files()) == [f"{tmp_path}/a-00{n}.tar" for n in range(3)]
    os.truncate(tmp_path / "a-001.tar", 0)
    assert dataset.count() == 30  # from the measurements: nothing is read
    dropping = {**spec, "defaults": {"select": "operator:not_"}}
    with pytest.raises(wdspec.ShardError):
        wdspec.ray.read(dropping).count()


@long
def test_a_task_reads_several_shards_if_there_are_many(tmp_path, monkeypatch):
    import ray

    from wdspec.ray import datasource

    spec = wdspec.load({"dataset": [{"shards": write_source(tmp_path, "a", shards=5, samples=10)}]})
    monkeypatch.setattr(datasource, "MOST_TASKS", 2)
    source = datasource.SpecDatasource(spec, {})
    files = [task.metadata.input_files for task in source.get_read_tasks(1)]
    assert files == [tuple(f"{tmp_path}/a-00{n}.tar" for n in some) for some in ((0, 1, 2), (3, 4))]
    rows = ray.data.read_datasource(source).take_all()
    assert sorted(row["cls"] for row in rows) == list(range(50))


@long
def test_limits_stop_reading(tmp_path):
    import wdspec.ray

    spec = {"dataset": [{"shards": write_source(tmp_path, "a", shards=3, samples=10)}]}
    assert len(wdspec.ray.read(spec).limit(4).take_all()) == 4
    assert len(wdspec.ray.read(spec).take(15)) == 15
    counts = Counter(row["__url__"] for row in wdspec.ray.read({**spec, "limit": 3}).take_all())
    assert set(counts.values()) == {3}


@long
def test_sources_with_different_fields_make_one_dataset(tmp_path):
    import wdspec.ray

    write_shard(tmp_path / "a.tar", [(f"a{n}", {"npy": _npy(np.arange(n))}) for n in range(4)])
    write_shard(tmp_path / "b.tar", [(f"b{n}", {"json": b'{"n": %d}' % n}) for n in range(4)])
    write_shard(tmp_path / "c.tar", [("c0", {"json": b'{"n": "text"}', "cls": b"1"})])
    spec = {
        "dataset": [
            {"name": "a", "shards": f"{tmp_path}/a.tar", "tags": {"kind": "array"}},
            {"name": "b", "shards": f"{tmp_path}/b.tar"},
            {"name": "c", "shards": f"{tmp_path}/c.tar"},
            {"name": "off", "shards": f"{tmp_path}/missing.tar", "weight": 0},
        ],
    }
    for source in spec["dataset"][:3]:
        source["weight"] = 1
    rows = {row["__key__"]: row for row in wdspec.ray.read(spec).repartition(2).take_all()}
    assert sorted(rows) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "c0"]
    assert rows["a3"]["npy"].tolist() == [0, 1, 2]
    assert rows["a3"]["kind"] == "array"
    assert rows["b2"]["json"] == {"n": 2}
    assert rows["c0"]["json"] == {"n": "text"}
    assert rows["b0"].get("npy") is None
    assert rows["c0"]["cls"] == 1


def _npy(array):
    import io

    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@long
def test_a_schema_turns_dicts_into_columns(job):
    import wdspec.ray

    keys = {"map": "functions:number_objects", "defaults.select": None}
    objects = wdspec.ray.read("job.yaml", overrides=keys).take_all()
    assert {row["json"][row["txt"]][1] for row in objects} == {"a"}
    schema = {"json": pa.struct({"n": pa.int64()})}
    dataset = wdspec.ray.read("job.yaml", overrides=keys, schema=schema)
    assert dataset.schema().types[dataset.schema().names.index("json")] == schema["json"]
    assert sorted(row["json"]["n"] for row in dataset.take_all()) == list(range(40))
    with pytest.raises(wdspec.FieldError, match="`txt` has the type int64 in the schema"):
        wdspec.ray.read("job.yaml", overrides=keys, schema=pa.schema({"txt": pa.int64()})).materialize()


@long
def test_map_classes_are_built_once_per_worker(job):
    import wdspec.ray

    rows = wdspec.ray.read("job.yaml", overrides={"map": "functions:Counted"}).take_all()
    assert {row["made.txt"] for row in rows} == {"1"}


@long
def test_errors_of_functions_name_the_sample(job):
    import wdspec.ray

    with pytest.raises(ValueError, match="thirteen brings bad luck") as caught:
        wdspec.ray.read("job.yaml", overrides={"map": "functions:thirteen"}).materialize()
    assert "a0010003" in str(caught.value)
    skips = {"map": "functions:thirteen", "defaults.errors": {"skip": "map"}}
    assert wdspec.ray.read("job.yaml", overrides=skips).count() == 19


def test_a_spec_with_a_stage_is_rejected(job):
    import wdspec.ray

    with pytest.raises(wdspec.UsageError, match=r"wdspec\.ray\.read handles each sample separately"):
        wdspec.ray.read("job.yaml", overrides={"stage": "functions:double"})


@long
def test_a_folder_with_shards_is_replaced_only_on_request(tmp_path):
    import wdspec.ray

    spec = {"dataset": [{"shards": write_source(tmp_path / "in", "a", shards=2, samples=5)}]}
    out = tmp_path / "out"
    wdspec.ray.write(wdspec.ray.read(spec), out)
    with pytest.raises(wdspec.UsageError, match="already has 1 shards; choose another folder"):
        wdspec.ray.write(wdspec.ray.read(spec), out)
    (out / "shards.txt").unlink()
    with pytest.raises(wdspec.UsageError, match=r"but no `shards\.txt`"):
        wdspec.ray.write(wdspec.ray.read(spec), out)
    itself = wdspec.ray.read({"dataset": [{"shards": f"{out}/*.tar"}]}).filter(lambda row: row["cls"] < 3)
    (shard,) = wdspec.ray.write(itself, out, overwrite=True)
    assert shard.samples == 3
    assert sorted(os.listdir(out)) == sorted([shard.name, "shards.txt"])


@long
def test_a_failed_write_leaves_nothing(tmp_path):
    import wdspec.ray

    spec = {"dataset": [{"shards": write_source(tmp_path / "in", "a", shards=4, samples=5)}]}

    def spoil(row):
        return {**row, "cls": {"not": "a number"}} if row["cls"] == 17 else row

    with pytest.raises(wdspec.FieldError, match="cannot be encoded") as caught:
        wdspec.ray.write(wdspec.ray.read(spec).map(spoil), tmp_path / "out", samples=5)
    assert "a0030002" in str(caught.value)
    assert os.listdir(tmp_path / "out") == []
    with pytest.raises(wdspec.FieldError, match="the same key"):
        wdspec.ray.write(wdspec.ray.read(spec).map(lambda row: {**row, "__key__": "a"}), tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


@long
def test_rows_without_keys_are_numbered(tmp_path):
    import ray

    import wdspec.ray

    dataset = ray.data.from_items([{"cls": n, "npy": np.full(3, n)} for n in range(30)])
    wdspec.ray.write(dataset.repartition(3), tmp_path, samples=10)
    samples = compile_pass(f"@{tmp_path}/shards.txt")
    assert sorted(sample["cls"] for sample in samples.values()) == list(range(30))
    assert all(sample["npy"].tolist() == [sample["cls"]] * 3 for sample in samples.values())


@long
def test_images_round_trip_through_a_cluster(tmp_path):
    import wdspec.ray

    keys = {"defaults": {"decode": "l8", "extensions": "png cls"}}
    shards = str(ROOT / "examples/data/val-*.tar.bz2")
    rows = wdspec.ray.read({"dataset": [{"shards": shards}], **keys})
    wdspec.ray.write(rows, tmp_path)
    expected, samples = compile_pass(shards, **keys), compile_pass(f"@{tmp_path}/shards.txt", **keys)
    assert samples.keys() == expected.keys()
    for key, sample in samples.items():
        np.testing.assert_array_equal(sample["png"], expected[key]["png"])
        assert sample["cls"] == expected[key]["cls"]


@long
def test_the_documented_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (block,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/ray.md").read_text(), re.MULTILINE | re.DOTALL
    )
    exec(block, {"__name__": "page"})
    said = re.findall(r"print.*# (\d+)", block)
    assert capsys.readouterr().out.split() == said
    assert len(compile_pass("@small/shards.txt")) == int(said[0])


@long
@pytest.mark.parametrize(
    "keys",
    [
        {"subset": "40%"},
        {"where": "txt.length > 4 and cls in [3, 31, 32]"},
        {"exclude": "@used.txt"},
        {"lookup": {"table": "s.csv", "fields": "score", "rename": {"s.json": "score"}, "missing": "skip"}},
        {"join": [{"shards": "in/b-{000..003}.tar", "missing": "skip"}]},
    ],
    ids=["subset", "where", "exclude", "lookup", "join"],
)
def test_selections_joins_and_lookups_match_process(tmp_path, monkeypatch, keys):
    import wdspec.ray

    monkeypatch.chdir(tmp_path)
    (tmp_path / "used.txt").write_text("a0010003\na0020007\n")
    (tmp_path / "s.csv").write_text("key,score\na0010003,5\na0020007,7\n")
    for shard in range(4):
        more = [(f"a{shard:03}{n:04}", {"json": b"%d" % n}) for n in range(0, 10, 3)]
        write_shard(tmp_path / f"in/b-00{shard}.tar", more)
    source = {"name": "a", "shards": write_source("in", "a", shards=4, samples=10), **keys}
    spec = {"dataset": [source], "output": "out/", "stats": "stats.json"}
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    assert CliRunner().invoke(stats, ["job.yaml", "-o", "stats.json"]).exit_code == 0
    assert CliRunner().invoke(process, ["job.yaml", "--jobs", "0"], catch_exceptions=False).exit_code == 0
    expected = compile_pass("out/*.tar", defaults={"empty": "allow"})
    assert 0 < len(expected) < 40
    dataset = wdspec.ray.read("job.yaml")
    assert dataset.count() == len(expected)
    assert only_fields(dataset.take_all()).keys() == expected.keys()
    if "lookup" in keys:
        assert {row["s.json"] for row in dataset.take_all()} == {5, 7}
    if "join" in keys:
        assert {row["json"] for row in dataset.take_all()} == {0, 3, 6, 9}
