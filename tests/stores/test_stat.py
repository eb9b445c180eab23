"""`stat`: what stores report about a shard without reading it, and that it changes with the shard."""

import io
import os
from dataclasses import replace

import pytest
from servers.aistore_double import AisDouble, status
from servers.counting import CountingServer
from servers.stores import put, use

import wdspec
from wdspec.base.errors import MissingShardError, ShardError
from wdspec.storage.storage import Storage
from wdspec.stores import table as user_stores
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.store import ObjectStat
from wdspec.stores.table import user_stores as users
from wdspec.urls.urls import ShardUrl

QUICK = RetryPolicy(budget=1, delay=0.001, longest_delay=0.01, brief=0.05)


def stat(url, **settings):
    return Storage(retry_policy=QUICK, users=users(False), **settings).stat(ShardUrl(url, "/"))


def changes(url, write, **settings):
    """Writes an object twice, of one size, and looks at it before and after."""
    write(b"first")
    first = stat(url, **settings)
    assert first.size == 5
    assert first == stat(url, **settings)
    write(b"again")
    again = stat(url, **settings)
    assert again.size == 5
    assert again.validator != first.validator
    return first


def test_stat_of_a_local_file(tmp_path):
    path = tmp_path / "a.tar"
    said = changes(str(path), path.write_bytes)
    assert said.validator.startswith("mtime ")
    assert stat(f"file:{path}").size == 5
    with pytest.raises(MissingShardError, match="no such file"):
        stat(str(tmp_path / "b.tar"))
    with pytest.raises(ShardError, match="a directory, not a file"):
        stat(str(tmp_path))


def test_stat_of_an_nginx_object_reads_no_bytes(nginx):
    path = nginx.root / "stat.bin"
    path.write_bytes(b"first")
    before = len(nginx.requests())
    said = stat(f"{nginx.url}/stat.bin")
    assert said.size == 5
    assert said.validator
    assert len(nginx.requests()) == before + 1
    path.write_bytes(b"longer")
    assert stat(f"{nginx.url}/stat.bin").validator != said.validator
    with pytest.raises(MissingShardError, match="no such object, says the server: status 404"):
        stat(f"{nginx.url}/stat-none.bin")


def test_stat_uses_an_unread_get_if_head_is_unsupported(tmp_path):
    (tmp_path / "a.tar").write_bytes(bytes(5_000_000))
    with CountingServer(tmp_path) as server:
        assert stat(f"{server.url}/a.tar").size == 5_000_000


@pytest.mark.parametrize("store", ["s3", "gcs", "azure"])
def test_stat_of_a_cloud_object(request, store, monkeypatch):
    server = request.getfixturevalue(store)
    use(server, monkeypatch)
    changes(f"{server.root}stat/a.tar", lambda data: put(server, "stat/a.tar", data))
    with pytest.raises(MissingShardError):
        stat(f"{server.root}stat/none.tar")


@pytest.mark.parametrize("url", ["ais://box/a.tar", "gs://cloud/a.tar"])
def test_stat_of_an_aistore_object(url):
    with AisDouble() as double:
        cluster = AisCluster((double.endpoint,), schemes=frozenset({"gs", "ais"}))
        first = changes(url, lambda data: double.put(url, data), ais=cluster)
        double.script("p", status(503))
        assert stat(url, ais=cluster).validator != first.validator
        with pytest.raises(MissingShardError):
            stat(url.replace("a.tar", "none.tar"), ais=cluster)


def test_stat_of_a_stale_aistore_copy_with_latest():
    with AisDouble() as double:
        old = AisCluster((double.endpoint,), schemes=frozenset({"gs"}))
        double.put("gs://cloud/a.tar", b"first")
        with Storage(ais=old).open_location("ais+gs://cloud/a.tar") as stream:
            stream.read()
        first = stat("gs://cloud/a.tar", ais=old)
        double.put("gs://cloud/a.tar", b"again")
        assert stat("gs://cloud/a.tar", ais=old) == first
        assert stat("gs://cloud/a.tar", ais=replace(old, latest=True)) != first


@pytest.mark.parametrize("url", ["pipe:exit 1", "-"])
def test_stat_of_a_read_only_url_is_unknown(url):
    assert stat(url) == ObjectStat(None, None)


class Attic:
    said = (7, "v1")

    def open(self, url):
        return io.BytesIO()

    def stat(self, url):
        if url.endswith("none"):
            raise FileNotFoundError(url)
        return self.said


def test_stat_of_a_user_store_is_its_answer(monkeypatch):
    monkeypatch.setattr(user_stores, "_registered", {})
    wdspec.store("attic")(Attic)
    wdspec.opener("bare")(lambda url: io.BytesIO())
    assert stat("attic://a") == ObjectStat(7, "v1")
    assert stat("bare://a") == ObjectStat()
    with pytest.raises(MissingShardError):
        stat("attic://none")
    for wrong in (7, ("7", "v1"), (7,), (7, 1.5), os.stat(__file__)):
        monkeypatch.setattr(Attic, "said", wrong)
        with pytest.raises(ShardError, match=r"`stat` of the store .* gave .*; it gives a pair"):
            stat("attic://a")
