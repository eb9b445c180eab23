"""Reading ahead changes no byte and no error, stays within its budget, and opens the next shard in time."""

from __future__ import annotations

import gc
import io
import os
import random
import threading
import time
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shardmaking import write_shard

from wdspec.base.errors import ShardError
from wdspec.formats.tar.reader import TarSamples
from wdspec.storage import ahead as upcoming
from wdspec.storage.ahead import Ahead
from wdspec.storage.storage import Storage
from wdspec.stores import read_ahead as readahead
from wdspec.stores.read_ahead import BackgroundFetcher, Needs, ReadAhead, background_fetcher
from wdspec.stores.resume import PIECE, ResumingStream
from wdspec.stores.retry import RetryPolicy, TransientError
from wdspec.stores.table import UserStore
from wdspec.urls.urls import ShardUrl

DATA = random.Random(1).randbytes(3_000_000)


class Slow(io.BytesIO):
    """Gives its bytes in pieces of odd sizes, when it is allowed to; fails at `fails_at`."""

    def __init__(self, data=DATA, gate=None, fails_at=None, delay=0.0):
        super().__init__(data)
        self.gate, self.fails_at, self.delay = gate, fails_at, delay
        self.given = 0

    def read(self, size=-1):
        if self.gate is not None:
            self.gate.wait()
        if self.delay:
            time.sleep(self.delay)
        if self.fails_at is not None and self.tell() >= self.fails_at:
            raise ShardError("it broke")
        data = super().read(min(size, 100_003))
        self.given += len(data)
        return data


class Stores:
    """`slow://h/NAME` by name; notes when each was opened."""

    def __init__(self, **stores):
        self.stores, self.opened = stores, []

    def __call__(self, url):
        name = url.rsplit("/", 1)[1]
        self.opened.append(name)
        return self.stores[name]

    def ahead(self):
        return Ahead(Storage(users={"slow": UserStore("slow", self)}))


def shard(name):
    return ShardUrl(f"slow://h/{name}", "/")


def eventually(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


@settings(deadline=None, max_examples=60)
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(1, 700_000)),
            st.tuples(st.just("seek"), st.integers(0, len(DATA))),
            st.tuples(st.just("skip"), st.integers(0, 50_000)),
        ),
        max_size=25,
    )
)
def test_reads_and_seeks_match_the_stream(moves):
    with ReadAhead(Slow()) as stream:
        position = 0
        for move, number in moves:
            if move == "read":
                data = stream.read(number)
                assert data == DATA[position : position + len(data)]
                assert data or position == len(DATA)
                position += len(data)
            else:
                position = min(len(DATA), number if move == "seek" else position + number)
                assert stream.seek(position) == position == stream.tell()


def test_all_bytes_arrive_in_order_from_any_thread():
    with ReadAhead(Slow(delay=0.0005)) as stream:
        assert stream.read() == DATA
        assert stream.read(1) == b""


def test_the_mover_returns_to_a_stream_that_its_reader_used():
    inner = Slow()
    with ReadAhead(inner) as stream:
        with stream.lock:
            stream.start()
            time.sleep(0.05)  # the mover passes it by, and waits
        assert inner.given == 0
        stream.read(10)
        eventually(lambda: inner.given == len(DATA))


def test_an_error_is_raised_after_the_bytes_before_it():
    with ReadAhead(Slow(fails_at=1_000_000)) as stream:
        whole = b""
        while len(whole) < 1_000_000:
            whole += stream.read(PIECE)
        with pytest.raises(ShardError, match="it broke"):
            stream.read(PIECE)
    assert whole == DATA[: len(whole)]


def test_peeking_fetches_only_one_chunk():
    inner = Slow()
    with ReadAhead(inner) as stream:
        stream.read(10)
        stream.seek(2_000_000)
        time.sleep(0.05)
        assert inner.given <= PIECE
        assert stream.read(10) == DATA[2_000_000:2_000_010]


def test_memory_stays_within_the_budget(monkeypatch):
    monkeypatch.setattr(readahead, "BUDGET", 1_000_000)
    inners = [Slow(), Slow()]
    streams = [ReadAhead(inner) for inner in inners]
    for stream in streams:
        stream.read(10)
        stream.start()
    eventually(lambda: all(not stream.ready for stream in streams))
    time.sleep(0.05)
    assert sum(inner.given for inner in inners) <= 1_000_000 + 3 * 100_003
    for stream in streams:
        assert stream.read() == DATA[10:]
        stream.close()


def test_a_stalled_store_does_not_delay_others():
    gate = threading.Event()
    stalled, other = ReadAhead(Slow(gate=gate)), ReadAhead(Slow())
    stalled.start()
    eventually(stalled.lock.locked)
    assert other.read() == DATA
    gate.set()
    assert stalled.read() == DATA
    stalled.close()
    other.close()


