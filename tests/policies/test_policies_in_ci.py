"""Policies that a pull request cannot avoid: settings, comments, retirement, waivers, rules in Python, formats."""

import json
import sys

import click
import pytest
from click.testing import CliRunner

from wdspec.base.errors import UsageError
from wdspec.cli.main import cli

POLICY = "rules:\n  r: {forbid: {scheme: http}}\n"
BAD = "wdspec: 1\ndataset:\n  - {name: a, shards: http://b/x.tar}\n"
GOOD = BAD.replace("http:", "https:")


def where(problems):
    return [(each["code"], each["file"]) for each in problems]


@pytest.fixture
def repository(here):
    for name in ("configs", "drafts"):
        (here / name).mkdir()
    (here / "policy.yaml").write_text(POLICY)
    (here / "configs" / "a.yaml").write_text(GOOD)
    (here / "drafts" / "b.yaml").write_text(BAD)
    return here


SETTINGS = {
    'paths = ["configs"]': "paths",
    'exclude = ["drafts"]\npaths = ["."]': "exclude",
    'exclude = ["drafts/*"]\npaths = ["configs"]': "exclude",
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_take_no_spec_out(settings, repository, validate):
    (repository / "pyproject.toml").write_text(f"[tool.wdspec]\n{settings}\n")
    assert validate() == (0, [])
    exit_code, [problem] = validate("--policy", "policy.yaml")
    assert (exit_code, problem["code"], problem["file"]) == (1, "P103", "drafts/b.yaml")
    assert f"`{SETTINGS[settings]}`" in problem["message"]
    exit_code, problems = validate("--policy", "policy.yaml", "configs", "drafts")
    codes = ["P103"] if "exclude" in settings else ["P101"]
    assert (exit_code, [each["code"] for each in problems]) == (1, codes)


def test_a_file_that_was_excluded_is_a_finding_if_it_is_named(repository, validate):
    (repository / "pyproject.toml").write_text('[tool.wdspec]\nexclude = ["drafts"]\n')
    assert validate("drafts/b.yaml") == (0, [])
    assert where(validate("--policy", "policy.yaml", "drafts/b.yaml")[1]) == [("P103", "drafts/b.yaml")]
    # who calls the command may leave files out
    assert validate("--policy", "policy.yaml", "--exclude", "drafts", "configs", "drafts") == (0, [])


HIDDEN = {
    ".drafts/a.yaml": BAD,
    "node_modules/a.yaml": BAD,
    "a.YAML": BAD,
    "a.json": json.dumps({"dataset": [{"name": "a", "shards": "http://b/x.tar"}]}),
    "b.json": '{"extends": "configs/a.yaml", "rewrite": [{"from": "https:", "to": "http:"}]}',
    "c.json": BAD,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_spec_that_a_search_does_not_look_at_is_a_finding(name, repository, validate):
    (repository / "drafts" / "b.yaml").unlink()
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text(HIDDEN[name])
    assert validate(".") == (0, [])
    assert where(validate("--policy", "policy.yaml", ".")[1]) == [("P103", name)]
    assert validate("--policy", "policy.yaml", "--exclude", name, ".") == (0, [])


@pytest.mark.parametrize(
    "text", ['{"shards": [{"dataset": "s3://b/x.tar"}]}', '{"dataset": "digits"}', "[1, 2]"]
)
def test_other_json_files_are_no_specs(text, repository, validate):
    (repository / "drafts" / "b.yaml").unlink()
    (repository / "other.json").write_text(text)
    assert validate("--policy", "policy.yaml", ".") == (0, [])


def test_sources_of_an_environment_alone_are_checked(repository, validate):
    """Such a file can be loaded in its environment."""
    (repository / "drafts" / "b.yaml").write_text(
        "environments:\n  lab:\n    dataset: [{name: a, shards: http://b/x.tar}]\n"
    )
    found = where(validate("--policy", "policy.yaml", ".")[1])
    assert ("P101", "./drafts/b.yaml") in found


def test_a_policy_of_the_repository_leaves_its_settings_as_they_are(repository, validate):
    (repository / "pyproject.toml").write_text('[tool.wdspec]\npaths = ["configs"]\npolicy = "policy.yaml"\n')
    assert validate() == (0, [])


def test_ignore_and_env_of_the_settings_have_no_effect(repository, validate):
    (repository / "configs" / "doubtful.yaml").write_text("dataset: {a: http://b/x.tar}\n")
    (repository / "configs" / "a.yaml").write_text(
        GOOD + "environments:\n  lab: {}\n  prod: {rewrite: [{from: 'https://', to: 'http://'}]}\n"
    )
    (repository / "pyproject.toml").write_text(
        '[tool.wdspec]\npaths = ["configs"]\nignore = ["W110"]\nenv = "lab"\n'
    )
    (repository / "drafts" / "b.yaml").unlink()
    assert validate() == (0, [])
    exit_code, problems = validate("--policy", "policy.yaml")
    assert exit_code == 1
    assert where(problems) == [("P103", "configs/doubtful.yaml"), ("P101", "configs/a.yaml")]
    for code in ("P101", "P103", "P201"):
        with pytest.raises(click.UsageError, match="cannot ignore"):
            validate("--policy", "policy.yaml", "--ignore", code)


def test_all_policies_hold_together(repository, validate):
    (repository / "other.yaml").write_text("rules:\n  r: {forbid: {scheme: https}}\n")
    (repository / "pyproject.toml").write_text('[tool.wdspec]\npolicy = "other.yaml"\n')
    exit_code, problems = validate("--policy", "policy.yaml", "configs", "drafts")
    assert (exit_code, where(problems)) == (1, [("P101", "configs/a.yaml"), ("P101", "drafts/b.yaml")])


def test_a_waiver_of_one_file_lifts_no_rule_of_another(repository, validate):
    (repository / "own.yaml").write_text(
        "rules:\n  r: {forbid: {scheme: ftp}}\nwaivers: [{rule: r, source: 'a*', reason: we want to}]\n"
    )
    (repository / "pyproject.toml").write_text('[tool.wdspec]\npolicy = "own.yaml"\n')
    assert where(validate("--policy", "policy.yaml", "drafts/b.yaml")[1]) == [("P101", "drafts/b.yaml")]


@pytest.mark.parametrize(
    ("waiver", "is_waived"),
    [
        ("{rule: r, source: a, reason: x}", True),
        ("{rule: r, source: 'a*', spec: drafts/*, reason: x}", True),
        ("{rule: r, spec: drafts/b.yaml, reason: x}", True),
        ("{rule: r, source: b, reason: x}", False),
        ("{rule: r, source: a, spec: configs/*, reason: x}", False),
        ("{rule: other, source: a, reason: x}", False),
        ("{rule: r, shards: 'http://b/*', reason: x}", True),
        ("{rule: r, source: a, shards: [http://b/x.tar, 'http://c/*'], reason: x}", True),
        ("{rule: r, source: a, shards: 'http://b/y*', reason: x}", False),
    ],
)
def test_a_waiver_names_rule_source_shards_and_spec(waiver, is_waived, repository, validate):
    (repository / "policy.yaml").write_text(
        f"{POLICY}  other: {{forbid: {{scheme: ftp}}}}\nwaivers:\n  - {waiver}\n"
    )
    exit_code, problems = validate("--policy", "policy.yaml", "drafts")
    unused = [("W454", "policy.yaml")]
    assert (exit_code, where(problems)) == (
        (0, []) if is_waived else (1, [("P101", "drafts/b.yaml"), *unused])
    )
    # of one file, nothing is said about entries that are for others
    assert ("W454", "policy.yaml") not in where(validate("--policy", "policy.yaml", "drafts/b.yaml")[1])


def test_a_waiver_by_shards_is_for_sources_that_read_nothing_else(repository, validate):
    """Whoever writes a spec chooses the names of its sources, but not what is behind a URL."""
    waiver = "waivers: [{rule: r, source: a, shards: 'http://b/*', reason: x}]\n"
    (repository / "policy.yaml").write_text(POLICY + waiver)
    for shards, is_waived in (
        ("http://b/x.tar, 'http://b/*.tar'", True),
        ("http://b/x.tar, http://c/x.tar", False),
    ):
        (repository / "drafts" / "b.yaml").write_text(f"dataset: [{{name: a, shards: [{shards}]}}]\n")
        assert (validate("--policy", "policy.yaml", "drafts/b.yaml")[1] == []) is is_waived


def test_a_waiver_by_shards_that_leaves_out_a_mirror_says_what_it_has_to_match(repository, validate):
    mirror = "rewrite: [{from: 'http://b/', to: 'http://m/'}]\n"
    (repository / "drafts" / "b.yaml").write_text(f"dataset: [{{name: a, shards: http://b/x.tar}}]\n{mirror}")
    for shards, is_waived in (("'http://b/*'", False), ("['http://b/*', 'http://m/*']", True)):
        waiver = f"waivers: [{{rule: r, source: a, shards: {shards}, reason: x}}]\n"
        (repository / "policy.yaml").write_text(POLICY + waiver)
        found = validate("--policy", "policy.yaml", "drafts")[1]
        hints = [each["hint"] for each in found if each["code"] == "W454"]
        assert [hint.endswith("as written and after rewriting") for hint in hints] == [True] * (not is_waived)
        assert any(each["code"] == "P101" for each in found) is not is_waived


RETIRING = """\
retired:
  - {shards: "s3://b/laion-*", since: 2026-03-01, replaced_by: laion-v2, reason: withdrawn}
deprecated:
  - {shards: "s3://b/old-*", until: 2026-12-31, replaced_by: new}
  - {shards: "s3://b/older-*"}
waivers:
  - {rule: retired, source: kept, reason: compares, until: 2026-06-30}
"""
READING = """\
dataset:
  - {name: laion, shards: "s3://b/laion-{0..9}.tar"}
  - {name: old, shards: s3://b/old-1.tar}
  - {name: older, shards: s3://b/older-1.tar}
  - {name: kept, shards: s3://b/laion-x.tar}
"""


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (None, [("P102", 2), ("P202", 3), ("P202", 4)]),
        ("2026-06-29", [("P102", 2), ("P202", 3), ("P202", 4)]),
        ("2026-06-30", [("P102", 2), ("P202", 3), ("P202", 4), ("P102", 5)]),
        ("2026-12-30", [("P102", 2), ("P202", 3), ("P202", 4), ("P102", 5)]),
        ("2026-12-31", [("P102", 2), ("P102", 3), ("P202", 4), ("P102", 5)]),
    ],
)
def test_retirement_is_a_rule_by_shards_and_dates_act_only_on_request(day, expected, here, validate):
    (here / "policy.yaml").write_text(RETIRING)
    (here / "spec.yaml").write_text(READING)
    options = () if day is None else ("--retired-on", day)
    exit_code, problems = validate("--policy", "policy.yaml", *options, "spec.yaml")
    assert exit_code == 1
    assert [(each["code"], each["line"]) for each in problems] == expected
    assert problems[0]["message"] == "`retired`: `laion` reads `s3://b/laion-0.tar`, which is retired"
    assert problems[0]["hint"] == "since 2026-03-01; withdrawn; use laion-v2"
    if day is None:
        assert problems[1]["hint"] == "until 2026-12-31; use new"


