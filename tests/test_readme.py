"""README.md does what it says.

From the top and in one folder, its files are written, its code and commands are run, and what it says they print is
looked for in what they print.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SET_UP_COMMANDS = ("bash scripts/train", "bash scripts/test")
"""Not run from here, since the second would run this file again: that they are CI's own is checked instead."""


class Block(NamedTuple):
    """A fenced block of README.md: its language, its text, and the line it begins on."""

    language: str
    text: str
    line: int

    @property
    def file_name(self):
        """The name in a first line such as `# train.yaml`, which says that the block is that file."""
        found = re.match(r"# ([\w.-]+\.(?:yaml|py))\n", self.text)
        return found and found[1]

    @property
    def commands(self):
        """The lines of a shell block, without comments."""
        return [command for line in self.text.splitlines() if (command := line.partition("  #")[0].strip())]


def readme_blocks():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(m[1], m[2], text[: m.start()].count("\n") + 1) for m in found]


def is_set_up(block):
    return block.language == "bash" and all(command in SET_UP_COMMANDS for command in block.commands)


def run(command, folder):
    scripts = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WDS", "PYTEST"))}
    environment = {**kept, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    environment["PET_STANDALONE"] = "1"  # a free port for torchrun, whose default another job may use
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_block_is_run_in_order(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    ran, output = 0, ""
    for block in readme_blocks():
        if is_set_up(block):
            continue
        if block.file_name:
            (tmp_path / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            output = run(["bash", "-euo", "pipefail", "-c", block.text], tmp_path)
            if "examples/train.py" in block.text:
                two_processes_read_equal_batches_and_learn(output)
        elif block.language == "text":
            printed = [line.split() for line in output.splitlines()]
            assert [line for line in block.text.splitlines() if line.split() not in printed] == [], output
        elif block.language == "python":
            script = tmp_path / f"readme_line_{block.line}.py"
            script.write_text(block.text, encoding="utf-8")
            run([sys.executable, script.name], tmp_path)
        else:
            pytest.fail(f"README.md:{block.line}: nothing here runs a block of kind {block.language!r}")
        ran += 1
    assert ran >= 5
    assert "torchrun --nproc-per-node 2 examples/train.py --epochs 2" in [
        command for block in readme_blocks() for command in block.commands
    ]


def two_processes_read_equal_batches_and_learn(output):
    """As tests/examples/test_train.py wants it of other numbers of workers."""
    assert output.count("24 batches on each of 2 ranks") == 2
    right, of = map(int, re.search(r"\((\d+) of (\d+)\)", output).groups())
    assert of == 320, "every held-out picture counts once"
    assert right / of > 0.85


def test_the_setup_commands_match_ci():
    commands = [command for block in readme_blocks() if is_set_up(block) for command in block.commands]
    assert sorted(commands) == sorted(SET_UP_COMMANDS)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "CI=true bash scripts/test" in ci


@pytest.mark.parametrize("command", SET_UP_COMMANDS)
def test_setup_commands_run_setup_before_python(command):
    script = ROOT / command.split()[1]
    lines = [line for line in script.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines[0] == "set -euo pipefail"
    at = next(
        place for place, line in enumerate(lines) if re.fullmatch(r"bash scripts/setup (test|torch)", line)
    )
    uses = [place for place, line in enumerate(lines) if ".venv/bin/python " in line]
    assert uses
    assert min(uses) > at


def test_the_training_command_runs_the_example():
    assert "examples/train.py" in (ROOT / "scripts" / "train").read_text(encoding="utf-8")


def test_links_have_targets():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []
