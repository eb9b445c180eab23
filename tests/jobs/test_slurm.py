"""Jobs and training on a real Slurm cluster, started by `srun` as the docs print it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from itertools import chain

import pytest
import servers.slurm
from offlinejobs import write_job

import wdspec

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(servers.slurm.missing() is not None, reason=str(servers.slurm.missing())),
]
RANKS = 3
MAIN = [sys.executable, "-c", "from wdspec.cli.main import main; main()"]
SHARDS = [f"a-00{number}.tar" for number in range(4)]
MORE = """
    def note_and_wait(sample):
        folder = pathlib.Path(__file__).parent
        rank = os.environ["SLURM_PROCID"]
        (folder / f"rank-{rank}").write_text(str(os.getppid()))
        while rank == "1" or not (folder / "killed").exists():
            time.sleep(0.05)
        return double(sample)
"""
KEYS = """
    import json, os
    import wdspec

    loader = wdspec.loader("spec.yaml", num_workers=0)
    keys = [list(batch["__key__"]) for batch in loader]
    with open(f"keys-{os.environ['SLURM_PROCID']}-of-{os.environ['SLURM_NTASKS']}", "w") as file:
        json.dump(keys, file)
"""


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    with servers.slurm.slurm_cluster(tmp_path_factory.mktemp("slurm"), cpus=RANKS) as environ:
        yield environ


@pytest.fixture
def folder(tmp_path):
    write_job(tmp_path, map="functions:double")
    with open(tmp_path / "functions.py", "a") as file:
        file.write(textwrap.dedent(MORE))
    return tmp_path


def srun(environ, folder, *command, ranks=RANKS, **options):
    arguments = ["srun", f"--ntasks={ranks}", "--kill-on-bad-exit=0", *map(str, command)]
    return subprocess.Popen(
        arguments,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def shards(folder):
    return {name: (folder / name).read_bytes() for name in os.listdir(folder) if name[0] != "."}


def test_the_ranks_of_a_job_write_what_one_process_writes(environ, folder):
    subprocess.run([*MAIN, "process", "job.yaml", "--jobs", "0", "--output", "here"], cwd=folder, check=True)
    job = [*MAIN, "process", "job.yaml", "--engine", f"torchrun:{folder / 'ranks'}", "--format", "json"]
    with srun(environ, folder, *job, "--output", "there") as run:
        out, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    assert len(json.loads(out)["done"]) == 4
    assert shards(folder / "there") == shards(folder / "here")
    assert {*SHARDS} <= {*shards(folder / "there")}


def test_the_shards_of_a_killed_rank_are_done_by_the_others(environ, folder):
    subprocess.run([*MAIN, "process", "job.yaml", "--jobs", "0", "--output", "here"], cwd=folder, check=True)
    engine = ["--engine", f"torchrun:{folder / 'ranks'}", "--format", "json"]
    waiting = ["--set", "map=functions:note_and_wait", "--output", "there"]
    with srun(environ, folder, *MAIN, "process", "job.yaml", *engine, *waiting) as run:
        for _ in range(600):
            if (folder / "rank-1").exists() and (folder / "rank-1").read_text():
                break
            time.sleep(0.1)
        os.kill(int((folder / "rank-1").read_text()), signal.SIGKILL)
        (folder / "killed").touch()
        out, err = run.communicate(timeout=300)
    assert len(json.loads(out)["done"]) == 4, err
    assert shards(folder / "there") == shards(folder / "here")


def test_a_loader_takes_its_rank_from_the_job(environ, folder):
    (folder / "spec.yaml").write_text(
        "dataset: [{name: a, shards: 'in/a-{000..003}.tar'}]\n"
        "defaults: {extensions: cls}\nbatch: {global_size: 6}\nepoch: {batches: 4}\nelastic: {ranks: 6, workers: 1}\n"
    )
    (folder / "train.py").write_text(textwrap.dedent(KEYS))
    for ranks in (1, 3):
        with srun(environ, folder, sys.executable, "train.py", ranks=ranks) as run:
            _, err = run.communicate(timeout=120)
        assert run.returncode == 0, err
    read = [json.loads((folder / f"keys-{rank}-of-3").read_text()) for rank in range(3)]
    assert [[*chain.from_iterable(parts)] for parts in zip(*read, strict=True)] == json.loads(
        (folder / "keys-0-of-1").read_text()
    )
    loader = wdspec.loader(str(folder / "spec.yaml"), num_workers=0, rank=0, world_size=1)
    assert [list(batch["__key__"]) for batch in loader] == json.loads((folder / "keys-0-of-1").read_text())