def test_retired_on_needs_a_day_and_a_policy(here, validate):
    (here / "policy.yaml").write_text(RETIRING)
    (here / "spec.yaml").write_text(READING)
    with pytest.raises(click.UsageError, match="needs a policy"):
        validate("--retired-on", "2026-12-31", "spec.yaml")
    for day in ("soon", "2026-13-01", "20261231T00"):
        with pytest.raises(click.BadParameter, match="expected a date"):
            validate("--policy", "policy.yaml", "--retired-on", day, "spec.yaml")


def test_for_that_matches_nothing_is_a_warning_if_a_folder_is_checked(repository, validate):
    (repository / "policy.yaml").write_text("rules:\n  r: {for: {env: prodution}, forbid: {scheme: http}}\n")
    assert where(validate("--policy", "policy.yaml", "drafts")[1]) == [("W454", "policy.yaml")]
    assert validate("--policy", "policy.yaml", "drafts", "--ignore", "W454") == (0, [])
    assert validate("--policy", "policy.yaml", "drafts/b.yaml") == (0, [])


def test_more_pairs_than_are_checked_are_a_finding(here, validate):
    splits = "".join(f"  s{number}: {{dataset: [{{shards: a.tar}}]}}\n" for number in range(9))
    environments = "".join(f"  e{number}: {{limit: {number + 1}}}\n" for number in range(9))
    (here / "spec.yaml").write_text(f"splits:\n{splits}environments:\n{environments}")
    (here / "policy.yaml").write_text(POLICY)
    found = [each for each in validate("--policy", "policy.yaml", "spec.yaml")[1] if each["code"] == "P101"]
    assert [each["message"] for each in found] == [
        "only 18 of 90 pairs of splits and environments were checked with policies"
    ]
    one = validate("--policy", "policy.yaml", "--env", "e1", "spec.yaml")[1]
    assert "P101" not in [each["code"] for each in one]


