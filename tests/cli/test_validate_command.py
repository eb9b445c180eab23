"""`wdspec validate`, as a program: its output, exit codes and imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wdspec.cli.main import cli
from wdspec.cli.validate import validate

GOOD = "dataset:\n  - shards: gs://bucket/a-{000..099}.tar\n"
BAD = "dataset:\n  - shards: a.tar\n    extension: jpg\n"
WARNED = "vars: {x: 1}\n" + GOOD

HEAVY = (
    "torch",
    "numpy",
    "PIL",
    "rich",
    "asyncio",
    "fsspec",
    "urllib3",
    "tarfile",
    "multiprocessing",
    "webdataset",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WDSPEC_ENV", raising=False)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "warned.yml").write_text(WARNED)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(validate, arguments, standalone_mode=False)


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "from wdspec.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_valid_file_is_reported_and_exits_0(here: Path) -> None:
    result = run("good.yaml")
    assert (result.return_value, result.output) == (0, "1 file checked: no problems\n")


def test_problems_exit_1_and_warnings_do_not(here: Path) -> None:
    assert run("bad.yaml").return_value == 1
    result = run("warned.yml")
    assert result.return_value == 0
    assert result.output.endswith("1 file checked: 1 warning\n")


def test_a_directory_means_all_its_specs_in_code_point_order(here: Path) -> None:
    for name in (
        "Z.yml",
        "bad.yaml",
        "sub/x.yaml",
        "warned.yml",
        ".git/hidden.yaml",
        "node_modules/a/b.yaml",
    ):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("wdspec: 1\n" + (WARNED if name == "warned.yml" else BAD))
    (here / "note.txt").write_text("wdspec: 1")
    (here / "good.yaml").write_text("services: {}\n")
    result = run(".")
    lines = [line for line in result.output.splitlines() if "E201" in line or "W101" in line]
    assert [line.split(":")[0] for line in lines] == ["./Z.yml", "./bad.yaml", "./sub/x.yaml", "./warned.yml"]
    assert result.output.splitlines()[-2:] == [
        "4 files checked: 3 errors, 1 warning",
        "1 other YAML file skipped: `./good.yaml`",
    ]


@pytest.mark.parametrize(
    ("name", "text", "is_spec"),
    [
        ("a.wdspec.yaml", BAD, True),
        ("a.wdspec.yml", "not: [even", True),
        ("a.yaml", "wdspec: 1\n" + BAD, True),
        ("a.yaml", BAD + "wdspec: 1\n", True),
        ("a.yaml", BAD + "'wdspec' : 1\n", True),
        ("a.yaml", BAD, True),
        ("a.yaml", "extends: a-good.wdspec.yaml\nbach: 1\n", True),
        ("a.yaml", "extends: ${base:-a-good.wdspec.yaml}\nbach: 1\n", True),
        ("a.yaml", "splits: {train: {dataset: [{shard: a.tar, dataset: []}]}}\n", True),
        ("a.yaml", "# wdspec: 1\nextend: a-good.wdspec.yaml\n", False),
        ("a.yaml", "services:\n  wdspec:\n    image: x\n", False),
        ("docker-compose.yaml", "services: {}\n", False),
    ],
)
def test_specs_in_a_folder_are_found_by_name_or_key(name: str, text: str, is_spec: bool, here: Path) -> None:
    for file in ("good.yaml", "bad.yaml", "warned.yml"):
        (here / file).unlink()
    (here / name).write_text(text)
    (here / "a-good.wdspec.yaml").write_text(GOOD)
    result = run(".")
    assert result.return_value == is_spec
    assert f"{1 + is_spec} file" in result.output
    assert run(name).return_value == 1  # a file that is given is a spec


def test_a_folder_without_specs_explains_how_specs_are_found(here: Path) -> None:
    for file in ("good.yaml", "bad.yaml", "warned.yml"):
        (here / file).write_text("services: {}\n")
    result = CliRunner().invoke(cli, ["validate", "."])
    assert result.exit_code == 2
    assert (
        "its 3 YAML files have neither `wdspec:` nor a `dataset:` with sources; add `wdspec: 1`, or name a spec "
        "*.wdspec.yaml"
    ) in result.output


WORKFLOW = "on: push\njobs: {a: {steps: [{uses: x}]}}\n"


@pytest.mark.parametrize("form", ["text", "github", "json", "sarif", "junit"])
def test_files_that_are_skipped_are_named_in_every_format_and_do_not_fail(form: str, here: Path) -> None:
    (here / "bad.yaml").write_text(WORKFLOW)
    (here / "warned.yml").write_text("services: {web: {extends: base, image: x}}\n")
    result = run(".", "--format", form, "--strict")
    assert result.return_value == 0
    note = "2 other YAML files skipped: `./bad.yaml`, `./warned.yml`\n"
    assert (result.stdout if form == "text" else result.stderr).endswith(note)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("name: x\ndataset: imagenet\n", "dataset", 2),
        ("dataset: [{path: a.json}]\n", "dataset", 1),
        ("extends: [eslint:recommended]\n", "extends", 1),
        ("a: [even\ndataset: x\n", "dataset", 1),
    ],
)
def test_a_file_that_may_be_a_spec_is_a_warning(text: str, key: str, line: int, here: Path) -> None:
    (here / "bad.yaml").write_text(text)
    (here / "warned.yml").unlink()
    result = run(".", "--format", "json")
    (problem,) = json.loads(result.stdout)
    assert (result.return_value, problem["code"], problem["file"]) == (0, "W110", "./bad.yaml")
    assert problem["line"] == line
    assert f"`{key}`" in problem["message"]
    assert run(".", "--strict").return_value == 1
    assert run(".", "--strict", "--ignore", "W110").return_value == 0
    assert run(".", "--strict", "--exclude", "bad.yaml").return_value == 0
    (here / "bad.yaml").write_text("wdspec: 1\n" + text)  # as the hint says
    assert run(".").return_value == 1


@pytest.mark.parametrize("paths", [["configs"], ["configs/*.yaml"], []])
def test_patterns_that_exclude_every_spec_are_an_error(paths: list[str], here: Path) -> None:
    (here / "configs").mkdir()
    (here / "configs" / "a.yaml").write_text(GOOD)
    (here / "pyproject.toml").write_text("[tool.wdspec]\npaths = ['configs/a.yaml']\n")
    for command in ("validate", "fmt"):
        result = CliRunner().invoke(cli, [command, *paths, "--exclude", "no", "--exclude", "configs/*"])
        assert result.exit_code == 2
        assert "`configs/*` excludes every spec at configs" in " ".join(result.output.split())
    assert run("configs/a.yaml", "--exclude", "configs/*").return_value == 0  # as pre-commit passes it


def test_a_folder_without_specs_is_an_error_also_with_patterns(here: Path) -> None:
    (here / "empty").mkdir()
    result = CliRunner().invoke(cli, ["validate", "empty", "--exclude", "x"])
    assert (result.exit_code, "it has no YAML files" in result.output) == (2, True)


@pytest.mark.parametrize("head", ["wdspec: 1\n", ""])
def test_a_base_is_checked_as_a_part_of_what_extends_it(head: str, here: Path) -> None:
    (here / "base.yaml").write_text(head + "vars: {root: s3://bucket}\ndefaults: {shuffle: 10}\n")
    (here / "middle.yaml").write_text(head + "extends: base.yaml\nseed: 7\n")
    (here / "good.yaml").write_text("extends: middle.yaml\ndataset: [{shards: '${root}/a-{0..99}.tar'}]\n")
    for name in ("bad.yaml", "warned.yml"):
        (here / name).unlink()
    result = run(".", "--strict")
    assert (result.return_value, result.output) == (0, "1 file checked: no problems\n")
    assert run("base.yaml", "good.yaml", "middle.yaml").output == "1 file checked: no problems\n"
    (here / "base.yaml").write_text(head + "defaults: {shufle: 10}\n")
    result = run(".")
    assert result.return_value == 1
    assert "base.yaml:" in result.output
    assert "E201" in result.output


def test_a_base_with_sources_is_also_checked_alone_except_for_its_variables(here: Path) -> None:
    (here / "base.yaml").write_text("vars: {side: 9}\ndataset: [{shards: '${root}/a.tar', shufle: 1}]\n")
    (here / "good.yaml").write_text(
        "extends: base.yaml\nvars: {root: s3://b}\ndefaults: {decode: {jpg: 'rgb8+resize=${side}'}}\n"
    )
    found = json.loads(run("base.yaml", "good.yaml", "--format", "json").output)
    assert [problem["code"] for problem in found] == ["E201"]
    assert {problem["code"] for problem in json.loads(run("base.yaml", "--format", "json").output)} == {
        "E107",
        "W101",
        "E201",
    }


def test_files_that_extend_each_other_are_all_checked(here: Path) -> None:
    (here / "a.wdspec.yaml").write_text("extends: b.wdspec.yaml\n")
    (here / "b.wdspec.yaml").write_text("extends: a.wdspec.yaml\n")
    result = run("a.wdspec.yaml", "b.wdspec.yaml")
    assert result.return_value == 1
    assert "E101" in result.output


def test_globs_are_expanded_if_the_shell_does_not(here: Path) -> None:
    (here / "deep" / "er").mkdir(parents=True)
    (here / "deep" / "er" / "c.yaml").write_text(GOOD)
    assert run("**/*.yaml").output.endswith("3 files checked: 1 error\n")
    assert run("good*", "good.yaml").output == "1 file checked: no problems\n"
    assert CliRunner().invoke(cli, ["validate", "none-*.yaml"]).exit_code == 2


def test_standard_input_is_a_spec(here: Path) -> None:
    (here / "base.yaml").write_text("seed: 3\n")

    def piped(text: str) -> Result:
        return CliRunner().invoke(validate, ["-"], input=text, standalone_mode=False)

    result = piped("extends: base.yaml\n" + BAD)
    assert result.return_value == 1
    assert result.output.startswith("<stdin>:4:5: E201 unknown key `extension`")
    assert piped("extends: base.yaml\n" + GOOD).output == "1 file checked: no problems\n"
    assert "file is empty" in piped("").output
    assert "not UTF-8" in CliRunner().invoke(validate, ["-"], input=b"\xff\xff", standalone_mode=False).output


def test_excluded_files_are_left_out_however_they_are_named(here: Path) -> None:
    assert run("--exclude", "bad.*", "good.yaml", "bad.yaml").return_value == 0
    assert run("--exclude", "/*.yaml", "--exclude", "!good.yaml", "good.yaml", "bad.yaml").output.startswith(
        "1 file"
    )
    assert run("--exclude", "*", "good.yaml").output == "0 files checked: no problems\n"


def test_strict_makes_warnings_fail(here: Path) -> None:
    assert run("--strict", "warned.yml").return_value == 1
    assert run("--strict", "good.yaml").return_value == 0
    assert run("--strict", "--ignore", "w101", "warned.yml").return_value == 0
    assert "W101" not in run("--ignore", "W101", "warned.yml").output


@pytest.mark.parametrize("code", ["E201", "W999", "x"])
def test_only_warnings_can_be_ignored(code: str, here: Path) -> None:
    result = CliRunner().invoke(cli, ["validate", "--ignore", code, "good.yaml"])
    assert result.exit_code == 2
    assert f"cannot ignore {code}, which is not the code of a warning" in result.output


def test_env_all_is_each_and_none(here: Path) -> None:
    (here / "s.yaml").write_text(GOOD + "environments: {e: {seed: x}}\n")
    assert run("--env", "all", "s.yaml").return_value == run("s.yaml").return_value == 1


UNUSED = "vars: {x: 1, y: 2}"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (UNUSED + "  # wdspec: ignore=W101\n", []),
        ("# wdspec: ignore=W101\n# why\n\n" + UNUSED + "\n", []),
        (UNUSED + " # seen; wdspec: ignore=W101\n", ["W101", "W101"]),
        (UNUSED + " # why # wdspec: ignore=W101 because it is, W105\n", []),
        (UNUSED + " #wdspec:ignore = w101, W105\n", ["W003"]),
        ("# wdspec: ignore-file=W101\nseed: 1\n" + UNUSED + "\n", []),
        ("# wdspec: ignore=W101\nseed: 1\n" + UNUSED + "\n", ["W003", "W101", "W101"]),
        (UNUSED + "  # wdspec: ignore\n", ["W101", "W101", "W002"]),
        (UNUSED + "  # wdspec: ignore=E201,frogs\n", ["W101", "W101", "W002", "W002"]),
        ("seed: x  # wdspec: ignore=E202\n", ["E202", "W002"]),
        ("# wdspec: ignore-file=W101", ["W003"]),
    ],
)
def test_comments_ignore_warnings(text: str, codes: list[str], here: Path) -> None:
    (here / "s.yaml").write_text(text.rstrip("\n") + "\n" + GOOD)
    found = json.loads(run("--format", "json", "s.yaml").output)
    assert [problem["code"] for problem in found] == codes


def test_an_ignore_comment_applies_to_its_own_file(here: Path) -> None:
    (here / "base.yaml").write_text("vars: {x: 1}  # wdspec: ignore=W101\n")
    (here / "s.yaml").write_text("extends: base.yaml\nvars: {y: 1}\n" + GOOD)
    assert run("s.yaml").output.startswith("s.yaml:2:8: W101")


def test_a_comment_in_a_base_is_not_unused_if_a_child_extends_it(here: Path) -> None:
    (here / "base.yaml").write_text("batch: {global_size: 8}  # wdspec: ignore=W353\n" + GOOD)
    (here / "s.yaml").write_text("extends: base.yaml\nelastic: {ranks: 2}\n")
    assert run("base.yaml", "s.yaml").output == "2 files checked: no problems\n"


def test_a_comment_needed_only_by_another_split_is_not_unused(here: Path) -> None:
    (here / "s.yaml").write_text(
        "# wdspec: ignore-file=W105\n"
        "splits: {a: {dataset: [{shards: a.tar}]}, b: {dataset: [{shards: htps://h/a.tar}]}}\n"
    )
    assert run("s.yaml").output == run("s.yaml#a").output == "1 file checked: no problems\n"


def test_pyproject_settings(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "configs" / "old").mkdir(parents=True)
    (here / "configs" / "a.yaml").write_text("wdspec: 1\n" + WARNED)
    (here / "configs" / "old" / "b.yaml").write_text("wdspec: 1\n" + BAD)
    settings = here / "pyproject.toml"
    settings.write_text("[tool.wdspec]\npaths = ['configs']\nexclude = ['/configs/old']\n")
    for folder in (here, here / "configs"):
        monkeypatch.chdir(folder)
        result = run()
        assert (result.return_value, result.output.splitlines()[-1]) == (0, "1 file checked: 1 warning")
    settings.write_text(settings.read_text() + "strict = true\n")
    assert run().return_value == 1
    settings.write_text(settings.read_text() + "ignore = ['W101']\nenv = 'prod'\n")
    assert "no environment `prod`" in run().output
    assert run("--env", "all").output == "1 file checked: no problems\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.wdspec]\nexclud = []\n", "unknown key 'exclud'; did you mean `exclude`?"),
        ("[tool.wdspec]\nexclude = 'x'\n", "exclude takes a list of texts, not 'x'"),
        ("[tool.wdspec]\nstrict = 'no'\n", "strict takes true or false, not 'no'"),
        ("[tool.wdspec]\nenv = 3\n", "env takes a text, not 3"),
        ("[tool.wdspec]\nignore = ['E201']\n", "cannot ignore E201"),
        ("[tool]\nwdspec = 3\n", "is not a table"),
        ("[tool.wdspec\n", "cannot read "),
    ],
)
def test_wrong_pyproject_settings_exit_2(text: str, message: str, here: Path) -> None:
    (here / "pyproject.toml").write_text(text)
    result = CliRunner().invoke(cli, ["validate", "good.yaml"])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_pyproject_without_our_table_is_ignored(here: Path) -> None:
    (here / "pyproject.toml").write_text("[tool.ruff]\n")
    assert run("good.yaml").return_value == 0
    assert CliRunner().invoke(cli, ["validate"]).exit_code == 2


NODE_MODULES = Path(__file__).parents[1] / "support" / "servers" / "node_modules"


def test_sarif_names_a_file_whose_name_is_not_utf_8(here: Path) -> None:
    name = os.fsdecode(b"caf\xe9.yaml")
    (here / name).write_text(BAD)
    (result, *_) = json.loads(run("--format", "sarif", name).output)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "caf%E9.yaml"


def test_sarif_matches_types_generated_from_its_schema(here: Path) -> None:
    compiler = NODE_MODULES / "typescript" / "bin" / "tsc"
    if not compiler.exists() and not os.environ.get("CI"):
        pytest.skip("`bash scripts/servers` installs what checks SARIF")
    (here / "ünï code.yaml").write_text(BAD + "vars: {x: 1}\n")
    text = run("--format", "sarif", "ünï code.yaml", "good.yaml").output
    (result, warning) = json.loads(text)["runs"][0]["results"]
    assert (result["ruleId"], result["level"], warning["level"]) == ("E201", "error", "warning")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "%C3%BCn%C3%AF%20code.yaml", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endColumn": 14}
    assert json.loads(run("--format", "sarif", "good.yaml").output)["runs"][0]["results"] == []

    (here / "node_modules").symlink_to(NODE_MODULES)
    kind = "import type { StaticAnalysisResultsFormatSARIFVersion210JSONSchema as Log } from '@schemastore/sarif-2.1.0'"
    documents = {
        "right.ts": text,
        "number.ts": text.replace('"startLine": 3', '"startLine": "three"'),
        "level.ts": text.replace('"level": "error"', '"level": "grave"'),
        "key.ts": text.replace('"results":', '"result":'),
    }
    for name, document in documents.items():
        (here / name).write_text(f"{kind}\nexport const log: Log = {document}\n")
    done = subprocess.run(
        ["node", compiler, "--noEmit", "--strict", "--skipLibCheck", "--lib", "es2020", *documents],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert {line.partition("(")[0] for line in done.stdout.splitlines() if line[0] != " "} == {
        "number.ts",
        "level.ts",
        "key.ts",
    }


def test_junit_has_a_case_for_each_file(here: Path) -> None:
    from xml.etree import ElementTree

    from junitparser import JUnitXml

    (here / "rude.yaml").write_text('dataset:\n  - shards: a.tar\n    "\\b<&\\uFFFF": 1\n')
    text = run("--format", "junit", "good.yaml", "bad.yaml", "warned.yml", "rude.yaml").output
    suite = ElementTree.fromstring(text)[0]
    assert [case.get("name") for case in suite] == ["good.yaml", "bad.yaml", "warned.yml", "rude.yaml"]
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["system-out"], ["failure"]]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    failure = suite[1][0]
    assert failure.get("type") == "E201"
    assert "did you mean `extensions`?" in (failure.text or "")
    [read] = JUnitXml.fromstring(text)
    assert (read.tests, read.failures, read.errors, read.skipped) == (4, 2, 0, 0)
    counted = JUnitXml.fromstring(text)
    counted.update_statistics()  # it counts the cases
    assert (counted.tests, counted.failures, counted.errors) == (4, 2, 0)


def test_the_version_is_printed() -> None:
    import wdspec

    assert CliRunner().invoke(cli, ["--version"]).output == f"wdspec, version {wdspec.__version__}\n"


def test_json_is_one_array(here: Path) -> None:
    result = run("--format", "json", "bad.yaml", "good.yaml")
    assert result.return_value == 1
    (problem,) = json.loads(result.output)
    assert (problem["file"], problem["line"], problem["column"], problem["code"]) == (
        "bad.yaml",
        3,
        5,
        "E201",
    )
    assert json.loads(run("--format", "json", "good.yaml").output) == []


def test_github_annotations(here: Path) -> None:
    result = run("--format", "github", "bad.yaml")
    assert result.output.startswith("::error file=bad.yaml,line=3,col=5,endColumn=14,title=E201::unknown key")


@pytest.mark.parametrize("form", ["text", "github", "json", "sarif"])
def test_a_problem_of_a_shared_base_is_reported_once(form: str, here: Path) -> None:
    (here / "bases").mkdir()
    (here / "bases" / "b.yaml").write_text(BAD)
    for name in ("one", "two"):
        (here / f"{name}.wdspec.yaml").write_text("wdspec: 1\nextends: bases/b.yaml\n")
    for name in ("good.yaml", "bad.yaml", "warned.yml"):
        (here / name).unlink()
    output = run("--format", form, ".").output
    assert output.count("extension") == run("--format", form, "one.wdspec.yaml").output.count("extension")
    if form in ("text", "github"):
        assert output.splitlines()[-1] == "3 files checked: 1 error"
    if form == "github":
        assert "file=bases/b.yaml,line=3" in output


def test_options_set_split_environment_variables_and_overrides(here: Path) -> None:
    (here / "s.yaml").write_text(
        "splits: {a: {dataset: [{shards: '${d}/a.tar'}]}, b: {dataset: [{shards: b.tar, wait: 1}]}}\n"
        "environments: {e: {seed: x}}\n"
    )
    assert run("s.yaml", "--split", "a").return_value == 1
    assert run("s.yaml", "--split", "a", "--var", "d=x").return_value == 1  # environment e is checked, too
    assert run("s.yaml#a", "--var", "d=x", "--env", "e", "--set", "seed=3").return_value == 0
    assert "E104" in run("s.yaml#a", "--var", "d=x", "--env", "f").output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nowhere.yaml"],
        ["empty"],
        ["none"],
        ["good.yaml", "--format", "xml"],
        ["good.yaml", "--var", "x"],
        ["good.yaml", "--set", "x"],
    ],
)
def test_wrong_usage_exits_2_and_prints_usage(here: Path, arguments: list[str]) -> None:
    (here / "empty").mkdir()
    (here / "none").mkdir()
    (here / "none" / "compose.yaml").write_text("services: {}\n")
    assert CliRunner().invoke(cli, ["validate", *arguments]).exit_code == 2


def test_the_program_exits_with_the_same_codes(here: Path) -> None:
    assert program("validate", "good.yaml").returncode == 0
    assert program("validate", "bad.yaml").returncode == 1
    assert program("validate", "nowhere.yaml").returncode == 2


def test_validating_imports_nothing_heavy(here: Path) -> None:
    code = (
        "import sys; from wdspec.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    for name in ("good.yaml", "bad.yaml"):
        done = subprocess.run(
            [sys.executable, "-c", code, "validate", name], capture_output=True, text=True, check=True
        )
        loaded = set(done.stdout.rpartition("LOADED")[2].split())
        assert not loaded.intersection(HEAVY)
        assert "wdspec.spec.spec" in loaded


def test_output_is_plain_in_a_pipe_and_coloured_on_a_terminal(here: Path) -> None:
    import pty

    assert "\x1b" not in program("validate", "bad.yaml").stdout

    def on_terminal(**environment: str) -> str:
        parent, child = pty.openpty()
        code = "from wdspec.cli.main import main; main()"
        subprocess.run(
            [sys.executable, "-c", code, "validate", "bad.yaml"],
            stdout=child,
            check=False,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(child)
        text = os.read(parent, 100_000).decode()
        os.close(parent)
        return text

    assert "\x1b[" in on_terminal(NO_COLOR="")
    assert "\x1b" not in on_terminal(NO_COLOR="1")


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_a_spec_that_is_not_a_local_file_is_rejected_with_a_hint(command):
    done = subprocess.run(
        [sys.executable, "-m", "wdspec", command, "s3://bucket/a.yaml"], capture_output=True, text=True
    )
    assert done.returncode == {"validate": 2, "explain": 1}[command]
    assert "specs are local files, so download it first" in done.stderr
