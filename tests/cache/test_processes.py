"""Many processes with workers on one cache: each shard is fetched once, kills cost one more, limits hold."""

import hashlib
import random
import threading
import time

import pytest
from cachejobs import Job
from cachestores import bytes_in, tar_of
from servers.counting import CountingServer

from wdspec.cache.names import own_name


class Shards:
    """Tars of unlike sizes in a folder, which a counting server serves."""

    def __init__(self, folder, count, size, pause):
        folder.mkdir()
        self.data = {f"{n:03d}.tar": tar_of(size + n * 1000, seed=n) for n in range(count)}
        for name, data in self.data.items():
            (folder / name).write_bytes(data)
        self.server = CountingServer(folder, pause)

    @property
    def digests(self):
        return {
            f"{self.server.url}/{name}": hashlib.sha256(data).hexdigest() for name, data in self.data.items()
        }

    @property
    def size(self):
        return sum(map(len, self.data.values()))

    def assert_right(self, cache, complete=True):
        """Every file under a final name has the right bytes."""
        for name, data in self.data.items():
            path = cache / own_name(f"{self.server.url}/{name}")
            if complete or path.exists():
                assert path.read_bytes() == data, name


@pytest.fixture(
    params=[pytest.param((4, 2), id="4x2"), pytest.param((8, 4), id="8x4", marks=pytest.mark.long)]
)
def crowd(request):
    return request.param


@pytest.fixture
def shards(tmp_path):
    made = Shards(tmp_path / "served", 12, 400_000, pause=0.005)
    with made.server:
        yield made


def test_every_shard_is_fetched_exactly_once(shards, tmp_path, crowd):
    processes, workers = crowd
    cache = tmp_path / "cache"
    jobs = [Job(shards.digests, cache, workers=workers, passes=2) for _ in range(processes)]
    assert [job.finish() for job in jobs] == [""] * processes
    assert set(shards.server.fetched.values()) == {1}
    assert len(shards.server.fetched) == len(shards.data)
    shards.assert_right(cache)
    assert Job(shards.digests, cache).finish() == ""
    assert set(shards.server.fetched.values()) == {1}
    assert not list((cache / ".wdspec" / "parts").iterdir())


def test_a_kill_costs_one_fetch_and_leaves_only_correct_files(shards, tmp_path, crowd):
    kill_at_random(shards, tmp_path, crowd[0], 2 * crowd[0])


@pytest.mark.long
def test_a_hundred_kills_leave_only_correct_files(shards, tmp_path):
    kill_at_random(shards, tmp_path, 4, 100)


def kill_at_random(shards, tmp_path, processes, count):
    cache = tmp_path / "cache"
    shards.server.pause = 0.02
    chance = random.Random(7)
    jobs = [Job(shards.digests, cache, workers=1) for _ in range(processes)]
    kills = 0
    for _ in range(count):
        time.sleep(chance.uniform(0.05, 0.3))
        job = jobs.pop(chance.randrange(len(jobs)))
        job.kill()
        kills += 1
        shards.assert_right(cache, complete=False)
        jobs.append(Job(shards.digests, cache, workers=1))
    assert [job.finish() for job in jobs] == [""] * len(jobs)
    assert sum(shards.server.fetched.values()) <= len(shards.data) + kills
    shards.assert_right(cache)
    assert not list((cache / ".wdspec" / "parts").iterdir())


@pytest.mark.parametrize("killing", [False, True])
def test_a_limit_below_the_data_size_is_never_exceeded(shards, tmp_path, crowd, killing):
    processes, workers = crowd
    cache = tmp_path / "cache"
    limit = shards.size // 3
    most, ended = [], threading.Event()

    def sample():
        while not ended.wait(0.01):
            most.append(bytes_in(cache))
        most.append(bytes_in(cache))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        jobs = [Job(shards.digests, cache, limit, workers) for _ in range(processes)]
        if killing:
            for _ in range(processes):
                time.sleep(0.1)
                jobs.pop(0).kill()
                jobs.append(Job(shards.digests, cache, limit, workers))
        said = [job.finish() for job in jobs]
    finally:
        ended.set()
        sampler.join()
    assert all("Traceback" not in each for each in said), said
    assert limit // 2 < max(most) <= limit
    shards.assert_right(cache, complete=False)
