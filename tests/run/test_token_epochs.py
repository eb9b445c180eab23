"""`epoch: {tokens: n}`: an epoch of an endless mix has about so many tokens of the whole job."""

import json
import random

import pytest
from click.testing import CliRunner
from shardmaking import write_shard

import wdspec
from wdspec.cli.explain import explain
from wdspec.cli.simulate import simulate
from wdspec.cli.stats import stats


def write_documents(folder, name, mean, shards=4, samples=60):
    """Shards of documents whose lengths are log-normal; returns their mean length."""
    rng, lengths = random.Random(name), []
    for shard in range(shards):
        entries = []
        for number in range(samples):
            length = min(400, max(4, round(rng.lognormvariate(0, 0.7) * mean)))
            lengths.append(length)
            entries.append((f"{name}{shard}x{number:03d}", {"json": json.dumps([7] * length).encode()}))
        write_shard(folder / f"{name}-{shard}.tar", entries)
    return sum(lengths) / len(lengths)


def pretraining(folder, **more):
    """Two corpora in packed rows, on 2 × 2 slots, whose costs `stats` has measured."""
    for name, mean in (("a", 40), ("b", 90)):
        write_documents(folder, name, mean)
    source = {"extensions": "json", "rename": {"ids": "json"}}
    spec = {
        "dataset": [
            {"name": name, "shards": f"{folder}/{name}-{{0..3}}.tar", "weight": weight, **source}
            for name, weight in (("a", 3), ("b", 1))
        ],
        "batch": {"pack": {"fields": "ids", "length": 512}, "window": 200},
        "epoch": {"tokens": 60_000},
        "stats": "stats.json",
        "elastic": {"ranks": 2, "workers": 2},
    } | more
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return spec


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the corpora and their measured costs."""
    folder = tmp_path_factory.mktemp("corpora")
    pretraining(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert not CliRunner().invoke(stats, ["spec.yaml", "--jobs", "0"]).exit_code
    return folder


@pytest.fixture
def spec(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return json.loads((folder / "spec.yaml").read_text())


def test_an_epoch_of_packed_rows_has_about_so_many_tokens(spec):
    with wdspec.loader("spec.yaml", num_workers=0) as loader:
        for number in range(3):
            assert loader.epoch == number
            batches = list(loader)
            assert len(batches) == len(loader)
            assert sum(int(batch["__tokens__"]) for batch in batches) == pytest.approx(60_000, rel=0.05)


def test_the_order_is_that_of_an_epoch_of_as_many_batches(spec):
    with wdspec.loader("spec.yaml", num_workers=0) as loader:
        steps = len(loader) // 2
        expected = [batch["__key__"] for _ in range(2) for batch in loader]
        state = loader.state_dict()
    with wdspec.loader(spec | {"epoch": {"batches": steps}}, num_workers=0) as loader:
        assert [batch["__key__"] for _ in range(2) for batch in loader] == expected
        loader.load_state_dict(state)  # the length of an epoch is no change of the order
        assert loader.epoch == 2


def test_an_epoch_of_documents_of_a_length_has_exactly_so_many_tokens(tmp_path):
    import numpy as np

    np.arange(16 * 200, dtype=np.uint16).tofile(tmp_path / "a.bin")
    source = {"shards": f"{tmp_path}/a.bin", "tokens": {"length": 16, "dtype": "uint16"}}
    spec = {"dataset": [source], "batch": 5, "epoch": {"tokens": 1600}}
    with wdspec.loader(spec, num_workers=0) as loader:
        assert [batch["tokens"].numel() for batch in loader] == [5 * 16] * 20
    with wdspec.loader(spec | {"elastic": {"ranks": 4}}, num_workers=0) as loader:
        assert len(loader) == 5


@pytest.mark.parametrize(("tokens", "steps"), [(1, 1), (149, 1), (150, 2), (249, 2), (250, 3), (10_000, 100)])
def test_the_number_of_batches_is_rounded_and_at_least_one(tmp_path, tokens, steps):
    write_documents(tmp_path, "a", 40, 1)
    source = {"shards": f"{tmp_path}/a-0.tar", "mean_cost": 12.5, "extensions": "json"}
    spec = {
        "dataset": [source],
        "batch": {"size": 8, "collate": {"json": "list"}},
        "epoch": {"tokens": tokens},
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        assert len(loader) == steps


def test_explain_and_simulate_show_the_tokens_of_a_step_and_of_an_epoch(spec):
    with wdspec.loader("spec.yaml", num_workers=0) as loader:
        steps = len(loader) // 2
        tokens = sum(int(batch["__tokens__"]) for batch in loader)
    found = json.loads(CliRunner().invoke(explain, ["spec.yaml", "--format", "json"]).output)
    assert found["tokens"]["per_step"] == pytest.approx(tokens / steps, rel=0.05)
    assert found["tokens"]["per_epoch"] == pytest.approx(60_000, rel=0.05)
    shown = CliRunner().invoke(explain, ["spec.yaml"]).output
    assert f"about {found['tokens']['per_step']:,} a step across all ranks, " in shown
    assert CliRunner().invoke(simulate, ["spec.yaml", "--epochs", "1"]).exit_code == 0


def test_explain_shows_no_tokens_where_nothing_says_that_they_are_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path, "a", 40, 1)
    batch = {"cost": "json.length", "max_cost": 500, "collate": {"json": "list"}}
    source = {"shards": "a-0.tar", "extensions": "json"}
    for each, has_tokens in ((batch, False), ({**batch, "max_cost": None, "max_tokens": 500}, True)):
        (tmp_path / "spec.yaml").write_text(json.dumps({"dataset": [source], "batch": each}))
        found = json.loads(CliRunner().invoke(explain, ["spec.yaml", "--format", "json"]).output)
        assert (found["tokens"] is not None) == has_tokens
        assert not has_tokens or found["tokens"]["per_epoch"] is None


def problems_of(batch, **source):
    """The codes and hints of an epoch in tokens."""
    spec = {"dataset": [{"shards": "a.tar", **source}], "batch": batch, "epoch": {"tokens": 1000}}
    return [(problem.code, problem.hint) for problem in wdspec.validate(spec) if problem.is_error]


def test_an_epoch_of_an_unknown_number_of_tokens_is_an_error():
    [(code, hint)] = problems_of(8)
    assert code == "E362"
    assert hint.startswith("add `mean_cost: …`")
    [(code, hint)] = problems_of({"pack": {"fields": "ids", "length": 64}}, extensions="ids")
    assert code == "E362"
    assert "run `wdspec stats SPEC`" in hint
    assert not problems_of(8, mean_cost=12.5)


def test_characters_are_no_tokens():
    batch = {"cost": "txt.length", "max_cost": 500, "collate": {"txt": "list"}}
    assert [code for code, _ in problems_of(batch, extensions="txt", mean_cost=9)] == ["E386"]


def test_stats_that_lack_the_costs_are_an_error_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pretraining(tmp_path)
    with (
        pytest.warns(UserWarning, match="`stats` of the spec cannot be used"),
        pytest.raises(wdspec.UsageError, match=r"needs the mean number of tokens .* run `wdspec stats SPEC`"),
    ):
        wdspec.loader("spec.yaml", num_workers=0)


@pytest.mark.parametrize("other", [{"samples": 16}, {"batches": 9}, {"pass": "drop"}])
def test_an_epoch_has_one_length(other):
    spec = {"dataset": [{"shards": "a.tar", "mean_cost": 9}], "batch": 8, "epoch": {"tokens": 1000, **other}}
    assert [problem.code for problem in wdspec.validate(spec)] == ["E207"]
