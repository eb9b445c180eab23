"""Integers of workers, which outlive the workers."""

import multiprocessing
import pickle
from types import SimpleNamespace

import pytest

import wdspec
from wdspec.base.workers import MOST_WORKERS, WorkerCounters


@pytest.fixture
def as_worker(monkeypatch):
    def become(number):
        info = None if number is None else SimpleNamespace(id=number, num_workers=number + 1)
        monkeypatch.setattr("torch.utils.data._utils.worker._worker_info", info)

    return become


def test_each_worker_and_the_process_have_separate_integers(as_worker):
    counters, places = WorkerCounters(3), []
    for number in (None, 0, 1, 1023, 1024, 1025, MOST_WORKERS - 1):
        as_worker(number)
        places += range(counters.slot(), counters.slot() + 3)
    assert len(set(places)) == len(places)
    for place in places:
        counters[place] += 1
    assert {counters[place] for place in places} == {1}
    counters.clear()
    assert {counters[place] for place in places} == {0}


def test_more_workers_than_counters_are_an_error(as_worker):
    as_worker(MOST_WORKERS)
    with pytest.raises(wdspec.UsageError, match=r"worker 4096, .* at most 4,096 workers; give .* fewer"):
        iter(wdspec.DataPipeline([1, 2, 3]))


def test_a_copy_starts_with_the_values_of_the_original():
    counters = WorkerCounters()
    counters[0] = 7
    copy = pickle.loads(pickle.dumps(counters))
    copy[0] += 1
    assert (counters[0], copy[0]) == (7, 8)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_counts_outlive_their_process(start):
    counters, context = WorkerCounters(), multiprocessing.get_context(start)
    for expected in (5, 10):
        process = context.Process(target=count_five, args=(counters,))
        process.start()
        process.join()
        assert (counters[2], process.exitcode) == (expected, 0)


def count_five(counters):
    counters[2] += 5
