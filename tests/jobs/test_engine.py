"""Engines leave no processes or threads."""

import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from wdspec.base.errors import SpecError
from wdspec.jobs.engine import LocalEngine
from wdspec.jobs.job import ShardJob
from wdspec.jobs.torchrun import using_ranks


def double(number):
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def blocks_ctrl_c(_):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def pid_of(_):
    return os.getpid()


def kill_idle(pid):
    """Kill a process that waits for its next task, and wait until its pool knows."""
    (child,) = [each for each in multiprocessing.active_children() if each.pid == pid]
    before = threads()
    child.kill()
    while before <= threads():  # the thread of the pool ends
        time.sleep(0.01)


def threads():
    return {thread for thread in threading.enumerate() if thread.name != "MainThread"}


@pytest.mark.parametrize("stop", [1, 3])
def test_the_threads_of_pools_end_with_the_engine(stop):
    # At exit, Python writes to the pipe of a pool whose thread is just closing it: "Bad file descriptor".
    before = threads()
    engine = LocalEngine(2)
    found = {}
    for work, outcome in engine.run(double, [1, -1, 2], str):
        found[work] = outcome
        if len(found) == stop:
            break
    engine.close()
    assert threads() <= before
    if stop == 3:
        assert (found[1], found[2]) == (2, 4)
        assert "killed" in found[-1]


@pytest.mark.parametrize("busy", [1, 2])
def test_a_job_that_stops_reports_shards_that_were_to_be_tried_again(busy):
    """Whether it stops in the round in which they failed or, if all have failed once, in the next one."""
    tries = []

    def fail(task):
        tries.append(task.number)
        raise OSError("busy") if len(tries) <= busy else SpecError("a fault of the spec")

    class Job(ShardJob):
        stops_early, found = True, []

        def take(self, task, outcome):
            self.found.append((task.number, outcome.cause))

    Job().run_tasks(fail, [SimpleNamespace(number=0), SimpleNamespace(number=1)], LocalEngine(0), retries=1)
    fault = tries[-1]
    assert tries == [0, 1, 0][: busy + 1]
    assert Job.found == [(fault, "a fault of the spec"), (1 - fault, "OSError: busy")]


def test_processes_print_nothing_after_ctrl_c_in_a_terminal():
    # They get it as well, and one that is just starting would print a traceback.
    engine = LocalEngine(1)
    assert list(engine.run(blocks_ctrl_c, [1], str)) == [(1, True)]
    assert not blocks_ctrl_c(None)


def test_a_rank_replaces_a_process_that_was_killed_while_idle(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with using_ranks(str(tmp_path), 1) as start:
        ((_, first),) = start().run(pid_of, [0], str)
        kill_idle(first)
        ((_, second),) = start().run(pid_of, [0], str)
    assert isinstance(second, int)
    assert second != first


def torch_threads(task):
    import torch

    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


@pytest.mark.parametrize(("given", "expected"), [(None, 1), ("2", 2)])
def test_the_processes_of_a_job_have_one_thread_each_unless_the_user_sets_it(monkeypatch, given, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    engine = LocalEngine(1)
    try:
        assert [outcome for _, outcome in engine.run(torch_threads, [0], str)] == [(expected, str(expected))]
    finally:
        engine.close()


@pytest.mark.parametrize(("every", "saves"), [(-1.0, [1, 2, 2]), (1e9, [2])])
def test_what_a_job_has_collected_is_saved_from_time_to_time_and_at_the_end(monkeypatch, every, saves):
    monkeypatch.setattr("wdspec.jobs.job.SAVE_EVERY", every)

    class Job(ShardJob):
        def __init__(self):
            self.found, self.saved = [], []

        def take(self, task, outcome):
            self.found.append(outcome)

        def keep(self):
            self.saved.append(len(self.found))

    job = Job()
    job.run_tasks(double, [1, 2], LocalEngine(0))
    assert job.saved == saves
