"""Windows whose samples are decoded to be measured are read while the one before is given."""

import itertools
import json
import time

import pytest
from shardmaking import write_shard

import wdspec

SAMPLES, WINDOW = 600, 100
MODULE = """
import time

def slow(sample):
    time.sleep({seconds})
    return len(sample["txt"])

def often(sample):
    return int(sample["__key__"]) % 3 > 0

def fails_late(sample):
    if sample["__key__"] == "00130":
        raise ValueError("this one")
    return 2
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "slowcosts.py").write_text(MODULE.format(seconds=0.001))
    monkeypatch.syspath_prepend(tmp_path)
    for shard in range(3):
        numbers = range(shard * SAMPLES // 3, (shard + 1) * SAMPLES // 3)
        samples = [(f"{n:05}", {"txt": b"x" * (1 + n * 7 % 11)}) for n in numbers]
        write_shard(tmp_path / f"a-{shard}.tar", samples)
    return tmp_path


def spec_of(folder, **batch):
    return {
        "dataset": [{"name": "a", "shards": f"{folder}/a-{{0..2}}.tar", "shuffle": 0, "order": "sequential"}],
        "batch": {"max_cost": 60, "window": WINDOW, **batch},
        "elastic": {"ranks": 1, "workers": 1},
        "epoch": {"batches": 40},
    }


def endless(loader):
    return itertools.chain.from_iterable(itertools.repeat(loader))


def test_the_next_window_is_read_bit_by_bit_while_batches_are_given(folder, monkeypatch):
    counted = []
    import slowcosts

    monkeypatch.setattr(slowcosts, "slow", lambda sample: counted.append(1) or len(sample["txt"]))
    spec = spec_of(folder, cost="slowcosts:slow")
    with wdspec.loader(spec, num_workers=0) as loader:
        batches, seen = endless(loader), []
        for _ in range(40):
            sizes = len(next(batches)["__key__"])
            seen.append((len(counted), sizes))
    assert seen[0][0] <= WINDOW + 40
    steps = [after[0] - before[0] for before, after in itertools.pairwise(seen)]
    largest = max(size for _, size in seen)
    assert max(steps) <= 2 * largest, "a batch waits for at most two batches of samples"
    assert sum(steps) > WINDOW


@pytest.mark.parametrize("batch", [{}, {"group_by": "txt.length > 5", "group_wait": 200, "window": 50}])
@pytest.mark.parametrize("workers", [0, 1])
def test_reading_ahead_changes_no_batch_and_no_state(batch, workers, folder):
    ahead = spec_of(folder, cost="txt.length", **batch)
    ahead["dataset"][0]["select"] = "slowcosts:often"
    lone = {**ahead, "dataset": [{**ahead["dataset"][0], "shuffle": 3}]}
    for spec in (ahead, lone):
        whole, states = [], []
        with wdspec.loader(spec, num_workers=workers) as loader:
            for batch_ in itertools.islice(endless(loader), 60):
                whole.append(batch_["__key__"])
                states.append(json.loads(json.dumps(loader.state_dict())))
        for cut in (0, 7, 8, 9, 20, 33):
            with wdspec.loader(spec, num_workers=0) as loader:
                loader.load_state_dict(states[cut])
                assert loader.state_dict() == states[cut]
                rest = [b["__key__"] for b in itertools.islice(endless(loader), 59 - cut)]
                assert rest == whole[cut + 1 :]
                assert loader.state_dict() == states[-1]


def test_an_error_ahead_is_raised_when_its_window_begins(folder):
    spec = spec_of(folder, cost="slowcosts:fails_late")
    with wdspec.loader(spec, num_workers=0) as loader:
        batches, keys = endless(loader), []
        with pytest.raises(wdspec.FieldError, match="this one"):
            keys.extend(key for batch in batches for key in batch["__key__"])
    assert sorted(keys) == [f"{n:05}" for n in range(WINDOW)]


def test_shares_that_are_set_apply_to_the_window_that_was_read_ahead(folder):
    spec = spec_of(folder, cost="slowcosts:slow")
    spec["dataset"] = [
        {"name": name, "shards": f"{folder}/a-{shard}.tar", "shuffle": 0}
        for name, shard in (("a", 0), ("b", 1))
    ]
    with wdspec.loader(spec, num_workers=0) as loader:
        batches, sources = endless(loader), []
        for number in range(40):
            if number == 3:
                start = loader.set_shares({"a": 1})
            before = json.loads(json.dumps(loader.state_dict()))
            sources.append({*next(batches)["__source__"]})
            if number == 6:
                state, rest = before, []
            if number >= 6:
                rest.append(sources[-1])
    assert start == 3
    assert {"b"} < sources[0]
    assert sources[-1] == {"a"}
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(state)
        assert [{*batch["__source__"]} for batch in itertools.islice(endless(loader), 34)] == rest


def test_a_slow_first_window_is_logged_once(folder, monkeypatch, caplog):
    from wdspec.read import windows

    monkeypatch.setattr(windows, "_LONG", 0.05)
    monkeypatch.setattr(windows, "_logged", [])
    with caplog.at_level("INFO", "wdspec"), wdspec.loader(spec_of(folder, cost="slowcosts:slow")) as loader:
        start = time.perf_counter()
        for _ in itertools.islice(endless(loader), 30):
            pass
        assert time.perf_counter() - start > 0.1
    assert len([record for record in caplog.records if "the first batch waited" in record.message]) == 1
