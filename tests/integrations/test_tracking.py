"""`log_run` writes what trains a model as one record, and `wdspec diff` compares two of them."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from importlib import metadata
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest
import torch.utils.tensorboard
from commandline import within
from shardmaking import write_source
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import wdspec
from wdspec.run.record import read_record

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
SPEC = """\
vars: {seed: 3}
dataset:
  - {name: a, shards: "a-{000..003}.tar", weight: 3}
  - {name: b, shards: "b-{000..003}.tar", weight: 1}
seed: ${seed}
defaults: {shuffle: 0, interleave: 1}
batch: 4
epoch: 80
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_source(tmp_path, "a")
    write_source(tmp_path, "b")
    (tmp_path / "train.yaml").write_text(SPEC)
    within("lock", "train.yaml", folder=tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loader(folder):
    with wdspec.loader("train.yaml", lock="train.lock.json") as loader:
        next(iter(loader))
        yield loader


def run_block(word, loader):
    [block] = [each for each in BLOCKS if word in each]
    given = {"loader": loader, "wdspec": wdspec}
    exec(block, given)
    return given


def compared(folder, old, new, *options, code=0):
    return json.loads(within("diff", old, new, "--format", "json", *options, folder=folder, code=code)[0])


def test_the_record_has_spec_lock_digests_versions_environment_and_what_was_read(folder, loader, monkeypatch):
    monkeypatch.setenv("WDS_REWRITE", "https://me:secret@host/=/data/")
    record = wdspec.log_run(loader, "run.json")
    assert json.loads((folder / "run.json").read_text()) == record == read_record("run.json")
    assert (record["file"], record["spec"]["seed"], record["spec"]["batch"]) == ("train.yaml", 3, {"size": 4})
    assert [source["name"] for source in record["spec"]["dataset"]] == ["a", "b"]
    state = loader.state_dict()
    assert record["digest"] == state["digest"]
    assert record["order"] == json.loads(state["order"])
    assert record["samples"] == state["samples"]
    assert record["lock"]["text"] == (folder / "train.lock.json").read_text()
    assert record["lock"]["sources"]["a"]["shards"] == 4
    assert record["versions"]["torch"] == torch.__version__
    for name in ("pyarrow", "soxr", "tokenizers"):  # they change values, too
        assert record["versions"].get(name) == (metadata.version(name) if find_spec(name) else None)
    assert "secret" not in json.dumps(record)
    assert record["environment"]["variables"]["WDS_REWRITE"].startswith("https://***")
    assert record["read"]["batches"] == 1
    assert record["read"]["samples"] == {"a": 3, "b": 1}
    assert record["read"]["stats"]["sources"]["a"]["delivered"] == 3


def test_the_record_has_the_selection_of_a_source_and_no_paths(folder):
    with wdspec.loader(
        {"dataset": [{"shards": "a-{000..003}.tar", "where": "cls < 9", "subset": "50%"}]}
    ) as loader:
        (source,) = wdspec.log_run(loader, "selected.json")["spec"]["dataset"]
    assert source["where"] == "cls < 9"
    assert "part" in source["subset"]
    assert not {"position", "base"} & source.keys()


def test_the_documented_code_writes_a_record_at_start_and_end(folder):
    run_block('lock="train.lock.json"', None)
    assert read_record("run.json")["read"]["batches"] == 20


def test_a_state_of_all_ranks_counts_the_samples_of_all_ranks(folder):
    states = []
    for rank in range(2):
        with wdspec.loader("train.yaml", rank=rank, world_size=2) as loader:
            next(iter(loader))
            states.append(loader.state_dict())
            own = wdspec.log_run(loader)
            assert (own["read"]["ranks"], sum(own["read"]["samples"].values())) == (1, 4)
            if rank:
                record = wdspec.log_run(loader, state=wdspec.merge_states(states))
    assert (record["read"]["ranks"], record["read"]["samples"]) == (2, {"a": 6, "b": 2})
    with (
        wdspec.loader({"dataset": [{"shards": "a-{000..003}.tar"}]}) as other,
        pytest.raises(wdspec.UsageError, match="another run"),
    ):
        wdspec.log_run(other, state=states[0])


def test_a_rewritten_lock_is_not_in_the_record(folder, loader):
    write_source(folder, "a", samples=12)
    within("lock", "--update", "train.yaml", folder=folder)
    assert "text" in wdspec.log_run(loader)["lock"]
    (folder / "train.lock.json").write_text("{}")
    assert "not a lock" in wdspec.log_run(loader)["lock"]["error"]


def test_a_compiled_spec_has_a_record(folder):
    dataset = wdspec.compile("train.yaml")
    next(iter(dataset))
    assert wdspec.log_run(dataset)["read"]["batches"] == 1
    with pytest.raises(wdspec.UsageError, match="loader or a dataset, not str"):
        wdspec.log_run("train.yaml")
    with pytest.raises(wdspec.UsageError, match="`to` is int; pass a path"):
        wdspec.log_run(dataset, 3)


def test_tensorboard_receives_the_record(folder, loader):
    run_block("SummaryWriter", loader)["writer"].close()
    events = EventAccumulator("runs").Reload()
    [event] = events.Tensors("wdspec/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    record = json.loads(text.removeprefix("```json\n").removesuffix("```"))
    assert record["digest"] == loader.state_dict()["digest"]


def test_wandb_receives_the_record(folder, loader, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(folder / "data"))
    run = run_block("import wandb", loader)["run"]
    assert run.config["wdspec.digest"] == loader.state_dict()["digest"]
    run.finish()
    wandb.teardown()
    [staged] = [
        path for path in (folder / "data").rglob("*") if path.is_file() and b"wdspec-run" in path.read_bytes()
    ]
    assert json.loads(staged.read_text())["read"]["batches"] == 1
    [file] = folder.glob("wandb/offline-run-*/run-*.wandb")
    assert loader.state_dict()["digest"].encode() in file.read_bytes()


@pytest.mark.long
def test_mlflow_receives_the_record_and_the_counts(folder):
    """With MLflow installed in a separate folder, which takes a minute: it needs an older importlib_metadata."""
    packages = folder / "packages"
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", packages]
    subprocess.run([*install, "mlflow-skinny>=3.10", "importlib_metadata<10"], check=True)
    page = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    [counts] = re.findall(r"^```python\n(import mlflow\n.*?)^```", page, re.M | re.S)
    [block] = [each for each in BLOCKS if "import mlflow" in each]
    code = f"""
import wdspec
with wdspec.loader("train.yaml") as loader:
    next(iter(loader))
    step = 1
{"".join("    " + line + chr(10) for line in counts.splitlines())}
    {"mlflow.end_run()"}
{"".join("    " + line + chr(10) for line in block.splitlines())}
    mlflow.end_run()
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(packages), str(Path(__file__).parents[2])]),
        "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=folder)
    [artifact] = folder.glob("mlruns/*/*/artifacts/wdspec.json")
    record = json.loads(artifact.read_text())
    assert record["read"]["samples"] == {"a": 3, "b": 1}
    assert (artifact.parents[1] / "tags" / "wdspec.digest").read_text() == record["digest"]
    [metric] = folder.glob("mlruns/*/*/metrics/delivered/a")
    assert metric.read_text().split()[1:] == ["3", "1"] or float(metric.read_text().split()[1]) == 3


def test_diff_shows_what_differs_between_two_runs(folder, loader, monkeypatch):
    wdspec.log_run(loader, "old.json")
    wdspec.log_run(loader, "same.json")
    report = compared(folder, "old.json", "same.json", "--exit-code")
    assert report["same"]
    assert report["read"] == []
    (folder / "train.yaml").write_text(
        SPEC.replace("{seed: 3}", "{seed: 4}")
        .replace("{shuffle: 0", "{decode: raw, shuffle: 0")
        .replace("weight: 1", "weight: 2")
    )
    write_source(folder, "b", shards=5, samples=40)
    (folder / "train.yaml").write_text(
        (folder / "train.yaml").read_text().replace("b-{000..003}", "b-{000..004}")
    )
    within("lock", "--update", "train.yaml", folder=folder)
    monkeypatch.setenv("WDS_SECURE", "1")
    with wdspec.loader("train.yaml", lock="train.lock.json", num_workers=2) as other:
        for _ in zip(range(3), other, strict=False):
            pass
        wdspec.log_run(other, "new.json")
    record = json.loads((folder / "new.json").read_text())
    record["versions"]["torch"] = "9.9"
    (folder / "new.json").write_text(json.dumps(record))
    report = compared(folder, "old.json", "new.json", "--exit-code", code=1)
    assert {"key": "seed", "old": "3", "new": "4"} in report["spec"]
    assert {"key": "dataset.b.weight", "old": "1.0", "new": "2.0"} in report["spec"]
    assert {"key": "workers", "old": "1", "new": "2"} in report["topology"]
    assert report["versions"] == [{"key": "torch", "old": torch.__version__, "new": "9.9"}]
    assert report["environment"] == [{"key": "variables.WDS_SECURE", "old": None, "new": "1"}]
    assert {"key": "batches", "old": "1", "new": "3"} in report["read"]
    assert "seed: was 3, now 4" in report["order"]["changes"]
    assert not report["samples"]["same"]
    [line] = report["lock"]
    assert line.startswith("b: 4 → 5 shards, ")
    assert line.endswith("1 shards added, 4 shards rewritten")
    text = within("diff", "old.json", "new.json", folder=folder)[0]
    for word in ("spec", "shards, by the locks", "the order changes by", "versions", "what was read"):
        assert f"\n{word}" in text
    assert "| seed" in within("diff", "old.json", "new.json", "--format", "markdown", folder=folder)[0]


def test_a_record_can_be_compared_only_with_a_record(folder, loader):
    wdspec.log_run(loader, "old.json")
    error = within("diff", "old.json", "train.yaml", folder=folder, code=1)[1]
    assert "train.yaml is not a record of a run" in error
    assert (
        "--chart work only with specs"
        in within("diff", "old.json", "old.json", "--chart", "a.svg", folder=folder, code=2)[1]
    )
    record = json.loads((folder / "old.json").read_text())
    (folder / "later.json").write_text(json.dumps({**record, "version": 2}))
    assert "version 2" in within("diff", "old.json", "later.json", folder=folder, code=1)[1]
    del record["read"]
    (folder / "damaged.json").write_text(json.dumps(record))
    assert "`read` is missing" in within("diff", "old.json", "damaged.json", folder=folder, code=1)[1]


def write_records(folder, ranks, steps=6, together=False):
    """Reads some steps on each rank, and writes a record of each, or one of all."""
    loaders = [
        wdspec.loader("train.yaml", num_workers=0, rank=rank, world_size=ranks) for rank in range(ranks)
    ]
    received = Counter()
    for loader in loaders:
        for batch in islice(loader, steps):
            received.update(batch["__source__"])
    states = [loader.state_dict() for loader in loaders]
    if together:
        wdspec.log_run(loaders[0], "run-0.json", state=wdspec.merge_states(states))
    else:
        for rank, loader in enumerate(loaders):
            wdspec.log_run(loader, f"run-{rank}.json")
    return received


@pytest.mark.parametrize("together", [False, True])
def test_the_records_of_all_ranks_add_up_to_what_they_received(folder, together):
    received = write_records(folder, 2, together=together)
    files = sorted(path.name for path in folder.glob("run-*.json"))
    out, _ = within("report", *files, "--format", "json", folder=folder)
    found = json.loads(out)
    assert found["starts"]
    assert {name: each["samples"] for name, each in found["sources"].items()} == received
    assert (found["ranks"], found["of"], found["batches"]) == ([0, 1], 2, 6)
    text, _ = within("report", *files, folder=folder)
    assert re.search(rf"a +{received['a']} +75.00%", text)
    assert re.search(rf"total +{received.total()} +100.00%", text)
    assert "warning" not in text


def test_a_report_says_which_ranks_are_missing(folder):
    write_records(folder, 2)
    assert "no record is of ranks 1 of 2" in within("report", "run-0.json", folder=folder)[0]


def test_a_record_that_is_named_twice_counts_once(folder):
    write_records(folder, 2)
    (folder / "copy.json").write_bytes((folder / "run-0.json").read_bytes())
    once, _ = within("report", "run-0.json", "run-1.json", "--format", "json", folder=folder)
    twice, _ = within("report", "run-0.json", "run-1.json", "copy.json", "--format", "json", folder=folder)
    assert once == twice


def test_a_report_refuses_what_would_count_twice_or_is_of_another_run(folder):
    write_records(folder, 2)
    record = json.loads((folder / "run-0.json").read_text())
    del record["read"]["start"]  # as earlier versions wrote it
    for name in ("run-0.json", "copy.json"):
        (folder / name).write_text(json.dumps(record))
    _, said = within("report", "run-0.json", "copy.json", folder=folder, code=1)
    assert "has rank 0 too" in said
    with wdspec.loader("train.yaml", num_workers=0, vars={"seed": 9}) as loader:
        wdspec.log_run(loader, "other.json")
    _, said = within("report", "run-0.json", "other.json", folder=folder, code=1)
    assert "of another run than run-0.json" in said
    _, said = within("report", "train.yaml", folder=folder, code=1)
    assert "no record of a run" in said


def test_a_record_that_is_taken_for_a_state_names_the_command_for_records(folder):
    write_records(folder, 1)
    _, said = within("state", "run-0.json", folder=folder, code=1)
    assert "wdspec report run-0.json" in said
