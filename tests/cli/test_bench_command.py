"""`wdspec bench`: rates by workers, where time is spent, and recommendations."""

import itertools
import json
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from commandline import within
from shardmaking import write_source

import wdspec
from wdspec.base.process import cores
from wdspec.cli.bench import (
    Bench,
    BenchReport,
    Measured,
    Trial,
    _time_trial,
    parts_of,
    run_in_process,
    trial_count,
    tries_other_kind,
    tries_threads,
    worker_counts,
)
from wdspec.cli.spec_options import SpecChoice


def figures(rate, own=0.5, bytes=0):
    return Measured(samples=int(rate), bytes=bytes, wall=1.0, cpu=2.0, first=0.25, own=own)


BENCH = Bench(
    cores=4,
    parts={"read": figures(10_000, own=0.9, bytes=20_000), "decode": figures(1_000), "batch": figures(1_250)},
    loaders={0: figures(900), 1: figures(1_800), 2: figures(3_500), 4: figures(3_600, own=0.36)},
)


def test_each_part_shows_the_time_it_adds():
    assert [(each.part, each.microseconds, round(each.of_all, 2)) for each in BENCH.stages] == [
        ("read", 100, 0.1),
        ("decode", 900, 0.9),
        ("batch", 0, 0),
    ]
    assert BENCH.bytes_per_sample == 2
    assert BENCH.waiting == pytest.approx(10)
    assert BENCH.hand_over == pytest.approx(100)


def test_the_smallest_number_of_workers_near_the_top_speed_is_recommended():
    assert BENCH.recommended == 2
    assert BENCH.reading_limit == 20_000


def test_workers_are_tried_up_to_the_number_of_cores(monkeypatch):
    monkeypatch.setattr("wdspec.cli.bench.cores", lambda: 6)
    assert worker_counts((), 3) == [0, 1, 2, 3, 4, 6]
    assert worker_counts((5, 2, 5), 3) == [2, 5]


@pytest.fixture
def folder(tmp_path):
    shards = write_source(tmp_path, "a", 2, 10)
    (tmp_path / "spec.yaml").write_text(
        f"dataset:\n  - mix: {{by: equal}}\n    name: both\n    dataset:\n      - {{name: a, shards: '{shards}'}}\n"
        "batch: 4\nepoch: 8\n"
    )
    return tmp_path


def test_only_parts_that_the_spec_has_are_measured(folder):
    spec = wdspec.load(folder / "spec.yaml")
    assert parts_of(spec) == ["read", "decode", "batch"]
    assert not tries_threads(spec, [0])
    with_map = wdspec.load(folder / "spec.yaml", overrides={"map": "a:f", "batch": None})
    assert parts_of(with_map) == ["read", "decode", "map"]
    assert tries_threads(with_map, [0, 1]) == (cores() > 1)
    assert trial_count(with_map, [1, 2], webdataset=True) == 6


@pytest.fixture
def clock(monkeypatch):
    """Makes each look at the clock of a trial take a thousandth of a second."""
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) / 1000, process_time=time.process_time)
    monkeypatch.setattr("wdspec.cli.bench.time", clock)
    return clock


@pytest.mark.parametrize("part", ["read", "decode", "map", "batch", "loader", "webdataset"])
def test_every_part_is_measured_across_epochs(folder, part, clock):
    choice = SpecChoice(str(folder / "spec.yaml"))
    begin = clock.perf_counter()
    found = _time_trial(Trial(choice, part, seconds=0.05), choice.load())
    assert found.samples >= 12
    assert 0.05 <= found.wall <= clock.perf_counter() - begin
    assert (found.bytes > 0) == (part in ("read", "webdataset"))


@pytest.mark.usefixtures("clock")
def test_a_pass_is_repeated_during_a_measurement(folder):
    (folder / "pass.yaml").write_text(f"dataset: [{{shards: '{folder}/a-{{000..001}}.tar'}}]\nepoch: pass\n")
    choice = SpecChoice(str(folder / "pass.yaml"))
    assert _time_trial(Trial(choice, "read", seconds=0.05), choice.load()).samples > 20


def test_each_trial_has_its_own_process(folder):
    choice = SpecChoice(str(folder / "spec.yaml"))
    assert run_in_process(Trial(choice, "read", seconds=0.01)).samples >= 2


@pytest.fixture
def here(monkeypatch):
    """Trials in this process, which spares starting one for each."""
    monkeypatch.setattr(
        "wdspec.cli.bench.run_in_process", lambda trial: _time_trial(trial, trial.choice.load())
    )


