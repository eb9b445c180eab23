"""`wdspec process` writes one whole shard for each shard read, whatever fails meanwhile, and does none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from offlinejobs import write_job

from wdspec import ShardError, UsageError, WdspecError, load
from wdspec.cli.process import process
from wdspec.formats.tar.reader import TarSamples
from wdspec.jobs.engine import LocalEngine, ThreadEngine
from wdspec.jobs.process import ProcessJob

RUN = [sys.executable, "-c", "from wdspec.cli.main import main; main()", "process"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("functions", None)  # of other tests
    yield tmp_path
    sys.modules.pop("functions", None)


def run(*arguments, code=0):
    result = CliRunner().invoke(process, [*arguments, "--format", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def samples(path):
    with open(path, "rb", buffering=0) as file:
        return list(TarSamples(file))


def names(folder):
    """The shards in a folder, next to which `.wdspec` has their records."""
    return sorted(name for name in os.listdir(folder) if name != ".wdspec")


def test_every_shard_becomes_one_with_its_samples_mapped(folder):
    report = run(write_job(folder, map="functions:double"), "--jobs", "2")
    assert names("out") == [f"a-00{n}.tar" for n in range(4)]
    assert [sample["cls"] for sample in samples("out/a-001.tar")] == [b"%d" % (2 * n) for n in range(10, 20)]
    assert sum(done["written"] for done in report["done"]) == 40


def test_the_result_does_not_depend_on_the_number_of_processes(folder):
    file = write_job(folder, map="functions:double")
    for jobs in "0", "1", "3":
        run(file, "--jobs", jobs, "--output", f"out-{jobs}")
    for name in names("out-0"):
        first = (folder / "out-0" / name).read_bytes()
        assert (folder / "out-1" / name).read_bytes() == (folder / "out-3" / name).read_bytes() == first
    draws = {sample["draw.txt"] for name in names("out-0") for sample in samples(f"out-0/{name}")}
    assert len(draws) == 40


def states():
    """Those of the global random generators."""
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def test_functions_in_threads_of_one_process_draw_the_same_numbers(folder):
    """As in a Dask worker with several threads. Meanwhile, each of them lets the others run."""
    code = """
        import random, time
        import numpy as np
        import torch

        def numbers():
            drawn = []
            for source in (random.random, np.random.random, lambda: torch.rand(1).item()) * 20:
                drawn.append(source())
                time.sleep(0)
            return str(drawn)

        def draw(sample):
            return {**sample, "drawn.txt": numbers()}

        def draw_all(samples):
            return [{**sample, "batch.txt": numbers()} for sample in samples]
    """
    (folder / "drawing.py").write_text(textwrap.dedent(code))
    file = write_job(folder, map="drawing:draw", map_batches="{call: 'drawing:draw_all', batch: 4}")
    before = states()
    for output, engine in (("one", LocalEngine(0)), ("four", ThreadEngine(4))):
        job = ProcessJob.of(load(file, overrides={"output": output}))
        job.run(engine)
        assert len(job.done) == 4
    for name in names("one"):
        assert (folder / "four" / name).read_bytes() == (folder / "one" / name).read_bytes()
    assert len({sample["drawn.txt"] for name in names("four") for sample in samples(f"four/{name}")}) == 40
    assert states() == before


@pytest.mark.parametrize("jobs", ["0", "1"])
def test_a_class_that_map_names_is_built_once_in_a_process_and_job(folder, jobs):
    file = write_job(folder, map="functions:Counted")
    for out in ("first", "second"):
        run(file, "--jobs", jobs, "--output", out)
    made = [
        {sample["made.txt"] for n in range(4) for sample in samples(f"{out}/a-00{n}.tar")}
        for out in ("first", "second")
    ]
    assert made == ([{b"1"}, {b"2"}] if jobs == "0" else [{b"1"}, {b"1"}])


def test_filters_drop_samples_and_empty_shards_are_written(folder):
    file = write_job(folder, map="functions:double")
    report = run(file, "--set", "defaults.select=functions:odd", "--jobs", "0")
    assert {(done["written"], done["dropped"]) for done in report["done"]} == {(5, 5)}
    report = run(
        file,
        "--set",
        "defaults.extensions=jpg",
        "--set",
        "defaults.missing=skip",
        "--output",
        "none",
        "--jobs",
        "0",
        code=1,
    )
    assert {done["written"] for done in report["done"]} == {0}
    with pytest.raises(ShardError, match="`empty: allow`"):
        samples("none/a-000.tar")


def test_existing_outputs_are_kept_without_force(folder):
    file = write_job(folder)
    run(file, "--jobs", "0")
    os.remove("out/a-002.tar")
    (folder / "out" / "a-001.tar").write_bytes(b"mine")
    report = run(file, "--jobs", "0")
    assert [done["url"] for done in report["done"]] == ["in/a-002.tar"]
    assert len(report["there"]) == 3
    assert (folder / "out" / "a-001.tar").read_bytes() == b"mine"
    assert len(run(file, "--jobs", "0", "--force")["done"]) == 4
    assert len(samples("out/a-001.tar")) == 10


def test_outputs_go_where_rewrite_rules_send_them(folder, monkeypatch):
    monkeypatch.setenv("WDS_REWRITE", f"gs://bucket/={folder}/out/;gs://here/={folder}/in/")
    file = write_job(folder, output="gs://bucket/")
    assert len(run(file, "--jobs", "0")["done"]) == 4
    assert names("out") == [f"a-00{n}.tar" for n in range(4)]
    assert len(run(file, "--jobs", "0")["there"]) == 4
    with pytest.raises(UsageError, match="would be read and written"):
        ProcessJob.of(
            load(file).model_copy(update={"output": load(write_job(folder, output="gs://here/")).output})
        )


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        ("thirteen", r"ValueError: thirteen brings bad luck .*source a, url in/a-001.tar, key "),
        ("deadly", "was killed"),
        ("unwritable", "cls"),
    ],
)
def test_a_failing_shard_is_reported_and_leaves_nothing(folder, function, cause):
    file = write_job(folder, map=f"functions:{function}")
    failed = run(file, "--jobs", "2", "--retries", "0", code=1)["failed"]
    assert "in/a-001.tar" in [each["url"] for each in failed]
    import re

    assert re.search(cause, next(each["cause"] for each in failed if each["url"] == "in/a-001.tar"))
    left = [name for name in os.listdir("out") if not name.startswith(".")]
    assert sorted(left) == sorted(
        {f"a-00{n}.tar" for n in range(4)} - {os.path.basename(e["output"]) for e in failed}
    )


def test_a_shard_that_fails_once_is_retried(folder):
    file = write_job(folder, map="functions:first_time")
    assert len(run(file, "--jobs", "1")["done"]) == 4


def test_under_a_policy_bad_samples_are_skipped_and_counted(folder):
    errors = {"skip": ["shard", "decode", "map"]}
    report = run(write_job(folder, map="functions:thirteen", errors=errors), "--jobs", "0")
    assert sum(done["skipped"] for done in report["done"]) == 1
    assert len(samples("out/a-001.tar")) == 9


@pytest.mark.parametrize("suffix", ["jsonl", "tar"])
def test_samples_that_the_format_cannot_hold_are_no_skips(suffix, folder):
    """Otherwise, only the samples without pictures would be left."""
    (folder / "pictures").mkdir()
    (folder / "pictures" / "0.jpg").write_bytes(b"\xff\xd8\xff")
    rows = [{"uid": f"{n}", "names": ["0.jpg"] * (n % 3)} for n in range(1, 10)]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    fetch = {"url": "names", "root": f"{folder}/pictures/"}
    source = {"shards": "rows.jsonl", "fetch": {"pictures": fetch}, "decode": {"pictures": "raw"}}
    job = {"dataset": [source], "errors": {"skip": ["decode"]}, "fields": "pictures"}

    def write(suffix):
        job["output"] = {"from": r"(.*)\.jsonl", "to": rf"out/\1.{suffix}"}
        (folder / "job.yaml").write_text(json.dumps(job))
        return run("job.yaml", "--jobs", "0", code=suffix != "parquet")

    [failed] = write(suffix)["failed"]
    assert "parquet" in failed["cause"]
    assert not os.path.exists(f"out/rows.{suffix}")
    assert [done["written"] for done in write("parquet")["done"]] == [9]


def test_a_killed_job_leaves_complete_shards_and_resumes(folder):
    file = write_job(folder, map="functions:slow")
    with subprocess.Popen([*RUN, file, "--jobs", "1"], start_new_session=True) as running:
        deadline = time.monotonic() + 200
        while not os.path.isdir("out") or not [name for name in os.listdir("out") if name[0] != "."]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGKILL)
    whole = [name for name in os.listdir("out") if name[0] != "."]
    assert 1 <= len(whole) < 4
    for name in whole:
        assert len(samples(f"out/{name}")) == 10
    report = run(file, "--jobs", "0")
    assert len(report["there"]) == len(whole)
    assert names("out") == [f"a-00{n}.tar" for n in range(4)]


def test_limit_applies_to_each_shard(folder):
    run(write_job(folder, limit=3), "--jobs", "0")
    assert [len(samples(f"out/{name}")) for name in names("out")] == [3, 3, 3, 3]


def test_output_can_be_a_rule(folder):
    write_job(folder, output=r"{from: 'in/a-(\d+)', to: 'b/part-\1'}")
    run("job.yaml", "--jobs", "0")
    assert names("b") == [f"part-00{n}.tar" for n in range(4)]


def test_outputs_can_be_in_a_store(folder):
    import fsspec

    run(write_job(folder, output="memory://bucket/out"), "--jobs", "0")
    system = fsspec.filesystem("memory")
    listed = [name for name in system.ls("/bucket/out", detail=False) if name != "/bucket/out/.wdspec"]
    assert sorted(listed) == [f"/bucket/out/a-00{n}.tar" for n in range(4)]
    assert len(run("job.yaml", "--jobs", "0")["there"]) == 4


def job(folder, dataset, output):
    return ProcessJob.of(load({"dataset": dataset, "output": output}))


@pytest.mark.parametrize(
    ("dataset", "output", "message"),
    [
        (
            [{"shards": ["in/a.tar", "also/a.tar"]}],
            "out/",
            "two shards would be written to `.*out/a.tar`: `in/a.tar`",
        ),
        ([{"shards": ["in/a.tar", "in/a.tar"]}], "out/", "a shard that is listed twice would be written"),
        ([{"shards": "in/a.tar"}], "in/", "would be read and written"),
        ([{"shards": "pipe:cat in/a.tar"}], "out/", "the shard has no file name"),
        ([{"shards": "in/a.tar"}], {"from": "of/", "to": "out/"}, "does not match the start of this URL"),
    ],
)
def test_invalid_outputs_are_rejected_before_reading(folder, dataset, output, message):
    with pytest.raises(UsageError, match=message):
        job(folder, dataset, output)


def test_the_error_for_a_missing_output_says_what_to_add(folder):
    with pytest.raises(UsageError, match="add `output: out/`"):
        job(folder, [{"shards": "in/a.tar"}], None)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"from": "a"}, "an output must be a directory, or `from` and `to`"),
        ({"from": "(", "to": "b"}, "is not a regex"),
        ({"from": "a", "to": r"\2"}, "cannot replace the match"),
        (3, "an output must be a directory"),
    ],
)
def test_an_output_is_checked_with_the_spec(output, message):
    with pytest.raises(WdspecError, match=message):
        load({"dataset": [{"shards": "a.tar"}], "output": output})


def test_a_dry_run_lists_and_reads_nothing(folder):
    file = write_job(folder)
    result = CliRunner().invoke(process, [file, "--dry-run"])
    assert result.output.splitlines()[1].split() == ["a", "in/a-000.tar", str(folder / "out" / "a-000.tar")]
    assert not os.path.exists("out")


def test_a_map_that_kills_its_process_fails_only_its_shard(folder):
    write_job(folder, map="functions:augment")
    (folder / "functions.py").write_text("def augment(sample):\n    raise SystemExit(0)\n")
    done = CliRunner().invoke(process, ["job.yaml", "--jobs", "0", "--retries", "0"])
    assert done.exit_code == 1
    assert "ended its process: exit(0)" in done.output


def test_json_strings_and_undecoded_fields_stay_unchanged(folder):
    from wdspec import TarWriter

    contents = {"json": b'"12"', "jsn": b"{"}
    with TarWriter("in.tar", encoder=False) as writer:
        writer.write({"__key__": "a", **contents})
    spec = {"shards": "in.tar", "decode": {"jsn": "raw"}}
    (folder / "p.yaml").write_text(json.dumps({"dataset": [spec], "output": {"dir": "out"}}))
    run("p.yaml")
    assert {name: samples("out/in.tar")[0][name] for name in contents} == contents
