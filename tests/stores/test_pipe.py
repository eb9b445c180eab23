"""Commands whose output is a shard: a failed one never looks complete, and none stays running."""

import fcntl
import multiprocessing
import os
import random
import time

import pytest

from wdspec.base.errors import ShardError
from wdspec.storage.storage import Storage
from wdspec.stores import pipe
from wdspec.stores.retry import RetryPolicy

PATIENT = RetryPolicy(budget=120, delay=0.001, longest_delay=0.001)


def opened(command):
    return Storage(retry_policy=PATIENT).open_location(f"pipe:{command}")


def failure(command):
    with opened(command) as file, pytest.raises(ShardError) as caught:
        file.readall()
    return caught.value


def running(path):
    """The process that wrote its number to a file, if it still runs."""
    number = int(path.read_text())
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def waited_for(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return {*file.read().split()}


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = children()
    yield
    assert children() <= before


def test_the_output_of_a_command_is_read_to_its_end(tmp_path):
    data = random.Random(1).randbytes(3_000_000)
    (tmp_path / "a b.tar").write_bytes(data)
    with opened(f"cat '{tmp_path}/a b.tar'") as file:
        assert not file.seekable()
        pieces = []
        while piece := file.read(1_000_000):
            pieces.append(piece)
        assert file.read(10) == b""
    assert b"".join(pieces) == data
    with opened(f"cat '{tmp_path}/a b.tar' | tail -c 10") as file:
        assert file.read() == data[-10:]


def test_a_failing_command_is_an_error_with_its_status_and_stderr():
    error = failure("head -c 2560 /dev/zero; echo no luck >&2; echo at all >&2; exit 7")
    assert error.message == (
        "the command failed with exit status 7; its standard error: no luck | at all; "
        "2560 bytes were read before that"
    )
    assert error.place["location"].startswith("pipe:head")


@pytest.mark.parametrize("verbose", ["0", "1"])
def test_the_exit_status_is_always_checked_even_if_late(monkeypatch, verbose):
    monkeypatch.setenv("GOPEN_VERBOSE", verbose)
    for wait in ("", "sleep 0.01;", "exec >&-; sleep 0.02;"):
        for _ in range(5):
            assert "exit status 7" in str(failure(f"head -c 2560 /dev/zero; {wait} exit 7"))


def test_a_killed_command_is_an_error():
    assert "killed by SIGKILL" in str(failure("head -c 512 /dev/zero; kill -9 $$"))
    # A reader that has read everything closed nothing early, so a broken pipe is the command's own failure.
    assert "exit status 141" in str(failure("head -c 512 /dev/zero; exit 141"))


def test_a_missing_command_is_reported_immediately():
    error = failure("no-such-program a.tar")
    assert "exit status 127 (the shell does not find this program)" in error.message
    assert "no-such-program" in error.message
    assert "in a row" not in error.message
    with pytest.raises(ShardError, match="`pipe:` without a command"):
        opened("  ")


def test_a_command_that_cannot_be_started_is_an_error():
    with pytest.raises(ShardError, match="the command cannot be started: Argument list too long") as caught:
        opened("true " + "x" * 200_000)  # Linux allows 128 KiB
    assert caught.value.place["location"].startswith("pipe:true")


def test_a_command_that_fails_before_its_first_byte_is_retried(tmp_path):
    command = f"echo x >>{tmp_path}/runs; [ $(wc -l <{tmp_path}/runs) -ge 3 ] || exit 255; printf data"
    with opened(command) as file:
        assert file.read() == b"data"
    error = failure("echo refused >&2; exit 255")
    assert error.message == (
        "the command failed with exit status 255; its standard error: refused, 3 times in a row"
    )


def test_a_command_that_fails_later_is_not_retried(tmp_path):
    failure(f"echo x >>{tmp_path}/runs; printf data; exit 1")
    assert (tmp_path / "runs").read_text() == "x\n"


def test_only_the_end_of_a_long_stderr_is_kept():
    error = failure("head -c 3000000 /dev/zero | tr '\\0' e >&2; echo the end >&2; exit 1")
    assert error.message.count("e") < 2100
    assert "the end" in error.message
    with opened("head -c 500000 /dev/zero >&2; printf data; exec >&-; head -c 500000 /dev/zero >&2") as file:
        assert file.read() == b"data"


@pytest.mark.parametrize(
    ("then", "says"),
    [("", "the command printed nothing for 0 s"), ("exec >&-; ", "closed its output, but kept running")],
)
def test_a_silent_command_is_an_error_and_is_killed(tmp_path, then, says):
    with opened(f"echo $$ >{tmp_path}/pid; printf x; {then}touch {tmp_path}/silent; sleep 1000") as file:
        waited_for((tmp_path / "silent").exists)
        file._silence = 0.1
        with pytest.raises(ShardError, match=says):
            file.readall()
        assert not running(tmp_path / "pid")


@pytest.mark.parametrize(
    "command",
    [
        "sleep 100 & echo $! >{0}; printf x; wait",
        "(sh -c 'echo $$ >{0}; printf x; while true; do printf xxxxxxxx; done') | cat",
        "trap '' TERM; echo $$ >{0}; printf x; sleep 100; sleep 100",
    ],
)
def test_closing_the_reader_ends_the_command_and_its_children(tmp_path, monkeypatch, command):
    monkeypatch.setattr(pipe, "GRACE", 0.2)
    file = opened(command.format(tmp_path / "pid"))
    assert file.read(1) == b"x"
    waited_for(lambda: (tmp_path / "pid").read_text().strip())
    file.close()
    file.close()
    waited_for(lambda: not running(tmp_path / "pid"))


def test_children_of_a_command_are_ended_with_it(tmp_path):
    with opened(f"sleep 100 >/dev/null 2>&1 & echo $! >{tmp_path}/pid; printf data") as file:
        assert file.read() == b"data"
    waited_for(lambda: not running(tmp_path / "pid"))


def test_a_reader_that_stops_early_ignores_the_exit_status():
    with opened("head -c 1000000 /dev/zero; exit 3") as file:
        assert file.read(10) == bytes(10)


def in_child(file, queue):
    try:
        file.read(1)
    except ShardError as error:
        queue.put(error.message)
    file.close()


def test_a_forked_child_does_not_end_the_command():
    file = opened("printf ab; cat")
    assert file.read(1) == b"a"
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(file, queue))
    child.start()
    assert "opened by another process" in queue.get(timeout=280)
    child.join()
    assert file.read() == b"b"
    file.close()


def test_a_pipe_delivers_large_chunks_if_the_system_allows_it():
    with opened("cat /dev/zero") as file:
        held = fcntl.fcntl(file._run._out, fcntl.F_GETPIPE_SZ)
        assert held in (pipe.CAPACITY, 65536, 4096)  # the smaller ones over the user's limit
        waited_for(lambda: len(file.read(pipe.CAPACITY)) >= held // 2)