@pytest.mark.usefixtures("here")
def test_the_command_prints_rates_and_recommendations(folder):
    out, _ = within(
        "bench", "spec.yaml", "--seconds", "0.1", "--workers", "0", "--format", "json", folder=folder
    )
    report = json.loads(out)
    assert [each["workers"] for each in report["workers"]] == [0]
    assert [each["part"] for each in report["parts"]] == ["read", "decode", "batch"]
    assert report["recommended_workers"] == 0
    assert report["workers"][0]["rate"] > 0
    assert report["hand_over_us"] is None
    out, _ = within(
        "bench", "spec.yaml", "--seconds", "0.1", "--workers", "0", "--compare", "webdataset", folder=folder
    )
    assert "What the training loop gets" in out
    assert "recommended: loader: {workers: 0}, " in out
    assert "the same files, as bytes and shuffled, in one process: wdspec " in out


def test_the_faster_kind_of_workers_is_recommended(folder):
    for rate, recommended in ((3_600, "{workers: 2}"), (4_000, "{kind: threads, workers: 4}")):
        bench = replace(BENCH, other_kind=("threads", 4, figures(rate)))
        lines = [line for line in BenchReport(bench, 1).blocks() if isinstance(line, str)]
        assert lines[0] == f"with 4 threads as workers: {rate:,} samples/s"
        assert any(line.startswith(f"recommended: loader: {recommended}, ") for line in lines)
    spec = wdspec.load(folder / "spec.yaml")
    assert tries_other_kind(spec, [0, 1])
    assert not tries_other_kind(spec, [0])
    assert not tries_other_kind(wdspec.load(folder / "spec.yaml", overrides={"map": "a:f"}), [1])


@pytest.mark.parametrize(
    ("loaders", "says"),
    [
        (
            {2: figures(3_500, own=0.1), 4: figures(3_600, own=0.1)},
            "would not help: fewer workers than cores reach",
        ),
        (
            {2: figures(2_000), 4: figures(3_600, own=0.9)},
            "would hardly help: the loop cannot receive many more",
        ),
        (
            {2: figures(2_000), 4: figures(4_000, own=0.1)},
            "would help if .*: the loop can receive up to 40,000 samp",
        ),
    ],
)
def test_it_says_whether_workers_on_other_machines_would_help(loaders, says):
    lines = [
        line for line in BenchReport(replace(BENCH, loaders=loaders), 1).blocks() if isinstance(line, str)
    ]
    assert [line for line in lines if re.search(rf"`loader: {{kind: ray}}`\) {says}", line)]


def test_actors_are_compared_with_processes(folder):
    spec = wdspec.load(folder / "spec.yaml", overrides={"map": "a:f", "loader": {"kind": "ray"}})
    assert tries_other_kind(spec, [0, 1])


@pytest.mark.usefixtures("here")
def test_threads_are_tried_next_to_processes(folder):
    arguments = ("--seconds", "0.1", "--workers", "1", "--format", "json")
    out, _ = within("bench", "spec.yaml", *arguments, folder=folder)
    other = json.loads(out)["other_kind"]
    assert (other["kind"], other["workers"]) == ("threads", 1)
    assert other["rate"] > 0
    out, _ = within("bench", "spec.yaml", *arguments, "--set", "loader.kind=threads", folder=folder)
    assert json.loads(out)["other_kind"]["kind"] == "processes"


@pytest.mark.usefixtures("here")
def test_a_function_that_fails_is_named(folder):
    (folder / "broken.py").write_text("def f(sample):\n    raise ValueError('no')\n")
    arguments = ("bench", "spec.yaml", "--workers", "0", "--set", "map=broken:f")
    _, said = within(*arguments, folder=folder, code=1)
    assert "a function that the spec names failed: ValueError: no" in said
    _, said = within(*arguments, folder=folder, code=1, WDS_SECURE="1")
    assert "WDS_SECURE" in said


def test_a_trial_whose_process_is_killed_says_so(folder):
    (folder / "deadly.py").write_text("import os\n\ndef f(sample):\n    os.kill(os.getpid(), 9)\n")
    _, said = within(
        "bench",
        "spec.yaml",
        "--seconds",
        "0.1",
        "--workers",
        "0",
        "--set",
        "map=deadly:f",
        folder=folder,
        code=1,
    )
    assert "was killed, perhaps because memory ran out" in said


def test_profiles_have_two_forms(folder):
    _, said = within("bench", "spec.yaml", "--profile", "p.txt", folder=folder, code=1)
    assert "--profile writes FILE.html or FILE.json, not p.txt" in said
