"""Behaviours 32 to 40: shuffling, batching, mixing, epochs, splitting, choosing, writing."""

import io
import os
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import wdspec as wds
from wdspec import FieldError, UsageError


def keys(samples):
    return [sample["__key__"] for sample in samples]


def test_32_shuffling_keeps_the_items_and_is_seeded():
    def passes(**options):
        pipeline = wds.DataPipeline(range(1000)).shuffle(100, **options)
        return [list(pipeline) for _ in range(2)]

    assert sorted(passes()[0]) == list(range(1000))
    assert passes() == passes()
    assert passes()[0] != passes()[1]
    assert passes(seed=1) != passes()
    assert list(wds.DataPipeline([]).shuffle(10)) == []
    assert list(wds.DataPipeline(range(9)).shuffle(0)) == list(range(9))


@pytest.mark.parametrize("persistent", [False, True])
def test_32_detshuffle_changes_with_the_epoch_also_in_fresh_workers(persistent):
    def epochs():
        pipeline = wds.DataPipeline(range(50)).detshuffle(20, 20)
        loader = DataLoader(pipeline, batch_size=None, num_workers=1, persistent_workers=persistent)
        return [list(loader) for _ in range(3)]

    first = epochs()
    assert first == epochs()
    assert first[0] != first[1] != first[2]


def test_33_batches_are_full_and_the_last_can_be_partial():
    pulled = []

    def counting():
        for i in range(10):
            pulled.append(i)
            yield {"x": i, "y": np.zeros(2, np.float32)}

    batches = iter(wds.DataPipeline(counting).batched(3))
    first = next(batches)
    assert len(pulled) == 3
    assert first["x"].tolist() == [0, 1, 2]
    assert (first["y"].shape, first["y"].dtype, list(first)) == ((3, 2), torch.float32, ["x", "y"])
    assert [len(batch["x"]) for batch in batches] == [3, 3, 1]
    assert [len(batch["x"]) for batch in wds.DataPipeline(counting).batched(3, partial=False)] == [3, 3, 3]
    ragged = [(np.zeros(2), 1), (np.zeros(3), 2)]
    with pytest.raises(FieldError, match=r"shapes \(2,\) and \(3,\)"):
        list(wds.DataPipeline(ragged).batched(2))
    assert next(iter(wds.DataPipeline(ragged).batched(2, collation_fn=None)))[1][1] == 2


@pytest.mark.parametrize(
    "samples",
    [
        [(i, float(i), f"{i}", i % 2 == 0) for i in range(7)],
        [{"__key__": f"{i}", "x": i, "t": None} for i in range(7)],
    ],
)
def test_34_unbatching_undoes_batching(samples):
    pipeline = pickle.loads(pickle.dumps(wds.DataPipeline(samples).batched(3).unbatched()))
    assert list(pipeline) == samples
    assert list(wds.DataPipeline(samples).listed(3).unlisted()) == samples


def test_35_round_robin_takes_turns():
    assert list(wds.RoundRobin([[2, 2], [1], [3, 3, 3]], longest=True)) == [2, 1, 3, 2, 3, 3]
    assert list(wds.RoundRobin([[0] * 3, [1], [2] * 3])) == [0, 1, 2, 0]


def test_36_a_mix_keeps_its_shares():
    mixed = wds.RandomMix([[0] * 100_000, [1] * 100_000], [0.3, 0.7])
    counts = Counter(mixed.slice(50_000))
    assert abs(counts[0] - 15_000) < 8  # webdataset: within 500
    assert Counter(wds.RandomMix([[0] * 10, [1] * 1000], longest=True)) == {0: 10, 1: 1000}
    assert list(mixed.slice(100)) == list(mixed.slice(100))
    assert set(wds.RandomMix([[0] * 9, [1] * 9], [0, 1], longest=True)) == {1}


@pytest.mark.parametrize("shares", [[1], [1, -1], [0, 0], [1, 1, 1], [1, float("nan")]])
def test_36_impossible_shares_are_rejected(shares):
    with pytest.raises(UsageError, match="share"):
        wds.RandomMix([[0], [1]], shares)


def test_37_the_next_epoch_continues_in_the_data(x_tgz):
    dataset = wds.WebDataset(x_tgz)
    assert len(list(dataset.with_epoch(193))) == 193
    two = dataset.with_epoch(2)
    epochs = [keys(two) for _ in range(10)]
    assert [key for epoch in epochs for key in epoch] == keys(dataset)[:20]
    assert len(list(dataset)) == 47


@pytest.mark.parametrize("workers", [0, 2])
def test_38_every_rank_gets_its_exact_epoch(source, monkeypatch, workers):
    urls, seen = source(6, 10), []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        dataset = wds.WebDataset(urls, nodesplitter=wds.split_by_node, shardshuffle=True)
        dataset = dataset.with_epoch(40, over="job")
        mine = keys(DataLoader(dataset, batch_size=None, num_workers=workers))
        assert len(mine) == 10
        seen += mine
    assert len(set(seen)) == 40


