"""Mixes of many sources: a few descriptors and little memory, and the batches of the reference model."""

import gzip
import itertools
import json
import os
import random
from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from descriptors import count_descriptors, few_descriptors
from mdsdata import plain_shard
from oracle.model import Model
from oracle.plain import plain
from servers.counting import CountingServer
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import ShardError, UsageError
from wdspec.base.handles import FEW, MOST
from wdspec.planning import order
from wdspec.read import lean
from wdspec.read.lanes import Lanes

__all__ = ["few_descriptors"]


def write_links(folder, count, length=3):
    """Two small shards under the names of those of many sources; returns the spec that mixes them."""
    for shard in range(2):
        samples = [(f"{shard}{i}", {"txt": f"{shard} {i}".encode()}) for i in range(length)]
        write_shard(folder / f"{shard}.tar", samples)
        for n in range(count):
            os.link(folder / f"{shard}.tar", folder / f"s{n:03d}-{shard}.tar")
    sources = [{"name": f"s{n:03d}", "shards": f"{folder}/s{n:03d}-{{0..1}}.tar"} for n in range(count)]
    return {"dataset": sources, "batch": 64, "seed": 3}


def read_with_few_descriptors(spec, batches):
    """The sources of the samples of some batches, for which a process keeps few files open."""
    before, most, seen = count_descriptors(), 0, set()
    with wdspec.loader(spec, num_workers=0) as loader:
        for _, batch in zip(range(batches), loader, strict=False):
            assert set(batch["txt"]) <= {f"{shard} {i}" for shard in range(2) for i in range(3)}
            seen.update(batch["__source__"])
            most = max(most, count_descriptors())
    assert most <= max(before, FEW) + MOST + 4
    return seen


def test_six_hundred_sources_are_read_with_256_descriptors(tmp_path, few_descriptors):
    assert len(read_with_few_descriptors(write_links(tmp_path, 600), 25)) == 600


def test_eight_hundred_mds_data_sets_are_read_with_256_descriptors(tmp_path, few_descriptors):
    rows = [{"__key__": b"%d" % i, "txt": b"0 %d" % i} for i in range(3)]
    (tmp_path / "a.mds").write_bytes(plain_shard({"__key__": "str", "txt": "str"}, rows))
    names = [f"d{n:03d}" for n in range(800)]
    for name in names:
        os.link(tmp_path / "a.mds", tmp_path / f"{name}.mds")
    sources = [{"name": name, "shards": str(tmp_path / f"{name}.mds")} for name in names]
    assert read_with_few_descriptors({"dataset": sources, "batch": 64, "seed": 3}, 25) == set(names)


def test_the_batches_of_a_hundred_sources_are_those_of_the_model(tmp_path):
    spec = write_links(tmp_path, 100)
    model = Model(spec)
    with wdspec.loader(spec, num_workers=0) as loader:
        for step, batch in zip(range(15), loader, strict=False):
            assert [plain(batch)] == [plain(item) for item in model.items(step)]


@pytest.mark.parametrize("length", [3, 30])
def test_states_do_not_depend_on_how_many_small_samples_are_read_at_a_time(tmp_path, monkeypatch, length):
    spec = write_links(tmp_path, 70, length)
    reads = []

    def observe(state=None, count=24):
        with monkeypatch.context() as patch:
            patch.setattr(Lanes, "read", lambda lanes, most: (reads.append(most), read(lanes, most))[1])
            with wdspec.loader(spec, num_workers=0) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                return [
                    (plain(batch), loader.state_dict())
                    for _, batch in zip(range(count), loader, strict=False)
                ]

    read = Lanes.read
    many = observe()
    most = max(reads)
    with monkeypatch.context() as patch:
        patch.setattr(lean, "window_bytes", lambda: 1)
        reads.clear()
        single = observe()
        assert max(reads) < most
        assert single == many
        assert observe(many[12][1], 11) == many[13:]
    assert observe(single[12][1], 11) == many[13:]


COMPRESSED = {"tar.gz": gzip.compress, "tar.zst": zstandard.ZstdCompressor(write_checksum=True).compress}
SUFFIXES = ("tar", "tar", *COMPRESSED, "jsonl", "parquet", "arrow")
ORDERS = ("shuffled", "sequential", "resampled")
BATCHES = ({"size": 16}, {"size": 64}, {"cost": "txt.length", "max_cost": 60, "window": 40})


def write_compressed(path):
    """Compress a shard in all ways, next to it."""
    for suffix, compress in COMPRESSED.items():
        path.with_suffix(f".{suffix}").write_bytes(compress(path.read_bytes()))


