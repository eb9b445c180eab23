"""Objects that samples name on real servers: nginx and S3 (docs/references.md)."""

import json

import pytest
from servers.objects import ObjectServer, data_of
from servers.stores import put, use

import wdspec
from wdspec.base.errors import FieldError, ShardError, StoreError, UrlError
from wdspec.spec.language.fetching import FetchedObject
from wdspec.storage.objects import ObjectReader
from wdspec.storage.storage import Storage
from wdspec.stores.retry import RetryPolicy
from wdspec.testing import assert_resumable
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import ShardUrl

NAMES = [f"{number}.bin" for number in range(24)]


def spec_of(folder, rows, **entry):
    path = folder / "rows.jsonl"
    path.write_text(
        "".join(f"{json.dumps({'__key__': f'{at:03d}', **row})}\n" for at, row in enumerate(rows))
    )
    source = {"name": "a", "shards": str(path), "shuffle": 8, "fetch": {"bin": {"url": "url", **entry}}}
    return {"seed": 1, "epoch": len(rows), "elastic": {"ranks": 1, "workers": 1}, "dataset": [source]}


def read(spec, workers=0):
    with wdspec.loader(spec, num_workers=workers) as loader:
        return {sample["url"]: sample["bin"] for sample in loader}


@pytest.fixture(scope="module")
def objects(nginx):
    for name in NAMES:
        (nginx.root / name).write_bytes(data_of(name))
    (nginx.root / "page.bin").write_bytes(b"<html><body>no</body></html>")
    return nginx.url


def test_objects_of_nginx_come_over_a_few_connections_each_once(nginx, objects, tmp_path):
    before = len(nginx.requests())
    spec = spec_of(tmp_path, [{"url": name} for name in NAMES], root=objects)
    assert read(spec, 1) == {name: data_of(name) for name in NAMES}
    assert len(nginx.requests()) - before == len(NAMES)
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), batches=16, stops=[3, 11])


def test_ranges_of_nginx(nginx, objects, tmp_path):
    rows = [{"url": name, "a": at, "b": at + 7} for at, name in enumerate(NAMES)]
    spec = spec_of(tmp_path, rows, root=objects, bytes=["a", "b"])
    assert read(spec) == {name: data_of(name)[at : at + 7] for at, name in enumerate(NAMES)}
    assert all('" 206 7 ' in line for line in nginx.requests()[-len(NAMES) :])
    plain = spec_of(tmp_path, rows, root=f"{objects}/plain", bytes=["a", "b"])  # without ranges
    assert read(plain) == {name: data_of(name)[at : at + 7] for at, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("name", "code"),
    [("none.bin", "D262"), ("page.bin", "D264"), ("loop/x", "D263"), ("abroad/0.bin", "D263")],
)
def test_answers_of_nginx_without_an_object(objects, tmp_path, name, code):
    with pytest.raises(FieldError) as caught:
        read(spec_of(tmp_path, [{"url": name}], root=objects))
    assert caught.value.code == code


def test_a_redirect_of_nginx_within_the_host_is_followed(objects, tmp_path):
    assert read(spec_of(tmp_path, [{"url": "away/0.bin"}], root=objects)) == {"away/0.bin": data_of("0.bin")}


def test_a_refused_login_is_an_error_of_all_samples(objects, tmp_path):
    with pytest.raises(StoreError):
        read(spec_of(tmp_path, [{"url": "private/0.bin"}], root=objects, missing="skip") | {"errors": "skip"})


def test_objects_of_s3(s3, tmp_path, monkeypatch):
    use(s3, monkeypatch)
    for name in NAMES[:6]:
        put(s3, f"images/{name}", data_of(name))
    put(s3, "images-private/0.bin", b"private")
    rows = [{"url": name, "a": 5, "b": 9} for name in NAMES[:6]]
    expected = {name: data_of(name) for name in NAMES[:6]}
    assert read(spec_of(tmp_path, rows, root=f"{s3.root}images")) == expected
    ranged = spec_of(tmp_path, rows, root=f"{s3.root}images", bytes=["a", "b"])
    assert read(ranged) == {name: data[5:9] for name, data in expected.items()}
    complete = [{"url": f"{s3.root}images/{name}"} for name in NAMES[:6]]
    found = read(spec_of(tmp_path, complete, hosts=[s3.root.rstrip("/")]))
    assert {*found.values()} == {*expected.values()}
    with pytest.raises(FieldError) as caught:
        read(spec_of(tmp_path, [{"url": "none.bin"}], root=f"{s3.root}images"))
    assert caught.value.code == "D262"
    with pytest.raises(FieldError) as caught:
        read(spec_of(tmp_path, [{"url": "../images-private/0.bin"}], root=f"{s3.root}images"))
    assert caught.value.code == "D261"


def stat(url, root, **storage):
    """What a store says about an object that data chose, as for a copy that may be of an earlier version."""
    storage = Storage(retry_policy=RetryPolicy(budget=0.1), **storage)
    reader = ObjectReader.of(storage, FetchedObject(url="url", root=f"{root}/"), "bin")
    return reader.storage.stat(ShardUrl(url, "/"))


def test_a_store_is_asked_about_an_object_only_where_it_could_be_read(objects, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.bin").write_bytes(b"abc")
    (tmp_path / "root" / "b.bin").symlink_to("/etc/passwd")
    assert stat(f"{tmp_path}/root/a.bin", f"{tmp_path}/root").size == 3
    with pytest.raises(ShardError, match="symbolic link"):
        stat(f"{tmp_path}/root/b.bin", f"{tmp_path}/root")
    command = Rule("^http.*", "pipe:cat /etc/passwd", "a test")
    with pytest.raises(UrlError, match="command"):
        stat(f"{objects}/0.bin", objects, rules=(command,))
    assert stat(f"{objects}/0.bin", objects).size == len(data_of("0.bin"))
    with ObjectServer() as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        with ObjectServer(elsewhere=elsewhere) as server, pytest.raises(ShardError, match="redirect"):
            stat(f"{server.url}/elsewhere/0.bin", server.url)
        assert not other.requests
