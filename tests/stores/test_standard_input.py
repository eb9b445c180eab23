"""`-`: a shard on standard input, once, in the process itself."""

import os
import subprocess
import sys

import pytest
from forked import in_child
from shardmaking import write_source

import wdspec


@pytest.fixture
def run(tmp_path):
    """What reading samples from `-` gives in a process with this file as standard input, or with none."""

    def read(limit, workers, stdin):
        os.dup2(stdin.fileno(), 0) if stdin else os.close(0)
        spec = {"dataset": [{"name": "a", "shards": "-"}], "limit": limit, "loader": {"workers": workers}}
        try:
            with wdspec.loader(spec) as loader:
                found = str(sum(1 for sample in loader))
        except Exception as error:
            found = str(error)
        return (tmp_path / "found").write_text(found)

    def read_in_child(*arguments):
        assert in_child(lambda: read(*arguments))
        return (tmp_path / "found").read_text()

    return read_in_child


@pytest.fixture
def shard(tmp_path):
    write_source(tmp_path, "a", shards=1, samples=10)
    with open(tmp_path / "a-000.tar", "rb") as file:
        yield file


def test_a_shard_is_read_from_standard_input(run, shard):
    assert run(10, 0, shard) == "10"


def test_standard_input_is_read_only_once(run, shard):
    assert "standard input can be read only once, and was read before: give the number" in run(11, 0, shard)


def test_workers_have_no_standard_input(run, shard):
    assert "not to its workers; set `loader: {workers: 0}`" in run(10, 1, shard)


def test_closed_standard_output_is_an_error(shard):
    program = "import os, sys; os.close(1); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-m", "wdspec", "cat", shard.name]
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "standard output is closed" in done.stderr


def test_closed_standard_input_is_an_error(run):
    assert "standard input is closed" in run(10, 0, None)
