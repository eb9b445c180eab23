"""Worker processes: they survive signals to the group, end with their loader, and start with every start method."""

import gc
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from shardmaking import keys, reference, write_source

import wdspec
from wdspec.run import processes as worker_processes
from wdspec.run.tasks import Delivery
from wdspec.spec.load import load

BATCHES = 12


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {
        "seed": 2,
        "dataset": [{"name": "a", "shards": write_source(folder, "a", 4, 20), "shuffle": 16}],
        "batch": 3,
        "epoch": {"batches": BATCHES},
    }


@pytest.fixture(scope="module")
def spec(document):
    return load(document)


def workers():
    return [child for child in multiprocessing.active_children() if child.is_alive()]


def started(worker):
    Path(os.environ["WORKERS_STARTED"], str(worker)).write_text(str(gc.get_freeze_count()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_the_group_do_not_cost_a_batch(spec, number):
    with wdspec.loader(spec, num_workers=2) as loader:
        batches = iter(loader)
        found = [next(batches), next(batches)]  # both workers have started
        for _ in range(2):
            for worker in workers():
                os.kill(worker.pid, number)
            found.append(next(batches))
        found += batches
    assert keys(found) == reference(spec, 1, 2, 0, BATCHES)


@pytest.mark.parametrize("persistent", [True, False])
def test_closing_ends_the_workers_in_mid_epoch_too(spec, persistent):
    with wdspec.loader(spec, num_workers=2, persistent_workers=persistent) as loader:
        batches = iter(loader)
        next(batches)
        assert len(workers()) == 2
    assert workers() == []
    with pytest.raises(wdspec.UsageError, match="closed"):
        next(batches)


@pytest.mark.parametrize("persistent", [True, False])
def test_an_old_iteration_takes_no_batches_from_the_new_one(spec, persistent):
    with wdspec.loader(spec, num_workers=2, persistent_workers=persistent) as loader:
        old, older = iter(loader), iter(loader)
        found = []
        with pytest.raises(wdspec.UsageError, match="newer iteration"):
            next(old)
        found.append(next(older))
        newest = iter(loader)
        found.append(next(newest))
        with pytest.raises(wdspec.UsageError, match="newer iteration"):
            next(older)
        found += newest
    assert keys(found) == reference(spec, 1, 2, 0, BATCHES)


def test_leaving_an_epoch_early_ends_non_persistent_workers(spec):
    with wdspec.loader(spec, num_workers=2, persistent_workers=False) as loader:
        for _ in loader:
            break
        assert workers() == []


class Trainer:
    def __init__(self, loader):
        self.loader, self.me = loader, self
        self.batches = iter(loader)
        next(self.batches)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_garbage_collected_loader_ends_its_workers(spec, persistent, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 120)  # it waits for no worker
    Trainer(wdspec.loader(spec, num_workers=2, persistent_workers=persistent))
    start = time.monotonic()
    gc.collect()
    assert time.monotonic() - start < 60
    assert workers() == []


def test_a_forked_child_that_drops_a_loader_does_not_end_its_workers(spec):
    loader = wdspec.loader(spec, num_workers=2)
    batches = iter(loader)
    found = [next(batches)]
    child = os.fork()
    if not child:
        del batches, loader
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    found += batches
    loader.close()
    assert keys(found) == reference(spec, 1, 2, 0, BATCHES)


def test_a_stuck_worker_is_killed(document, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    (tmp_path / "stuck_in_map.py").write_text("import time\ndef stay(sample):\n    time.sleep(1000)\n")
    monkeypatch.syspath_prepend(tmp_path)
    stuck = {**document, "map": "stuck_in_map:stay"}
    with wdspec.loader(stuck, num_workers=1, timeout=1) as loader:
        batches = iter(loader)
        with pytest.raises(RuntimeError, match="timed out"):
            next(batches)
    assert workers() == []


def lose_lock(loader):
    """Leave the lock of torch's event as a worker does that is killed while it holds the lock."""
    event = loader._stream.steps._running()._workers_done_event._event
    holder = threading.Thread(target=event._cond.acquire)
    holder.start()
    holder.join()


def test_a_loader_closes_after_a_worker_died_holding_the_end_lock(spec, monkeypatch):
    monkeypatch.setattr(worker_processes, "_LOCK_TIMEOUT", 0.1)
    with wdspec.loader(spec, num_workers=2) as loader:
        next(iter(loader))
        lose_lock(loader)
    assert workers() == []


@pytest.mark.parametrize("persistent", [True, False])
def test_a_worker_killed_while_holding_the_end_lock_is_reported(spec, persistent, monkeypatch):
    monkeypatch.setattr(worker_processes, "_LOCK_TIMEOUT", 0.1)
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    found = []
    with wdspec.loader(spec, num_workers=2, prefetch_factor=1, persistent_workers=persistent) as loader:
        with pytest.raises(RuntimeError, match=r"was killed|exited unexpectedly"):
            read_and_kill_one_after(3, loader, found, before=lambda: lose_lock(loader))
        found += loader
    assert keys(found) == reference(spec, 1, 2, 0, BATCHES)


def read_and_kill_one_after(count, loader, found, before=lambda: None):
    for batch in loader:
        found.append(batch)
        if len(found) == count:
            before()
            os.kill(workers()[0].pid, signal.SIGKILL)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("number", [1, 2])
def test_after_a_killed_worker_the_next_iteration_resumes_exactly(spec, number, persistent, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    found = []
    with wdspec.loader(spec, num_workers=number, prefetch_factor=1, persistent_workers=persistent) as loader:
        with pytest.raises(RuntimeError, match=r"was killed|killed by signal|exited unexpectedly"):
            read_and_kill_one_after(3, loader, found)
        found += loader
        assert len(workers()) == (number if persistent else 0)
        found += loader
    assert keys(found) == reference(spec, 1, number, 0, 2 * BATCHES)


def crash():
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # the handler of pytest would print a traceback
    os.kill(os.getpid(), signal.SIGSEGV)


def die_of_sigbus():
    signal.signal(
        signal.SIGBUS, signal.SIG_DFL
    )  # libraries such as Ray's set handlers, which may crash in a fork
    os.kill(os.getpid(), signal.SIGBUS)


class Iteration:
    """The part of a DataLoader's iterator that we use."""

    def __init__(self, *workers):
        self._workers = workers


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "was killed by SIGKILL; usually memory was short",
        ),
        (die_of_sigbus, "killed by SIGBUS; usually shared memory"),
        (crash, "killed by SIGSEGV; a library crashed"),
        (lambda: os._exit(3), "exited unexpectedly with status 3."),
    ],
)
def test_errors_of_a_dead_worker_name_its_exit_the_usual_cause_and_its_memory(end, says):
    context = multiprocessing.get_context("fork")
    living, dead = context.Process(target=signal.pause), context.Process(target=end)
    living.start()
    dead.start()
    assert multiprocessing.connection.wait([dead.sentinel], 120)  # a fork of a large process may die slowly
    try:
        said = worker_processes.describe_death(Iteration(living, dead), {0: 3 * 2**30, 1: 5 * 2**20})
    finally:
        living.kill()
        living.join()
    assert said.startswith(f"worker 1 (process {dead.pid}) ")
    assert says in said
    assert "Peak memory: 3,072, 5 MiB in workers 0, 1" in said


def test_a_loader_reports_this_for_a_killed_worker(spec, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    with wdspec.loader(spec, num_workers=1, prefetch_factor=1) as loader:
        batches = iter(loader)
        next(batches)
        victim = workers()[0]
        victim.kill()  # during a step of the training loop, which no error interrupts
        victim.join()
        time.sleep(0.05)
        with pytest.raises(
            RuntimeError, match=r"worker 0 \(process \d+\) was killed by SIGKILL; .* memory was short"
        ):
            list(batches)


def test_workers_killed_between_two_epochs_are_replaced(spec, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    with wdspec.loader(spec, num_workers=2) as loader:
        found = list(loader)
        victim = workers()[1]
        os.kill(victim.pid, signal.SIGKILL)  # no error interrupts the code between two epochs
        victim.join()
        time.sleep(0.05)
        assert not victim.is_alive()
        found += loader
    assert keys(found) == reference(spec, 1, 2, 0, 2 * BATCHES)


def test_after_a_timeout_the_next_iteration_resumes_exactly(document, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    monkeypatch.setenv("STUCK_ONCE", str(tmp_path / "was-stuck"))
    (tmp_path / "stuck_once.py").write_text(
        "import os, pathlib, time\n"
        "def stay(sample):\n"
        "    note = pathlib.Path(os.environ['STUCK_ONCE'])\n"
        "    if sample['__key__'].endswith('7') and not note.exists():\n"
        "        note.touch()\n"
        "        time.sleep(1000)\n"
        "    return sample\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found, timeouts = [], 0
    with wdspec.loader({**document, "map": "stuck_once:stay"}, num_workers=1, timeout=2) as loader:
        while len(found) < BATCHES and timeouts < 20:  # on a loaded machine, other batches may take long, too
            try:
                for batch in loader:
                    found.append(batch)  # `extend` would drop them at an error
            except RuntimeError as error:
                if "timed out" not in str(error):
                    raise
                timeouts += 1
    assert timeouts
    assert keys(found) == reference(load(document), 1, 1, 0, BATCHES)


def test_python_exits_at_once_with_unclosed_loaders(document, tmp_path):
    script, text = tmp_path / "left_open.py", tmp_path / "spec.json"
    text.write_text(json.dumps(document))
    script.write_text(
        "import sys, wdspec\n"
        "loaders = [\n"
        "    wdspec.loader(sys.argv[1], num_workers=2, persistent_workers=each) for each in (True, False)\n"
        "]\n"
        "for batches in list(map(iter, loaders)):\n"
        "    print(next(batches)['__key__'], flush=True)\n"
    )
    done = subprocess.run([sys.executable, script, text], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 10


def test_the_worker_init_fn_of_the_user_is_called(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKERS_STARTED", str(tmp_path))
    with wdspec.loader(spec, num_workers=2, worker_init_fn=started) as loader:
        next(iter(loader))
        next(iter(loader))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    counts = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert min(counts) > 10_000, "a collection writes into each page that the worker shares with this process"


class Pinnable:
    pinned = False

    def pin_memory(self):
        self.pinned = True
        return self


def test_pin_memory_reaches_the_tensors_of_a_delivery():
    """Without an accelerator nothing can be pinned, so this asks the function that torch would use."""
    from torch.utils.data._utils.pin_memory import pin_memory

    items = [{"image": Pinnable(), "__key__": ["k"]}, (Pinnable(), 1)]
    [(found, states)] = pin_memory(Delivery([(items, {0: b"state"})])).parcels
    assert found[0]["image"].pinned
    assert found[1][0].pinned
    assert found[0]["__key__"] == ["k"]
    assert states == {0: b"state"}


@pytest.mark.parametrize("number", [0, 2])
def test_pin_memory_and_prefetch_keep_the_order(spec, number):
    arguments = {"prefetch_factor": 5} if number else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        with wdspec.loader(spec, num_workers=number, pin_memory=True, **arguments) as loader:
            found = []
            for batch in loader:
                found.append(batch)
                if len(found) == 5:
                    break
            state = loader.state_dict()
        with wdspec.loader(spec, num_workers=number, pin_memory=True, **arguments) as loader:
            loader.load_state_dict(state)
            found += loader
    assert keys(found) == reference(spec, 1, number, 0, BATCHES)


SCRIPT = """
import json
import sys

import wdspec

if __name__ == "__main__":
    method, spec = sys.argv[1:]
    found = []
    for part in (4, 99):
        with wdspec.loader(spec, num_workers=1, multiprocessing_context=method) as loader:
            if found:
                loader.load_state_dict(state)
            for _, batch in zip(range(part), loader):
                found.append(batch["__key__"])
            state = loader.state_dict()
    print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "context", ["forkserver", multiprocessing.get_context("forkserver"), multiprocessing.get_context("fork")]
)
def test_a_forkserver_imports_what_workers_need_once(spec, monkeypatch, context):
    from multiprocessing import forkserver

    server = forkserver.ForkServer()
    server.set_forkserver_preload(["__main__", "json"])
    monkeypatch.setattr(forkserver, "_forkserver", server)
    for _ in range(2):
        wdspec.loader(spec, num_workers=1, multiprocessing_context=context).close()
    wanted = ["wdspec.run.loader"] if getattr(context, "_name", "") != "fork" else []
    assert server._preload_modules == ["__main__", "json", *wanted]


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.long)])
def test_workers_can_be_spawned_under_the_main_guard(tmp_path, method):
    script, text = tmp_path / "train.py", tmp_path / "spec.yaml"
    script.write_text(SCRIPT)
    shards = write_source(tmp_path, "a", 4, 20)
    text.write_text(
        f"dataset: [{{name: a, shards: '{shards}', shuffle: 16}}]\nbatch: 3\nepoch: {{batches: 9}}\n"
    )
    done = subprocess.run([sys.executable, script, method, text], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == reference(load(text), 1, 1, 0, 9)
