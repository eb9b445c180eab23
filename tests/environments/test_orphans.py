"""However a training process dies, and whatever its workers are sending, they end within seconds."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid

import numpy as np
import psutil
import pytest
from shardmaking import write_shard

SECONDS = 100
"""Much less than they sleep, and much more than they need to end."""
LARGE = 100_000
"""Bytes of a field: more than the pipe of a queue holds, so that who sends it waits for a reader."""

OURS = """
    loader = wdspec.loader(spec, num_workers=2, multiprocessing_context=method)
"""
TORCH = """
    loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=2, multiprocessing_context=method)
"""
STATEFUL = """
    from torchdata.stateful_dataloader import StatefulDataLoader
    loader = StatefulDataLoader(
        wdspec.compile(spec), batch_size=None, num_workers=2, multiprocessing_context=method
    )
"""
FLUENT = """
    shards = spec["dataset"][0]["shards"]
    pipeline = wdspec.WebDataset(shards, shardshuffle=False).batched(4).repeat()
    loader = DataLoader(pipeline, batch_size=None, num_workers=2, multiprocessing_context=method)
"""
TRAIN = """
import json, sys, time
import wdspec
from torch.utils.data import DataLoader

if __name__ == "__main__":
    spec, method = json.loads(sys.argv[1]), sys.argv[2]
    {loader}
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    time.sleep(0.5)  # until all queues are full
    print("started", flush=True)
    time.sleep(600)
"""
PROCESS = """
import time
from wdspec.jobs import engine as engines

def begin(work):
    print("started", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    list(engines.LocalEngine(1).run(begin, [0], lost=None))
"""
KINDS = {
    "tensors": {"npy": "npy", "txt": "raw"},
    "bytes": {"txt": "raw", "npy": "raw"},
    "text": {"txt": "text", "npy": "raw"},
}
DEATHS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL, "group TERM": signal.SIGTERM}
METHODS = ("fork", "spawn", "forkserver")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    file = io.BytesIO()
    np.save(file, np.zeros(LARGE, np.uint8))
    for shard in range(4):
        samples = [
            (f"{shard}{i:03d}", {"txt": b"x" * LARGE, "npy": file.getvalue(), "cls": b"1"}) for i in range(8)
        ]
        write_shard(folder / f"{shard}.tar", samples)
    return f"{folder}/{{0..3}}.tar"


def of_mark(mark):
    """All processes that were started with a mark in their environment, and their children."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("ORPHANS") == mark:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            pass
    return found


def left_after(death, command):
    """Start a job, kill it once it runs, and return its processes that are left after some seconds."""
    mark = uuid.uuid4().hex
    job = subprocess.Popen(
        command,
        env={**os.environ, "ORPHANS": mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert job.stdout.readline() == b"started\n"
        assert len(of_mark(mark)) >= 2
        if death.startswith("group"):
            os.killpg(job.pid, DEATHS[death])
        else:
            os.kill(job.pid, DEATHS[death])
        assert job.wait(timeout=SECONDS) == -DEATHS[death]
        deadline = time.monotonic() + SECONDS
        while (left := of_mark(mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [process.cmdline() for process in left]
    finally:
        for process in of_mark(mark):
            process.kill()
        job.wait()
        job.stdout.close()


def check_training(tmp_path, shards, loader, method, kind, death):
    spec = {"dataset": [{"name": "a", "shards": shards, "decode": kind}], "batch": 4}
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(loader=loader.strip()))
    assert left_after(death, [sys.executable, script, json.dumps(spec), method]) == []


@pytest.mark.parametrize(
    ("kind", "death", "method"),
    [
        ("bytes", "TERM", "fork"),
        ("tensors", "group TERM", "spawn"),
        ("text", "KILL", "forkserver"),
        pytest.param("text", "KILL", "fork", marks=pytest.mark.long),
        pytest.param("tensors", "group TERM", "fork", marks=pytest.mark.long),
        pytest.param("bytes", "group TERM", "spawn", marks=pytest.mark.long),
    ],
)
def test_no_worker_outlives_its_training_process(tmp_path, shards, kind, death, method):
    check_training(tmp_path, shards, OURS, method, KINDS[kind], death)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "loader", [OURS, TORCH, STATEFUL, FLUENT], ids=["ours", "torch", "stateful", "fluent"]
)
def test_no_worker_outlives_it_in_any_combination(tmp_path, shards, loader, kind, death, method):
    check_training(tmp_path, shards, loader, method, KINDS[kind], death)


@pytest.mark.parametrize(
    ("loader", "death"),
    [(TORCH, "KILL"), (STATEFUL, "group TERM"), (FLUENT, "TERM")],
    ids=["torch", "stateful", "fluent"],
)
def test_no_worker_of_a_foreign_loader_outlives_it_either(tmp_path, shards, loader, death):
    check_training(tmp_path, shards, loader, "fork", KINDS["bytes"], death)


def test_no_process_of_an_offline_job_outlives_it(tmp_path):
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    assert left_after("KILL", [sys.executable, script]) == []
