"""Mixes of many sources: a few descriptors and little memory, and the batches of the reference model."""

import gzip
import itertools
import json
import os
import random
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from descriptors import count_descriptors, few_descriptors
from oracle.model import Model
from oracle.plain import plain
from servers.counting import CountingServer
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import UsageError
from wdspec.base.handles import FEW, MOST
from wdspec.planning import order

__all__ = ["few_descriptors"]


def write_links(folder, count):
    """Two small shards under the names of those of many sources; returns the spec that mixes them."""
    for shard in range(2):
        samples = [(f"{shard}{i}", {"txt": f"{shard} {i}".encode()}) for i in range(3)]
        write_shard(folder / f"{shard}.tar", samples)
        for n in range(count):
            os.link(folder / f"{shard}.tar", folder / f"s{n:03d}-{shard}.tar")
    sources = [{"name": f"s{n:03d}", "shards": f"{folder}/s{n:03d}-{{0..1}}.tar"} for n in range(count)]
    return {"dataset": sources, "batch": 64, "seed": 3}


def test_six_hundred_sources_are_read_with_256_descriptors(tmp_path, few_descriptors):
    spec, before, most = write_links(tmp_path, 600), count_descriptors(), 0
    with wdspec.loader(spec, num_workers=0) as loader:
        for _, batch in zip(range(25), loader, strict=False):
            assert set(batch["txt"]) <= {f"{shard} {i}" for shard in range(2) for i in range(3)}
            most = max(most, count_descriptors())
    assert most <= max(before, FEW) + MOST + 4


def test_the_batches_of_a_hundred_sources_are_those_of_the_model(tmp_path):
    spec = write_links(tmp_path, 100)
    model = Model(spec)
    with wdspec.loader(spec, num_workers=0) as loader:
        for step, batch in zip(range(15), loader, strict=False):
            assert [plain(batch)] == [plain(item) for item in model.items(step)]


def write_kinds(folder, count, chance, places=("local",)):
    """Shards of several formats under the names of those of many sources; returns the sources.

    `places` are URLs of servers of the folder, or "local".
    """
    for shard in range(2):
        texts = [(f"{shard}{i}", f"{shard} {i}") for i in range(chance.randint(2, 5))]
        write_shard(folder / f"{shard}.tar", [(key, {"txt": text.encode()}) for key, text in texts])
        write_shard(folder / f"more-{shard}.tar", [(key, {"cls": b"7"}) for key, _ in texts])
        (folder / f"{shard}.tar.gz").write_bytes(gzip.compress((folder / f"{shard}.tar").read_bytes()))
        lines = [json.dumps({"__key__": key, "txt": text}) for key, text in texts]
        (folder / f"{shard}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows = [{"__key__": key, "txt": text} for key, text in texts]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{shard}.parquet", row_group_size=2)
    sources = []
    for n in range(count):
        suffix = chance.choice(("tar", "tar", "tar.gz", "jsonl", "parquet"))
        for shard in range(2):
            os.link(folder / f"{shard}.{suffix}", folder / f"s{n:03d}-{shard}.{suffix}")
        place = chance.choice(places)
        root = folder if place == "local" else place
        source = {"name": f"s{n:03d}", "shards": f"{root}/s{n:03d}-{{0..1}}.{suffix}"}
        if chance.random() < 0.1:
            source["subset"] = {"part": "50%"}
        sources.append({**source, "weight": chance.choice((1, 1, 2, 50)), "order": chance.choice(ORDERS)})
    return sources


ORDERS = ("shuffled", "sequential", "resampled")
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_mixes_of_many_sources_are_those_of_the_model_also_when_resumed(tmp_path, seed):
    chance = random.Random(seed)
    count, steps = 70 if seed == 0 else chance.choice((66, 90, 150, 300)), 8
    spec = {
        "dataset": write_kinds(tmp_path, count, chance),
        "defaults": {"shuffle": chance.choice((0, 2, 10, 1000)), "extensions": "txt"},
        "batch": chance.choice((16, 64)),
        "seed": seed,
        "elastic": {"ranks": 1, "workers": 2},
    }
    check_against_model(spec, chance.randrange(1, steps), steps)


def check_against_model(spec, stop, steps, url="", folder=None):
    """Compare the batches of a spec with those of the model, also when they are resumed after some of them.

    The model reads shards at the URL from the folder.
    """

    def read(loader, count):
        for _, batch in zip(range(count), loader, strict=False):
            urls = [text.replace(url, str(folder)) if url else text for text in batch["__url__"]]
            yield [plain({**batch, "__url__": urls})]

    local = [{**source, "shards": source["shards"].replace(url, str(folder))} for source in spec["dataset"]]
    model = Model({**spec, "dataset": local} if url else spec, workers=2)
    expected = [[plain(item) for item in model.items(step)] for step in range(steps)]
    with wdspec.loader(spec, num_workers=0) as loader:
        found = list(read(loader, stop))
        state = json.loads(json.dumps(loader.state_dict()))
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(state)
        found += read(loader, steps - stop)
    assert found == expected


