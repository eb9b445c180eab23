"""examples/live_mixture.py gives more to the sources with the larger loss, and goes on exactly."""

import re
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[2]


@pytest.fixture
def main(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    threads = torch.get_num_threads()
    from examples.live_mixture import main

    yield main
    torch.set_num_threads(threads)


def test_shares_follow_the_losses_and_a_run_goes_on_with_them(main, tmp_path, capsys):
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


def test_what_a_job_of_ranks_saved_goes_on_in_one_process(main, tmp_path, capsys):
    options = ["--checkpoint", str(tmp_path / "run.pt"), "--every", "2", "--workers", "0"]
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        main([*options, "--steps", "2"])
    finally:
        dist.destroy_process_group()
    main([*options, "--steps", "4"])
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["step 2", "step 4"]
