"""What wdspec says about sixty mistakes, and that it is silent about correct specs near to them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.long
def test_grades(tmp_path):
    support = os.pathsep.join([str(FOLDER.parent / "support"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, FOLDER / "grade.py", "--json", tmp_path / "grades.json"],
        env={**os.environ, "PYTHONPATH": support},
        check=True,
        timeout=280,
    )
    totals = json.loads((tmp_path / "grades.json").read_text())["totals"]
    assert totals["all"]["A"] >= 52, totals
    assert totals["all"]["F"] == 0, totals
    assert totals["fixed"]["warned"] == 0, totals
    assert totals["near"]["validate"] <= 2, totals
