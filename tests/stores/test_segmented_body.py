"""Requests for parts of an object wait for their reader without looking again and again."""

import asyncio
import os
import threading
import time

import pytest

from wdspec.stores import object_requests
from wdspec.stores.object_requests import SIDES, SegmentedBody

MB, CHUNK = 1 << 20, 1 << 19
LIMIT = 2 * MB
"""Bytes that may wait for the reader."""
OBJECT = os.urandom(12 * MB)


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts its timers."""

    timers = 0

    def call_at(self, *arguments, **options):
        self.timers += 1
        return super().call_at(*arguments, **options)


@pytest.fixture
def loop(monkeypatch):
    monkeypatch.setattr(object_requests, "WHOLE", 2 * MB)
    monkeypatch.setattr(object_requests, "SEGMENT", MB)
    monkeypatch.setattr(object_requests, "share", lambda: LIMIT)
    loop = CountingLoop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Store:
    """Gives the bytes of the object, and counts them."""

    given = 0

    async def ask(self, start, end):
        for at in range(start, end, CHUNK):
            data = OBJECT[at : min(at + CHUNK, end)]
            self.given += len(data)
            yield data

    def wait_until_full(self):
        deadline = time.monotonic() + 120
        while self.given <= LIMIT and time.monotonic() < deadline:
            time.sleep(0.001)


def test_requests_that_wait_for_their_reader_set_no_timers(loop):
    store = Store()
    body = SegmentedBody(store.ask, loop, 0, len(OBJECT), 120)
    found = body.read(1)
    store.wait_until_full()
    while data := body.read(CHUNK):
        found += data
        assert store.given <= len(found) + LIMIT + (SIDES + 1) * CHUNK
    assert found == OBJECT
    assert loop.timers == 0


def test_requests_that_wait_for_their_reader_end_when_it_is_aborted(loop):
    store = Store()
    body = SegmentedBody(store.ask, loop, 0, len(OBJECT), 120)
    body.read(1)
    store.wait_until_full()
    body.abort()
    deadline = time.monotonic() + 120
    while asyncio.all_tasks(loop) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not asyncio.all_tasks(loop)
