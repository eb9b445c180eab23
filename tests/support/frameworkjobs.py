"""Jobs for tests: real processes that train from a small spec, are killed, and compared with an unbroken run."""

import contextlib
import importlib.util
import io
import itertools
import os
import random
import socket
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
from shardmaking import write_shard
from warmstart import Program

import wdspec

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "frameworks"
LIBRARIES = (
    "torch.distributed.run",
    "torch._dynamo",
    "lightning.pytorch",
    "transformers.trainer",
    "accelerate",
)
"""What programs of frameworks import, of which each takes seconds."""
FORKING = {"PET_RUN_PATH": "1", "PET_START_METHOD": "fork"}
"""Settings with which torchrun forks its processes instead of starting Python anew."""
STEPS_OF_AN_EPOCH = 25
SPEC = """
wdspec: 1
seed: 5
elastic: {ranks: 2, workers: 2}
defaults: {extensions: npy cls, rename: {image: npy, label: cls}}
batch: {global_size: 8}
epoch: {batches: 25}
splits:
  train:
    dataset:
      - {name: a, shards: "a-{0..4}.tar", weight: 2, shuffle: 40}
      - {name: b, shards: "b-{0..2}.tar", weight: 1, shuffle: 0}
  val:
    dataset:
      - {name: v, shards: "b-{0..2}.tar", order: sequential, shuffle: 0}
    epoch: {batches: 3}
"""


def skip_without(framework):
    """Skips the module where a framework is not installed; imports nothing, which takes each runner seconds."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed", allow_module_level=True)


def make_spec(folder, shards=(5, 3)):
    """Shards of 31 samples with the digits' shape, and a spec that mixes eight of them; returns its path."""
    for name, count in zip("ab", shards, strict=True):
        for shard in range(count):
            write_shard(folder / f"{name}-{shard}.tar", [make_sample(name, shard, i) for i in range(31)])
    path = folder / "spec.yaml"
    path.write_text(SPEC)
    return path


def read_keys(spec, split, batches):
    """The keys of the first batches that a separate loader reads over epochs."""
    with wdspec.loader(spec, split=split, num_workers=0) as loader:
        found = []
        while len(found) < batches:
            found += [batch["__key__"] for batch in loader]
        return found[:batches]


def make_sample(name, shard, index):
    label = index % 10
    image = io.BytesIO()
    np.save(image, np.full((1, 16, 16), label / 10, np.float32))
    return f"{name}{shard}x{index}", {"npy": image.getvalue(), "cls": str(label).encode()}


