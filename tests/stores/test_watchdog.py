"""A read that hangs is ended, wherever it hangs, with an error that names source and URL."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from servers.fault_proxy import Script, Stall
from shardmaking import write_source

import wdspec
from wdspec.api import sample_reader
from wdspec.base.errors import ShardError
from wdspec.cli.shard_files import ShardFiles
from wdspec.spec.load import load
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores import table as registry
from wdspec.stores import watchdog
from wdspec.stores.watchdog import open_watched
from wdspec.webdataset.tariterators import ShardReader, jsonl_to_samples

_runs = count()


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch):
    monkeypatch.setattr(watchdog, "STEP", 0.1)


def spec_of(shards, timeout="0.3s", **more):
    return {
        "dataset": [{"name": "pages", "shards": shards, "order": "sequential", "shuffle": 0}],
        "errors": {"timeout": timeout, **more},
    }


def first_sample(spec):
    reader = sample_reader(load(spec))
    try:
        return reader.batch(0)[0]
    finally:
        reader.close()


STALLED = r"a read took more than 0.3 s \(`errors: \{timeout: …\}`\).*\[source pages, url "


def test_a_stalled_server_is_an_error(nginx, proxy, monkeypatch):
    path = f"/run-stall-{next(_runs)}/data.tar"
    (nginx.root / "data.tar").write_bytes(bytes(1_000_000))
    proxy.scripts[path] = Script(then=Stall(1000))
    with pytest.raises(ShardError, match=STALLED + "http"):
        first_sample(spec_of(proxy.url + path, retry=1000))


def test_a_silent_pipe_is_killed():
    with pytest.raises(ShardError, match=STALLED + "pipe:sleep 1000"):
        first_sample(spec_of("pipe:sleep 1000"))


class Sleepy(io.RawIOBase):
    """Waits in Python, as fsspec does for its own thread."""

    def readable(self):
        return True

    def read(self, size=-1):
        while True:
            threading.Event().wait(0.05)


def test_a_waiting_user_opener_is_an_error():
    with pytest.raises(ShardError, match=STALLED):
        open_watched(Sleepy, 0.3, "pages", "sleepy://x").read(10)


def test_a_user_opener_that_waits_before_opening_is_an_error():
    with pytest.raises(ShardError, match=STALLED):
        open_watched(lambda: Sleepy().read(), 0.3, "pages", "sleepy://x")


def test_a_stuck_mover_does_not_block_the_reader(monkeypatch):
    monkeypatch.setitem(
        registry._registered, "stuckatall", registry.UserStore("stuckatall", lambda url: Stuck())
    )
    with pytest.raises(ShardError, match=STALLED):
        first_sample(spec_of("stuckatall://x"))


class Stuck(io.RawIOBase):
    """Returns one chunk, then waits in Python forever."""

    given = False

    def readable(self):
        return True

    def read(self, size=-1):
        if not self.given:
            self.given = True
            return bytes(10)
        return Sleepy().read()


def test_a_stall_is_a_skip_if_the_policy_says_so(tmp_path):
    good = write_source(tmp_path, "good", shards=1)
    sample = first_sample(spec_of(["pipe:sleep 1000", good], skip=True))
    assert sample["__key__"].startswith("good")


def test_time_between_reads_does_not_count(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"ab")
    stream = open_watched(partial(open, path, "rb", 0), 600, "s", "u")
    assert stream.read(1) == b"a"
    stream.look(time.monotonic() + 1000)
    assert stream.read(1) == b"b"
    stream.close()


def test_reads_blocked_in_the_system_are_reported(tmp_path, monkeypatch):
    errors = []

    def note(error):
        errors.append(error)
        os.write(write, b"late")

    monkeypatch.setattr(watchdog, "stuck", note)
    read, write = os.pipe()
    stream = open_watched(partial(open, read, "rb", 0), 0.2, "pages", "/dev/fifo")
    with pytest.raises(ShardError, match=r"a read took more than 0.2 s"):
        stream.read(4)
    assert "[source pages, url /dev/fifo]" in str(errors[0])
    stream.close()
    os.close(write)


def test_a_late_interruption_leaves_nothing():
    program = """
import os, sys, threading, time
from functools import partial
from wdspec.stores import watchdog

watchdog.STEP = 0.05
read, write = os.pipe()
stream = watchdog.open_watched(partial(open, read, "rb", 0), 0.1, "pages", "/dev/fifo")

def answer():
    while not stream._interrupted:
        time.sleep(0.01)
    with stream._lock:  # until it is interrupted
        os.write(write, b"late")