@pytest.mark.parametrize("form", ["text", "github", "sarif", "junit"])
def test_each_format_shows_findings(form, repository):
    done = CliRunner().invoke(cli, ["validate", "--format", form, "--policy", "policy.yaml", "drafts/b.yaml"])
    assert "P101" in done.stdout
    assert "`a` reads `http://b/x.tar`" in done.stdout
    if form == "sarif":
        [run] = json.loads(done.stdout)["runs"]
        assert run["tool"]["driver"]["rules"][0]["id"] == "P101"
        assert run["results"][0]["level"] == "error"
        assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 3


@pytest.fixture
def package(here, monkeypatch):
    """Install a package with policy rules."""
    site = here / "site"
    (site / "acme-1.dist-info").mkdir(parents=True)
    (site / "acme-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    monkeypatch.syspath_prepend(str(site))

    def install(code, **entries):
        module = f"acme_rules_{len(list(site.glob('*.py')))}_{here.name.replace('-', '_')}"
        (site / f"{module}.py").write_text(code)
        lines = "".join(
            f"{name.replace('_', '-')} = {module}:{function}\n" for name, function in entries.items()
        )
        (site / "acme-1.dist-info" / "entry_points.txt").write_text(f"[wdspec.policy_rules]\n{lines}")
        return site / f"{module}.py"

    return install


CODE = """\
from pathlib import Path
Path("imported").touch()
def tags(spec):
    for source in spec.sources:
        if "lang" not in source.tags:
            yield source.name, "add `tags: {lang: en}`"
    if not spec.name:
        yield "name the spec"
def quiet(spec):
    return None
"""


def test_rules_in_python_run_only_on_request(package, repository, validate):
    package(CODE, tags="tags", quiet="quiet")
    (repository / "pyproject.toml").write_text('[tool.wdspec]\npolicy = "policy.yaml"\n')
    assert validate("configs/a.yaml") == (0, [])
    assert not (repository / "imported").exists()
    exit_code, problems = validate("--policy-rules", "configs/a.yaml")
    assert exit_code == 1
    assert [(each["code"], each["line"], each["message"]) for each in problems] == [
        ("P101", 2, "`tags`: name the spec"),
        ("P101", 3, "`tags`: add `tags: {lang: en}`"),
    ]
    assert (repository / "imported").exists()


def test_they_never_run_in_secure_mode(package, repository, validate, monkeypatch):
    package(CODE, tags="tags")
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(UsageError, match="WDS_SECURE forbids"):
        validate("--policy-rules", "configs/a.yaml")
    assert not (repository / "imported").exists()


def test_there_must_be_rules(here, validate):
    (here / "spec.yaml").write_text(GOOD)
    with pytest.raises(UsageError, match=r"no installed package has policy rules"):
        validate("--policy-rules", "spec.yaml")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [][1]", "raised IndexError: list index out of range in line 2 of "),
        ("yield 'a', 'b', 'c'", "returned ('a', 'b', 'c')"),
        ("yield 3", "returned 3"),
        ("yield 'nowhere', 'x'", "found something in 'nowhere', which is not a source"),
        ("return 7", "raised TypeError"),
    ],
)
def test_a_rule_that_raises_is_an_error_with_its_place(body, says, package, repository, validate):
    package(f"def rule(spec):\n    {body}\n", broken="rule")
    exit_code, [problem] = validate("--policy-rules", "configs/a.yaml")
    assert (exit_code, problem["code"], problem["file"], problem["line"]) == (1, "E396", "configs/a.yaml", 1)
    assert f"`broken` {says}" in problem["message"]


