"""`storage:`: two stores with separate credentials in one spec, and no secret in it."""

import pickle
import time

import boto3
import pytest
from servers.fault_proxy import FaultProxy
from servers.stores import start_s3
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import ShardError, StoreError
from wdspec.spec.load import check
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.filesystems import filesystem_of
from wdspec.urls.urls import ShardUrl

FILE = "dataset: [{{shards: s3://b/a.tar, storage: {}}}]\n"


@pytest.fixture(scope="module")
def two_stores(tmp_path_factory):
    """Two S3 stores, each with a bucket `lab` that holds another `a.tar`, behind proxies that see who asks."""
    folder = tmp_path_factory.mktemp("two")
    stores = [start_s3(folder / name) for name in ("one", "two") if not (folder / name).mkdir()]
    try:
        for name, store in zip(("one", "two"), stores, strict=True):
            write_shard(folder / f"{name}.tar", [(f"{name}{i}", {"txt": b"x"}) for i in range(5)])
            client = boto3.client(
                "s3",
                endpoint_url=f"http://127.0.0.1:{store.port}",
                region_name="us-east-1",
                aws_access_key_id="x",
                aws_secret_access_key="x",
            )
            client.create_bucket(Bucket="lab")
            client.put_object(Bucket="lab", Key="a.tar", Body=(folder / f"{name}.tar").read_bytes())
            client.close()
        first, second = (FaultProxy(f"http://127.0.0.1:{store.port}") for store in stores)
        with first, second:
            yield first, second
    finally:
        for store in stores:
            store.stop()


def of(source, **top):
    spec = wdspec.load({**top, "dataset": [{"name": "a", "shards": "s3://lab/a.tar", **source}]})
    return Storage.of(Environment.read(), spec, spec.sources[0])


def login(**storage):
    return of({"storage": storage}).login


def test_one_spec_can_have_two_stores_with_their_own_credentials(two_stores, tmp_path, monkeypatch):
    one, two = two_stores
    monkeypatch.setenv("LAB_KEY", "KEYONE")
    monkeypatch.setenv("LAB_SECRET", "s3cret-one")
    (tmp_path / "key").write_text("KEYTWO\n")
    (tmp_path / "secret").write_text("s3cret-two\n")
    (tmp_path / "mix.yaml").write_text(
        f"""
cache: copies
storage: {{endpoint: '{one.url}', region: us-east-1, env: {{key: LAB_KEY, secret: LAB_SECRET}}}}
dataset:
  - {{name: one, shards: 's3://lab/*.tar', shuffle: 0}}
  - name: two
    shards: s3://lab/a.tar
    shuffle: 0
    storage: {{endpoint: '{two.url}', region: us-east-1, files: {{key: key, secret: secret}}}}
epoch: pass
"""
    )
    spec = wdspec.load(tmp_path / "mix.yaml")
    for _ in range(2):  # from the stores, then from copies
        keys = [sample["__key__"] for sample in wdspec.compile(spec)]
        assert sorted(keys) == [f"{name}{i}" for name in ("one", "two") for i in range(5)]
    for proxy, key in ((one, "KEYONE"), (two, "KEYTWO")):
        assert proxy.requests
        assert all(f"Credential={key}/" in each.headers["authorization"] for each in proxy.requests)
    storages = [Storage.of(Environment.read(), spec, source) for source in spec.sources]
    text = repr((spec, storages)) + pickle.dumps((spec, storages)).decode("latin1")
    copies = "".join(map(str, (tmp_path / "copies").rglob("*")))
    assert "s3cret" not in text + copies
    assert "KEYONE" not in text + copies


def test_outputs_use_the_top_level_settings(s3, monkeypatch):
    one = s3.environ["AWS_ENDPOINT_URL"]
    bucket = s3.root
    monkeypatch.setenv("LAB_KEY", "KEYONE")
    env = {"key": "LAB_KEY", "secret": "LAB_KEY"}
    storage = of({}, storage={"endpoint": one, "region": "us-east-1", "env": env})
    output = storage.output(f"{bucket}new.bin")
    output.write(b"here")
    output.commit()
    assert storage.is_written(f"{bucket}new.bin")
    with storage.open(storage.resolve(ShardUrl(f"{bucket}new.bin", "/"))) as file:
        assert file.read() == b"here"
    assert f"s3fs at {one}" in storage.describe(f"{bucket}new.bin")
    storage.delete(f"{bucket}new.bin")
    assert not storage.is_written(f"{bucket}new.bin")


def test_each_key_becomes_the_argument_of_its_scheme():
    every = {
        "endpoint": "https://h:1/",
        "profile": "lab",
        "region": "eu",
        "anonymous": True,
        "requester_pays": True,
        "options": {"client_kwargs": {"verify": False}, "version_aware": True},
    }
    assert login(**every).arguments("s3") == {
        "endpoint_url": "https://h:1",
        "profile": "lab",
        "client_kwargs": {"region_name": "eu", "verify": False},
        "anon": True,
        "requester_pays": True,
        "version_aware": True,
    }
    of_google = login(anonymous=True, endpoint="http://h").arguments("gs")
    assert of_google == {"token": "anon", "endpoint_url": "http://h"}
    assert login(anonymous=True).arguments("hf") == {"token": False}
    assert login(endpoint="https://dav/x").arguments("webdav") == {"base_url": "https://dav/x"}
    with pytest.raises(
        StoreError, match=r"`storage.profile` has no meaning for gs://, which takes `endpoint`, `anon"
    ):
        login(profile="lab").arguments("gs")
    with pytest.raises(StoreError, match="gives the argument `anon` twice"):
        login(anonymous=True, options={"anon": False}).arguments("s3")


