"""A rule is one file: found by its folder, reported, explained at the command line and in the reference."""

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from wdspec.cli.main import cli
from wdspec.spec import rules
from wdspec.spec.load import check
from wdspec.spec.problems import Problem
from wdspec.spec.reference import reference_text
from wdspec.spec.rules.code_pages import all_codes
from wdspec.spec.rules.rule_table import all_rules

NEW_RULE = '''\
"""W999: names are not shouted."""

from wdspec.spec.rules.lint_rule import Finding, rule


@rule(
    "W999",
    "a shouted name",
    "Names in capitals are hard to read in tables.",
    bad="dataset:\\n  - {name: WEB, shards: a.tar}\\n",
    good="dataset:\\n  - {name: web, shards: a.tar}\\n",
)
def shouted_names(composed):
    for draft in composed.leaves:
        if draft.name.isupper():
            yield Finding(draft.node.value_or_self("name"), f"`{draft.name}` is shouted", "write it in lower case")
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def new_rule(tmp_path_factory, monkeypatch):
    """A rule in a file of its own, in a folder beside those of wdspec."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "new_topic").mkdir()
    (folder / "new_topic" / "__init__.py").write_text("")
    (folder / "new_topic" / "shouted_names.py").write_text(NEW_RULE)
    before = len(all_rules())
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(folder)])
    all_rules.cache_clear()
    yield before
    monkeypatch.undo()
    all_rules.cache_clear()
    for name in [name for name in sys.modules if name.startswith("wdspec.spec.rules.new_topic")]:
        del sys.modules[name]


def test_a_new_rule_is_one_file(new_rule, here):
    assert len(all_rules()) == new_rule + 1
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
    assert "### W999: a shouted name\n" in reference_text()
    assert "W999" in run(cli, ["validate", "spec.yaml"]).output


def test_it_was_one_file_and_is_gone_with_it():
    assert "W999" not in all_codes()


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: f"{rule.about.code}-{rule.check.__module__}")
def test_the_examples_of_a_rule_have_it_and_do_not(rule, here):
    about = rule.about
    for text, expected in ((about.bad, True), (about.good, False)):
        if text:
            (here / "spec.yaml").write_text(text)
            assert (about.code in [problem.code for problem in check("spec.yaml")[1]]) is expected
    if about.good:
        assert check("spec.yaml")[1] == []


def test_a_rule_that_owns_its_code_shows_a_good_spec_too():
    owned = [rule for rule in all_rules() if rule.about.title]
    assert len(owned) > 15
    assert [rule.about.code for rule in owned if not rule.about.good] == ["E310"]  # no spec alone shows it


def test_no_rule_has_the_code_of_another():
    codes = [rule.about.code for rule in all_rules()]
    assert len(codes) == len(set(codes))


def test_every_code_that_is_reported_has_a_page():
    root = Path(rules.__file__).parents[1]
    texts = [path.read_text(encoding="utf-8") for path in root.rglob("*.py")]
    used = {code for text in texts for code in re.findall(r'"([EWD]\d{3})"', text)}
    assert used == set(all_codes())


def test_every_module_in_a_folder_holds_a_rule_and_those_beside_the_folders_none():
    folder = Path(rules.__file__).parent
    made = re.compile(r"^@rule(?:_of_splits)?\(", re.MULTILINE)
    for path in folder.rglob("*.py"):
        expected = 1 if path.parent != folder and path.stem != "__init__" else 0
        assert len(made.findall(path.read_text(encoding="utf-8"))) == expected, path
