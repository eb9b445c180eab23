"""Shards written to an S3 server: whole, or not there."""

import pytest

import wdspec
from wdspec.formats.tar.reader import TarSamples

pytest.importorskip("s3fs")
server = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint():
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield f"http://127.0.0.1:{running.get_host_and_port()[1]}"
    running.stop()


@pytest.fixture
def store(endpoint, monkeypatch):
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    found = s3fs.S3FileSystem()
    found.invalidate_cache()
    if not found.exists("out"):
        found.mkdir("out")
    yield found
    s3fs.S3FileSystem.clear_instance_cache()


def test_shards_appear_in_the_bucket_only_when_complete(store):
    with wdspec.ShardWriter("s3://out/run/a-%03d.tar", maxcount=2, verbose=0) as writer:
        for n in range(5):
            writer.write({"__key__": f"{n}", "cls": n, "bin": bytes(1000)})
        store.invalidate_cache()
        assert sorted(store.ls("out/run")) == ["out/run/a-000.tar", "out/run/a-001.tar"]
    store.invalidate_cache()
    found = []
    for path in sorted(store.ls("out/run")):
        with store.open(path) as file:
            found += [sample["cls"] for sample in TarSamples(file)]
    assert found == [b"%d" % n for n in range(5)]


def test_failed_and_removed_uploads_leave_nothing(store):
    def fail():
        with wdspec.TarWriter("s3://out/never.tar") as writer:
            writer.write({"__key__": "a", "cls": 1})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    store.invalidate_cache()
    assert not store.exists("out/never.tar")
    with (
        pytest.raises((wdspec.WdspecError, OSError)),
        wdspec.TarWriter("s3://no-such-bucket/a.tar") as writer,
    ):
        writer.write({"__key__": "a", "cls": 1})