def test_closing_during_a_fetch_closes_the_stream_after_it():
    gate = threading.Event()
    inner = Slow(gate=gate)
    stream = ReadAhead(inner)
    stream.start()
    eventually(stream.lock.locked)
    stream.close()
    assert not inner.closed
    gate.set()
    eventually(lambda: inner.closed)


def test_the_next_shard_is_opened_after_this_one_is_complete():
    gate = threading.Event()
    stores = Stores(a=Slow(gate=gate), b=Slow(), c=Slow())
    ahead = stores.ahead()
    a = ahead.open(shard("a"))
    ahead.expect(lambda n: [shard("b"), shard("c")][:n], 2)
    time.sleep(0.05)
    assert stores.opened == ["a"]
    gate.set()
    a.read(PIECE)
    a.read(PIECE)
    eventually(lambda: set(stores.opened) == {"a", "b", "c"})
    eventually(lambda: stores.stores["b"].given == len(DATA))
    with ahead.open(shard("b")) as b:
        assert b.read() == DATA
    assert sorted(stores.opened) == ["a", "b", "c"]
    ahead.close()
    eventually(lambda: stores.stores["c"].closed)


class Direct:
    """A substitute for Storage that puts nothing between the reader and the stream of a store."""

    horizon = 0

    def __init__(self, stores):
        self.stores = stores

    def resolve(self, url):
        return Storage().resolve(url)

    def open(self, resolution):
        return self.stores(resolution.location)


class Sized(Slow):
    """Knows how many bytes are left, as a store does that gives lengths."""

    @property
    def left(self):
        return len(self.getvalue()) - self.tell()


def test_the_next_shard_is_requested_during_the_last_bytes_of_this_one(monkeypatch):
    monkeypatch.setattr(readahead, "SOON", 1_000_000)
    monkeypatch.setattr(readahead, "BUDGET", 1)
    a = Sized()
    stores = Stores(a=a, b=Slow())
    ahead = Ahead(Direct(stores))
    stream = ahead.open(shard("a"))
    ahead.expect(lambda n: [shard("b")][:n], 1)
    while a.left > 1_400_000:
        stream.read(PIECE)
    time.sleep(0.02)
    assert stores.opened == ["a"]
    while a.left > 900_000:
        stream.read(PIECE)
    eventually(lambda: stores.opened == ["a", "b"])
    assert a.left > 0
    ahead.close()


def test_a_dropped_reader_leaves_nothing_open():
    stores = Stores(a=Slow(b""), b=Slow())
    ahead = stores.ahead()
    ahead.open(shard("a")).read()
    ahead.expect(lambda n: [shard("b")][:n], 1)
    eventually(lambda: "b" in stores.opened)
    del ahead
    gc.collect()
    eventually(lambda: stores.stores["b"].closed)


def test_a_closed_stream_is_not_read():
    stream = ReadAhead(Slow())
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.read(1)


def tasks():
    """What the background fetcher of this process still has to fetch."""
    return list(background_fetcher()._tasks)


def test_a_closed_stream_is_not_fetched_by_a_late_fetcher():
    stream = ReadAhead(Slow())
    stream.close()
    stream.start()
    assert stream not in tasks()


def test_cancelling_an_expected_shard_while_opening_leaves_no_task(monkeypatch):
    made = []

    class Interrupted(ReadAhead):
        """Is given up just before it is started, as another thread may do."""

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "has_reader" and value is False:
                made.append(self)
                ahead.close()

    monkeypatch.setattr(upcoming, "ReadAhead", Interrupted)
    ahead = Stores(b=Slow()).ahead()
    ahead.expect(lambda n: [shard("b")][:n], 1)
    eventually(lambda: made and made[0].closed)
    eventually(lambda: not made[0].lock.locked())
    time.sleep(0.05)
    assert made[0] not in tasks()


def test_closing_a_stream_ends_its_retries():
    asked = []

    def refused(offset):
        asked.append(offset)
        raise TransientError("out of order")

    stream = ReadAhead(
        ResumingStream(refused, "http://h/o", RetryPolicy(budget=60, delay=0.001, longest_delay=0.01))
    )
    stream.start()
    eventually(lambda: len(asked) > 2)
    stream.close()
    eventually(lambda: not stream.lock.locked())
    count = len(asked)
    time.sleep(0.05)
    assert len(asked) == count


def test_shards_no_longer_expected_are_closed():
    stores = Stores(a=Slow(b""), b=Slow(), c=Slow())
    ahead = stores.ahead()
    ahead.open(shard("a")).read()
    ahead.expect(lambda n: [shard("b")][:n], 1)
    eventually(lambda: "b" in stores.opened)
    ahead.expect(lambda n: [shard("c")][:n], 1)
    eventually(lambda: stores.stores["b"].closed)
    ahead.close()


