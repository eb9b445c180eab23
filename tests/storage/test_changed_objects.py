"""Objects that change after they were copied: reported once, and the copy is still read."""

import io
import logging
import os
import sys
import tarfile
import threading
from dataclasses import replace

import pytest
from servers.aistore_double import AisDouble
from servers.stores import put, use

import wdspec
from wdspec.cache import shard_cache as changed_objects
from wdspec.cache.index import Content, Index, key_of
from wdspec.cache.names import CacheNames
from wdspec.cache.shard_cache import ShardCache, change_since
from wdspec.spec.language.locations import Etl
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.read_ahead import background_fetcher
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import ShardUrl

QUICK = RetryPolicy(budget=1, delay=0.001, longest_delay=0.01, brief=0.05)


def shard(text):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("key.txt")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    return file.getvalue()


FIRST, AGAIN, LONGER = shard(b"abc"), shard(b"xyz"), shard(bytes(20_000))


@pytest.fixture(autouse=True)
def asking_anew(monkeypatch):
    monkeypatch.setattr(changed_objects, "AGAIN", 0.0)
    changed_objects._requests.value = changed_objects._Requests()


@pytest.fixture
def cached(tmp_path):
    """Makes a storage with a cache; what it is asked in the background has been answered when it returns."""

    def opened(url, **settings):
        storage = Storage(
            retry_policy=QUICK, cache=ShardCache(CacheNames(str(tmp_path / "cache"))), **settings
        )
        with storage.open(storage.resolve(ShardUrl(url, "/"))) as stream:
            data = stream.read()
        settled()
        return data

    return opened


def settled():
    """Wait until the store has answered all questions: they are asked by one thread, this one last."""
    answered = threading.Event()
    background_fetcher().call(answered.set, buffered=sys.maxsize)
    assert answered.wait(200)


def warnings_in(caplog):
    return [text for text in caplog.messages if "has changed since its copy was made" in text]


def check(cached, caplog, url, write, **settings):
    """The same bytes of a copy whatever is written meanwhile, and a word only of what has changed."""
    write(FIRST)
    for _ in range(3):
        assert cached(url, **settings) == FIRST
    assert not warnings_in(caplog)
    write(AGAIN)
    assert len(AGAIN) == len(FIRST)
    for _ in range(2):
        assert cached(url, **settings) == FIRST
    (said,) = warnings_in(caplog)
    assert "(no. 1)" in said
    assert url in said
    assert "was" in said
    assert "delete the copy" in said


def test_on_a_server(cached, caplog, nginx):
    path = nginx.root / "changing.tar"

    def write(data):
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        os.utime(path, (1e9, 1e9 + 60 * (data == AGAIN)))  # nginx's ETag is of seconds and length

    check(cached, caplog, f"{nginx.url}/changing.tar", write)


@pytest.mark.parametrize("store", ["s3", "gcs", "azure"])
def test_in_a_cloud(request, store, monkeypatch, cached, caplog):
    server = request.getfixturevalue(store)
    use(server, monkeypatch)
    check(cached, caplog, f"{server.root}changing/a.tar", lambda data: put(server, "changing/a.tar", data))


@pytest.mark.parametrize("url", ["ais://box/a.tar", "gs://cloud/a.tar"])
def test_in_aistore(cached, caplog, url):
    with AisDouble() as double:
        cluster = AisCluster((double.endpoint,), schemes=frozenset({"gs", "ais"}))
        if url.startswith("ais:"):
            check(cached, caplog, url, lambda data: double.put(url, data), ais=cluster)
        else:  # of a cloud's object the cluster has what it fetched, until it is asked for the latest
            double.put(url, FIRST)
            assert [cached(url, ais=cluster) for _ in range(3)] == [FIRST] * 3
            assert not warnings_in(caplog)


def test_etl_output_is_not_compared():
    cluster = AisCluster(("http://localhost:1",))
    assert Storage().tells_changes
    assert Storage(ais=cluster).tells_changes
    assert not Storage(ais=replace(cluster, etl=Etl(name="to-upper", deterministic=True))).tells_changes


def test_a_missing_object_is_reported(cached, caplog, nginx):
    path = nginx.root / "going.tar"
    path.write_bytes(FIRST)
    cached(f"{nginx.url}/going.tar")
    path.unlink()
    assert cached(f"{nginx.url}/going.tar") == FIRST
    assert "the object no longer exists" in warnings_in(caplog)[0]


def test_an_unreachable_store_is_asked_once_and_not_reported(cached, caplog, nginx, monkeypatch):
    (nginx.root / "here.tar").write_bytes(FIRST)
    (nginx.root / "too.tar").write_bytes(FIRST)
    for name in ("here", "too"):
        cached(f"{nginx.url}/{name}.tar")
    asked = []

    def unreachable(self, location):
        asked.append(location)
        raise changed_objects.WdspecError("no answer")

    monkeypatch.setattr(Storage, "stat_location", unreachable)
    for name in ("here", "too", "here"):
        assert cached(f"{nginx.url}/{name}.tar") == FIRST
    assert len(asked) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_run_over_copies_reports_each_object_once(tmp_path, caplog, nginx):
    for name in ("run-0", "run-1"):
        (nginx.root / f"{name}.tar").write_bytes(FIRST)
    spec = {
        "cache": str(tmp_path / "cache"),
        "dataset": [{"name": "a", "shards": f"{nginx.url}/run-{{0..1}}.tar"}],
        "epoch": 20,
    }
    first = [sample["__key__"] for sample in wdspec.compile(spec)]
    settled()  # else a question that is still open meets the file while it is written
    (nginx.root / "run-1.tar").write_bytes(LONGER)
    dataset = wdspec.compile(spec)
    for _ in range(3):
        assert sorted(sample["__key__"] for sample in dataset) == sorted(first)
        settled()
    (said,) = warnings_in(caplog)
    assert "run-1.tar" in said
    assert f"it has {len(LONGER):,} bytes there and {len(FIRST):,} in the copy" in said


@pytest.mark.parametrize(
    ("made_of", "now", "same"),
    [
        ('"a"', '"a"', True),
        ('"a"', '"b"', False),
        ("", '"b"', True),
        ('"a"', None, True),
        ("Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:01 GMT", False),
        ("etag 0x1", "etag 0x2", False),
        ("ais-version 1", "ais-checksum-value f00", True),
        ("ais-version 1, ais-checksum-value f00", "ais-checksum-value f00", True),
        ("ais-version 1, ais-checksum-value f00", "ais-checksum-value bad", False),
    ],
)
def test_comparing_two_answers(made_of, now, same):
    assert (change_since(made_of, 7, ObjectStat(7, now)) is None) == same
    assert change_since(made_of, 7, ObjectStat(8, now)) == "it has 8 bytes there and 7 in the copy"


def test_an_old_index_says_nothing_about_its_objects(tmp_path):
    index = Index(str(tmp_path))
    index.ready()
    assert index.reserve(key_of("a.tar"), Content("a.tar", "gs://b/a.tar"), 7, None, None)
    (entry,) = index.entries.by_use()
    with open(entry.path, "w", encoding="utf-8") as file:
        file.write("a.tar\ngs://b/a.tar")
    assert index.entries.content(entry.key, entry.path) == Content("a.tar", "gs://b/a.tar", "")
