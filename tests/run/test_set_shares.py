"""`set_shares`: from the next global batch on, whatever workers have read ahead, and in states.

Random specs, topologies and moments are in `test_any_topology`.
"""

import itertools
import json

import pytest
from rotating import rotating_loader
from runs import Listed
from shardmaking import keys, spec_of_two
from torch.utils.data import DataLoader

import wdspec
from wdspec.planning.past import Changes
from wdspec.planning.shares import LiveShares
from wdspec.planning.topology import Seat
from wdspec.run.tasks import TaskReader
from wdspec.spec.load import load
from wdspec.testing import assert_resumable


@pytest.fixture
def spec(tmp_path):
    return spec_of_two(tmp_path)


def expected(spec, batches, sets, rank=0, ranks=1):
    """The keys of batches where shares are set: global batch -> shares."""
    run = Listed.of(load(spec)).run(Seat(rank, ranks), 0)
    reader, read = run.reader(), []
    for number in range(batches):
        if number in sets:
            reader.draw_by(Changes(run.segments([LiveShares(number, sets[number])])))
        read.append([sample["__key__"] for sample in reader.batch(number)])
    return read


A, B = {"a": 1}, {"b": 1}


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, True), (2, True), (2, False)])
def test_they_apply_from_the_next_batch_despite_read_ahead(spec, workers, persistent):
    options = {"persistent_workers": persistent, "prefetch_factor": 3} if workers else {}
    seen = []
    with wdspec.loader(spec, num_workers=workers, **options) as loader:
        for number, batch in enumerate(itertools.chain(loader, loader)):
            seen.append(batch["__key__"])
            if number in (3, 4, 11):
                assert loader.set_shares(A if number == 4 else B) == number + 1
            if number == 6:
                assert loader.set_shares({"a": 3, "b": 1}, after=2) == 9
                assert loader.shares == {"a": 1, "b": 0}
        assert loader.shares == {"a": 0, "b": 1}
    assert seen == expected(spec, 24, {4: B, 5: A, 9: {"a": 3, "b": 1}, 12: B})
    assert {key[0] for key in seen[4]} == {"b"}
    assert {key[0] for row in seen[5:9] for key in row} == {"a"}


def test_workers_reread_nothing_if_shares_are_set_early_enough(spec, monkeypatch):
    asked = []
    loader = rotating_loader(Listed.of(load(spec)).run(Seat(), 2), 2, prefetch=2)
    take = TaskReader.__getitem__
    monkeypatch.setattr(
        TaskReader, "__getitem__", lambda self, task: asked.extend(task[0]) or take(self, task)
    )
    seen = []
    for number, batch in enumerate(loader):
        seen.append(batch["__key__"])
        if number == 3:
            loader.set_shares(A, after=4)
    assert asked == list(range(12))
    assert seen == expected(spec, 12, {8: A})
    loader.set_shares(B)
    for number, _ in enumerate(loader):
        if number == 3:
            loader.set_shares(A)
    assert asked[12:] == [12, 13, 14, 15, 16, 17, 18, *range(16, 24)]


def test_states_resume_with_set_shares_on_other_topologies(spec):
    sets = {3: {"a": 9, "b": 1}, 8: B}
    rows = [expected(spec, 20, sets, rank, 2) for rank in range(2)]
    states = []
    for rank in range(2):
        loader = rotating_loader(Listed.of(load(spec)).run(Seat(rank, 2), 2), 2)
        found = loader.set_shares(sets[3], after=3)
        assert found == 3
        taken = list(itertools.islice(loader, 6))
        loader.set_shares(B, after=2)
        assert keys(taken) == rows[rank][:6]
        states.append(json.loads(json.dumps(loader.state_dict())))
    state = wdspec.merge_states(states)
    assert json.loads(state["shares"]) == [[3, {"a": 9, "b": 1}], [8, {"b": 1}]]
    with wdspec.loader(spec, num_workers=0) as alone:
        alone.load_state_dict(state)
        seen = [batch["__key__"] for batch in itertools.islice(itertools.chain(alone, alone), 14)]
        later = alone.state_dict()
    assert seen == [[*one, *other] for one, other in zip(rows[0][6:], rows[1][6:], strict=True)]
    assert json.loads(later["shares"]) == [[8, {"b": 1}]]


