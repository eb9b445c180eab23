"""`-`: a shard on standard input, once, in the process itself."""

import subprocess
import sys

import pytest
from shardmaking import write_source

READ = """
import wdspec
spec = {{"dataset": [{{"name": "a", "shards": "-"}}], "limit": {limit}, "loader": {{"workers": {workers}}}}}
try:
    with wdspec.loader(spec) as loader:
        print(sum(1 for sample in loader))
except Exception as error:
    print(error)
"""


def run(limit, workers, stdin):
    program = READ.format(limit=limit, workers=workers)
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=stdin, capture_output=True, text=True, timeout=120
    )
    return done.stdout + done.stderr


@pytest.fixture
def shard(tmp_path):
    write_source(tmp_path, "a", shards=1, samples=10)
    with open(tmp_path / "a-000.tar", "rb") as file:
        yield file


def test_a_shard_is_read_from_standard_input(shard):
    assert run(10, 0, shard).strip() == "10"


def test_standard_input_is_read_only_once(shard):
    assert "standard input can be read only once, and was read before: give the number" in run(11, 0, shard)


def test_workers_have_no_standard_input(shard):
    assert "not to its workers; set `loader: {workers: 0}`" in run(10, 1, shard)


def test_closed_standard_output_is_an_error(shard):
    program = "import os, sys; os.close(1); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-m", "wdspec", "cat", shard.name]
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "standard output is closed" in done.stderr


def test_closed_standard_input_is_an_error(shard):
    program = "import os; os.close(0)\n" + READ.format(limit=10, workers=0)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280)
    assert "standard input is closed" in done.stdout
