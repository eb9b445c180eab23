"""Mutated files of each format: an error, or what another reader reads; no hang, no traceback, nothing silent."""

import subprocess
import sys
from pathlib import Path

import hostile
import pytest


def run(*arguments):
    """Run the program in a process of its own, whose memory is limited."""
    return subprocess.run(
        [sys.executable, str(Path(hostile.__file__)), *map(str, arguments)], capture_output=True, text=True
    )


@pytest.mark.parametrize("name", hostile.FORMATS)
def test_mutated_files_are_errors_or_read_as_by_another_reader(name):
    result = run(name, 0, 40)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]


@pytest.mark.long
@pytest.mark.timeout(3000)  # each file has its own limit, of CPU time
@pytest.mark.parametrize("first", range(1000, 2000, 200))
@pytest.mark.parametrize("name", hostile.FORMATS)
def test_many_mutated_files_are_errors_or_read_as_by_another_reader(name, first):
    result = run(name, first, 200, 1)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]


def test_a_reader_that_loses_a_file_is_noticed():
    """The comparison can fail."""
    make, oracle, format = hostile.FORMATS["ustar"]
    assert hostile.judge(make(), lambda data: oracle(data)[1:], format) != ""
