"""The process that makes a copy can fork, die, stop or exit at any time: readers of the copy continue."""

import os
import signal
import subprocess
import sys
import threading
import time

import cachestores
import pytest
from cachestores import Caching, Store, drained, tar_of

from wdspec.cache import fill as filling
from wdspec.cache import follower
from wdspec.cache.index import Index, key_of

URL = "gs://b/0.tar"
DATA = tar_of(1_000_000)

MAKER = """
import os, sys, threading, time
sys.path.insert(0, {tests!r})
from cachestores import Caching, Store, tar_of
left = [4]
def wait():
    left[0] -= 1
    if left[0] < 0:
        time.sleep(1000)
stream = Caching({cache!r}).open({url!r}, Store({{{url!r}: tar_of(1_000_000)}}, piece=100_000, wait=wait))
assert stream.read(10)
if {forks}:
    if not os.fork():
        time.sleep(1000)
while stream._fill.written < 400_000:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def maker(tmp_path):
    """Starts a process that has made 400,000 bytes of the copy and gets no more."""
    started = []

    def start(forks=False):
        script = MAKER.format(
            tests=os.path.dirname(cachestores.__file__),
            cache=str(tmp_path / "cache"),
            url=URL,
            forks=forks,
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("forks", [False, True])
def test_readers_continue_after_the_maker_is_killed(maker, caching, forks):
    process = maker(forks)
    store = Store({URL: DATA})
    stream = caching.open(URL, store)
    assert stream.read(1000) == DATA[:1000]
    assert store.fetched == []
    process.kill()
    assert DATA[:1000] + drained(stream) == DATA
    assert store.fetched == [URL]
    assert caching.path(URL).read_bytes() == DATA


def test_readers_do_not_wait_forever_for_a_stopped_maker(maker, caching, monkeypatch, caplog):
    monkeypatch.setattr(follower, "STALLED", 0.3)
    maker()
    store = Store({URL: DATA})
    assert caching.read(URL, store) == DATA
    assert store.fetched == [URL]
    assert not caching.path(URL).exists()
    assert "makes no progress" in caplog.text


def test_a_partial_file_of_a_killed_maker_is_replaced_without_waiting(maker, caching, monkeypatch):
    monkeypatch.setattr(follower, "STALLED", 1000)
    maker().kill()
    index = Index(str(caching.directory))
    part = index.part(key_of(caching.copies(URL).own))
    assert os.path.getsize(part) == 400_000
    assert not caching.path(URL).exists()
    assert caching.read(URL, Store({URL: DATA})) == DATA
    assert not os.path.exists(part)
    assert len(index.entries.by_use()) <= 2
    index.make_room(2_000_000)


def test_a_child_of_the_maker_follows_it_and_makes_no_copy(caching):
    tickets = threading.Semaphore(3)
    store = Store({URL: DATA}, piece=100_000, wait=tickets.acquire)
    stream = caching.open(URL, store)
    assert stream.read(10) == DATA[:10]
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if DATA[:10] + drained(stream) == DATA and caching.read(URL, store) == DATA else 2
        finally:
            os._exit(code)
    tickets.release(100)
    assert DATA[:10] + drained(stream) == DATA
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.fetched == [URL]


def test_an_exiting_process_finishes_nearly_complete_copies(caching, monkeypatch):
    assert filling.GRACE >= 1
    monkeypatch.setattr(filling, "GRACE", 60)
    store = Store({URL: DATA}, piece=100_000, wait=lambda: time.sleep(0.01))
    caching.open(URL, store)
    filling.finish()
    assert caching.path(URL).read_bytes() == DATA

    monkeypatch.setattr(filling, "GRACE", 0.05)
    other = "gs://b/1.tar"
    caching.open(other, Store({other: DATA}, piece=1000, wait=lambda: time.sleep(0.01)))
    filling.finish()
    assert not caching.path(other).exists()
    assert os.listdir(caching.directory / ".wdspec" / "parts") == []


def test_many_threads_read_many_shards_through_one_cache(tmp_path):
    caching = Caching(tmp_path, limit=1_000_000)
    urls = [f"gs://b/{n}.tar" for n in range(12)]
    store = Store({url: tar_of(200_000, seed=n) for n, url in enumerate(urls)}, piece=30_000)
    wrong = []

    def read(first):
        for n in range(12):
            url = urls[(first * 5 + n) % 12]
            if caching.read(url, store) != store.objects[url]:
                wrong.append(url)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)
