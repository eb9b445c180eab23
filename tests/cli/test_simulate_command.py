"""`wdspec simulate`: what a run draws, without reading it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from commandline import on_terminal, within
from shardmaking import reference, write_source

from wdspec import load
from wdspec.cli import simulate_facts as outcome
from wdspec.cli.simulate import simulate

NESTED = """\
name: pages
seed: 5
dataset:
  - name: scans
    probability: 0.75
    dataset:
      - {name: a, shards: "a-{000..003}.tar", weight: 2, samples: 40}
      - {name: b, shards: "b-{000..001}.tar", weight: 1, shuffle: 40, order: sequential, samples: 30}
  - {name: drawn, shards: "gs://bucket/c-{0..9}.tar", probability: 0.25, samples: 4000}
  - {name: idle, shards: "nowhere.tar", probability: 0}
batch: 8
epoch: 1000
"""

REPORT = """\
pages
topology  2 ranks x 2 workers = 4 slots (elastic)
run       2 ranks x 2 workers, 1 slot per worker
draw      even, seed 5
drawn     124 batches x 16 = 1,984 samples (2 epochs)
memory    268 samples held for shuffling in a worker, and 1.0 MB in the buffers of its open shards
open      4 shards at a time in a worker

samples in a global batch
source   share  expected  min  mean  max
scans   75.00%        12   12    12   12
  a     50.00%         8    8     8    8
  b     25.00%         4    4     4    4
drawn   25.00%         4    4     4    4

samples across all ranks
source  expected  drawn   off  max off
scans      1,488  1,488  +0.0      0.0
  a          992    992  +0.0      0.0
  b          496    496  +0.0      0.0
drawn        496    496  +0.0      0.0

samples in an epoch
source  expected  min  mean  max
scans        744  744   744  744
  a          496  496   496  496
  b          248  248   248  248
drawn        248  248   248  248

samples of each of the 4 slots
source  expected  min  max  shards  in pass
scans        372  372  372
  a          248  248  248      25       25
  b          124  124  124      17       17
drawn        124  124  124       2        1

coverage of each source
source  samples  passes  epoch 1    seen  repeats   shards
scans        70    21.3   100.0%  100.0%    1,418   6 of 6
  a          40    24.8   100.0%  100.0%      952   4 of 4
  b          30    16.5   100.0%  100.0%      466   2 of 2
drawn     4,000   0.124     6.2%   12.4%        0  8 of 10

legal runs: samples per rank and step, and slots per worker by number of workers; up to 16 ranks
ranks  samples  0, 1  2
    1       16     4  2
    2        8     2  1
    4        4     2  1

