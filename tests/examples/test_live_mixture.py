"""examples/live_mixture.py gives larger shares to the sources with the larger loss, and resumes exactly."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from frameworkjobs import Job

ROOT = Path(__file__).parents[2]


@pytest.fixture
def main(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    threads = torch.get_num_threads()
    from examples.live_mixture import main

    yield main
    torch.set_num_threads(threads)


def test_shares_follow_the_losses_and_a_run_resumes_with_them(main, tmp_path, capsys):
    def run(name, steps, workers="0"):
        folder = tmp_path / name
        options = ["--every", "4", "--steps", str(steps), "--workers", workers, "--keys", str(folder)]
        main(["--checkpoint", str(tmp_path / f"{name}.pt"), *options])
        return (folder / "0.txt").read_text().splitlines()

    whole = run("whole", 12)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3
    for line in said:
        found = re.findall(r"([\w-]+) ([\d.]+) -> (\d+)%", line)
        losses, shares = ([float(row[n]) for row in found] for n in (1, 2))
        assert len(found) == 3
        assert all(shares[i] <= shares[j] for i in range(3) for j in range(3) if losses[i] < losses[j])
    of_last = Counter(key[0] == "r" for line in whole[4:] for key in line.split()[1:])
    assert 0.15 < of_last[True] / of_last.total() < 0.5, (
        "the share that was set, not the spec's of one in five"
    )

    run("cut", 7)  # the state is that of step 4
    cut = run("cut", 12)
    assert cut[:7] == whole[:7]
    assert cut[7:] == whole[4:]


def test_a_checkpoint_of_several_ranks_resumes_in_one_process(main, tmp_path, capsys):
    """With the command in the example's docstring, on two ranks."""
    options = ["--checkpoint", str(tmp_path / "run.pt"), "--every", "2", "--workers", "0"]
    (line,) = re.findall(r"^    torchrun (.*)$", sys.modules[main.__module__].__doc__, re.MULTILINE)
    words = [ROOT / word if word.startswith("examples/") else word for word in line.split()]
    torchrun = ["-m", "torch.distributed.run", "--standalone"]
    with Job(tmp_path / "keys", [[*torchrun, *words, *options, "--steps", "2"]]) as job:
        job.finish()
    main([*options, "--steps", "4"])
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["step 4"]
