"""Bytecode instructions per sample do not grow: a test of speed that does not depend on the load of the machine."""

import csv
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.instructions import HISTORY, counted, rows  # noqa: E402 - as the command finds it

PYTHON = ".".join(map(str, sys.version_info[:2]))


@pytest.mark.skipif(PYTHON != "3.11", reason="other versions of Python have other instructions")
def test_no_row_takes_more_instructions_than_the_last_release(tmp_path):
    with open(HISTORY, newline="", encoding="utf-8") as file:
        last = {line["row"]: float(line["instructions a sample"]) for line in csv.DictReader(file)}
    found = rows(tmp_path)
    assert found.keys() == last.keys()
    # More on purpose: `python benchmarks/instructions.py` shows all rows; the file's last lines say what is allowed.
    assert {name: (figure, last[name]) for name, figure in found.items() if figure > 1.04 * last[name]} == {}


def test_python_instructions_are_counted():
    def work(times):
        for _ in range(times):
            pass

    once, thrice = (counted(lambda n=n: work(n)) for n in (100, 300))
    assert once == counted(lambda: work(100))
    assert 200 <= thrice - once <= 200 * 6
