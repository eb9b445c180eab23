"""The demo of a run that is killed and resumed on other numbers of processes."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "elastic_demo.py"


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--packed"]])
def test_a_killed_run_reads_the_same_batches(tmp_path, options):
    ran = subprocess.run(
        [sys.executable, DEMO, "--quick", *options], capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    assert "all batches are those of the uninterrupted run" in ran.stdout
    assert ran.stdout.count("kill -9") == 2
    assert "processes" in (tmp_path / "elastic_demo.svg").read_text()
