"""The state of one worker of a DataLoader that is not ours: undamaged, or refused with one kind of error."""

import itertools
import json
from types import SimpleNamespace

import pytest
from shardmaking import write_source

import wdspec
from wdspec.run.state import decode, encode


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A dataset in this process, as worker 1 of 2 of a DataLoader sees it."""
    info = SimpleNamespace(id=1, num_workers=2)
    # What `get_worker_info` returns: modules imported meanwhile would keep a function that replaces it.
    monkeypatch.setattr("torch.utils.data._utils.worker._worker_info", info)
    spec = {
        "dataset": [{"name": name, "shards": write_source(tmp_path, name, 2, 20)} for name in "ab"],
        "defaults": {"shuffle": 20},
        "batch": 2,
        "epoch": {"batches": 20},
        "elastic": {"ranks": 1, "workers": 4},
    }
    return lambda: wdspec.compile(spec, rank=0, world_size=1)


def saved(worker, batches=3):
    """A state after some of the worker's batches, and the keys of those that follow."""
    dataset = worker()
    reading = iter(dataset)
    for _ in itertools.islice(reading, batches):
        pass
    state = dataset.state_dict()
    return json.loads(json.dumps(state)), [batch["__key__"] for batch in reading]


def test_a_worker_resumes_from_its_state(worker):
    state, rest = saved(worker)
    again = worker()
    again.load_state_dict(state)
    assert [batch["__key__"] for batch in again] == rest
    assert len(rest) == 7


KEYS = ("format", "version", "worker", "workers", "first", "batch", "given", "shares", "skip", "run", "ranks")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "value", ["gone", None, "x", -1, 1.5, [], {}, [1, "x"], "[1, 2]", '["a", "b", "c", "d"]']
)
def test_every_missing_or_replaced_key_is_named_as_damage(worker, key, value):
    good, rest = saved(worker)
    assert set(good) == set(KEYS)
    state = dict(good)
    if (key, value) == ("skip", "gone"):  # states from before steps could be skipped lack it
        value = "gone, and more"
    if value == "gone":
        del state[key]
    else:
        state[key] = value
    says = (
        "this is not a state of a pipeline"
        if key == "format"
        else f"the state is damaged: .*{DAMAGE.get(key, key)}"
    )
    again = worker()
    with pytest.raises(wdspec.UsageError, match=says):
        again.load_state_dict(state)
    # And what was refused has left no trace.
    again.load_state_dict(good)
    assert [batch["__key__"] for batch in again] == rest


DAMAGE = {"run": "run|digest|order|samples|sources", "ranks": "rank"}


def at_batch_4(state):
    state["ranks"]["0"] = state["ranks"]["0"].replace(f"{state['batch']}.", "4.", 1)
    state["batch"] = 4


def without_slot_3(state):
    stamped, text = state["ranks"]["0"].split(":")
    slots = decode(text, 4, 2)
    state["ranks"]["0"] = f"{stamped}:{encode([*slots[:3], None])}"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (at_batch_4, "`batch` is 4, which worker 1 of 2 does not read"),
        (lambda state: state.update(first=100), "`batch` is 7, which worker 1 of 2 does not read"),
        (without_slot_3, "slot 3 is missing"),
        (lambda state: state.update(run="[" * 100_000), "`run` is missing or invalid"),
        (lambda state: state.update(run=state["run"].replace('\\"seed\\": 0', '\\"seed\\": 1')), "digest"),
    ],
)
def test_damage_that_keeps_the_types_is_detected(worker, damage, says):
    state, _ = saved(worker)
    damage(state)
    with pytest.raises(wdspec.UsageError, match=f"the state is damaged: .*{says}"):
        worker().load_state_dict(state)


def test_a_state_of_another_version_is_not_damage(worker):
    state, _ = saved(worker)
    with pytest.raises(wdspec.UsageError, match="format version 2, this wdspec reads versions 4 to 6"):
        worker().load_state_dict({**state, "version": 2})


def test_a_persistent_worker_can_close_its_reader_between_epochs(worker):
    dataset = worker()
    for _ in range(3):
        assert len(list(dataset)) == 10
        dataset.close()
