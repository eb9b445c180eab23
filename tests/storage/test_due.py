"""Many sources in a store: what the next draws need is requested side by side, and nothing else."""

import io
import itertools
import threading
import time
import weakref

import pytest
from servers.counting import CountingServer
from shardmaking import write_shard
from urllib3.connection import HTTPConnection

import wdspec
from wdspec.base.errors import MissingShardError, ShardError, WdspecError
from wdspec.read.lean import MANY
from wdspec.storage.due import AHEAD, DueShards
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.read_ahead import LEAST_PIECE, OPENERS
from wdspec.stores.table import UserStore
from wdspec.urls.urls import ShardUrl

SOURCES = MANY + 36


def eventually(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


def write_sources(folder, size=1500, count=500):
    """Two shards of each of many sources; returns those that are read from a URL."""
    names = [f"s{n:03d}" for n in range(SOURCES)]
    for shard in range(2):
        samples = [(f"{shard}{i:02d}", {"txt": f"{shard} {i} ".encode() * size}) for i in range(count)]
        write_shard(folder / f"{names[0]}-{shard}.tar", samples)
        for name in names[1:]:
            (folder / f"{name}-{shard}.tar").hardlink_to(folder / f"{names[0]}-{shard}.tar")
    return lambda url: [{"name": name, "shards": f"{url}/{name}-{{0..1}}.tar"} for name in names]


def read(spec, batches):
    with wdspec.loader(spec, num_workers=0) as loader:
        return [(batch["__key__"], batch["txt"]) for _, batch in zip(range(batches), loader, strict=False)]


@pytest.fixture
def connections(monkeypatch):
    """How many connections of this process were open after each new one; a server learns late that one was closed."""
    made, counts = weakref.WeakSet(), []
    connect = HTTPConnection.connect

    def connect_and_count(connection):
        connect(connection)
        made.add(connection)
        counts.append(sum(each.sock is not None for each in list(made)))

    monkeypatch.setattr(HTTPConnection, "connect", connect_and_count)
    return counts


def test_many_sources_are_read_over_few_connections_in_requests_that_end(tmp_path, connections):
    sources, rest = write_sources(tmp_path), {"batch": 32, "seed": 5}
    expected = read({"dataset": sources(str(tmp_path)), **rest}, 10)
    with CountingServer(tmp_path) as server:
        assert read({"dataset": sources(server.url), **rest}, 10) == expected
    assert 1 < max(connections) <= OPENERS + 4
    size = (tmp_path / "s000-0.tar").stat().st_size
    assert server.sent < SOURCES * size / 4  # they would be read to their ends


def test_the_first_batch_requests_what_it_needs_and_the_draws_after_it(tmp_path):
    sources = write_sources(tmp_path)
    with CountingServer(tmp_path) as server:
        loader = wdspec.loader({"dataset": sources(server.url), "batch": 16, "seed": 5}, num_workers=0)
        with loader:
            next(iter(loader))
        assert len(server.fetched) <= 16 + AHEAD


def test_shards_that_are_replaced_while_they_are_read_are_an_error(tmp_path):
    sources = write_sources(tmp_path)
    with CountingServer(tmp_path) as server:
        spec = {"dataset": sources(server.url), "batch": 32, "errors": {"retry": 0.05, "skip": ["decode"]}}
        with wdspec.loader(spec, num_workers=0) as loader:
            batches = iter(loader)
            for _ in range(4):
                next(batches)
            for shard in range(2):  # all names of a shard are links to one file
                path = tmp_path / f"s000-{shard}.tar"
                data = path.read_bytes()
                with path.open("r+b") as file:
                    file.write(data.replace(b"0 ", b"9 "))
            with pytest.raises(ShardError, match=r"changed while it was read: .* before, .* now"):
                list(itertools.islice(batches, 200))


class Gate(UserStore):
    """A store of small objects that notes what is opened, and answers when it may."""

    def __init__(self, objects):
        self.objects, self.opened, self.may_answer = objects, [], threading.Event()
        super().__init__("gate", self._open_object)

    def _open_object(self, url):
        self.opened.append(url.rsplit("/", 1)[1])
        if not self.may_answer.wait(120):
            raise TimeoutError
        if self.opened[-1] not in self.objects:
            raise MissingShardError("no such object")
        return self.objects[url.rsplit("/", 1)[1]]()


def shards_of(store, share=0.01):
    return DueShards(Storage(users={"gate": store}), lambda shard: False, share)


def shard(name):
    return ShardUrl(f"gate://h/{name}", "/")


def test_shards_are_opened_side_by_side_before_they_are_read():
    store = Gate({name: lambda: io.BytesIO(b"x" * 10 * LEAST_PIECE) for name in "abcd"})
    readers = {name: shards_of(store) for name in "abcd"}
    for name, due in readers.items():
        due.prepare([shard(name)], 1)
    eventually(lambda: sorted(store.opened) == list("abcd"))
    store.may_answer.set()
    for name, due in readers.items():
        with due.open(shard(name)) as stream:
            assert stream.read(5) == b"xxxxx"
    assert sorted(store.opened) == list("abcd")


def test_an_error_of_opening_ahead_is_raised_when_the_shard_is_read():
    store = Gate({})
    store.may_answer.set()
    due = shards_of(store)
    due.prepare([shard("a")], 1)
    with pytest.raises(MissingShardError, match="no such object"):
        due.open(shard("a"))


def test_a_shard_that_cannot_be_located_is_an_error_when_it_is_read(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    due = DueShards(Storage(environment=Environment.read()), lambda shard: False, 0.01)
    bad = ShardUrl("pipe:cat a.tar", "/")
    due.prepare([bad], 1)
    with pytest.raises(WdspecError, match="WDS_SECURE"):
        due.open(bad)


def test_the_next_shard_is_opened_when_the_bytes_of_this_one_are_nearly_used():
    store = Gate({"a": lambda: io.BytesIO(b"x" * 500_000), "b": lambda: io.BytesIO(b"y")})
    store.may_answer.set()
    due = shards_of(store)
    due.expect(lambda count: [shard("b")][:count], 2)
    stream = due.open(shard("a"))
    for _ in range(20):
        stream.read(1000)
        due.prepare([], 1)
        eventually(lambda: not (stream._is_preparing or stream.lock.locked()))
    assert store.opened == ["a"]
    while not due._expected:
        stream.read(1000)
        due.prepare([], 1)
        eventually(lambda: not (stream._is_preparing or stream.lock.locked()))
    assert stream.read(1)
    eventually(lambda: store.opened == ["a", "b"])
    due.close()


def test_shards_that_are_not_read_are_closed():
    opened = []

    def make():
        opened.append(io.BytesIO(b"x"))
        return opened[-1]

    store = Gate({"a": make})
    store.may_answer.set()
    due = shards_of(store)
    due.prepare([shard("a")], 1)
    eventually(lambda: opened)
    due.close()
    eventually(lambda: opened[0].closed)