def test_an_expected_shard_that_cannot_be_opened_fails_when_its_turn_comes():
    stores = Stores(a=Slow(b""))
    ahead = stores.ahead()
    ahead.open(shard("a")).read()
    ahead.expect(lambda n: [shard("missing")][:n], 1)
    eventually(lambda: "missing" in stores.opened)
    with pytest.raises(ShardError, match="failed: KeyError"):
        ahead.open(shard("missing"))
    assert stores.opened == ["a", "missing"]


def test_local_shards_are_read_directly_and_start_no_thread(tmp_path):
    (tmp_path / "a.tar").write_bytes(DATA)
    before = {*threading.enumerate()}
    ahead = Ahead(Storage())
    with ahead.open(ShardUrl("a.tar", str(tmp_path))) as file:
        ahead.expect(lambda n: [ShardUrl("a.tar", str(tmp_path))][:n], 1)
        assert isinstance(file, io.FileIO)
    assert {*threading.enumerate()} <= before


@settings(deadline=None, max_examples=60)
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(1, 700_000)),
            st.tuples(st.just("seek"), st.integers(0, len(DATA))),
            st.tuples(st.just("prepare"), st.none()),
        ),
        max_size=25,
    )
)
def test_a_stream_that_fetches_when_it_is_told_to_gives_the_same_bytes(moves):
    with ReadAhead(io.BytesIO(DATA), reads=2) as stream:
        for move, number in moves:
            if move == "prepare":
                stream.prepare()
            elif move == "seek":
                stream.seek(number)
            else:
                at, data = stream.tell(), b""
                while len(data) < number and (piece := stream.read(number - len(data))):
                    data += piece
                assert data == DATA[at : at + number]


def test_a_stream_that_fetches_when_it_is_told_to_holds_what_a_draw_takes(monkeypatch):
    monkeypatch.setattr(Needs._usual, "value", [0, 0])  # not what streams of other tests needed
    source = Slow()
    stream = ReadAhead(source, reads=1)

    def draw(size):
        while size:
            size -= len(stream.read(size))
        stream.prepare()
        eventually(lambda: not stream._is_preparing and not stream.lock.locked())

    for _ in range(8):
        draw(50_000)
        assert 50_000 <= source.tell() - stream.tell() <= 200_000
    assert not tasks()
    stream.close()
    assert source.closed


def test_openers_are_few_and_end(monkeypatch):
    monkeypatch.setattr(readahead, "IDLE", 0.01)
    openers, gate, done = readahead.Openers(), threading.Event(), []

    def names():
        return [thread for thread in threading.enumerate() if thread.name == "wdspec-opener"]

    before = set(names())
    for number in range(100):
        openers.add(lambda number=number: (gate.wait(120), done.append(number)))
    assert 1 <= len(set(names()) - before) <= readahead.OPENERS
    gate.set()
    eventually(lambda: sorted(done) == list(range(100)))
    eventually(lambda: not set(names()) - before)
    openers.add(lambda: done.append("again"))
    eventually(lambda: done[-1] == "again")


def test_an_opener_survives_a_task_that_fails(caplog):
    openers, done = readahead.Openers(), []
    openers.add(lambda: 1 / 0)
    openers.add(lambda: done.append(1))
    eventually(lambda: done)
    eventually(lambda: "a task of an opening thread failed" in caplog.text)


def test_a_forked_child_has_its_own_mover():
    ours = background_fetcher()
    pid = os.fork()
    if pid == 0:
        with ReadAhead(Slow()) as stream:
            os._exit(0 if stream.read() == DATA and background_fetcher() is not ours else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_tar_is_read_through_it_with_members_skipped(tmp_path):
    path = tmp_path / "a.tar"
    write_shard(
        path,
        [(f"{n:03}", {e: random.Random(1).randbytes(n * 9973 % 400_000) for e in "ab"}) for n in range(30)],
    )
    wanted = {"b": "b"}.get
    with open(path, "rb", buffering=0) as file:
        plain = list(TarSamples(file, field_of=wanted))
    with ReadAhead(Slow(path.read_bytes())) as stream:
        assert list(TarSamples(stream, field_of=wanted)) == plain


def test_a_stream_that_is_closed_is_not_kept_by_the_waiting_thread():
    fetcher = BackgroundFetcher()

    class Task:
        ready, done, buffered = True, False, 0

        def __init__(self):
            self.lock = threading.Lock()
            self.served = threading.Event()

        def fetch_piece(self):
            self.ready = False
            self.served.set()

    tasks = [Task(), Task()]
    references = [weakref.ref(task) for task in tasks]
    for task in tasks:
        fetcher.add(task)
        assert task.served.wait(120)
        task.done = True
    fetcher.wake()
    del task
    tasks.clear()
    deadline = time.monotonic() + 120
    while any(reference() for reference in references) and time.monotonic() < deadline:
        fetcher.wake()
        time.sleep(0.01)
    assert not any(reference() for reference in references)
