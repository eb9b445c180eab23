"""A forked child cannot continue the open iterations of its parent: both would share one position in each file."""

import pytest
from crowds import at_once
from shardmaking import write_source

import wdspec


@pytest.fixture
def shards(tmp_path):
    return write_source(tmp_path, "a", 3, 200)


def spec_of(shards, **more):
    source = {"name": "a", "shards": shards, "order": "sequential", "shuffle": 0}
    return {"dataset": [source], "epoch": 600, **more}


def start_iteration(make):
    """An iterator of which a few items were taken."""
    iterator = iter(make())
    for _ in range(3):
        next(iterator)
    return iterator


def ways(shards):
    return {
        "dataset": lambda: wdspec.compile(spec_of(shards)),
        "batches": lambda: wdspec.compile(spec_of(shards, batch=2)),
        "loader": lambda: wdspec.loader(spec_of(shards, batch=2), num_workers=0),
        "workers": lambda: wdspec.loader(spec_of(shards, batch=2), num_workers=1),
        "methods": lambda: wdspec.WebDataset(shards, shardshuffle=False),
    }


@pytest.mark.parametrize("way", ["dataset", "batches", "loader", "workers", "methods"])
def test_continuing_in_a_child_is_an_error_and_the_parent_loses_nothing(shards, way):
    iterator = start_iteration(ways(shards)[way])
    (result,) = at_once(lambda number: [item["__key__"] for item in iterator], 1)
    assert "before a fork" in result
    rest = len(list(iterator))
    assert rest == (300 if "batch" in way or way in ("loader", "workers") else 600) - 3


def test_a_child_may_start_its_own_iteration(shards):
    dataset = wdspec.compile(spec_of(shards))
    parent = iter(dataset)
    first = [next(parent)["__key__"] for _ in range(3)]
    ((rest,),) = (at_once(lambda number: [item["__key__"] for item in dataset], 1),)
    assert len(rest) == 597
    assert not set(rest) & set(first)
    assert [item["__key__"] for item in parent] == rest


def test_a_writer_belongs_to_its_process(tmp_path):
    path = tmp_path / "a.tar"
    with wdspec.TarWriter(path) as writer:
        writer.write({"__key__": "a", "txt": "a" * 500})
        (result,) = at_once(lambda number: writer.write({"__key__": "b", "txt": "b" * 2_000_000}), 1)
        assert "before a fork" in result
        writer.write({"__key__": "c", "txt": "c"})
    assert [sample["__key__"] for sample in wdspec.WebDataset(str(path))] == ["a", "c"]
