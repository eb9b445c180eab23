"""docs/writing.md does what it says: its blocks run from the top, in one folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

from commandline import environment

import wdspec

PAGE = Path(__file__).parents[2] / "docs" / "writing.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_runs_with_the_documented_output(tmp_path):
    program = tmp_path / "bin" / "wdspec"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom wdspec.cli.main import main\nmain()\n")
    program.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    tree = str(Path(wdspec.__file__).parents[1])
    variables = environment(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}", PYTHONPATH=tree)
    code, shell = [], []
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            code.append(text)
        elif language == "yaml":
            (folder / re.match(r"# (\S+)", text)[1]).write_text(text)
        else:
            shell.append(text)
    for command in (
        [sys.executable, "-c", "\n".join(code)],
        ["bash", "-euo", "pipefail", "-c", "\n".join(shell)],
    ):
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        if command[0] == sys.executable:
            assert done.stdout == "[100, 100, 50]\n"
        else:
            assert "picture" in done.stdout
            assert "cats/" in done.stdout
    made = {name for name in os.listdir(folder) if name.endswith((".tar", ".gz", ".jsonl"))}
    assert made >= {
        "digits-000002.tar",
        "captions-001.jsonl.gz",
        "photos-0002.tar",
        "recipe.tar",
        "index.tar",
    }
    assert made >= {"all.tar.gz", "halves-1.tar", "sorted.tar", "lines-1.jsonl"}