def test_a_pipeline_and_a_foreign_worker_accept_them(spec):
    pipeline = wdspec.compile({**spec, "elastic": None})
    pipeline.set_shares(A, after=2)
    rows = keys(DataLoader(pipeline, batch_size=None, num_workers=1))
    assert rows == expected({**spec, "elastic": None}, 12, {2: A})
    with pytest.raises(wdspec.UsageError, match=r"workers of a DataLoader read this.*use wdspec.loader"):
        pipeline.set_shares(B)
    own = wdspec.compile(spec)
    seen = []
    for batch in own:
        seen.append(batch["__key__"])
        if len(seen) == 5:
            own.set_shares(B)
    assert seen == expected(spec, 12, {5: B})


def test_stopping_anywhere_resumes_with_the_set_shares(spec):
    def made():
        loader = wdspec.loader(spec, num_workers=0)
        loader.set_shares({"a": 9, "b": 1}, after=2)
        loader.set_shares(B, after=7)
        return loader

    assert_resumable(made, batches=14, stops=range(14))


def test_ranks_with_different_shares_are_detected_on_merge(spec):
    states = []
    for rank in range(2):
        loader = rotating_loader(Listed.of(load(spec)).run(Seat(rank, 2), 1), 1)
        if rank:
            loader.set_shares(B)
        list(itertools.islice(loader, 2))
        states.append(loader.state_dict())
    with pytest.raises(
        wdspec.UsageError, match=r"different shares, .*, were set on the ranks: \[\] \(ranks \[0\]\)"
    ):
        wdspec.merge_states(states)
    mixed = {**states[0], "ranks": {**states[0]["ranks"], **states[1]["ranks"]}}
    with pytest.raises(wdspec.UsageError, match="saved at another position"):
        wdspec.merge_states([mixed])


def test_changed_shares_in_the_spec_override_set_shares(spec):
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.set_shares(B)
        next(iter(loader))
        state = loader.state_dict()
    with wdspec.loader({**spec, "seed": 0, "defaults": {"shuffle": 30}}, num_workers=0) as loader:
        loader.load_state_dict(state, allow_changed=True)
        assert loader.shares == {"a": 0, "b": 1}
    for source, share in zip(spec["dataset"], (0.9, 0.1), strict=True):
        source["probability"] = share
    with wdspec.loader(spec, num_workers=0) as loader:
        with pytest.warns(UserWarning, match="the spec's shares have changed .* set them again"):
            loader.load_state_dict(state, allow_changed=True)
        assert loader.shares == {"a": 0.9, "b": 0.1}


@pytest.mark.parametrize("after", [-1, 1.5, True, None])
def test_after_is_a_number_of_batches(spec, after):
    with (
        wdspec.loader(spec, num_workers=0) as loader,
        pytest.raises(wdspec.UsageError, match="`after` is a number of global batches"),
    ):
        loader.set_shares(A, after=after)


@pytest.mark.parametrize("text", ["", "{}", "[[1]]", '[[1, {"a": -1}]]', '[[1,{"a":1}]]', 7, None])
def test_a_state_with_tampered_shares_is_rejected(spec, text):
    with wdspec.loader(spec, num_workers=0) as loader:
        state = loader.state_dict()
        with pytest.raises(wdspec.UsageError, match="the state is damaged: `shares`"):
            loader.load_state_dict({**state, "shares": text})


def test_with_groups_a_warning_says_after_how_many_samples_the_shares_are_used(spec):
    batch = {"size": 2, "group_by": "txt.length", "group_wait": 8, "incomplete": "merge"}
    changes = {"batch": batch, "epoch": {"batches": 100}, "elastic": {"ranks": 1, "workers": 1}}
    spec = {**spec, **changes, "defaults": {"shuffle": 0}}
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.warns(UserWarning, match=r"finishes its section of 8 samples \(`group_wait`\)"):
            assert loader.set_shares(B) == 1
        read = ["".join(sorted({key[0] for key in next(batches)["__key__"]})) for _ in range(8)]
    assert "a" in "".join(read[:4])
    assert set(read[4:]) == {"b"}
