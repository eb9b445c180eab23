"""Training from cached shards: the same samples with a cold and a warm cache and without, even if others fill it."""

import json
import multiprocessing
import os

import pytest
from commandline import within as program
from servers.counting import CountingServer
from shardmaking import write_source

import wdspec
from wdspec.base.errors import ShardError


@pytest.fixture
def served(tmp_path, monkeypatch):
    for name in ("WDS_CACHE", "WDS_CACHE_SIZE", "WDS_REWRITE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("a", "b"):
        write_source(tmp_path / "served" / name, "x", shards=4, samples=40)
    with CountingServer(tmp_path / "served", pause=0.002) as server:
        yield server


def spec(server, **more):
    return {
        "seed": 3,
        "dataset": [
            {"name": name, "shards": f"{server.url}/{name}/x-{{000..003}}.tar", "shuffle": 20}
            for name in ("a", "b")
        ],
        "batch": 8,
        "epoch": {"batches": 20},
        "elastic": {"ranks": 1, "workers": 2},
        **more,
    }


def epochs(document, count=3, workers=2):
    with wdspec.loader(document, num_workers=workers) as loader:
        return [[(batch["__url__"], batch["__key__"]) for batch in loader] for _ in range(count)]


def test_samples_are_the_same_with_no_cold_or_warm_cache(served, tmp_path):
    expected = epochs(spec(served))
    assert epochs(spec(served, cache=str(tmp_path / "c"))) == expected
    before = served.fetched.total()
    assert epochs(spec(served, cache=str(tmp_path / "c")), workers=1) == expected
    assert served.fetched.total() == before


def test_copies_with_the_same_file_name_are_separate(served, tmp_path):
    epochs(spec(served, cache=str(tmp_path / "c")))
    host = served.url.removeprefix("http://")
    for name in ("a", "b"):
        folder = tmp_path / "c" / "http" / host / name
        assert sorted(os.listdir(folder)) == [f"x-{n:03d}.tar" for n in range(4)]
        for shard in os.listdir(folder):
            assert (folder / shard).read_bytes() == (tmp_path / "served" / name / shard).read_bytes()


def test_later_epochs_make_no_request(served, tmp_path):
    with wdspec.loader(spec(served, cache=str(tmp_path / "c"), epoch="pass"), num_workers=2) as loader:
        passes = [[batch["__key__"] for batch in loader] for _ in range(3)]
    assert passes[0] == passes[1] == passes[2]
    assert set(served.fetched.values()) == {1}


def test_a_state_of_an_uncached_run_resumes_from_a_cache(served, tmp_path):
    document = spec(served)
    expected = [batch for epoch in epochs(document, 2) for batch in epoch]
    with wdspec.loader(document, num_workers=2) as loader:
        for _, _ in zip(range(13), loader, strict=False):
            pass
        state = json.loads(json.dumps(loader.state_dict()))
    for _ in ("cold", "warm"):
        with wdspec.loader(spec(served, cache=str(tmp_path / "c")), num_workers=2) as loader:
            loader.load_state_dict(state)
            rest = [(batch["__url__"], batch["__key__"]) for _ in range(2) for batch in loader]
        assert rest[:27] == expected[13:40]


def test_wds_cache_is_used_and_tildes_are_expanded(served, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WDS_CACHE", "~/copies")
    monkeypatch.chdir(tmp_path)
    epochs(spec(served), 1)
    assert (tmp_path / "home" / "copies" / "CACHEDIR.TAG").exists()
    assert not (tmp_path / "~").exists()


def test_a_source_without_a_cache_leaves_nothing_in_it(served, tmp_path):
    document = spec(served, cache=str(tmp_path / "c"))
    document["dataset"][1]["cache"] = False
    epochs(document, 1)
    host = served.url.removeprefix("http://")
    assert os.listdir(tmp_path / "c" / "http" / host) == ["a"]


def test_local_shards_are_not_copied(tmp_path):
    shards = write_source(tmp_path / "local", "x")
    document = {
        "dataset": [{"shards": shards}],
        "batch": 4,
        "epoch": {"batches": 5},
        "cache": str(tmp_path / "c"),
    }
    epochs(document, 1, workers=0)
    assert not (tmp_path / "c").exists()


def test_an_error_page_is_an_error_and_leaves_nothing(served, tmp_path):
    for shard in (tmp_path / "served" / "b").iterdir():
        shard.write_text("<html>please log in</html>")
    with pytest.raises(ShardError, match="x-00"):
        epochs(spec(served, cache=str(tmp_path / "c")), 1, workers=0)
    assert not list((tmp_path / "c").rglob("b"))


def test_a_cache_smaller_than_one_pass_delivers_the_same_samples(served, tmp_path):
    expected = epochs(spec(served))
    small = {"dir": str(tmp_path / "c"), "size": "200kB"}
    assert epochs(spec(served, cache=small)) == expected


def test_a_limit_below_the_shard_size_streams(served, tmp_path):
    small = {"dir": str(tmp_path / "c"), "size": "10kB"}
    assert epochs(spec(served, cache=small)) == epochs(spec(served))


def test_ranks_with_their_own_caches_read_the_same_as_without(served, tmp_path, monkeypatch):
    document = spec(served, elastic={"ranks": 2, "workers": 2})

    def keys(rank):
        with wdspec.loader(document, num_workers=0, rank=rank, world_size=2) as loader:
            return [batch["__key__"] for batch in loader]

    expected = [keys(rank) for rank in range(2)]
    for rank in range(2):
        monkeypatch.setenv("WDS_CACHE", str(tmp_path / f"node-{rank}"))
        assert keys(rank) == expected[rank]
        assert (tmp_path / f"node-{rank}" / "http").exists()


def train(document, crowd, folder):
    """The keys that each of several processes with workers reads in two epochs."""

    def read(path):
        with wdspec.loader(document, num_workers=2) as loader:
            path.write_text(json.dumps([batch["__key__"] for _ in range(2) for batch in loader]))

    found = [folder / f"{number}.json" for number in range(crowd)]
    jobs = [multiprocessing.get_context("fork").Process(target=read, args=(path,)) for path in found]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return [json.loads(path.read_text()) for path in found]


@pytest.mark.parametrize("crowd", [3, pytest.param(8, marks=pytest.mark.long)])
def test_processes_with_workers_on_one_cold_cache_fetch_every_shard_once(served, tmp_path, crowd):
    document = spec(served, cache=str(tmp_path / "c"), epoch="pass")
    runs = train(document, crowd, tmp_path)
    assert all(run == runs[0] for run in runs)
    assert set(served.fetched.values()) == {1}
    assert len(served.fetched) == 8


def test_the_name_in_the_spec_sets_the_format_of_a_copy(served, tmp_path):
    lines = "".join(json.dumps({"__key__": str(n), "n": n}) + "\n" for n in range(40))
    for number in range(2):
        (tmp_path / "served" / f"part{number}").write_text(lines)
    document = {
        "dataset": [{"shards": "s3://b/part{0..1}.jsonl", "shuffle": 0}],
        "rewrite": [{"from": r"s3://b/(.*)\.jsonl", "to": rf"{served.url}/\1"}],
        "cache": str(tmp_path / "c"),
        "batch": 10,
        "epoch": 80,
    }
    for _ in range(2):
        pipeline = wdspec.compile(document)
        assert len([n for batch in pipeline for n in batch["n"]]) == 80
        pipeline.close()
    (copy,) = (tmp_path / "c").rglob("part0")
    assert copy.read_text() == lines
    assert program("cache", "verify", str(tmp_path / "c"))[0] == "2 intact, 0 damaged\n"
