"""`loader: {kind: threads}`: the same batches, states and errors as worker processes, from threads of this process."""

import gc
import json
import threading
import time

import pytest
import torch
from shardmaking import write_source

import wdspec
from wdspec.base.errors import ShardError, SpecError, UsageError
from wdspec.run import threads as worker_threads
from wdspec.run.tasks import TaskReader


@pytest.fixture
def make(tmp_path):
    """A spec of two sources, with the given keys."""
    for name, shards in (("a", 5), ("b", 2)):
        write_source(tmp_path, name, shards, 23)

    def spec(kind="threads", workers=2, source=(), **keys):
        return {
            "seed": 3,
            "dataset": [
                {
                    "name": name,
                    "shards": f"{tmp_path}/{name}-{{000..00{shards - 1}}}.tar",
                    "decode": "cls",
                    **dict(source),
                }
                for name, shards in (("a", 5), ("b", 2))
            ],
            "batch": 4,
            "epoch": {"batches": 12},
            "elastic": {"ranks": 2, "workers": 6},
            "loader": {"workers": workers, "kind": kind},
            **keys,
        }

    return spec


def read(loader, epochs=2):
    return [(batch["txt"], batch["cls"].tolist()) for _ in range(epochs) for batch in loader]


def reading_threads():
    return [each for each in threading.enumerate() if each.name == worker_threads._NAME]


def all_ended(within=120):
    deadline = time.monotonic() + within
    while reading_threads() and time.monotonic() < deadline:
        time.sleep(0.005)
    return not reading_threads()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "keys",
    [{}, {"epoch": "pass"}, {"batch": {"size": 4, "accumulate": True}}, {"defaults": {"shuffle": 30}}],
    ids=lambda keys: next(iter(keys), "plain"),
)
def test_batches_equal_those_of_one_process(make, workers, keys):
    with (
        wdspec.loader(make("processes", 0, **keys)) as alone,
        wdspec.loader(make("threads", workers, **keys)) as loader,
    ):
        assert read(loader) == read(alone)
        assert {name: each.delivered > 0 for name, each in loader.stats().sources.items()} == {
            "a": True,
            "b": True,
        }
    assert all_ended()


def test_states_move_between_processes_and_threads_in_mid_epoch(make):
    with wdspec.loader(make("processes", 0)) as alone:
        expected = read(alone)
    said, state = [], None
    for number, (kind, workers) in enumerate(
        [("threads", 2), ("processes", 2), ("threads", 1), ("threads", 3)]
    ):
        with wdspec.loader(make(kind, workers)) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            steps = iter(loader)
            for _ in range(5 if number < 2 else 1):
                batch = next(steps)
                said.append((batch["txt"], batch["cls"].tolist()))
            state = json.dumps(loader.state_dict())
            if number == 3:
                said += [(batch["txt"], batch["cls"].tolist()) for batch in steps]
                said += read(loader, 1)
    assert said == expected


def test_leaving_early_loses_nothing_and_shares_can_be_set(make):
    found = {}
    for kind, workers in (("processes", 0), ("threads", 2)):
        with wdspec.loader(make(kind, workers, epoch={"batches": 30})) as loader:
            rows = []
            for turn in range(6):
                for batch in loader:
                    rows.append(batch["__source__"])
                    if len(rows) % 5 == 0:
                        break
                if turn == 2:
                    loader.set_shares({"a": 0.1, "b": 0.9})
            found[kind] = rows, loader.shares
    assert found["threads"] == found["processes"]
    assert len(found["threads"][0]) == 30


def test_an_error_of_a_shard_is_raised_unchanged_and_the_next_iteration_continues(make, tmp_path):
    whole = (tmp_path / "a-002.tar").read_bytes()
    (tmp_path / "a-002.tar").write_bytes(whole[:3000])
    with wdspec.loader(make()) as loader:
        with pytest.raises(ShardError, match=r"a-002\.tar"):
            read(loader, 20)
        (tmp_path / "a-002.tar").write_bytes(whole)
        assert next(iter(loader))["cls"].dtype == torch.int64
    assert all_ended()