def write_kinds(folder, count, chance, places=("local",)):
    """Shards of several formats under the names of those of many sources; returns the sources.

    `places` are URLs of servers of the folder, or "local".
    """
    for shard in range(2):
        texts = [
            (f"{shard}{i}", f"{shard} {i}" + "x" * chance.randrange(9)) for i in range(chance.randint(2, 5))
        ]
        write_shard(folder / f"{shard}.tar", [(key, {"txt": text.encode()}) for key, text in texts])
        some = [(key, {"cls": b"7"}) for key, _ in texts if chance.random() < 0.8]
        write_shard(folder / f"more-{shard}.tar", some or [("none", {"cls": b"7"})])
        write_compressed(folder / f"{shard}.tar")
        lines = [json.dumps({"__key__": key, "txt": text}) for key, text in texts]
        (folder / f"{shard}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        table = pa.Table.from_pylist([{"__key__": key, "txt": text} for key, text in texts])
        pq.write_table(table, folder / f"{shard}.parquet", row_group_size=2)
        with pa.ipc.new_file(folder / f"{shard}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    sources = []
    for n in range(count):
        suffix = chance.choice(SUFFIXES)
        for shard in range(2):
            os.link(folder / f"{shard}.{suffix}", folder / f"s{n:04d}-{shard}.{suffix}")
        place = chance.choice(places)
        root = folder if place == "local" else place
        source = {"name": f"s{n:04d}", "shards": f"{root}/s{n:04d}-{{0..1}}.{suffix}"}
        if chance.random() < 0.1:
            source["subset"] = {"part": "50%"}
        if chance.random() < 0.1 and suffix.startswith("tar"):
            source["join"] = [
                {
                    "shards": f"{root}/more-{{0..1}}.tar",
                    "fields": "cls",
                    "missing": chance.choice(("skip", "none")),
                }
            ]
        sources.append({**source, "weight": chance.choice((1, 1, 2, 50)), "order": chance.choice(ORDERS)})
    return sources


@pytest.fixture
def leave_few(few_descriptors):
    """Opens descriptors until the process has only so many more."""
    held = []

    def leave(count):
        while len(held) + count < 256 - count_descriptors():
            held.append(os.open(os.devnull, os.O_RDONLY))

    yield leave
    for descriptor in held:
        os.close(descriptor)


COUNTS = (50, 66, 70, 80, 90, 90, 100, 120, 150, 150, 200, 250, 300, 400, 600, 2000)
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_mixes_of_many_sources_are_those_of_the_model_also_when_resumed_elsewhere(
    tmp_path, seed, leave_few
):
    chance = random.Random(seed)
    count = 70 if seed == 0 else chance.choice(COUNTS)
    (tmp_path / "data").mkdir()
    with CountingServer(tmp_path / "data") as server:
        places = chance.choice((("local",), (server.url, server.url, "local")))
        spec = {
            "dataset": write_kinds(tmp_path / "data", count, chance, places),
            "defaults": {
                "shuffle": chance.choice((0, 2, 10, 1000)),
                "extensions": "txt cls",
                "missing": "none",
            },
            "batch": {"collate": {"cls": "list"}, **chance.choice(BATCHES)},
            "seed": seed,
            "elastic": {"ranks": 2, "workers": chance.choice((1, 2))},
        }
        if server.url in places and chance.random() < 0.5:
            spec["cache"] = {"dir": str(tmp_path / "cache"), "size": chance.choice((0, 30_000, 10**9))}
        if chance.random() < 0.3:
            leave_few(chance.randint(8, 40))
        check_against_model(spec, chance, 4, server.url, tmp_path / "data")


def check_against_model(spec, chance, steps, url, folder):
    """Compare the batches of a spec with those of the model, also when other processes continue after some of them.

    The model reads shards at the URL from the folder.
    """

    def to_local(value):
        return json.loads(json.dumps(value).replace(url, str(folder)))

    def read(loader, count):
        for _, item in zip(range(count), loader, strict=False):
            yield plain({**item, "__url__": to_local(item["__url__"])})

    model = Model({**spec, "dataset": to_local(spec["dataset"])}, ranks=2, workers=2)
    stop = chance.randrange(1, steps)
    expected = [plain(item) for step in range(stop) for item in model.items(step)]
    with wdspec.loader(spec, num_workers=0) as loader:
        assert list(read(loader, len(expected))) == expected
        state = json.loads(json.dumps(loader.state_dict()))
    ranks = chance.choice((1, 2))
    for rank in range(ranks):
        expected = [plain(item) for step in range(stop, steps) for item in model.items_of(step, rank, ranks)]
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) as loader:
            loader.load_state_dict(state)
            assert list(read(loader, len(expected))) == expected


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_each_reading_of_a_shard_that_is_replaced_meanwhile_has_one_version_or_is_an_error(tmp_path, seed):
    chance, count = random.Random(seed), 120
    for version in ("old", "new"):
        samples = [(f"{i}", {"txt": version.encode() + b"x" * 60_000}) for i in range(8)]
        write_shard(tmp_path / f"{version}.tar", samples)
        write_compressed(tmp_path / f"{version}.tar")
    suffixes = [chance.choice(("tar", *COMPRESSED)) for _ in range(count)]
    names = [f"s{n:03d}.{suffix}" for n, suffix in enumerate(suffixes)]
    for name, suffix in zip(names, suffixes, strict=True):
        os.link(tmp_path / f"old.{suffix}", tmp_path / name)
    versions = defaultdict(set)
    readings, errors = Counter(), []
    with CountingServer(tmp_path) as server:
        root = chance.choice((tmp_path, server.url)) if seed else tmp_path
        spec = {"dataset": [{"name": name[:4], "shards": f"{root}/{name}"} for name in names], "batch": 8}
        with wdspec.loader(spec, num_workers=0) as loader:
            for step, batch in zip(range(400), read_upto_error(loader, errors), strict=False):
                for url, key, text in zip(batch["__url__"], batch["__key__"], batch["txt"], strict=True):
                    readings[url, key] += 1
                    versions[url, readings[url, key]].add(text[:3])
                if step == 30:
                    for number in chance.sample(
                        range(count), 60 if seed == 0 else chance.choice((1, 10, 60))
                    ):
                        os.link(tmp_path / f"new.{suffixes[number]}", tmp_path / "now")
                        os.replace(tmp_path / "now", tmp_path / names[number])
    assert all(len(found) == 1 for found in versions.values())
    assert all("while it was read" in error for error in errors)
    assert errors or seed


def read_upto_error(loader, errors):
    """Yield the batches up to the error for a shard that is another one now."""
    try:
        yield from loader
    except ShardError as error:
        errors.append(str(error))


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
