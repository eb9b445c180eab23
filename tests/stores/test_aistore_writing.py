"""Writing to AIStore: whole, with the checksum that the cluster has of it, or not at all."""

import pytest
from servers.aistore_anywhere import REAL, ais_of_kind
from servers.aistore_double import AisDouble, cut, status

import wdspec
from wdspec.base.errors import ShardError, StoreError, UsageError
from wdspec.storage.storage import Storage
from wdspec.stores.ais_client import client_for
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.retry import RetryPolicy
from wdspec.urls.urls import ShardUrl

DATA = bytes(range(256)) * 4000
URL = "ais://out/a b/x.tar"


@pytest.fixture
def double():
    with AisDouble(tokens={"s3cret"}) as double:
        double.put("ais://out/other", b"")
        yield double
    assert not double.violations


def storage(endpoint, **settings):
    policy = RetryPolicy(budget=1, delay=0.001, longest_delay=0.02)
    return Storage(retry_policy=policy, ais=AisCluster((endpoint,), **settings))


def write(storage, url=URL, data=DATA, **options):
    output = storage.output(url, **options)
    try:
        output.write(data[:1000])
        output.write(data[1000:])
        output.commit()
    finally:
        output.abort()


@pytest.mark.parametrize("kind", ["double", *(["real"] if REAL else [])])
def test_written_objects_can_be_read_and_deleted(kind):
    with ais_of_kind(kind) as ais:
        at, url = storage(ais.endpoint), ais.url("new/a b.tar")
        assert not at.is_written(url)
        write(at, url)
        assert at.is_written(url)
        with at.open(at.resolve(ShardUrl(url, "/"))) as file:
            assert file.read() == DATA
        with pytest.raises(UsageError, match="an object of this name exists"):
            write(at, url, overwrite=False)
        write(at, url, DATA[::-1])
        at.delete(url)
        assert not at.is_written(url)
        at.delete(url)


def test_only_the_gateway_gets_the_token_and_a_target_the_bytes_once(double):
    write(storage(double.endpoint, token="s3cret"))
    puts = double.seen(method="PUT")
    assert [(each.by_gateway, len(each.body)) for each in puts] == [(True, 0), (False, len(DATA))]
    assert "authorization" in puts[0].headers


@pytest.mark.parametrize(
    ("kind", "damage"),
    [(kind, lambda data: data[:-1]) for kind in ("xxhash2", "md5", "none")]
    + [(kind, lambda data: b"?" + data[1:]) for kind in ("xxhash2", "md5", "sha256")],
)
def test_a_corrupted_upload_is_an_error_and_deleted(double, kind, damage):
    double.checksum, double.damages = kind, damage
    with pytest.raises(
        ShardError, match=r"did not arrive as it was sent: its (length|checksum) is .*ais://out/a b/x"
    ):
        write(storage(double.endpoint, token="s3cret"))
    assert set(double.remote["ais", "", "out"]) == {"other"}


def test_objects_appear_only_when_complete(double):
    output = storage(double.endpoint, token="s3cret").output(URL)
    output.write(DATA)
    assert set(double.remote["ais", "", "out"]) == {"other"}
    output.abort()
    assert not double.seen(method="PUT")


@pytest.mark.parametrize("node", ["p", "t"])
@pytest.mark.parametrize("fault", [status(503), cut(0, reset=True), status(409, "busy")])
def test_temporary_errors_are_retried(double, node, fault):
    double.script(node, fault, fault)
    write(storage(double.endpoint, token="s3cret"))
    assert double.remote["ais", "", "out"]["a b/x.tar"].data == DATA


def test_permanent_faults_are_errors(double):
    with pytest.raises(StoreError, match="does the bucket exist"):
        write(storage(double.endpoint, token="s3cret"), "ais://nowhere/x")
    with pytest.raises(StoreError, match="401: invalid token"):
        write(storage(double.endpoint, token="0ther"))
    with pytest.raises(StoreError, match="the address of AIStore is not known"):
        Storage().output(URL)


def test_shards_are_written_and_read_through_a_cluster(monkeypatch):
    with AisDouble() as double:
        double.put("ais://out/other", b"")
        monkeypatch.setenv("AIS_ENDPOINT", double.endpoint)
        with wdspec.ShardWriter("ais://out/s-%03d.tar", maxcount=3, verbose=0) as writer:
            for number in range(7):
                writer.write({"__key__": f"{number}", "txt": "x"})
        dataset = {"name": "a", "shards": "ais://out/s-{000..002}.tar", "shuffle": 0, "order": "sequential"}
        spec = {"dataset": [dataset], "epoch": "pass"}
        assert [each["__key__"] for each in wdspec.compile(spec)] == [f"{number}" for number in range(7)]


def test_other_gateways_of_the_map_replace_a_lost_one():
    with AisDouble(gateway_count=3) as double:
        double.put("ais://out/x", DATA)
        at = storage(double.endpoint)
        for gone in double.gateways[:2]:
            with at.open_location("ais+ais://out/x") as file:
                assert file.read() == DATA
            gone.stop()
            gone.stop = lambda: None
            client_for(at.ais)._manager.clear()  # connections that live on
        with at.open_location("ais+ais://out/x") as file:
            assert file.read() == DATA
        assert double.requests[-2].node == "p2"
        assert len(double.seen(path="/v1/daemon")) == 3, "once, and again after each that went"
