"""Specs, streams, states and commands do what they did when `cases.json.xz` was frozen (see `observe.py`).

Codes, places, values, order, states and exit codes are compared, and whether a problem has a hint, but not wording.
The fast tests run a part of the cases; `pytest -m long tests/differential` runs all in some minutes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def check(record: Path, *options: str) -> None:
    """Observe in a new process, and compare the outcomes with the frozen ones."""
    done = subprocess.run(
        [sys.executable, HERE / "observe.py", record, "--check", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]


def test_some_cases_are_unchanged(tmp_path):
    # In one process: to import what they need takes others longer than the cases.
    check(tmp_path / "record.json.xz", "--fast", "--only", "specs", "--only", "streams", "--jobs", "0")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", ["specs", "streams", "expressions", "commands"])
def test_all_cases_are_unchanged(part, tmp_path):
    check(tmp_path / "record.json.xz", "--only", part)
