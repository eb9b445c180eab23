"""`explain` and `simulate` count the windows and the batches of batches by cost apart."""

import json
import re

import pytest
from click.testing import CliRunner
from shardmaking import write_shard

import wdspec
from wdspec.advice.explanation import explain_spec
from wdspec.cli.main import cli

WINDOWS, BATCHES_OF_A_WINDOW = 4, 5


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """Windows of 20 samples that cost 1 each, in batches of 4; shares change after the first window of four."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        samples = [(f"{n:03}", {"txt": b"x"}) for n in range(100)]
        write_shard(tmp_path / f"{name}.tar", samples)
    schedule = [{"at": 0, "shares": {"a": 1, "b": 0}}, {"at": 20, "shares": {"a": 0, "b": 1}}]
    described = {
        "dataset": [{"name": name, "shards": f"{name}.tar"} for name in "ab"],
        "mix": {"schedule": schedule},
        "batch": {"cost": "txt.length", "max_cost": 4, "window": 20, "collate": {"txt": "list"}},
        "epoch": {"batches": WINDOWS * BATCHES_OF_A_WINDOW},
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(described))
    return "spec.yaml"


def run(*arguments):
    return CliRunner().invoke(cli, [*arguments, "--ranks", "1", "--workers", "0"]).output


def test_both_say_at_which_batch_shares_change(spec):
    says = f"shares change at about batch {BATCHES_OF_A_WINDOW};"
    assert says in run("explain", spec)
    assert says in run("simulate", spec, "--probe")


def test_slots_that_begin_their_windows_later_change_later(spec, tmp_path):
    described = json.loads((tmp_path / "spec.yaml").read_text()) | {"elastic": {"ranks": 1, "workers": 4}}
    (tmp_path / "spec.yaml").write_text(json.dumps(described))
    last = 4 * BATCHES_OF_A_WINDOW
    assert f"shares change at about batch 0 to {last}, as each slot begins its next window (" in run(
        "explain", spec
    )
    assert f"shares change at about batch 0 to {last};" in run("simulate", spec, "--probe")
    with wdspec.loader(described, num_workers=0) as loader:
        read = [batch["__source__"][0] for batch in loader][:last]
    assert read == ["a", "b", "b", "b"] * BATCHES_OF_A_WINDOW


def test_the_batches_of_a_schedule_follow_from_the_mean_costs_of_sources(spec, tmp_path):
    """Samples of `b` cost twice as much, and of the first window, all are from `a`."""
    write_shard(tmp_path / "b.tar", [(f"{n:03}", {"txt": b"xx"}) for n in range(100)])
    described = json.loads((tmp_path / "spec.yaml").read_text())
    described["epoch"] = {"batches": 5 + 10 * 2 + 5}
    for source, cost in zip(described["dataset"], (1, 2), strict=True):
        source["mean_cost"] = cost
    described["mix"]["schedule"].append({"at": 60, "shares": {"a": 1, "b": 0}})
    (tmp_path / "spec.yaml").write_text(json.dumps(described))
    assert "shares change at about batch 5, 25;" in run("explain", spec)
    assert "30 batches per canonical rank = about 80 samples" in run("explain", spec)
    with wdspec.loader(described, num_workers=0) as loader:
        read = [batch["__source__"][0] for batch in loader]
    assert "".join(read) == "a" * 5 + "b" * 20 + "a" * 5


def test_without_windows_simulate_says_at_which_sample_shares_change(spec):
    assert "shares change at sample 20;" in run("simulate", spec)


def test_mean_shares_are_those_of_the_windows_of_an_epoch(spec):
    rows = json.loads(run("explain", spec, "--format", "json"))["sources"]
    shares = {row["name"]: row["share"] for row in rows}
    assert shares == {"a": 1 / WINDOWS, "b": 1 - 1 / WINDOWS}


def test_the_end_of_a_source_is_said_in_batches_and_stats_does_not_miss_the_file_that_it_writes(
    spec, tmp_path
):
    described = json.loads((tmp_path / "spec.yaml").read_text())
    described |= {"mix": {}, "stats": "stats.json"}
    described["dataset"][0] |= {"max_passes": 1, "on_exhausted": "drop"}
    (tmp_path / "spec.yaml").write_text(json.dumps(described))
    first = CliRunner().invoke(cli, ["stats", spec, "--jobs", "0"])
    assert first.exit_code == 0, first.output
    assert "cannot be used" not in first.output
    shown = run("explain", spec)
    start = re.search(r"`a` is exhausted at (about batch [1-9][0-9]*): other sources only", shown)
    assert start is not None, shown
    assert f"shares change at {start[1]}; the table" in shown
    assert f"shares change at {start[1]};" in run("simulate", spec, "--probe")


def write_lengths(folder, name, lengths):
    write_shard(folder / f"{name}.tar", [(f"{n:03}", {"txt": b"x" * each}) for n, each in enumerate(lengths)])


@pytest.mark.parametrize(
    "command", ["explain s.yaml", "simulate s.yaml --probe", "stats s.yaml", "preview s.yaml"]
)
def test_first_windows_that_make_no_batch_cause_a_warning(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    write_lengths(tmp_path, "a", range(1, 41))
    batch = {"size": 8, "group_by": "txt.length", "group_wait": 40, "incomplete": "drop"}
    described = {"dataset": [{"name": "a", "shards": "a.tar"}], "batch": batch, "epoch": {"batches": 9}}
    (tmp_path / "s.yaml").write_text(json.dumps(described))
    with pytest.warns(UserWarning, match="1 window of 40 samples made no batch; check `group_by`"):
        CliRunner().invoke(cli, command.split(), catch_exceptions=False)


def test_the_mean_of_batches_includes_windows_without_any(tmp_path):
    for shard in range(4):
        write_lengths(tmp_path, f"a-{shard}", range(1, 41) if shard else [1] * 40)
    source = {"name": "a", "shards": str(tmp_path / "a-{0..3}.tar"), "shuffle": 0, "interleave": 1}
    batch = {"size": 8, "group_by": "txt.length", "group_wait": 40, "incomplete": "drop"}
    found = explain_spec(wdspec.load({"dataset": [source], "batch": batch}), 4, 0, 1).windows
    assert found is not None
    assert (found.windows, found.batches, found.sizes) == (4, 5 / 4, (8, 8, 8))