def test_a_rule_that_cannot_be_imported_is_an_error(package, repository, validate):
    package("import nothing_of_this_name\n", broken="rule")
    with pytest.raises(UsageError, match="cannot import the policy rule `broken`"):
        validate("--policy-rules", "configs/a.yaml")


def test_validating_without_a_policy_imports_none_of_it(repository):
    import subprocess

    code = (
        "import sys; from wdspec.cli.main import main\n"
        "try: main(['validate', 'configs'])\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if 'policies' in name or name == 'license_expression'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("extends: ../outside/base.yaml\nwdspec: 1\ndataset: [{name: a, shards: x.tar}]\n", ("spec", 1, 10)),
        ("wdspec: 1\ndataset: [{name: a, spec: ../outside/base.yaml}]\n", ("spec", 2, 27)),
        ("wdspec: 1\nextends: link.yaml\ndataset: [{name: a, shards: x.tar}]\n", ("spec", 2, 10)),
        ("wdspec: 1\nextends: between.yaml\ndataset: [{name: a, shards: x.tar}]\n", ("between", 2, 10)),
        ("extends: '../${x}/base.yaml'\nvars: {x: outside}\nwdspec: 1\nepoch: 4\n", ("base", 3, 14)),
    ],
)
def test_a_spec_that_leads_out_of_its_repository_is_a_finding(spec, place, here, validate, monkeypatch):
    (here / "outside").mkdir()
    (here / "outside" / "base.yaml").write_text("seed: 7\ndataset:\n  - {shards: https://b/x.tar}\n")
    repository = here / "repository"
    (repository / "inside").mkdir(parents=True)
    (repository / "policy.yaml").write_text(POLICY)
    (repository / "spec.yaml").write_text(spec)
    (repository / "link.yaml").symlink_to(here / "outside" / "base.yaml")
    (repository / "between.yaml").write_text("batch: 4\nextends: ../outside/base.yaml\n")
    found = validate("--policy", repository / "policy.yaml", repository / "spec.yaml")[1]
    assert [each for each in found if each["code"][0] == "P"] == []  # in no repository
    (repository / ".git").mkdir()
    found = validate("--policy", repository / "policy.yaml", repository / "spec.yaml")[1]
    outside = [each for each in found if each["code"] == "P103"]
    assert len(outside) == 1
    assert (outside[0]["file"].rpartition("/")[2], outside[0]["line"], outside[0]["column"]) == (
        f"{place[0]}.yaml",
        *place[1:],
    )
    assert "outside of the repository" in outside[0]["message"]
    (repository / "pyproject.toml").write_text('[tool.wdspec]\npolicy = "policy.yaml"\n')
    monkeypatch.chdir(repository)
    exit_code, found = validate("spec.yaml")  # the policy of the repository itself
    assert (exit_code, [each["code"] for each in found if each["code"] == "P103"]) == (1, ["P103"])
    (repository / "pyproject.toml").write_text("")
    assert [each for each in validate("spec.yaml")[1] if each["code"][0] == "P"] == []
