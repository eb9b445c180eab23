"""When worker processes are forked, no thread of ours is left of what this process read before."""

import os
import threading

import pytest
from shardmaking import write_shard, write_source

import wdspec
from wdspec.stores import read_ahead as background_fetcher

seen = []
recording = threading.local()


def record():
    if getattr(recording, "on", False):
        seen.append([thread.name for thread in threading.enumerate() if thread not in recording.others])


os.register_at_fork(before=record)


@pytest.fixture
def forks(monkeypatch):
    monkeypatch.setattr(background_fetcher._of_process, "value", background_fetcher.BackgroundFetcher())
    seen.clear()
    recording.others = set(threading.enumerate())  # of fixtures, and of other tests
    recording.on = True
    yield seen
    recording.on = False


def test_workers_start_without_extra_threads_after_remote_shards_were_counted(nginx, tmp_path, forks):
    for shard in range(2):  # too large to be there in one piece
        samples = [(f"a{shard}{n:03d}", {"txt": b"x" * 40_000}) for n in range(60)]
        write_shard(nginx.root / "forks" / f"a-{shard:03d}.tar", samples)
    spec = {
        "dataset": [{"name": "a", "shards": f"{nginx.url}/forks/a-{{000..001}}.tar"}],
        "defaults": {"errors": {"timeout": 30}},
        "batch": 3,
        "epoch": "pass",
        "elastic": {"ranks": 1, "workers": 2},
        "fields": ["txt"],
    }
    alone = wdspec.compile(spec)
    first = [batch["__key__"] for batch in alone]
    new = {thread.name for thread in threading.enumerate() if thread not in recording.others}
    assert "wdspec-fetcher" in new, "or this would test nothing"
    alone.close()
    with wdspec.loader(spec, num_workers=2, multiprocessing_context="fork") as loader:
        assert [batch["__key__"] for batch in loader] == first
    assert forks
    assert [names for names in forks if any(name.startswith("wdspec-") for name in names)] == []
    assert [batch["__key__"] for batch in alone] == first, "the threads come again"


def test_a_stream_that_is_being_read_keeps_its_thread(nginx, tmp_path):
    write_source(nginx.root / "forks", "b", 2, 200)
    spec = {"dataset": [{"name": "b", "shards": f"{nginx.url}/forks/b-{{000..001}}.tar"}], "epoch": 300}
    reading = iter(wdspec.compile(spec))
    next(reading)
    with wdspec.loader(spec, num_workers=1, multiprocessing_context="fork") as loader:
        next(iter(loader))
    assert len(list(reading)) == 299
