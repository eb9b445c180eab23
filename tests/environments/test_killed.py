"""A run over HTTP with a cache, killed in the middle of an epoch, resumes elsewhere without a difference."""

from __future__ import annotations

import json
import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
from servers.counting import CountingServer
from shardmaking import write_source

import wdspec

STEPS = 30
CUT = 11


@pytest.fixture
def document(tmp_path, monkeypatch):
    for name in ("WDS_CACHE", "WDS_CACHE_SIZE", "WDS_REWRITE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("a", "b"):
        write_source(tmp_path / "served" / name, "x", shards=8, samples=12)
    with CountingServer(tmp_path / "served", pause=0.05) as server:
        yield spec_of(server.url)


def spec_of(root, **more) -> dict:
    return {
        "seed": 7,
        "dataset": [
            {"name": name, "shards": f"{root}/{name}/x-{{000..007}}.tar", "shuffle": 10}
            for name in ("a", "b")
        ],
        "batch": {"global_size": 8},
        "epoch": {"batches": STEPS},
        "elastic": {"ranks": 2, "workers": 2},
        **more,
    }


def train(document, folder: Path) -> None:
    """Train for `CUT` steps, with a file for each, and wait to be killed; in a session of its own."""
    os.setsid()
    os.chdir(folder)
    with wdspec.loader(document, num_workers=2) as loader:
        for number, batch in enumerate(loader):
            Path("new").write_text(json.dumps({"keys": batch["__key__"], "state": loader.state_dict()}))
            os.replace("new", f"steps/{number:03d}")
            if number + 1 == CUT:
                time.sleep(600)


def killed(document, folder: Path) -> tuple[list[list[str]], dict]:
    """Trains for `CUT` steps, and kills trainer and workers: the keys of the steps, and the last state."""
    (folder / "steps").mkdir()
    # Forked: a new process would import torch.
    trainer = get_context("fork").Process(target=train, args=(document, folder))
    trainer.start()
    try:
        while len(os.listdir(folder / "steps")) < CUT:
            assert trainer.is_alive()
            time.sleep(0.002)
    finally:
        os.killpg(trainer.pid, signal.SIGKILL)
        trainer.join()
    assert trainer.exitcode == -signal.SIGKILL
    saved = [json.loads(path.read_text()) for path in sorted((folder / "steps").iterdir())]
    return [step["keys"] for step in saved], saved[-1]["state"]


def keys_of_ranks(document, ranks: int, workers: int, state=None) -> list[list[str]]:
    """The keys of each step of an epoch, those of all ranks together in their order."""
    steps = []
    for rank in range(ranks):
        with wdspec.loader(document, num_workers=workers, rank=rank, world_size=ranks) as loader:
            if state is not None:
                loader.load_state_dict(state)
            steps.append([batch["__key__"] for batch in loader])
    return [[key for part in parts for key in part] for parts in zip(*steps, strict=True)]


@pytest.mark.parametrize(("ranks", "workers"), [(2, 1), (1, 0)], ids=["on two ranks", "in one process"])
def test_a_killed_run_resumes_exactly_on_another_topology(document, tmp_path, ranks, workers):
    local = spec_of(tmp_path / "served")
    expected = {n: keys_of_ranks(local, n, 0) for n in {1, ranks}}
    cached = {**document, "cache": str(tmp_path / "cache")}
    done, state = killed(cached, tmp_path)
    rest = keys_of_ranks(cached, ranks, workers, state)
    assert done == expected[1][: len(done)]
    assert rest == expected[ranks][len(done) :]
    for step, (one, several) in enumerate(zip(expected[1], done + rest, strict=True)):
        assert sorted(one) == sorted(several), step


def test_cached_files_of_a_killed_run_are_whole_or_fetched_again(document, tmp_path):
    cached = {**document, "cache": str(tmp_path / "cache")}
    _, state = killed(cached, tmp_path)
    keys_of_ranks(cached, 1, 1, state)
    keys_of_ranks({**cached, "epoch": "pass"}, 1, 0)
    served = {path.relative_to(tmp_path / "served"): path for path in (tmp_path / "served").rglob("*.tar")}
    (copies,) = (tmp_path / "cache" / "http").iterdir()
    assert {path.relative_to(copies) for path in copies.rglob("*.tar")} == set(served)
    for name, path in served.items():
        assert (copies / name).read_bytes() == path.read_bytes()