threading.Thread(target=answer).start()
try:
    stream.read(4)
except OSError as error:
    print(error)
sys.setprofile(lambda *event: None)  # hangs at the next call while an interruption is still looked for
(lambda: None)()
sys.setprofile(None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert "a read took more than 0.1 s" in done.stdout, done.stderr
    assert done.returncode == 0


def outcome_of(watch):
    """What a short read gives, and what reaches the code after it."""
    try:
        found = watch.run(divmod, 7, 2)
    except (ShardError, KeyboardInterrupt) as error:
        found = error
    for _ in range(10):
        time.sleep(0)
    return found


def test_a_read_that_ends_while_it_is_judged_waits_for_the_verdict(monkeypatch):
    reads, is_judged, is_over = threading.Event(), threading.Event(), threading.Event()

    def error(*arguments, **place):
        is_judged.set()
        is_over.wait(0.5)  # the reading thread has time to leave
        return ShardError(*arguments, **place)

    def judge():
        reads.wait()
        watch.look(time.monotonic() + 1000)

    def read():
        reads.set()
        is_judged.wait()

    monkeypatch.setattr(watchdog, "ShardError", error)
    watch = watchdog.Watch(600, "s", "u")
    judging = threading.Thread(target=judge)
    judging.start()
    try:
        with pytest.raises(ShardError, match="took more than 600 s"):
            watch.run(read)
    finally:
        is_over.set()
        judging.join()


@pytest.mark.parametrize("by_user", [False, True])
def test_an_interruption_at_any_call_of_a_read_ends_with_it(by_user):
    # Python raises exceptions from outside after a call of C code, and at the start of a function.
    outcomes = []
    for moment in count(1):
        watch, calls = watchdog.Watch(600, "s", "u"), []

        def interrupt(frame, event, _, watch=watch, calls=calls, moment=moment):
            if frame.f_code.co_filename != watchdog.__file__ or event not in ("call", "c_return"):
                return
            calls.append(event)
            if len(calls) == moment and by_user:
                raise KeyboardInterrupt
            if len(calls) == moment and not watch._lock.locked():  # otherwise, the watchdog waits
                watch.look(time.monotonic() + 1000)

        sys.setprofile(interrupt)
        try:
            outcomes.append(type(outcome_of(watch)))
        finally:
            sys.setprofile(None)
        assert watch._since == 0
        if len(calls) < moment:
            break
    assert set(outcomes) == {tuple, KeyboardInterrupt if by_user else ShardError}


def test_an_uninterruptible_worker_still_reports_the_error(tmp_path):
    fifo = tmp_path / "a.tar"
    os.mkfifo(fifo)
    keeper = os.open(fifo, os.O_RDWR)  # so that opening does not wait, and reading does
    try:
        with (
            wdspec.loader(spec_of(f"pipe:cat {fifo}"), num_workers=1) as loader,
            pytest.raises(ShardError, match=STALLED + f"pipe:cat {fifo}"),
        ):
            next(iter(loader))
    finally:
        os.close(keeper)


def test_watching_costs_little():
    data = io.BytesIO(bytes(10))
    watched = open_watched(lambda: data, 600, "s", "u")
    begin = time.thread_time()
    for _ in range(100_000):
        watched.read(0)
    assert time.thread_time() - begin < 1, "a read of 256 KiB takes 30 µs; 10 µs of watching would be seen"


def test_the_watching_thread_ends_with_the_last_stream():
    dog = watchdog._Watchdog()
    watch = watchdog.Watch(0.1, "s", "u")
    dog.add(watch)
    assert dog._running
    del watch
    deadline = time.monotonic() + 120
    while dog._running:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_commands_and_stages_end_hanging_reads(monkeypatch):
    monkeypatch.setitem(registry._registered, "sleepy", registry.UserStore("sleepy", lambda url: Sleepy()))
    storage = replace(Storage.of(Environment.read()), timeout=0.3)
    files = ShardFiles(["sleepy://x.tar", "sleepy://x.jsonl"], storage=storage)
    reader = replace(ShardReader.here(), storage=storage)
    shard, records = files.listed()
    said = r"a read took more than 0.3 s.*\[url sleepy://x"
    for read in (
        lambda: files.opened(shard).read(10),
        lambda: next(files.samples_of(shard)),
        lambda: next(files.samples_of(records)),
        lambda: reader.open("sleepy://x.tar").read(10),
        lambda: next(iter(jsonl_to_samples(reader=reader)([{"url": "sleepy://x.jsonl"}]))),
    ):
        with pytest.raises(ShardError, match=said):
            read()
