"""The benchmarks run and print their tables; how fast they are is not a test."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("script", "rows"),
    [
        ("reading.py", 3),
        ("decoding.py", 21),
        ("validate_time.py", 2),
        ("mixing.py", 15),
        ("plan_cost.py", 2),
        ("state_cost.py", 6),
        ("cluster_state.py", 3),
        ("resume_time.py", 3),
        ("writing.py", 2),
        ("remote.py", 1),
        ("checking.py", 3),
        ("counting.py", 3),
    ],
)
def test_a_quick_run_prints_the_table(script, rows):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, "--quick"], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(table) == 2 + rows
