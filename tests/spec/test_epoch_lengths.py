"""How long an epoch is, and what people write who think of other words for it."""

import json
import re

import pytest
import yaml
from click.testing import CliRunner
from shardmaking import write_source

import wdspec
from wdspec.cli.stats import stats
from wdspec.spec.load import load


def problems(epoch, **more):
    """(code, hint) of the problems of a spec with one source."""
    found = wdspec.validate({"dataset": [{"name": "a", "shards": "a.tar"}], "epoch": epoch, **more})
    return [(problem.code, problem.hint) for problem in found]


@pytest.mark.parametrize("word", ["epochs", "full", "all", "once", "Full Pass"])
def test_words_for_all_samples_get_both_kinds_of_passes(word):
    [(code, hint)] = problems(word)
    assert code == "E203"
    assert "`epoch: {pass: drop, reshuffle: true}` for training" in hint
    assert "`epoch: pass` for evaluation" in hint


@pytest.mark.parametrize("key", ["passes", "epochs"])
def test_a_number_of_passes_is_for_the_training_loop(key):
    code, hint = problems({key: 1})[0]
    assert code == "E201"
    assert "the training loop decides how many epochs" in hint
    assert "reshuffle: true" in hint


@pytest.mark.parametrize(
    ("value", "written"), [(False, "{pass: pad, reshuffle"), (True, "{pass: drop, reshuffle")]
)
def test_drop_last_is_the_remainder_of_a_pass(value, written):
    [(code, hint)] = problems(100, batch={"size": 4, "drop_last": value})
    assert code == "E201"
    assert written in hint


def test_a_total_is_the_sum_of_all_sources_whatever_their_shares():
    sources = [
        {"name": "a", "shards": "a.tar", "samples": 1000, "weight": 1},
        {"name": "b", "shards": "b.tar", "samples": 900, "weight": 1.5},
    ]
    spec = {"dataset": sources, "epoch": {"samples": "total"}, "batch": 20}
    assert wdspec.validate(spec) == []
    assert load(spec).epoch.samples == 1900
    assert wdspec.plan(spec, ranks=1).timeline.epoch_steps == 95


def test_a_total_is_that_of_stats(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = {"name": "a", "shards": write_source(tmp_path, "a", 3, 7)}
    spec = {"dataset": [source], "epoch": {"samples": "total"}, "batch": 3, "stats": "stats.json"}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    with pytest.raises(wdspec.UsageError, match="run `wdspec stats SPEC`"):
        wdspec.loader("spec.yaml", num_workers=0)
    assert not CliRunner().invoke(stats, ["spec.yaml", "--jobs", "0"]).exit_code
    with wdspec.loader("spec.yaml", num_workers=0) as loader:
        assert len(loader) == 7


def test_a_total_that_is_unknown_names_the_sources():
    sources = [{"name": "a", "shards": "a.tar", "samples": 9}, {"name": "b", "shards": "b.tar"}]
    [problem] = wdspec.validate({"dataset": sources, "epoch": {"samples": "total"}})
    assert problem.code == "E381"
    assert "`b`" in problem.message
    assert "`a`" not in problem.message


def test_reshuffle_alone_needs_a_pass():
    assert problems({"reshuffle": True}) == [("E206", "add `pass: drop`")]
    assert [code for code, _ in problems({"reshuffle": False})] == ["E206"]


def test_total_alone_gets_the_map():
    assert problems("total") == [("E203", "write `epoch: {samples: total}`")]


RANDOM = [
    ({"order": "shuffled"}, "`order: shuffled`"),
    ({"shuffle": 100}, "`shuffle: 100`"),
    ({"decode": "rgb8+hflip=0.5"}, "`hflip`"),
    ({"scale": 0.5}, "`scale`"),
    ({"decode": "rgb8", "make": {"image": {"crop": "jpg", "size": 8}}}, "`image: {crop: …}`"),
    ({"make": {"caption": {"choose": "json.captions"}}}, "`caption: {choose: …}`"),
    ({"make": {"audio": {"segment": "wav", "decode": "audio+gain=-3..3"}}}, "`audio: {segment: …}`"),
]


@pytest.mark.parametrize(("keys", "name"), RANDOM)
def test_a_pass_that_is_the_same_each_time_warns_about_what_is_random(keys, name):
    source = {"name": "a", "shards": "a.tar", **keys}
    [problem] = wdspec.validate({"dataset": [source], "epoch": "pass"})
    assert problem.code == "W412"
    assert name in problem.message
    assert "{pass: drop, reshuffle: true}" in problem.hint
    assert wdspec.validate({"dataset": [source], "epoch": {"pass": "drop", "reshuffle": True}}) == []


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"decode": "rgb8+resize=256"},
        {"decode": "rgb8+hflip=0.5", "repeat": 2},
        {"decode": "rgb8", "make": {"image": {"crop": "jpg", "size": 8, "scale": [1, 1]}}},
        {"decode": "rgb8", "make": {"image": {"crop": "jpg", "size": 8}}, "repeat": 2},
        {"make": {"audio": {"segment": "wav", "decode": "audio+rate=16000"}}},
    ],
)
def test_other_passes_do_not(keys):
    assert wdspec.validate({"dataset": [{"name": "a", "shards": "a.tar", **keys}], "epoch": "pass"}) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10k samples", "write `10_000`"),
        ("10_000 images", "write `10_000`"),
        ("1e6 documents", "write `1_000_000`"),
        ("10M tokens", "write `epoch: {tokens: 10_000_000}`"),
        ("500 steps", "write `epoch: {batches: 500}`"),
        ("1 batch", "write `epoch: {batches: 1}`"),
        ("3 epochs", "the number of epochs is set in the training loop; to read every sample once, write "),
        ("2 hours", "write the samples of one epoch, such as `100_000`, or `pass`; leave it out for an "),
    ],
)
def test_a_number_with_what_it_counts_has_the_line_to_write(text, hint):
    [(code, said)] = problems(text)
    assert code == "E202"
    assert said.startswith(hint)
    written = re.match(r"write `(?:epoch: )?([^`]+)`", said)
    if written is not None:
        dataset = [{"shards": "a.tar", "extensions": "ids", "mean_cost": 9}]
        batch = 4
        if "tokens" in text:
            batch = {"cost": "ids.length", "max_tokens": 4096, "collate": {"ids": "list"}}
        spec = {"epoch": yaml.safe_load(written[1]), "batch": batch, "dataset": dataset}
        assert not [each for each in wdspec.validate(spec) if each.is_error]
