"""A batch that was read but not delivered is never lost silently in the process that reads."""

import itertools
import sys

import pytest
from shardmaking import write_source

import wdspec
from wdspec.run.state import read_entry

CODE = """
failing = set()
called = []

def fails_at(sample):
    called.append(sample["__key__"])
    if int(sample["cls"]) in failing:
        raise RuntimeError("not this one")
    return sample if -int(sample["cls"]) in failing else {**sample, "more": 1}
"""


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The module of user functions; its `failing` lists the samples at which they fail."""
    (tmp_path / "failingsteps.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failingsteps", raising=False)
    import failingsteps

    return failingsteps


@pytest.fixture
def compiled(tmp_path):
    """Compiles a spec over a shard of 64 samples whose `cls` counts from 0, in that order."""
    shards = write_source(tmp_path, "a", 1, 64)
    source = {
        "name": "a",
        "shards": shards,
        "order": "sequential",
        "shuffle": 0,
        "map": "failingsteps:fails_at",
    }
    return lambda **spec: wdspec.compile({"dataset": [source], "batch": 4, "epoch": 64, **spec})


def numbers(batches):
    return [batch["cls"].tolist() for batch in batches]


def collate_fails(steps):
    steps.failing.add(-9)


def reading_fails(steps):
    steps.failing.add(9)


def interrupted(steps):
    class Interrupt(set):
        def __contains__(self, value):
            if value == 9:
                raise KeyboardInterrupt
            return False

    steps.failing = Interrupt()


@pytest.mark.parametrize(
    ("fail", "says"),
    [(collate_fails, "more"), (reading_fails, "not this one"), (interrupted, "interrupted within a batch")],
)
@pytest.mark.parametrize("closed", [False, True])
def test_after_a_failure_it_fails_until_a_state_is_loaded(steps, compiled, fail, says, closed):
    pipeline = compiled()
    fail(steps)
    batches = iter(pipeline)
    assert numbers(itertools.islice(batches, 2)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    saved = pipeline.state_dict()
    with pytest.raises((RuntimeError, wdspec.FieldError, KeyboardInterrupt)):
        next(batches)
    steps.failing = set()
    if closed:
        pipeline.close()
    with pytest.raises(Exception, match=says):
        next(iter(pipeline))
    with pytest.raises(wdspec.UsageError, match="load one that was saved before"):
        pipeline.state_dict()
    pipeline.load_state_dict(saved)
    assert numbers(itertools.islice(pipeline, 2)) == [[8, 9, 10, 11], [12, 13, 14, 15]]
    (source,) = pipeline.plan.sources
    assert [state.given(0, source.delays) for (state,) in read_entry(pipeline.state_dict(), 0, 1)] == [16]


def test_steps_of_several_items_start_again_at_the_state(steps, compiled):
    pipeline = compiled(elastic={"ranks": 2, "workers": 1}, batch={"size": 4, "accumulate": True})
    steps.failing.add(-9)
    batches = iter(pipeline)
    given = numbers(itertools.islice(batches, 2))
    with pytest.raises(wdspec.FieldError):
        next(batches)
    state = pipeline.state_dict()
    steps.failing = set()
    fresh = compiled(elastic={"ranks": 2, "workers": 1}, batch={"size": 4, "accumulate": True})
    fresh.load_state_dict(state)
    pipeline.close()
    rest = numbers(itertools.islice(pipeline, 4))
    assert rest == numbers(itertools.islice(fresh, 4))
    assert not {n for batch in given for n in batch} & {n for batch in rest for n in batch}


def test_leaving_a_step_of_several_items_reads_nothing_again(steps, compiled):
    pipeline = compiled(elastic={"ranks": 4, "workers": 1}, batch={"size": 4, "accumulate": True})
    given = []
    for _ in range(16):
        for batch in pipeline:
            given.append(batch["cls"].tolist())
            break
    assert len(steps.called) == 64
    assert sorted(n for batch in given for n in batch) == list(range(64))


def test_warnings_of_a_state_point_at_the_line_that_loads_it(compiled, steps):
    state = compiled().state_dict()
    others = compiled(map="failingsteps:fails_at")
    with pytest.warns(UserWarning, match="the order is the same") as caught:
        others.load_state_dict(state)
    assert caught[0].filename == __file__
