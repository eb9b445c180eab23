"""Behaviours 19 to 23: AIStore and the cache of shards."""

import os
import shutil
from pathlib import Path

import pytest
from documentstores import Stores, imagenet

import wdspec as wds
from wdspec import ShardError, UsageError


@pytest.fixture(scope="module")
def stores():
    there = Stores()
    yield there
    there.close()


@pytest.fixture
def url(stores, monkeypatch):
    """A shard of 12 samples on an HTTP server."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "WDS_CACHE", "WDS_REWRITE"):
        monkeypatch.delenv(name, raising=False)
    return f"{stores.url}/v1/objects/sharded-imagenet/imagenet-val-000000.tar"


def keys(samples):
    return [sample["__key__"] for sample in samples]


def test_19_gs_is_read_through_aistore_and_other_schemes_are_not(stores, url, monkeypatch):
    monkeypatch.setenv("USE_AIS_FOR", "gs")
    monkeypatch.setenv("AIS_ENDPOINT", stores.url)
    assert len(list(wds.WebDataset("gs://sharded-imagenet/imagenet-val-000000.tar"))) == 12
    objects = [
        request for request in stores.requests if "/v1/objects/" in request
    ]  # another asks for the map
    assert "provider=gcp" in objects[-1]
    dataset = wds.WebDataset("s3://bucket/o.tar")
    assert (
        dataset.stages[-1].args[0].storage.resolve(dataset.stages[0].urls[0]).location == "s3://bucket/o.tar"
    )
    monkeypatch.delenv("AIS_ENDPOINT")
    with pytest.raises(UsageError, match="AIS_ENDPOINT"):
        wds.WebDataset("gs://b/o.tar")


def test_20_copies_of_shards_with_one_name_are_different_files(stores, url, tmp_path):
    other = url.replace("sharded-imagenet", "sharded-imagenet/../sharded-imagenet")
    paths = {
        sample["__local_path__"]
        for one in (url, url.replace("127.0.0.1", "localhost"), f"{url}?sig=1", other)
        for sample in wds.WebDataset(one, cache_dir=tmp_path).slice(1)
    }
    assert len(paths) >= 3


def test_21_the_second_epoch_reads_the_copy(stores, url, tmp_path):
    dataset = wds.WebDataset(url, cache_dir=tmp_path / "cache")
    first = list(dataset)
    assert all(sample["__local_path__"].startswith(str(tmp_path / "cache")) for sample in first)
    requests = len(stores.requests)
    assert list(dataset) == list(dataset) == first
    assert len(stores.requests) == requests
    assert os.path.exists(first[0]["__local_path__"])


def test_22_a_file_placed_in_the_cache_is_read_instead(stores, url, tmp_path):
    (tmp_path / "imagenet-val-000000.tar").write_bytes(imagenet("imagenet-val-000000.tar"))
    requests = len(stores.requests)
    samples = list(wds.WebDataset(url, cache_dir=tmp_path))
    assert samples[0]["__local_path__"] == str(tmp_path / "imagenet-val-000000.tar")
    assert (len(samples), len(stores.requests)) == (12, requests)


def test_22_a_function_names_files_in_the_cache(stores, url, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("WDS_VERBOSE_CACHE", "1")
    (tmp_path / "own-0").write_bytes(imagenet("imagenet-val-000000.tar"))
    options = {"cache_dir": tmp_path, "url_to_name": lambda url: f"own-{int(url[-10:-4])}"}
    requests = len(stores.requests)
    samples = list(wds.WebDataset(url, **options))
    assert samples[0]["__local_path__"] == str(tmp_path / "own-0")
    assert (len(samples), len(stores.requests), capfd.readouterr().err) == (12, requests, "")
    other = url.replace("000000", "000001")
    (sample, *_) = wds.WebDataset(other, **options)
    assert capfd.readouterr().err == f"# downloading {other} to {sample['__local_path__']}\n"


def test_22_a_download_that_is_not_a_shard_is_removed(stores, url, tmp_path):
    with pytest.raises(ShardError):
        list(wds.WebDataset("pipe:echo this is no tar at all, just a page", cache_dir=tmp_path))
    left = [path for path in Path(tmp_path).rglob("*") if path.is_file() and "echo" in path.name]
    assert left == []


def test_23_the_oldest_copies_are_deleted_when_space_runs_out(url, tmp_path):
    size = len(imagenet("imagenet-val-000000.tar"))
    urls = [url.replace("000000", f"{i:06d}") for i in range(6)]
    dataset = wds.WebDataset(urls, cache_dir=tmp_path, cache_size=3 * size + size // 2)
    list(dataset)
    left = sorted(path.name for path in Path(tmp_path).rglob("imagenet-val-*.tar"))
    assert 1 <= len(left) <= 3
    assert "imagenet-val-000005.tar" in left
    assert "imagenet-val-000000.tar" not in left


def test_23_the_size_comes_from_the_environment_by_default(monkeypatch, url, tmp_path):
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "there"))
    assert next(iter(wds.WebDataset(url)))["__local_path__"].startswith(str(tmp_path / "there"))
    shutil.rmtree(tmp_path / "there", ignore_errors=True)