REMOTE_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 100))]


@pytest.mark.parametrize("seed", REMOTE_SEEDS)
def test_random_mixes_over_http_are_those_of_the_model_with_few_descriptors(tmp_path, seed, few_descriptors):
    chance = random.Random(seed)
    count, steps = 70 if seed == 0 else chance.choice((66, 150, 600)), 6
    (tmp_path / "data").mkdir()
    with CountingServer(tmp_path / "data") as server:
        spec = {
            "dataset": write_kinds(tmp_path / "data", count, chance, (server.url, server.url, "local")),
            "defaults": {"shuffle": chance.choice((0, 2, 10, 1000)), "extensions": "txt"},
            "batch": chance.choice((16, 64)),
            "seed": seed,
            "elastic": {"ranks": 1, "workers": 2},
        }
        if chance.random() < 0.4:
            spec["cache"] = {"dir": str(tmp_path / "cache"), "size": chance.choice((0, 30_000, 10**9))}
        check_against_model(spec, chance.randrange(1, steps), steps, server.url, tmp_path / "data")


def test_many_sources_that_fetch_objects_keep_their_order_also_when_resumed(tmp_path):
    (tmp_path / "objects").mkdir()
    for shard in range(2):
        rows = []
        for i in range(3):
            (tmp_path / "objects" / f"{shard}{i}").write_text(f"object {shard}{i}", encoding="utf-8")
            rows.append((f"{shard}{i}", {"json": json.dumps({"url": f"{shard}{i}"}).encode()}))
        write_shard(tmp_path / f"{shard}.tar", rows)
    names = [f"s{n:03d}" for n in range(100)]
    for name, shard in itertools.product(names, range(2)):
        os.link(tmp_path / f"{shard}.tar", tmp_path / f"{name}-{shard}.tar")
    fetch = {"txt": {"url": "json.url", "root": f"{tmp_path}/objects/"}}
    sources = [{"name": name, "shards": f"{tmp_path}/{name}-{{0..1}}.tar"} for name in names]
    fetching, rest = [{**source, "fetch": fetch} for source in sources], {"batch": 32, "seed": 2}
    stop, steps = 7, 30

    def read(loader, count):
        for _, batch in zip(range(count), loader, strict=False):
            assert batch.get("txt", []) in ([], [f"object {key}" for key in batch["__key__"]])
            yield batch["__url__"], batch["__key__"], "txt" in batch

    with wdspec.loader({"dataset": sources, **rest}, num_workers=0) as loader:
        expected = [(urls, keys, True) for urls, keys, _ in read(loader, steps)]
    with wdspec.loader({"dataset": fetching, **rest}, num_workers=0) as loader:
        found = list(read(loader, stop))
        state = json.loads(json.dumps(loader.state_dict()))
    with wdspec.loader({"dataset": fetching, **rest}, num_workers=0) as loader:
        loader.load_state_dict(state)
        found += read(loader, steps - stop)
    assert found == expected


def test_a_state_of_the_earlier_rule_is_refused_in_one_line_or_loses_nothing(tmp_path, monkeypatch):
    spec = write_links(tmp_path, 260)
    for source in spec["dataset"]:
        source["tags"] = {"from": source["name"]}
    given = defaultdict(list)

    def read(loader, steps):
        for _, batch in zip(range(steps), loader, strict=False):
            for name, text in zip(batch["from"], batch["txt"], strict=True):
                given[name].append(text)

    with monkeypatch.context() as patch:
        patch.setattr(order, "least_held", lambda share: 16)
        with wdspec.loader(spec, num_workers=0) as loader:
            read(loader, 10)
            state = loader.state_dict()
    with wdspec.loader(spec, num_workers=0) as loader:
        with pytest.raises(UsageError) as caught:
            loader.load_state_dict(state)
        assert (
            "\n  sources with small shares (260, such as `s000`): an earlier version of wdspec held 16 samples of each"
            in str(caught.value)
        )
        assert str(caught.value).count("\n") == 2
        loader.load_state_dict(state, allow_changed=True)
        read(loader, 16)
    everything = sorted(f"{shard} {i}" for shard in range(2) for i in range(3))
    assert len(given) == 260
    assert all(sorted(texts[:6]) == everything for texts in given.values())
