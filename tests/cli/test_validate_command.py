"""`wdspec validate`, as a program: what it prints, how it ends, what it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wdspec.cli.main import cli
from wdspec.cli.spec_commands.validate import validate

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


def test_a_good_file_says_so_and_ends_with_0(here: Path) -> None:
    result = run("good.yaml")
    assert (result.return_value, result.output) == (0, "1 file checked: no problems\n")


def test_problems_end_with_1_and_warnings_do_not(here: Path) -> None:
    assert run("bad.yaml").return_value == 1
    result = run("warned.yml")
    assert result.return_value == 0
    assert result.output.endswith("1 file checked: 1 warning\n")


def test_a_directory_stands_for_its_specs_in_code_point_order(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "x.yaml").write_text(BAD)
    (here / "Z.yml").write_text(BAD)
    (here / "note.txt").write_text("no spec")
    lines = [line for line in run(".").output.splitlines() if "E201" in line or "W101" in line]
    assert [line.split(":")[0] for line in lines] == ["./Z.yml", "./bad.yaml", "./sub/x.yaml", "./warned.yml"]


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


def test_options_choose_split_environment_variables_and_overrides(here: Path) -> None:
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
        ["good.yaml", "--format", "xml"],
        ["good.yaml", "--var", "x"],
        ["good.yaml", "--set", "x"],
    ],
)
def test_wrong_usage_ends_with_2(here: Path, arguments: list[str]) -> None:
    (here / "empty").mkdir()
    assert CliRunner().invoke(cli, ["validate", *arguments]).exit_code == 2


def test_the_program_ends_with_the_same_codes(here: Path) -> None:
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
        assert "wdspec.spec.language.models" in loaded


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
