"""One cache for two specs, for another user, and under a clock that jumps."""

import itertools
import os
import random
import shutil
import tempfile
import time
import traceback
from pathlib import Path

import pytest
from servers.counting import CountingServer
from shardmaking import write_source

import wdspec


@pytest.fixture
def served(tmp_path):
    (tmp_path / "served").mkdir()
    write_source(tmp_path / "served", "a", 4, 20)
    with CountingServer(tmp_path / "served") as server:
        server.names = sorted(path.name for path in server.folder.iterdir())
        yield server


def spec(server, cache, **source):
    urls = [f"{server.url}/{name}" for name in server.names]
    return {
        "cache": cache,
        "dataset": [{"name": "a", "shards": urls, "shuffle": 5, **source}],
        "epoch": "pass",
    }


def keys(spec):
    return sorted(sample["__key__"] for sample in wdspec.compile(spec))


def test_two_specs_share_one_cache_also_concurrently(served, tmp_path):
    expected = keys(spec(served, False))
    before = sum(served.fetched.values())
    cache = {"dir": str(tmp_path / "cache")}
    first = wdspec.compile(spec(served, cache, decode="raw"))
    second = wdspec.compile(spec(served, cache, order="sequential", extensions="txt", shuffle=0))
    found = [sample["__key__"] for pair in itertools.zip_longest(first, second) for sample in pair if sample]
    assert sorted(found) == sorted(expected * 2)
    assert sum(served.fetched.values()) - before == len(served.names)
    assert keys(spec(served, {**cache, "size": "1KB"})) == expected, "a third one that keeps next to nothing"
    assert keys(spec(served, cache)) == expected


def in_a_child_of_nobody(job):
    """Runs a job in a child that is an ordinary user; its output where it fails."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        said = "ended"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            said = repr(job())
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(theirs, said.encode())
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("state", ["empty", "full", "partly full"])
def test_a_cache_without_write_permission_is_read(served, state):
    expected = keys(spec(served, False))
    folder = Path(tempfile.mkdtemp(prefix="wdspec-test-"))
    try:
        cache = folder / "cache"
        cache.mkdir()
        if state != "empty":
            keys(spec(served, str(cache)))
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        if state == "partly full":
            copies = list(cache.rglob("*.tar"))
            copies[0].parent.chmod(0o755)
            copies[0].unlink()
            copies[0].parent.chmod(0o555)
        before = sum(served.fetched.values())
        said = in_a_child_of_nobody(lambda: keys(spec(served, str(cache))))
        assert said == repr(expected)
        fetched = sum(served.fetched.values()) - before
        assert fetched >= {"empty": len(served.names), "full": 0, "partly full": 1}[state]
        if state == "full":
            assert fetched == 0
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(folder)


def test_a_clock_that_jumps_changes_nothing(served, tmp_path, monkeypatch):
    expected = keys(spec(served, False))
    rng, real = random.Random(3), time.time
    monkeypatch.setattr(time, "time", lambda: real() + rng.choice([-1e9, -86_400, 0, 3600, 1e9]))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    for size in ("1MB", "12KB"):
        for _ in range(3):
            assert keys(spec(served, {"dir": str(tmp_path / size), "size": size})) == expected
