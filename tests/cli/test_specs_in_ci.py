"""Specs checked in CI as teams do it: a light install, the pre-commit hook, the steps of the GitHub Action."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GOOD = "wdspec: 1\ndataset:\n  - shards: gs://bucket/a-{000..099}.tar\n"
BAD = "wdspec: 1\ndataset:\n  - shards: a.tar\n    extension: jpg\n"

PACKAGE = ("wdspec", "pyproject.toml", "README.md", "LICENSE", "action.yml", ".pre-commit-hooks.yaml")


def run(
    *command: str | Path, at: Path, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTEST_"))}
    done = subprocess.run(
        command, cwd=at, capture_output=True, text=True, env={**kept, **environment}, check=False
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def make_repository(at: Path) -> Path:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    run("git", "init", "-q", "-b", "main", at=at)
    run("git", "add", "-A", at=at)
    run("git", *author, "commit", "-q", "-m", "all", at=at)
    return at


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This package as a separate repository."""
    at = tmp_path_factory.mktemp("package")
    for name in PACKAGE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, at / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, at / name)
    return make_repository(at)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team's repository: a good spec, a broken one, and YAML that is no spec."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "good.wdspec.yaml").write_text(GOOD)
    (tmp_path / "configs" / "bad.wdspec.yaml").write_text(BAD)
    (tmp_path / "docker-compose.yaml").write_text("services: {}\n")
    return tmp_path


def test_the_pre_commit_hook_stops_a_broken_spec_in_a_light_install(package: Path, team: Path) -> None:
    hook = {"repo": str(package), "rev": "main", "hooks": [{"id": "wdspec-validate"}]}
    (team / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [hook]}))
    make_repository(team)
    home = team / "home"

    def commit_check() -> subprocess.CompletedProcess[str]:
        # Its cache is the test's own; pip finds packages as it does here, and compiles none that is not imported.
        command = (sys.executable, "-m", "pre_commit", "run", "--all-files")
        return run(*command, at=team, check=False, PRE_COMMIT_HOME=str(home), PIP_COMPILE="0")

    broken = commit_check()
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "configs/bad.wdspec.yaml:4:5: E201 unknown key `extension` in a source" in broken.stdout
    assert "2 files checked: 1 error" in broken.stdout
    (team / "configs" / "bad.wdspec.yaml").write_text(GOOD)
    fixed = commit_check()
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr

    (python,) = home.glob("repo*/py_env-*/bin/python")
    without = "import importlib.util as u; print([n for n in ('torch', 'webdataset') if u.find_spec(n)])"
    assert run(python, "-I", "-c", without, at=team).stdout == "[]\n"


def test_the_pre_commit_hook_finds_the_specs_that_a_changed_base_breaks(team: Path) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    hook = next(each for each in hooks if each["id"] == "wdspec-validate")
    assert re.search(hook["files"], "configs/base.yaml")
    (team / "configs" / "bad.wdspec.yaml").write_text("extends: base.yaml\n" + GOOD)
    (team / "configs" / "base.yaml").write_text("seed: 1\n")

    def commit_base() -> subprocess.CompletedProcess[str]:
        names = ["configs/base.yaml"] if hook.get("pass_filenames", True) else []
        command = [*hook["entry"].split(), *hook["args"], *names]
        return run(sys.executable, "-m", *command, at=team, check=False)

    assert commit_base().stdout.startswith("2 files checked: no problems")
    (team / "configs" / "base.yaml").write_text("sede: 1\n")
    broken = commit_base()
    assert broken.returncode == 1
    assert broken.stdout.startswith("configs/base.yaml:1:1: E201 unknown key `sede`")


def step_of(
    action: Mapping[str, Any], containing: str, inputs: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The script of a step and its environment, with the inputs in place as GitHub puts them."""
    (step,) = [step for step in action["runs"]["steps"] if containing in step.get("run", "")]
    given = {name: about["default"] for name, about in action["inputs"].items()} | dict(inputs)

    def value(text: str) -> str:
        return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: given[match[1]], text)

    assert step["shell"] == "bash"
    assert "${{" not in step["run"]  # an input inside a script could be a script
    return step["run"], {name: value(text) for name, text in step.get("env", {}).items()}


@pytest.mark.parametrize(
    ("inputs", "code", "says"),
    [
        ({}, 1, "::error file=configs/bad.wdspec.yaml,line=4,col=5,endColumn=14,title=E201::unknown key"),
        ({"paths": "configs/good.wdspec.yaml"}, 0, "1 file checked: no problems"),
        ({"paths": "configs/g* configs/good.wdspec.yaml", "args": "--strict"}, 0, "1 file checked"),
        ({"args": "--exclude bad.*", "format": "json"}, 0, "[]"),
    ],
)
def test_the_action_step_annotates(inputs: dict[str, str], code: int, says: str, team: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    script, environment = step_of(action, "wdspec validate", inputs)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run("bash", "-e", "-o", "pipefail", "-c", script, at=team, check=False, PATH=path, **environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout


def test_the_action_writes_its_report_to_a_file(team: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    script, environment = step_of(action, "wdspec validate", {"format": "sarif", "output": "out.sarif"})
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run("bash", "-e", "-o", "pipefail", "-c", script, at=team, check=False, PATH=path, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert '"ruleId": "E201"' in (team / "out.sarif").read_text()
