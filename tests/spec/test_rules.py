"""A rule is one function: reported, explained at the command line and in the reference."""

import copy
import functools
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from wdspec.cli.main import cli
from wdspec.spec import rules
from wdspec.spec.load import check
from wdspec.spec.problems import Problem
from wdspec.spec.reference import codes_text
from wdspec.spec.rules import all_codes
from wdspec.spec.rules.rule import RULES, Finding, rule


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def new_rule(monkeypatch):
    """A rule that is one function, and nothing else."""
    before = list(RULES)

    @rule(
        "W999",
        "a shouted name",
        "Names in capitals are hard to read in tables.",
        keys="name",
        bad="dataset:\n  - {name: WEB, shards: a.tar}\n",
        good="dataset:\n  - {name: web, shards: a.tar}\n",
    )
    def shouted_names(composition):
        for draft in composition.leaves:
            if draft.name.isupper():
                yield Finding(
                    draft.node.value_or_self("name"), f"`{draft.name}` is shouted", "write it in lower case"
                )

    yield before
    RULES[:] = before


def test_a_new_rule_is_one_function(new_rule, here):
    assert len(RULES) == len(new_rule) + 1
    (here / "spec.yaml").write_text("dataset:\n  - {name: WEB, shards: a.tar}\n")
    assert check("spec.yaml")[1] == [
        Problem(
            "W999",
            "`WEB` is shouted",
            "write it in lower case",
            "spec.yaml",
            2,
            12,
            3,
            "  - {name: WEB, shards: a.tar}",
        )
    ]
    run = CliRunner().invoke
    assert "W999  a shouted name\n" in run(cli, ["rule"]).output
    page = run(cli, ["rule", "w999"]).output
    assert "hard to read" in page
    assert "name: WEB" in page
    assert "name: web" in page
    assert "## W999: a shouted name\n" in codes_text()
    assert "W999" in run(cli, ["validate", "spec.yaml"]).output


def test_removing_its_function_removes_a_rule():
    assert "W999" not in all_codes()


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule.about.code}-{getattr(rule.check, '__name__', 'rows')}"
)
def test_bad_examples_break_their_rule_and_good_ones_do_not(rule, here):
    about = rule.about
    for file in ("tokenizer.json", "model/tokenizer.json"):  # those of `make` in examples
        (here / file).parent.mkdir(exist_ok=True)
        (here / file).touch()
    for text, expected in ((about.bad, True), (about.good, False)):
        if text:
            (here / "spec.yaml").write_text(text)
            assert (about.code in [problem.code for problem in check("spec.yaml")[1]]) is expected
    if about.good:
        assert check("spec.yaml")[1] == []


def test_a_rule_with_its_own_code_has_a_good_example():
    owned = [rule for rule in RULES if rule.about.title]
    assert len(owned) > 15
    assert [rule.about.code for rule in owned if not rule.about.good] == ["E310"]  # no spec alone shows it


def test_each_rule_has_its_own_code():
    codes = [rule.about.code for rule in RULES if rule.about.title]
    assert len(codes) == len(set(codes))


def test_rules_without_a_page_report_documented_codes():
    assert {rule.about.code for rule in RULES} <= set(all_codes())


def test_a_rule_runs_only_if_its_keys_are_present(monkeypatch):
    def refuse(_):
        raise AssertionError("it was entered")

    refusing = [rule._replace(check=refuse) if "decode" in rule.keys else rule for rule in RULES]
    monkeypatch.setattr("wdspec.spec.rules.RULES", refusing)
    check({"dataset": [{"shards": "a.tar"}]})
    for spec in (
        {"dataset": [{"shards": "a.tar", "decode": "pil"}]},
        {"defaults": {"decode": "pil"}, "dataset": [{"shards": "a.tar"}]},
    ):
        with pytest.raises(AssertionError, match="entered"):
            check(spec)


def test_every_reported_code_has_a_page():
    root = Path(rules.__file__).parents[2]
    texts = [path.read_text(encoding="utf-8") for path in root.rglob("*.py")]
    used = {code for text in texts for code in re.findall(r'"([EWDP]\d{3})\b', text)}
    assert used == set(all_codes())


def test_every_rule_module_is_imported_with_the_package():
    folder = Path(rules.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "rule"}
    assert {topic.__name__.rpartition(".")[2] for topic in rules.TOPICS} == modules


RICH = """
dataset:
  - name: a
    shards: a.tar
    companions: {noise: {shards: b.tar, where: txt.length > 2}}
    where: txt.length > 3
    subset: {of: txt, part: 50%}
    keys_of: txt
    keys: [x]
    repeat: 2.5
    lookup: {table: t.csv, on: txt, fields: [x]}
    join: {shards: j.tar, on: name}
    fetch: {clip: {url: json.u, root: d/, seconds: [json.a, json.b]}}
    make: {ids: {tokenize: txt, file: t.json}}
costs: {some: txt.length}
batch: {cost: txt.length, max_cost: 9, limits: {txt.length: 3}, group_by: txt, balance: txt.length}
epoch: pass
"""


def scalars_of(value, path=()):
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [each for key, item in items for each in scalars_of(item, (*path, key))]
    return [path]


def test_rules_that_read_expressions_leave_those_that_cannot_be_parsed_to_another_rule():
    examples = [text for each in RULES for text in (each.about.bad, each.about.good) if text]
    specs = [value for value in map(yaml.safe_load, [RICH, *examples]) if isinstance(value, dict)]
    for spec in specs:
        for *outer, key in scalars_of(spec):
            changed = copy.deepcopy(spec)
            functools.reduce(lambda held, each: held[each], outer, changed)[key] = "json.a = 3 &&"
            check(changed)
