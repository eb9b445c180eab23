"""examples/train.py learns the digits, in one process and in two."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def run(*command):
    """Run from the root of the checkout, without the variables of a job that may be running the tests."""
    jobs = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS")
    environment = {name: value for name, value in os.environ.items() if name not in jobs}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def train(monkeypatch, capsys):
    """What the script prints in this process, with these arguments; importing torch takes longer than a short run."""
    monkeypatch.syspath_prepend(str(ROOT))
    threads = torch.get_num_threads()
    from examples.train import main

    def run_here(*arguments):
        monkeypatch.setattr(sys, "argv", ["examples/train.py", *arguments])
        main()
        return capsys.readouterr().out

    yield run_here
    torch.set_num_threads(threads)


def accuracy(output):
    right, of = map(int, re.search(r"\((\d+) of (\d+)\)", output).groups())
    assert of == 320, "every held-out picture counts once"
    return right / of


def test_one_process_reaches_over_95_percent(train):
    assert accuracy(train()) > 0.95


def test_the_split_is_read_once_also_without_workers(train):
    output = train("--workers", "0", "--epochs", "1")
    assert accuracy(output) > 0.2
    assert "24 batches on each of 1 ranks" in output


@pytest.mark.long  # tests/test_readme.py does so with two workers
def test_two_processes_read_equal_batches_and_end():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    output = run(*torchrun, "examples/train.py", "--workers", "1", "--epochs", "2")
    assert output.count("24 batches on each of 2 ranks") == 2
    assert accuracy(output) > 0.85
