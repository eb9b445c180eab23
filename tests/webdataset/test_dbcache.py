"""The sample cache: complete or absent, shared by workers, free of pickle."""

import pickle
import sqlite3
from itertools import islice
from types import SimpleNamespace

import pytest
from shardmaking import write_source
from torch.utils.data import DataLoader

import wdspec as wds
from wdspec import FieldError, UsageError
from wdspec.webdataset import sample_cache as dbcache


def keys_of(samples):
    return [sample["__key__"] for sample in samples]


@pytest.fixture
def dataset(tmp_path):
    return wds.WebDataset(write_source(tmp_path / "data", "a"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache.db"


def forget(tmp_path):
    """Remove the shards: samples that are still read come from the cache."""
    for shard in (tmp_path / "data").iterdir():
        shard.unlink()


def test_the_second_pass_reads_the_cache(dataset, path, tmp_path):
    cached = dataset.compose(wds.DBCache, path, 1000)
    first = list(cached)
    forget(tmp_path)
    assert list(cached) == first
    assert len(first) == 40


def test_a_cache_that_others_use_is_not_deleted(dataset, path, monkeypatch):
    monkeypatch.setattr(dbcache, "_PATIENCE", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UsageError, match=r"other processes have locked .* for 0\.05 s") as raised:
        next(iter(dataset.compose(wds.DBCache, path, 1000)))
    assert "delete" not in str(raised.value)
    holder.close()


def test_a_later_run_reads_the_cache_and_pickles(dataset, path, tmp_path):
    first = list(dataset.compose(wds.DBCache, path, 1000))
    forget(tmp_path)
    again = pickle.loads(pickle.dumps(dataset.compose(wds.DBCache, path, 1000)))
    assert list(again) == first


def test_its_size_limits_every_pass(dataset, path):
    cached = dataset.compose(wds.DBCache(path, 15))
    assert keys_of(cached) == keys_of(cached) == keys_of(dataset)[:15]


def test_an_abandoned_pass_fills_nothing(dataset, path):
    cached = dataset.compose(wds.DBCache(path, 1000))
    assert len(list(islice(cached, 33))) == 33
    assert count(path, "samples") == 0
    assert len(list(cached)) == 40
    assert count(path, "samples") == 40


def test_leftovers_of_a_killed_run_are_deleted(dataset, path):
    cached = dataset.compose(wds.DBCache(path, 1000))
    list(cached)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE parts SET count = -1")
        database.execute("DELETE FROM samples WHERE position > 7")
    assert len(list(cached)) == 40
    assert count(path, "parts") == 1


def test_a_part_taken_over_by_another_process_is_not_completed(dataset, path):
    cached = dataset.compose(wds.DBCache(path, 1000))
    slow = iter(cached)
    keys = keys_of(islice(slow, 5))
    assert len(list(cached)) == 40  # starts again, and completes
    with pytest.warns(UserWarning, match="cannot store more samples"):
        keys += keys_of(slow)
    assert len(set(keys)) == 40
    assert (count(path, "parts"), count(path, "samples")) == (1, 40)


@pytest.mark.parametrize("workers", [2, 3])
def test_several_workers_fill_their_parts_and_read_them(dataset, path, tmp_path, workers):
    loader = DataLoader(dataset.compose(wds.DBCache, path, 1000), batch_size=None, num_workers=workers)
    first = keys_of(loader)
    forget(tmp_path)
    assert keys_of(loader) == first
    assert len(set(first)) == 40


def test_another_number_of_workers_reads_the_same_samples(dataset, path, tmp_path):
    cached = dataset.compose(wds.DBCache, path, 30)
    first = keys_of(DataLoader(cached, batch_size=None, num_workers=3))
    forget(tmp_path)
    assert sorted(keys_of(DataLoader(cached, batch_size=None, num_workers=2))) == sorted(first)
    assert sorted(keys_of(cached)) == sorted(first)
    assert len(set(first)) == 30


def test_a_shuffled_cache_has_a_different_order_in_each_pass(dataset, path):
    cached = dataset.compose(wds.DBCache, path, 1000, shuffle=True)
    passes = [keys_of(cached) for _ in range(3)]
    assert passes[1] != passes[2]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])


def test_no_name_passes_everything_through(dataset):
    assert keys_of(dataset.compose(wds.DBCache, None, 3)) == keys_of(dataset)


def test_decoded_samples_are_stored_if_possible(dataset, path):
    cached = dataset.decode().to_tuple("txt", "cls").compose(wds.DBCache(path, 10))
    assert list(cached) == list(cached)
    assert next(iter(cached)) == ("a 0 0", 0)
    with pytest.raises(FieldError, match="put the cache before the stage that makes it"):
        list(dataset.map(lambda s: {**s, "x": {1, 2}}).compose(wds.DBCache(path, 11)))


def test_nothing_in_the_cache_is_unpickled(dataset, path, monkeypatch):
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(pickle, "load", None)
    cached = dataset.compose(wds.DBCache(path, 1000))
    assert list(cached) == list(cached)


def test_another_database_and_a_damaged_file_are_rejected(dataset, tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(UsageError, match="another program"):
        list(dataset.compose(wds.DBCache(tmp_path / "other.db")))
    (tmp_path / "junk.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(UsageError, match=r"cannot be used.*delete it"):
        list(dataset.compose(wds.DBCache(tmp_path / "junk.db")))
    with pytest.raises(UsageError, match="at least one sample"):
        wds.DBCache("x.db", 0)


def count(path, table):
    with sqlite3.connect(path) as database:
        return database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_concurrent_creation_of_the_file_is_not_a_foreign_database(path, monkeypatch):
    connect, meanwhile = sqlite3.connect, []

    class Looking(sqlite3.Connection):
        """One that is overtaken right after the first thing that it asks."""

        def execute(self, *arguments):
            cursor = super().execute(*arguments)
            if meanwhile:
                return cursor
            meanwhile.append(cursor.fetchall())
            monkeypatch.setattr(sqlite3, "connect", connect)
            assert list(wds.DBCache(path)(["first"])) == ["first"]
            return SimpleNamespace(fetchone=meanwhile[0].pop)

    monkeypatch.setattr(
        sqlite3, "connect", lambda *options, **more: connect(*options, factory=Looking, **more)
    )
    assert list(wds.DBCache(path)(["second"])) == ["first"]
