"""DataPipelines under torchdata's StatefulDataLoader: exact where possible, otherwise an error."""

import itertools
import json

import pytest
from shardmaking import keys, reference, write_source
from torchdata.stateful_dataloader import StatefulDataLoader

import wdspec
from wdspec.spec.load import load
from wdspec.testing import assert_resumable

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.usefixtures("impatient_torch"),
]


@pytest.fixture
def spec(tmp_path):
    return {
        "seed": 5,
        "dataset": [
            {"name": "a", "shards": write_source(tmp_path, "a", 5, 40), "probability": 0.6},
            {"name": "b", "shards": write_source(tmp_path, "b", 1, 30), "probability": 0.4},
        ],
        "defaults": {"shuffle": 60},
        "batch": 4,
        "epoch": {"batches": 8},
        "elastic": {"ranks": 1, "workers": 4},
    }


def changed(spec, **changes):
    return {**spec, **changes}


def make(spec, workers, **arguments):
    return StatefulDataLoader(
        wdspec.compile(spec, rank=0, world_size=1), batch_size=None, num_workers=workers, **arguments
    )


def expected(spec, batches):
    return reference(load(spec), 1, 4, 0, batches)


def read_to_the_end(loader):
    """The items before the loader refuses to continue, and its error."""
    seen = []
    try:
        for _ in range(3):
            seen += keys(loader)
    except wdspec.UsageError as error:
        return seen, str(error)
    return seen, "never refused"


def test_in_one_process_it_resumes_from_any_batch_of_any_epoch(spec):
    assert_resumable(lambda: make(spec, 0))


def test_persistent_workers_resume_from_batches_of_any_epoch(spec):
    assert_resumable(lambda: make(spec, 2, persistent_workers=True), stops=[3, 8, 13])


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_persistent_workers_resume_from_any_batch_of_any_epoch(spec, workers):
    assert_resumable(lambda: make(spec, workers, persistent_workers=True))


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_non_persistent_workers_resume_within_the_epoch(spec, workers):
    assert_resumable(lambda: make(spec, workers), batches=8, stops=[0, 1, 4, 7])


@pytest.mark.parametrize("epoch", [*(pytest.param(n, marks=pytest.mark.long) for n in (7, 5)), 3, 1])
def test_an_epoch_that_workers_cannot_share_is_exact_and_the_next_rejected(spec, epoch):
    spec = changed(spec, epoch={"batches": epoch})
    for stop in range(epoch + 1):
        loader = make(spec, 2, persistent_workers=True)
        seen = keys(itertools.islice(loader, stop))
        state = json.loads(json.dumps(loader.state_dict()))
        again = make(spec, 2, persistent_workers=True)
        again.load_state_dict(state)
        rest, refusal = read_to_the_end(again)
        assert seen + rest == expected(spec, epoch)
        assert f"an epoch of {epoch} batches is not a multiple of 2 workers" in refusal


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_state_saved_after_the_last_batch_ends_the_epoch_first(spec, workers):
    """As torchdata's own datasets do; with any number of workers."""
    persistent = {"persistent_workers": True} if workers else {}
    loader = make(spec, workers, **persistent)
    seen = [next(batches) for batches in [iter(loader)] for _ in range(8)]
    state = json.loads(json.dumps(loader.state_dict()))
    again = make(spec, workers, **persistent)
    again.load_state_dict(state)
    again.load_state_dict(json.loads(json.dumps(again.state_dict())))
    assert list(again) == []
    assert keys(seen) + keys(again) + keys(again) == expected(spec, 24)


def test_without_workers_a_state_saved_at_the_end_of_an_epoch_starts_the_next(spec):
    loader = make(spec, 0)
    seen = keys(loader)
    again = make(spec, 0)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert seen + keys(again) == expected(spec, 16)


@pytest.mark.parametrize("interval", [2, 3, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize("workers", [0, 2])
def test_other_snapshot_intervals_are_replayed_to_the_same_batch(spec, interval, workers):
    for stop in (1, 2, 5, 7):
        loader = make(spec, workers, snapshot_every_n_steps=interval)
        seen = keys(itertools.islice(loader, stop))
        state = json.loads(json.dumps(loader.state_dict()))
        again = make(spec, workers, snapshot_every_n_steps=interval)
        again.load_state_dict(state)
        assert seen + keys(again) == expected(spec, 8)


def test_another_number_of_workers_is_rejected(spec):
    loader = make(spec, 2)
    next(iter(loader))
    state = loader.state_dict()
    for workers in (1, 4):
        again = make(spec, workers)
        again.load_state_dict(state)
        with pytest.raises((wdspec.UsageError, AssertionError), match=r"of 2, this is worker \d of"):
            next(iter(again))


def test_a_state_saved_at_the_end_of_an_epoch_needs_persistent_workers(spec):
    loader = make(spec, 2)
    assert keys(loader) == expected(spec, 8)
    again = make(spec, 2)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(wdspec.UsageError, match="would read the previous epoch again"):
        next(iter(again))


def test_a_changed_spec_is_rejected_in_workers(spec):
    loader = make(spec, 2)
    next(iter(loader))
    again = make(changed(spec, seed=6), 2)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(wdspec.UsageError, match="seed: was 5, now 6"):
        next(iter(again))


def test_an_epoch_left_early_cannot_be_followed_by_another_iteration(spec):
    loader = make(spec, 2, persistent_workers=True)
    next(iter(loader))
    with pytest.raises(wdspec.UsageError, match="left early"):
        next(iter(loader))


def test_steps_of_several_items_cannot_be_shared_by_workers(spec):
    spec = changed(spec, batch=None, epoch=40, elastic={"ranks": 2, "workers": 4})
    assert_resumable(lambda: make(spec, 0), batches=20)
    assert_resumable(lambda: make(spec, 1), batches=20, stops=[1, 2])
    with pytest.raises(wdspec.UsageError, match="a step gives this rank 2 items, and 2 workers"):
        next(iter(make(spec, 2)))


def test_the_state_of_a_worker_is_not_mistaken_for_that_of_a_rank(spec):
    loader = make(spec, 1)
    next(iter(loader))
    state = loader.state_dict()["_snapshot"]["_worker_snapshots"]["worker_0"]["dataset_state"]
    with pytest.raises(wdspec.UsageError, match="one worker of a DataLoader"):
        wdspec.compile(spec).load_state_dict(state)


def test_a_started_pipeline_continues_in_workers_at_its_position(spec):
    pipeline = wdspec.compile(spec)
    seen = keys(itertools.islice(pipeline, 3))
    seen += keys(StatefulDataLoader(pipeline, batch_size=None, num_workers=2))
    assert seen == expected(spec, 8)