def test_a_source_replaces_the_settings_entirely():
    top = {"storage": {"endpoint": "http://top", "env": {"secret": "TOP"}}}
    assert of({"storage": {"profile": "lab"}}, **top).login.said.endpoint is None
    assert of({"storage": False}, **top).login is None
    assert of({}, **top).login.said.endpoint == "http://top"


def test_one_url_in_two_stores_is_two_shards(tmp_path):
    other = {"name": "b", "shards": "s3://b/a.tar", "storage": {"endpoint": "http://h"}}
    spec = {"cache": str(tmp_path), "dataset": [{"name": "a", "shards": "s3://b/a.tar"}, other]}
    loaded, problems = check(spec)
    assert "W301" not in [problem.code for problem in problems]
    storages = [Storage.of(Environment.read(), loaded, source) for source in loaded.sources]
    first, second = (each.resolve(ShardUrl("s3://b/a.tar", "/")).copies.own for each in storages)
    assert first != second


@pytest.mark.parametrize(
    ("written", "codes"),
    [
        ("{key: AKIAIOSFODNN7EXAMPLE, secret: s3cret}", ["E220", "E220"]),
        ("{options: {secret: s3cret}}", ["E220"]),
        ("{options: {client_kwargs: {aws_session_token: s3cret}}}", ["E220"]),
        ("{options: {connection_string: 'AccountKey=s3cret'}}", ["E220"]),
        ("{options: {proxy: 'http://me:s3cret@h'}}", ["E220"]),
        ("{endpoint: 'http://me:s3cret@h'}", ["E202"]),
        ("{env: {secret: s3cret/+x}}", ["E220"]),
        ("{env: {key: AKIAIOSFODNN7EXAMPLE}}", ["E220"]),
        ("{token: s3cret}", ["E220"]),
        ("{options: {token: anon, key_filename: x, account_name: n, use_ssl: false}}", []),
    ],
)
def test_a_secret_in_a_spec_is_rejected_with_a_remedy_and_not_shown(tmp_path, written, codes):
    (tmp_path / "s.yaml").write_text(FILE.format(written))
    found = check(tmp_path / "s.yaml")[1]
    assert [problem.code for problem in found if problem.code != "W323"] == codes
    said = "".join(map(str, found))
    assert "s3cret" not in said
    assert "AKIAIOSFODNN7" not in said
    assert "E220" not in codes or "env" in said


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("{endpoint: minio:9000}", "E202"),
        ("{endpoint: 's3://x'}", "E202"),
        ("{endpiont: http://x}", "E201"),
        ("{anonymous: maybe}", "E202"),
        ("{options: {a-b: 1}}", "E202"),
        ("{env: {key: ''}}", "E220"),
        ("{options: {x: 1}, env: {x: Y}}", "E202"),
        ("{options: [1]}", "E202"),
        ("yes", "E202"),
    ],
)
def test_invalid_settings_are_errors(tmp_path, written, code):
    (tmp_path / "s.yaml").write_text(FILE.format(written))
    assert [problem.code for problem in check(tmp_path / "s.yaml")[1]] == [code]


def test_a_missing_secret_is_an_error_that_is_never_skipped(tmp_path, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(
        StoreError, match=r"the variable NOT_SET, which should hold `secret`.*in every worker"
    ):
        filesystem_of("s3://b/a", login(env={"secret": "NOT_SET"}))
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        filesystem_of("s3://b/a", login(files={"secret": str(tmp_path / "x")}))
    (tmp_path / "x").write_text("\n")
    with pytest.raises(StoreError, match="is empty"):
        filesystem_of("s3://b/a", login(files={"secret": str(tmp_path / "x")}))
    source = {"shards": "s3://b/a.tar", "storage": {"env": {"secret": "NOT_SET"}}}
    with pytest.raises(StoreError, match="NOT_SET"):
        list(wdspec.compile({"dataset": [source], "errors": "skip", "epoch": {"batches": 1}, "batch": 1}))


def test_paths_are_relative_to_the_spec_that_names_them(tmp_path):
    (tmp_path / "s.yaml").write_text(FILE.format("{files: {key: keys/k, secret: ~/s}}"))
    files = wdspec.load(tmp_path / "s.yaml").sources[0].storage.files
    assert files == {"key": str(tmp_path / "keys" / "k"), "secret": "~/s"}


def test_wrong_arguments_of_a_class_are_reported():
    with pytest.raises(ShardError, match="cannot be opened"):
        of({"storage": {"options": {"client_kwargs": 3}}}).open_location("s3://b/x").read(1)


def test_a_refused_address_of_azure_is_given_up_after_our_retries_alone(monkeypatch):
    """Its library would wait 15 s before each of three retries of its own, without a word."""
    address = "BlobEndpoint=http://127.0.0.1:1/a;AccountName=a;AccountKey=YQ==;DefaultEndpointsProtocol=http;"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", address)
    spec = {"dataset": [{"name": "a", "shards": "az://c/a.tar"}], "errors": {"retry": 0.1}}
    start = time.monotonic()
    with pytest.raises(wdspec.ShardError, match="Cannot connect to host"):
        next(iter(wdspec.compile(spec)))
    assert time.monotonic() - start < 40  # less than these waits
