"""Files that several processes may make at the same moment: 32 processes start together at a barrier."""

import json
import multiprocessing
import os

import pytest
from crowds import PROCESSES, at_once

import wdspec
from wdspec.base.errors import UsageError
from wdspec.base.files import LockFile
from wdspec.cache.index import Content, Index
from wdspec.read.error_budget import append_line
from wdspec.stores.outputs import LocalOutput
from wdspec.webdataset import sample_cache as dbcache


@pytest.fixture(params=[0, *(pytest.param(turn, marks=pytest.mark.long) for turn in range(1, 30))])
def folder(tmp_path, request):
    return tmp_path


def test_all_processes_build_one_sample_cache(folder, monkeypatch):
    path = folder / "cache.db"

    def fill(number):
        monkeypatch.setattr(dbcache, "worker_place", lambda: (number, PROCESSES))
        cache = wdspec.DBCache(path, PROCESSES * 10)
        pipeline = wdspec.DataPipeline([{"n": number * 100 + i} for i in range(10)], cache)
        return [[sample["n"] for sample in pipeline] for _ in range(2)]

    assert at_once(fill) == [[[number * 100 + i for i in range(10)]] * 2 for number in range(PROCESSES)]


def test_all_processes_open_sample_caches_under_construction(folder):
    few = 6  # and often: SQLite refuses the one or other at once, where two wait for each other
    turns = multiprocessing.get_context("fork").Barrier(few)

    def open_all(number):
        for turn in range(200):
            turns.wait(200)
            path = str(folder / f"{turn}.db")
            dbcache.DBCache(path)._connect(path).close()

    assert at_once(open_all, few) == [None] * few


def test_all_processes_start_one_shard_cache(folder):
    def add(number):
        index = Index(str(folder / "cache"))
        index.make()
        return index.reserve(
            f"{number:064x}", Content(f"copy-{number}", f"http://host/{number}"), 100, None, 10**6
        )

    assert at_once(add) == [True] * PROCESSES
    index = Index(str(folder / "cache"))
    assert len(list(index.entries.by_use())) == PROCESSES


def test_all_processes_log_skips_to_one_file(folder):
    path = str(folder / "logs" / "skips.jsonl")

    def log(number):
        for turn in range(20):
            append_line(path, {"n": number, "turn": turn, "fill": "x" * 5000})

    assert at_once(log) == [None] * PROCESSES
    with open(path, encoding="utf-8") as file:
        found = sorted((record["n"], record["turn"]) for record in map(json.loads, file))
    assert found == [(number, turn) for number in range(PROCESSES) for turn in range(20)]


def test_one_process_writes_a_file_and_the_others_are_rejected(folder):
    path = str(folder / "new" / "shard.tar")

    def write(number):
        try:
            output = LocalOutput(path, overwrite=False)
            output.write(b"%02d" % number * 1000)
            output.commit()
        except UsageError as error:
            return str(error)
        return number

    results = at_once(write)
    (winner,) = (result for result in results if isinstance(result, int))
    refusals = "another writer", "a file of this name exists"
    assert all(result == winner or result.startswith(refusals) for result in results)
    assert (folder / "new" / "shard.tar").read_bytes() == b"%02d" % winner * 1000
    assert os.listdir(folder / "new") == ["shard.tar"]


def test_one_process_holds_a_lock_at_a_time(folder):
    path, counter = folder / "lock", folder / "counter"
    counter.write_text("0")

    def count(number):
        for _ in range(4):
            with LockFile(str(path)):
                counter.write_text(str(int(counter.read_text()) + 1))

    assert at_once(count) == [None] * PROCESSES
    assert counter.read_text() == str(4 * PROCESSES)
