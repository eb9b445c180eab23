"""Engines leave no processes or threads."""

import os
import signal
import threading

import pytest

from wdspec.jobs.engine import LocalEngine


def double(number):
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def blocks_ctrl_c(_):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


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


def test_processes_print_nothing_after_ctrl_c_in_a_terminal():
    # They get it as well, and one that is just starting would print a traceback.
    engine = LocalEngine(1)
    assert list(engine.run(blocks_ctrl_c, [1], str)) == [(1, True)]
    assert not blocks_ctrl_c(None)
