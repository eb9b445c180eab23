"""The benchmarks run and make their tables; speed is not tested."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from speed import mostly_long

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(ROOT))

from benchmarks.__main__ import TABLES  # noqa: E402 - as the command finds it

ROWS = {
    "decoding.py": 21,
    "cluster_state.py": 3,
    "writing.py": 2,
    "checking.py": 3,
    "counting.py": 3,
    "hand_over.py": 7,
    "ray_data.py": 2,
    "ray_workers.py": 8,
}


@pytest.mark.parametrize(("script", "rows"), mostly_long(ROWS.items(), [("counting.py", 3)]))
def test_a_quick_run_prints_the_table(script, rows):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, "--quick"], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(table) == 2 + rows


SIZES = {"resume": 1, "plan": 2, "listing": 3, "start-up": 3, "state": 1, "memory": 1, "draws": 3}


@pytest.mark.parametrize(
    "row", [name if name != "listing" else pytest.param(name, marks=pytest.mark.long) for name in TABLES]
)
def test_selecting_a_row_prints_its_table(row):
    [table] = importlib.import_module(f"benchmarks.{TABLES[row]}").tables(True)
    assert len(table.lines) == SIZES[row]
    assert all(len(line) == len(table.columns) for line in table.lines)
    assert all(asked.what.startswith(f"{row}: ") for asked in table.asked)
    assert table.asked
