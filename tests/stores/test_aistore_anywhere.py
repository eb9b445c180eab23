"""What holds of every AIStore: of the double, and of the cluster that WDSPEC_TEST_AIS_ENDPOINT names.

No faults and no ETLs here, and only a separate bucket is touched.
"""

import random

import pytest
from reading import reader_of
from servers.aistore_anywhere import REAL, ais_of_kind
from shardmaking import write_source

from wdspec.base.errors import MissingShardError, StoreError
from wdspec.shards.listing import list_texts
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl

DATA = random.Random(1).randbytes(1_500_000)


@pytest.fixture(scope="module", params=["double", *(["real"] if REAL else [])])
def ais(request):
    with ais_of_kind(request.param) as ais:
        yield ais


@pytest.fixture(autouse=True)
def endpoint(ais, monkeypatch):
    monkeypatch.setenv("AIS_ENDPOINT", ais.endpoint)


def opened(url):
    environment = Environment.read()
    storage = Storage.of(environment)
    return storage.open(storage.resolve(ShardUrl(url, "/")))


def listed(url):
    environment = Environment.read()
    found = list_texts([url], "/", Storage.of(environment))
    return [each.text for each in found]


@pytest.mark.parametrize("name", ["x.tar", "a/b/x.tar", "a b+c%20#?&;.tar", "q'{x}!*().tar", "ünï/日本.tar"])
def test_written_objects_can_be_read(ais, name):
    with opened(ais.put(name, DATA)) as file:
        assert file.read() == DATA


def test_any_range_is_read(ais):
    with opened(ais.put("ranges.bin", DATA)) as file:
        for offset in (1_400_000, 5, 1_499_999):
            file.seek(offset)
            assert file.read(100) == DATA[offset : offset + 100]
        file.seek(len(DATA))
        assert file.read(1) == b""


def test_missing_objects_and_buckets_are_distinguished(ais):
    ais.put("here.tar", b"")
    with pytest.raises(MissingShardError, match="no such object in AIStore"):
        opened(ais.url("there.tar")).read(1)
    with pytest.raises(StoreError, match="does the bucket exist"):
        opened(f"ais://{ais.bucket}-not/x.tar").read(1)


def test_globs_and_directories_are_listed_over_many_pages(ais):
    names = [f"list/d{n % 3}/s-{n:03d}.tar" for n in range(20)]
    for name in [*names, "list/d0/notes.txt", "list/d0/.hidden.tar"]:
        ais.put(name, b"x")
    assert listed(ais.url("list/*/s-*.tar")) == sorted(map(ais.url, names))
    assert listed(ais.url("list/**/*.tar")) == sorted(map(ais.url, names))
    assert listed(ais.url("list/d0/")) == [ais.url(name) for name in names if "/d0/" in name]
    assert listed(ais.url("list/d1/s-00?.tar")) == [ais.url(f"list/d1/s-00{n}.tar") for n in (1, 4, 7)]


def test_a_spec_reads_the_same_samples_as_from_a_disk(ais, tmp_path, monkeypatch):
    pattern = write_source(tmp_path / "data", "s", shards=4, samples=25)
    for path in sorted((tmp_path / "data").iterdir()):
        ais.put(f"train/{path.name}", path.read_bytes())
    shards = {"shards": ais.url("train/s-{000..003}.tar"), "shuffle": 20, "name": "s"}
    spec = {"seed": 3, "dataset": [shards], "batch": 8}
    there = reader_of(spec)
    remote = [there.batch(n) for n in range(25)]
    monkeypatch.setenv("WDS_REWRITE", f"ais://{ais.bucket}/train/={tmp_path}/data/")
    here = reader_of(spec)
    assert [here.batch(n) for n in range(25)] == remote
    assert len({sample["__key__"] for batch in remote for sample in batch}) == 100
    assert pattern.endswith("s-{000..003}.tar")