warning: W511 epoch: 1000 is not a multiple of the batch of 16; an epoch is 992 samples, and the next epoch continues from there
warning: W512 fewer shards than the 4 slots, so each shard is read in parts (b in 2), and reading a part walks through the whole shard; more and smaller shards read faster
"""  # noqa: E501


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("WDS_REWRITE", "GOPEN_REWRITE", "WDS_SECURE", "WDSPEC_ENV", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nested.yaml").write_text(NESTED)
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == code, result.output
    return result.output


def simulation_result(*arguments):
    return json.loads(run(*arguments, "--format", "json"))


def sources(report):
    return {source["name"]: source for source in report["sources"]}


def test_a_report_looks_like_this():
    # The whole of it, so that a change of its looks is seen. None of the shards exists.
    assert run("nested.yaml", "--set", "elastic={ranks: 2, workers: 2}", "--epochs", "2") == REPORT


def test_the_guide_shows_the_real_output(folder):
    text = (Path(__file__).parents[2] / "docs" / "order.md").read_text(encoding="utf-8")
    (folder / "mix.yaml").write_text(re.search(r"```yaml\n# mix.yaml\n(.*?)```", text, re.DOTALL)[1])
    command, shown = re.search(
        r"`wdspec simulate (mix\.yaml.*?)`.*?```text\n(.*?)```", text, re.DOTALL
    ).groups()
    printed = run(*command.split())
    assert shown in printed


def test_simulated_draws_are_what_a_run_reads(folder):
    write_source(".", "a", shards=4, samples=10)
    write_source(".", "b", shards=2, samples=15)
    (folder / "real.yaml").write_text(
        "dataset:\n"
        '  - {name: a, shards: "a-{000..003}.tar", weight: 2, samples: 40}\n'
        '  - {name: b, shards: "b-{000..001}.tar", weight: 1, samples: 30}\n'
        "batch: 4\nepoch: {batches: 7}\nelastic: {ranks: 2, workers: 2}\n"
    )
    batches = [
        one + other
        for one, other in zip(*(reference(load("real.yaml"), 2, 2, rank, 7) for rank in (0, 1)), strict=True)
    ]
    report = simulation_result("real.yaml")
    assert report["drawn"] == {"batches": 7, "samples": 56, "padding": 0, "epochs": 1}
    for name, source in sources(report).items():
        counts = [sum(key.startswith(name) for key in batch) for batch in batches]
        keys = [key for batch in batches for key in batch if key.startswith(name)]
        assert source["total"]["drawn"] == sum(counts)
        assert (source["per_batch"]["min"], source["per_batch"]["max"]) == (min(counts), max(counts))
        assert source["coverage"]["seen"] == pytest.approx(len(set(keys)) / source["samples"], abs=0.03)
        assert source["coverage"]["repeats"] == pytest.approx(len(keys) - len(set(keys)), abs=1.5)
        assert source["coverage"]["shards_touched"] == len({key[:4] for key in keys})


def test_the_json_keys_are_stable():
    report = simulation_result("nested.yaml")
    assert " ".join(report) == (
        "name file split environment seed draw unit topology run batch epoch drawn "
        "sources held_per_worker open_per_worker legal traffic warnings"
    )
    assert " ".join(report["sources"][0]) == (
        "name path nested share shards samples estimated per_batch total by_epoch per_slot coverage"
    )
    assert report["sources"][1] == {
        "name": "a",
        "path": ["scans"],
        "nested": False,
        "share": 0.5,
        "shards": 4,
        "samples": 40,
        "estimated": False,
        "per_batch": {"expected": 4.0, "min": 4, "mean": 4.0, "max": 4},
        "total": {"expected": 500.0, "drawn": 500, "furthest_off": 0.0},
        "by_epoch": [500],
        "per_slot": {
            "expected": 500.0,
            "min": 500,
            "max": 500,
            "shards": {"min": 52, "max": 52},
            "passes_behind": {"min": 12, "max": 12},
        },
        "coverage": {
            "passes": 12.5,
            "seen": 1.0,
            "first_seen": 1.0,
            "repeats": 460.0,
            "shards_touched": 4.0,
        },
    }


def test_sources_that_are_off_are_left_out_and_nested_mixes_add_up():
    report = sources(simulation_result("nested.yaml"))
    assert set(report) == {"scans", "a", "b", "drawn"}
    assert report["scans"]["total"]["drawn"] == report["a"]["total"]["drawn"] + report["b"]["total"]["drawn"]
    assert report["scans"]["coverage"]["passes"] == pytest.approx(750 / 70)


def test_no_shard_is_opened_unless_a_probe_is_requested(folder, monkeypatch):
    write_source(".", "a", shards=4, samples=10)
    (folder / "local.yaml").write_text('dataset: [{name: a, shards: "a-{000..003}.tar"}]\nepoch: 80\n')
    report = simulation_result("local.yaml", "--probe")
    assert (report["sources"][0]["samples"], report["sources"][0]["coverage"]["passes"]) == (40, 2)
    assert report["held_per_worker"]["samples"] == 40
    assert report["held_per_worker"]["bytes"] > 40
    monkeypatch.setattr("wdspec.advice.measure.open_file", lambda location: pytest.fail(location))
    report = simulation_result("local.yaml")
    assert report["sources"][0]["coverage"] is None
    assert report["held_per_worker"] == {"samples": 1000, "bytes": None}
    shown = run("local.yaml")
    assert re.search(r"a +80 +80 +80 +\? +\?", shown)
    assert "the size of a is unknown" in shown
    assert "--probe" in shown


def test_epochs_or_batches_set_how_much_is_drawn():
    assert simulation_result("nested.yaml", "--batches", "30")["drawn"]["samples"] == 240
    report = simulation_result("nested.yaml", "--epochs", "3")
    assert report["drawn"] == {"batches": 375, "samples": 3000, "padding": 0, "epochs": 3}
    assert len(sources(report)["a"]["by_epoch"]) == 3
    assert "0.24 of an epoch" in run("nested.yaml", "--batches", "30")
    assert "1.6 epochs" in run("nested.yaml", "--batches", "200")
    endless = ("nested.yaml", "--set", "epoch=null")
    assert simulation_result(*endless)["drawn"]["batches"] == 1000
    assert "--epochs has no meaning; pass --batches" in run(*endless, "--epochs", "2", code=2)
    assert "pass only one" in run("nested.yaml", "--epochs", "2", "--batches", "2", code=2)


def test_a_very_long_epoch_is_truncated_with_a_note(monkeypatch):
    monkeypatch.setattr(outcome, "MOST", 400)
    shown = run("nested.yaml")
    assert "only the first 50 of the 125 batches of an epoch were drawn; --epochs 1 draws them all" in shown
    assert simulation_result("nested.yaml", "--epochs", "1")["drawn"]["batches"] == 125


def test_where_max_passes_changes_shares_in_unknown_windows_is_told_in_samples(folder):
    text = "dataset:\n  - {name: a, shards: 'a-{0..3}.tar', samples: 4000, weight: 1}\n"
    text += "  - {name: b, shards: b.tar, samples: 300, max_passes: 2, on_exhausted: drop, weight: 1}\n"
    text += "batch: {cost: txt.length, max_cost: 100, window: 200}\nepoch: {batches: 9}\n"
    (folder / "windows.yaml").write_text(text)
    report = run("windows.yaml", "--batches", "1")
    assert "shares change at sample 1,200;" in report  # half of them are of `b`, which has 600
    assert "1 window x 200 = 200 samples" in report


def test_random_draws_show_deviations():
    even, random = (
        simulation_result("nested.yaml"),
        simulation_result("nested.yaml", "--set", "mix.draw=random"),
    )
    spread = [
        each["per_batch"]["max"] - each["per_batch"]["min"]
        for each in (even["sources"][1], random["sources"][1])
    ]
    assert spread[0] == 0
    assert spread[1] > 3


def test_a_smaller_run_is_shown_with_all_other_legal_topologies():
    elastic = ("nested.yaml", "--set", "elastic={ranks: 4, workers: 6}")
    report = simulation_result(*elastic, "--ranks", "2", "--workers", "3")
    assert report["run"] == {"ranks": 2, "workers": 3, "slots_per_worker": 4}
    assert report["legal"] == {"ranks": [1, 2, 4, 8, 16, 32], "workers": [1, 2, 3, 6]}
    assert report["batch"] == {"batched": True, "per_slot": 8, "per_rank": 16, "global": 32}
    assert report["open_per_worker"]["shards"] == 4 * 3 + 2  # by chance a worker has more of a pass
    assert report["open_per_worker"]["different"] < 12  # a has 4 shards for 24 slots
    assert simulation_result(*elastic)["sources"] == report["sources"]
    _, said = within(*("simulate", *elastic, "--ranks", "3"), code=1)
    assert (
        "3 ranks cannot share a global batch of 32 samples evenly; run with a world size of 2 or 4 (of 1, 2, 4, "
        "8, 16, 32)" in said
    )


def test_ranks_can_share_canonical_ranks_if_the_batch_allows():
    elastic = ("nested.yaml", "--set", "elastic={ranks: 4, workers: 6}", "--set", "batch={size: 6}")
    report = simulation_result(*elastic, "--ranks", "3", "--workers", "6")
    assert report["run"] == {"ranks": 3, "workers": 6, "slots_per_worker": 2}, (
        "8 of the 24 samples lie in two"
    )
    assert report["batch"] == {"batched": True, "per_slot": 6, "per_rank": 8, "global": 24}
    assert report["legal"]["ranks"] == [1, 2, 3, 4, 6, 8, 12, 24]
    assert "8 samples per rank, 24 across all ranks" in within("explain", *elastic, "--ranks", "3", code=1)[0]
    by_rank = (*elastic, "--set", "batch.accumulate=true")
    assert simulation_result(*by_rank)["legal"]["ranks"] == [1, 2, 4]
    _, said = within(*("simulate", *by_rank, "--ranks", "3"), code=1)
    assert "3 ranks cannot share 4 canonical ranks evenly" in said


def test_interleaved_shards_count_as_open_at_once():
    report = simulation_result("nested.yaml", "--set", "defaults.interleave=12")  # 6, 3 and 3 by their shares
    assert report["open_per_worker"] == {
        "shards": 4 + 2 + 3,  # a has four shards, b has two
        "different": 4 + 2 + 3,
        "buffer_bytes": (4 + 2 + 3) * 256 * 1024,
    }
    assert sources(report)["drawn"]["per_slot"]["shards"] == {"min": 3, "max": 3}
    hints = [hint for hint in report["warnings"] if "`interleave` is larger" in hint]
    assert "a (6, of 4), b (3, of 2);" in hints[0]
    unasked = simulation_result("nested.yaml")["warnings"]
    assert not [hint for hint in unasked if "`interleave`" in hint], "the default was not requested"


def test_single_source_batches_and_schedules_are_simulated_exactly():
    report = sources(simulation_result("nested.yaml", "--set", "mix.unit=batch"))
    assert [report[name]["per_batch"][end] for name in ("a", "drawn") for end in ("min", "max")] == [
        0,
        8,
        0,
        8,
    ]
    two = "dataset=[{name: a, shards: a.tar}, {name: b, shards: b.tar}]"
    steps = "mix.schedule=[{at: 0, shares: {a: 1, b: 0}}, {at: 800, shares: {a: 0.5, b: 0.5}}]"
    report = sources(simulation_result("nested.yaml", "--set", two, "--set", steps))
    assert report["a"]["share"] == 0.9
    late = ("--set", steps.replace("a: 1, b: 0", "a: 0, b: 1").replace("800", "1000"))
    first, both = (run("nested.yaml", "--set", two, *late, "--epochs", n) for n in ("1", "2"))
    assert "shares change at batch 125" in first
    assert re.search(r"a +0.00% +0 +0 +0 +0", first)
    assert re.search(r"a +25.00%", both)
    assert [report[name]["total"]["drawn"] for name in ("a", "b")] == [900, 100]


def test_many_worker_counts_do_not_widen_the_table():
    shown = run("nested.yaml", "--set", "elastic={ranks: 2, workers: 360}")
    assert max(map(len, shown.split("legal runs")[1].splitlines()[1:4])) < 60
    assert "120, 180, 360)" in shown


def test_slots_without_draws_from_a_source_are_named():
    rare = "dataset=[{name: a, shards: a.tar, weight: 999}, {name: rare, shards: b.tar, weight: 1}]"
    assert "some slots draw no sample of rare" in run("nested.yaml", "--set", rare, "--workers", "4")


def test_a_pass_reports_what_it_leaves_out(folder):
    write_source(".", "a", shards=4, samples=10)
    write_source(".", "b", shards=2, samples=15)
    one_pass = ("--set", "epoch=pass", "--set", "batch=16", "--set", PASS)
    report = simulation_result("nested.yaml", *one_pass)
    assert report["drawn"] == {"batches": 5, "samples": 80, "padding": 10, "epochs": 1}
    assert [each["coverage"]["seen"] for each in report["sources"]] == [1, 1]
    shown = run("nested.yaml", *one_pass, "--workers", "3")
    assert "10 of them padding" in shown
    assert "6 to 32 samples each" in shown


PASS = 'dataset=[{name: a, shards: "a-{000..003}.tar"}, {name: b, shards: "b-{000..001}.tar"}]'


def test_a_million_draws_take_about_a_second(folder):
    many = "".join(
        f"  - {{name: s{n}, shards: 'gs://b/s{n}-{{000..999}}.tar', weight: {n + 1}}}\n" for n in range(50)
    )
    (folder / "many.yaml").write_text("dataset:\n" + many + "batch: {global_size: 512}\nepoch: 1_000_000\n")
    report = simulation_result("many.yaml", "--ranks", "16", "--workers", "8")
    assert report["drawn"]["samples"] == 999_936
    assert max(abs(each["total"]["drawn"] - each["total"]["expected"]) for each in report["sources"]) < 128


def test_a_long_simulation_shows_progress_only_on_a_terminal(folder, monkeypatch):
    long = ("nested.yaml", "--batches", "600000")
    shown = on_terminal("simulate", *long, folder=folder)
    assert "drawing" in shown
    assert within("simulate", *long, folder=folder)[1] == ""
    assert outcome.BAR_FROM > 1000 * 1000


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_width_of_the_terminal(folder, width):
    shown = on_terminal("simulate", "nested.yaml", "--epochs", "2", folder=folder, width=width)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "───" in plain
    assert max(map(len, plain.splitlines())) <= width
    assert "…" not in plain