def test_a_timeout_is_an_error_and_a_stuck_thread_is_abandoned(make, monkeypatch):
    with wdspec.loader(make("processes", 0)) as alone:
        expected = read(alone)
    held, serve = threading.Event(), TaskReader.__getitem__

    def hang(self, task):
        if not held.is_set():
            held.wait(120)
        return serve(self, task)

    monkeypatch.setattr(worker_threads, "_END_WITHIN", 0.1)
    with wdspec.loader(make(), timeout=0.2) as loader:
        with monkeypatch.context() as hanging:
            hanging.setattr(TaskReader, "__getitem__", hang)
            with pytest.raises(RuntimeError, match=r"no batch came within 0\.2 s"):
                next(iter(loader))
        held.set()
        assert all_ended()
    with wdspec.loader(make()) as loader:
        assert read(loader) == expected


def test_what_an_abandoned_thread_has_read_is_counted(make, monkeypatch):
    is_stuck, ends, serve = threading.Event(), threading.Event(), TaskReader.__getitem__

    def hang_after_a_task(self, task):
        if is_stuck.is_set():
            ends.wait(120)
        is_stuck.set()
        return serve(self, task)

    monkeypatch.setattr(TaskReader, "__getitem__", hang_after_a_task)
    monkeypatch.setattr(worker_threads, "_END_WITHIN", 0.1)
    with wdspec.loader(make(workers=1)) as loader:
        received = len(next(iter(loader))["__key__"])
        loader.close()
        delivered = sum(each.delivered for each in loader.stats().sources.values())
        ends.set()
    assert all_ended()
    assert delivered >= received > 0


def test_an_interrupt_while_threads_start_leaves_none_behind(make, monkeypatch):
    with wdspec.loader(make(workers=3)) as loader:
        whole = read(loader)
    start, started = threading.Thread.start, []

    def interrupted(thread):
        started.append(thread)
        if len(started) == 2:
            raise KeyboardInterrupt
        start(thread)

    with wdspec.loader(make(workers=3)) as loader:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        monkeypatch.undo()
        assert all_ended()
        assert read(loader) == whole


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_abandoned_iteration_leaves_nothing(make, is_closed):
    loader = wdspec.loader(make())
    steps = iter(loader)
    next(steps)
    assert len(reading_threads()) == 2
    if is_closed:
        loader.close()
        with pytest.raises(UsageError):
            next(steps)
    del loader, steps
    gc.collect()
    assert all_ended()


@pytest.mark.parametrize(
    "keys",
    [
        {"map": "json:dumps"},
        {"source": {"select": "os:stat"}},
        {"batch": {"size": 4, "collate": {"txt": "json:dumps"}}},
    ],
)
def test_functions_are_rejected_before_reading(make, keys):
    with pytest.raises(SpecError, match=r"E318 .* cannot run in reading threads\n  = remove `kind: threads`"):
        wdspec.loader(make(**keys))


@pytest.mark.parametrize(
    "arguments",
    [{"prefetch_factor": n} for n in (-1, 0, True, "2")]
    + [{"timeout": n} for n in (-1, "2", float("nan"), 1e300)],
)
def test_invalid_numbers_are_rejected(make, arguments):
    (name,) = arguments
    with pytest.raises(UsageError, match=f"`{name}` is a number of"):
        wdspec.loader(make(), **arguments)


def test_options_of_processes_are_rejected(make):
    with pytest.raises(
        UsageError, match="`worker_init_fn` is for worker processes; remove it, or remove `loader:"
    ):
        wdspec.loader(make(), worker_init_fn=print)
    with pytest.raises(UsageError, match="`persistent_workers` is for worker processes"):
        wdspec.loader(make(), persistent_workers=False)