def test_38_a_spec_sets_it_for_the_whole_job(source):
    spec = {"dataset": [{"shards": source(6, 10)}], "epoch": 40}
    seen = []
    for rank in range(4):
        with wds.loader(spec, rank=rank, world_size=4, num_workers=2) as loader:
            seen.append(keys(loader))
    assert [len(mine) for mine in seen] == [10] * 4


def test_38_a_pass_is_divided_completely_and_evenly(source, monkeypatch):
    urls, seen = source(6, 10), []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        mine = keys(wds.WebDataset(urls, nodesplitter=wds.split_by_node))
        assert len(mine) == 15  # webdataset: 20, 20, 10, 10
        seen += mine
    assert len(set(seen)) == len(seen) == 60
    with pytest.raises(UsageError, match=r"nodesplitter=wdspec\.split_by_node"):
        list(wds.WebDataset(urls))


def test_38_more_workers_than_shards_read_every_sample_once(source):
    loader = DataLoader(wds.WebDataset(source(2, 10)), batch_size=None, num_workers=5)
    assert sorted(keys(loader)) == sorted(set(keys(loader)))
    assert len(keys(loader)) == 20


def chosen(urls, number):
    return [entry["url"] for entry in urls.iterate(number)]


def test_39_collections_are_drawn_again_in_each_pass(source, monkeypatch):
    spec = {
        "prefix": "/data/",
        "buckets": "words",
        "datasets": [
            {"name": "a", "shards": "a-{0..19}.tar", "resample": 10},
            {"name": "b", "shards": ["b-{0..39}.tar"], "choose": 20},
            {"name": "c", "buckets": ["other"], "shards": "c-{0..2}.tar", "resample": 30},
        ],
    }
    urls = wds.MultiShardSample(spec)
    first = chosen(urls, 0)
    assert len(first) == 60
    assert Counter(url.rpartition("/")[0] for url in first) == {"/data/words": 30, "/data/other": 30}
    of_b = [url for url in first if "/b-" in url]
    assert len(set(of_b)) == 20
    assert first != chosen(urls, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert chosen(wds.MultiShardSample(spec), 0) == first  # the same on all ranks, which then split it
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    here = {"datasets": [{"shards": source(6, 10), "choose": 2}]}
    assert len(list(wds.WebDataset(here))) == 20


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ({"shards": "a-{0..2}.tar", "choose": 4}, "has 3 shards"),
        ({"shards": "a.tar", "choose": 1, "resample": 1}, "both"),
        ({"shards": "a.tar", "chose": 1}, "unknown key `chose`; did you mean `choose`"),
        ({"shards": "a.tar", "perepoch": 1}, "unknown key `perepoch`"),
    ],
)
def test_39_errors_name_impossible_values(dataset, said):
    with pytest.raises(UsageError, match=said):
        wds.WebDataset({"datasets": [dataset]})


def test_40_written_shards_can_be_read(tmp_path):
    picture = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    array = np.arange(6).reshape(2, 3)
    sample = {
        "__key__": "a", "cls": 3, "txt": "ü", "json": '"text"', "mp": {"x": [1]}, "npy": array, "npz": {"a": array},
        "ppm": picture, "png": picture, "jpg": picture, "txt.gz": "packed",
    }  # fmt: skip
    with wds.TarWriter(str(tmp_path / "a.tgz")) as writer:
        writer.write(sample)
    assert (tmp_path / "a.tgz").read_bytes()[:2] == b"\x1f\x8b"
    (there,) = wds.WebDataset(str(tmp_path / "a.tgz")).decode("rgb8")
    for name in ("npy", "ppm", "png"):
        assert np.array_equal(there[name], sample[name])
    assert np.array_equal(there["npz"]["a"], array)
    assert abs(there["jpg"].astype(int) - picture).max() < 20
    assert [there[name] for name in ("cls", "txt", "json", "mp", "txt.gz")] == [
        3,
        "ü",
        "text",
        {"x": [1]},
        "packed",
    ]


@pytest.mark.parametrize(("count", "each", "shards"), [(10, 4, [4, 4, 2]), (50, 5, [5] * 10), (0, 4, [])])
def test_40_shards_hold_maxcount_samples(tmp_path, count, each, shards):
    with wds.ShardWriter(str(tmp_path / "s-%03d.tar"), maxcount=each, verbose=0) as writer:
        for i in range(count):
            writer.write({"__key__": f"{i:03d}", "cls": i})
    found = sorted(path for path in Path(tmp_path).iterdir() if path.suffix == ".tar")
    assert [len(list(wds.WebDataset(str(path)))) for path in found] == shards


def test_40_bytes_are_reproducible_and_a_crash_leaves_no_shard(tmp_path):
    def written():
        file = io.BytesIO()
        with wds.TarWriter(file) as writer:
            writer.write({"__key__": "a", "cls": 1})
        return file.getvalue()

    assert written() == written()

    def crash():
        with wds.ShardWriter(str(tmp_path / "s-%03d.tar"), verbose=0) as writer:
            writer.write({"__key__": "a", "cls": 1})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tar") and not name.startswith(".")]