def unbroken_run(spec, steps):
    """The keys of each global step, read by one process without a break."""
    found = []
    with wdspec.loader(spec, split="train", num_workers=0, rank=0, world_size=1) as loader:
        while len(found) < steps:
            found += [Counter(batch["__key__"]) for batch in itertools.islice(loader, steps - len(found))]
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """One run of a job: its launchers' processes, and the keys that its ranks noted."""

    def __init__(self, keys, commands, folders=None, variables=None):
        self.keys = Path(keys)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.endswith(("RANK", "WORLD_SIZE")) and not name.startswith(("SLURM", "MASTER", "WDS"))
        }
        environment = {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **FORKING}
        self.output = [self.keys.with_suffix(f".{index}.out") for index in range(len(commands))]
        self.processes = [
            Program(command, LIBRARIES, folder, {**environment, **own}, output)
            for command, folder, own, output in zip(
                commands,
                folders or [ROOT] * len(commands),
                variables or [{}] * len(commands),
                self.output,
                strict=True,
            )
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def steps(self):
        """Step -> the parts of it that ranks noted."""
        found = {}
        for path in self.keys.glob("*.txt"):
            for line in path.read_text().splitlines():
                step, *keys = line.split()
                found.setdefault(int(step), []).append(Counter(keys))
        return found

    def run_to(self, step, timeout=200):
        """Wait until a rank has trained on this step."""
        limit = time.monotonic() + timeout
        while max(self.steps(), default=-1) < step:
            assert time.monotonic() < limit, f"step {step} was not reached\n{self.said()}"
            assert self.runs(), f"ended before step {step}\n{self.said()}"
            time.sleep(0.01)

    def run_to_words(self, words, timeout=200):
        """Wait until a process has printed this."""
        limit = time.monotonic() + timeout
        while words not in self.said():
            assert time.monotonic() < limit, f"not said: {words}\n{self.said()}"
            time.sleep(0.05)

    def runs(self):
        return any(process.poll() is None for process in self.processes)

    def family(self, launchers=None):
        """The launchers and all processes they started; torchrun puts those into separate sessions."""
        members = []
        for process in self.processes if launchers is None else launchers:
            with contextlib.suppress(psutil.NoSuchProcess):
                launcher = psutil.Process(process.pid)
                members += [launcher, *launcher.children(recursive=True)]
        return members

    def kill_node(self, number):
        """SIGKILL for one launcher and its processes, as if the node had lost its power."""
        for member in self.family([self.processes[number]]):
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.processes[number].wait(100)

    def kill(self):
        """SIGKILL for every process; the launchers first, so that they start no others."""
        family = self.family()
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        for process in self.processes:
            process.wait(100)
        psutil.wait_procs(family, 100)

    def terminate(self):
        """SIGTERM for every process, as schedulers send it; waits for the end."""
        for member in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                member.terminate()
        self.wait()

    def wait(self, timeout=200):
        for process in self.processes:
            process.wait(timeout)

    def finish(self):
        """Wait for an end without error."""
        self.wait()
        assert [process.returncode for process in self.processes] == [0] * len(self.processes), self.said()

    def said(self):
        return "\n".join(path.read_text(errors="replace") for path in self.output)


def run_and_kill(start, steps, times, furthest):
    """Start a job, kill it at a random step, several times, then let it finish; returns the runs."""
    runs, reached = [], 0
    for number in range(times):
        with start(number) as job:
            job.run_to(random.randint(reached + 1, reached + furthest))
            assert job.runs(), f"ended before it was killed\n{job.said()}"
        runs.append(job)
        reached = max(job.steps())
        assert reached < steps - 1
    with start(times) as job:
        job.finish()
    return [*runs, job]


def assert_exact(runs, expected, ranks, most_replayed=None):
    """Every step of every run has the keys of the unbroken run, and together they cover all of it.

    Args:
        ranks: processes of each run.
        most_replayed: the most steps that a run may repeat of those before it.
    """
    covered = 0
    for number, (job, parts) in enumerate(zip(runs, ranks, strict=True)):
        steps = job.steps()
        whole = [step for step, seen in steps.items() if len(seen) == parts]
        for step, seen in steps.items():
            assert len(seen) <= parts
            keys = sum(seen, Counter())
            assert keys == expected[step] if step in whole else keys < expected[step], (
                f"run {number}, {step=}"
            )
        assert whole == list(range(whole[0], whole[-1] + 1))
        assert whole[0] <= covered, f"run {number} began at step {whole[0]}, after {covered}"
        if number and most_replayed is not None:
            assert covered - whole[0] <= most_replayed
        covered = whole[-1] + 1
    assert covered == len(expected)


def documented(script, options=None):
    """The command of docs/training.md for a script, as arguments for Python, with options set to these values."""
    page = (ROOT / "docs" / "training.md").read_text()
    command = next(
        line for line in page.splitlines() if line.startswith(tuple(STARTS)) and f"/{script}" in line
    ).split()
    for option, value in (options or {}).items():
        command[command.index(option) + 1] = value
    return [
        *STARTS[command[0]],
        *(ROOT / part if str(part).endswith(script) else part for part in command[1:]),
    ]


STARTS = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone"],
    "python": [],
    "accelerate": ["-m", "accelerate.commands.accelerate_cli"],
}
"""Python's arguments for the programs at the start of the page's commands."""
