"""Advice is rules that need more than the spec; every command that knows the facts gives the same advice."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from commandline import within
from shardmaking import write_shard, write_source

import wdspec
from wdspec.advice import TOPICS, advise, on_data, on_plan
from wdspec.advice.explanation import explain_spec
from wdspec.spec.problems import Problem
from wdspec.spec.rules import all_codes
from wdspec.spec.rules.rule import RULES

FEW = (
    "loader: {workers: 4}\nbatch: 8\nepoch: 1001\nstats: s.stats.json\n"
    "dataset:\n  - {name: a, shards: 'a-{000..001}.tar', rename: {image: heif}, decode: {webp: rgb8}}\n"
)
PACKAGE = Path(wdspec.__file__).parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_source(".", "a", shards=2, samples=20)
    return tmp_path


def warnings(*arguments, code=0):
    report = json.loads(within(*arguments, "--format", "json", code=code)[0])
    return report["files"][0]["warnings"] if "files" in report else report["warnings"]


def codes(texts):
    return [next(word for word in text.split() if word in all_codes()) for text in texts]


def test_each_code_has_one_rule_that_needs_facts_and_one_text():
    rules = Counter(rule.about.code for rule in RULES if rule.needs and rule.needs != ("splits",))
    assert set(rules) == {code for code in all_codes() if code.startswith("W5")} | {
        "W302",
        "W380",
        "W393",
        "W394",
        "W441",
        "W459",
        "W398",
    }
    assert [code for code, count in rules.items() if count > 1] == [
        "W502"
    ]  # an error of reading, or a directory
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    rooms = {path.parent.name for path, text in texts.items() if re.search(r'@rule\(\s*"W5', text)}
    assert rooms == {
        "advice",
        "rules",
    }  # W507, W508, W530 and W532 also need only the spec, in some cases
    others = [
        path for path, text in texts.items() if re.search(r'"W5\d\d"', text) and path.parent.name != "advice"
    ]
    assert {path.name for path in others} == {
        "batches.py",
        "check.py",
        "fields.py",
        "job.py",
        "judge_sources.py",
        "rewrites.py",
        "shares.py",
        "unmoved.py",
    }


def test_every_rule_of_a_topic_is_in_the_engine():
    modules = {path.stem for path in Path(on_plan.__file__).parent.glob("on_*.py")}
    assert {topic.__name__.rpartition(".")[2] for topic in TOPICS} == modules
    assert {rule.check.__module__ for rule in RULES if rule.needs} >= {on_data.__name__, on_plan.__name__}


@pytest.mark.parametrize(
    ("epoch", "shards", "samples", "code"),
    [
        (90, "a-{000..001}.tar", 50_000, "W507"),
        (20, "a-{000..009}.tar", None, "W352"),
        (20, "a-{000..009}.tar", 50_000, "W507"),
        (1001, "a-{000..001}.tar", 1_100, "W351"),
    ],
)
def test_one_number_of_samples_in_an_epoch_has_one_message(epoch, shards, samples, code):
    source = {"shards": shards, **({"samples": samples} if samples else {})}
    assert [each.code for each in wdspec.validate({"epoch": epoch, "batch": 8, "dataset": [source]})] == [
        code
    ]


def test_an_epoch_of_fewer_tokens_than_a_batch_is_doubted():
    source = {"shards": "a-{00..99}.tar", "mean_cost": 10}
    batch = {"cost": "json.n", "max_tokens": 4096}
    for tokens, codes in ((40, ["W352"]), (4096, [])):
        spec = {"epoch": {"tokens": tokens}, "batch": batch, "dataset": [source]}
        assert [each.code for each in wdspec.validate(spec) if each.code == "W352"] == codes


@pytest.mark.parametrize(
    ("weights", "meant"),
    [
        ((0.6, 30, 10), {"60"}),
        ((0.6, 0.3, 10), {"60", "30"}),
        ((0.6, 0.3, 0.1), set()),
        ((1, 99), set()),
        ((0.5, 30, 10), set()),
    ],
)
def test_a_fraction_among_percentages_is_doubted(weights, meant):
    dataset = [{"name": f"s{n}", "shards": f"{n}.tar", "weight": each} for n, each in enumerate(weights)]
    steps = [{"at": 0, "shares": {"s0": 1, "s1": 1}}, {"at": 9, "shares": {}}]
    steps[1]["shares"] = {each["name"]: each["weight"] for each in dataset}
    unweighted = [{key: each[key] for key in ("name", "shards")} for each in dataset]
    for spec in ({"dataset": dataset}, {"dataset": unweighted, "mix": {"schedule": steps}}):
        found = list(on_plan.fractions_among_percentages(wdspec.load(spec)))
        assert {each.hint for each in found} == {f"write `{each}`" for each in meant}
        said = [each.message for each in wdspec.validate(spec) if each.code == "W532"]
        assert said == [each.message for each in found]


def test_an_epoch_of_a_few_samples_says_how_to_read_each_of_them_once():
    spec = {"epoch": 10, "batch": 8, "dataset": [{"shards": "a-{000..099}.tar"}]}
    [found] = wdspec.validate(spec)
    assert "to read every sample once, write" in found.hint


def test_explain_simulate_and_stats_give_the_same_advice(folder):
    (folder / "s.yaml").write_text(FEW)
    measured = warnings("stats", "s.yaml")
    assert codes(measured) == ["W503", "W504", "W511", "W512"]
    assert warnings("explain", "s.yaml") == measured
    assert warnings("simulate", "s.yaml")[:4] == measured
    assert warnings("simulate", "s.yaml", "--probe")[:4] == measured


def test_check_and_explain_report_split_shards_in_the_same_words(folder):
    (folder / "s.yaml").write_text(
        "loader: {workers: 4}\ndataset:\n  - {name: a, shards: 'a-{000..001}.tar'}\n"
    )
    [advice] = warnings("explain", "s.yaml")
    found = json.loads(within("check", "s.yaml", "--format", "json")[0])
    [problem] = [each for each in found["problems"] if each["code"] == "W512"]
    assert advice == f"W512 {problem['message']}"
    assert problem["source"] == "a"


def test_validate_reports_a_short_epoch_as_the_other_commands_do_if_the_spec_states_its_samples(folder):
    (folder / "s.yaml").write_text(
        "epoch: 10\ndataset:\n  - {name: a, shards: 'a-{000..001}.tar', samples: 5_000}\n"
    )
    [problem] = wdspec.validate("s.yaml")
    assert (problem.code, problem.line, problem.column) == ("W507", 1, 8)
    text = f"W507 {problem.message}; {problem.hint}"
    assert text in warnings("explain", "s.yaml")
    assert text in warnings("simulate", "s.yaml")
    assert "s.yaml:1:8: W507 " in within("validate", "s.yaml")[0]
    (folder / "s.yaml").write_text(
        "epoch: 10  # wdspec: ignore=W507\n" + (folder / "s.yaml").read_text()[10:]
    )
    assert wdspec.validate("s.yaml") == []


@pytest.mark.parametrize(
    ("epoch", "codes"), [(3, ["E306"]), (700, ["E306"]), (801, ["W351"]), (16, ["E306"])]
)
def test_an_epoch_shorter_than_a_batch_is_one_problem_that_asks_for_epochs(epoch, codes):
    spec = {"epoch": epoch, "batch": 800, "dataset": [{"shards": "a.tar", "samples": 1000}]}
    [problem] = wdspec.validate(spec)
    assert [problem.code] == codes
    assert ("this is no number of epochs: to read every sample once" in problem.hint) == (epoch <= 300)


@pytest.mark.parametrize("share", [0, 1])
def test_a_source_that_is_off_does_not_count_for_the_length_of_an_epoch(share):
    spec = {
        "epoch": 400,
        "batch": 10,
        "dataset": [
            {"name": "a", "shards": "a.tar", "samples": 1000, "weight": 1},
            {"name": "b", "shards": "b.tar", "samples": 9000, "weight": share},
        ],
    }
    assert ("W507" in {each.code for each in wdspec.validate(spec)}) == bool(share)


def test_advice_points_at_its_source(folder):
    (folder / "s.yaml").write_text(
        "dataset:\n  - {name: a, shards: 'a-{000..001}.tar'}\n  - {name: b, shards: a-001.tar}\n"
    )
    [problem] = explain_spec(wdspec.load("s.yaml"), 1, 1, 0).advice
    message = "`a-001.tar` is also a shard of `a`"
    assert problem == Problem("W508", message, "list each file once, in one source", "s.yaml", 3, 5)


@pytest.mark.parametrize(
    ("at", "wait", "late"), [(16, 400, 384), (800, 400, 0), (1_900, 400, 0), (900, 10_000, 9_100)]
)
def test_shares_that_slots_use_much_later_than_the_schedule_says(folder, at, wait, late):
    steps = f"[{{at: 0, shares: {{a: 1, b: 1}}}}, {{at: {at}, shares: {{a: 1, b: 0}}}}]"
    sources = "[{name: a, shards: a-000.tar}, {name: b, shards: a-001.tar}]"
    batch = f"{{size: 8, group_by: txt.length, group_wait: {wait}, incomplete: merge}}"
    (folder / "s.yaml").write_text(f"mix: {{schedule: {steps}}}\nbatch: {batch}\ndataset: {sources}\n")
    advice = [
        each.message for each in explain_spec(wdspec.load("s.yaml"), 1, 1, 0).advice if each.code == "W516"
    ]
    words = f"the shares from sample {at} on take effect {late:,} samples later"
    assert [each.partition(":")[0] for each in advice] == [words] * (late > 0)


def test_a_rule_runs_only_if_its_facts_are_known(folder):
    (folder / "s.yaml").write_text(FEW)
    explanation = explain_spec(wdspec.load("s.yaml"), 1, 4, 0)
    assert [each.code for each in advise(explanation.facts)] == ["W503", "W504", "W511", "W512"]
    assert [each.code for each in advise(explanation.found)] == ["W503", "W504"]


def test_measured_sizes_do_not_hide_the_fields_that_have_none(folder):
    records = ['{"txt": "a", "cls": 3, "bbox": [1, 2]}\n'] * 5
    (folder / "r.jsonl").write_text("".join(records))
    (folder / "s.yaml").write_text(
        "stats: s.stats.json\ndataset:\n  - {name: r, shards: r.jsonl, extensions: txt cls bbox}\n"
    )
    assert warnings("stats", "s.yaml") == []
    assert warnings("explain", "s.yaml") == []


def test_measured_sizes_of_many_fields_do_not_hide_the_others(folder):
    write_shard(folder / "many.tar", [("k", {f"f{number:02}": b"1" for number in range(60)})])
    (folder / "s.yaml").write_text(
        "stats: s.stats.json\ndataset:\n  - {name: many, shards: many.tar, extensions: f01 f59}\n"
    )
    assert warnings("stats", "s.yaml") == []
