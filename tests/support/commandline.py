"""Run the `wdspec` program as users do: in a separate process, with a pipe or a terminal as output."""

import contextlib
import io
import os
import pty
import subprocess
import sys
import warnings
from unittest import mock

from wdspec.cli.main import main

PROGRAM = "from wdspec.cli.main import main; main()"
NO_TORCH = "import sys; sys.modules['torch'] = None; "
"""What makes torch look as if it were not installed."""

JOBS = ("check", "dedup", "process", "stats")
"""Commands that start processes, to which `--jobs 0` prefers this one."""


def environment(**more):
    """The environment without variables that would change output or input."""
    unwanted = ("WDS", "GOPEN", "AIS", "USE_AIS", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "RANK", "WORLD_SIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return {**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **more}


def wdspec(*arguments, folder=None, before="", code=0, **variables):
    """Runs the program with its output in pipes; returns (stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-c", before + PROGRAM, *map(str, arguments)],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def within(*arguments, folder=None, code=0, **variables):
    """The same as `wdspec` in this process, which spares half a second; the output is no terminal.

    Jobs start no processes either, unless an option says so.
    """
    command, *options = map(str, arguments)
    if command in JOBS and not {"--jobs", "-j", "--engine", "--scheduler"} & {*options}:
        options += ["--jobs", "0"]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before = os.getcwd()
    with (
        warnings.catch_warnings(),
        mock.patch.dict(os.environ, environment(**variables), clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        os.chdir(folder or before)
        try:
            main([command, *options])
        except SystemExit as done:
            found = done.code
        finally:
            os.chdir(before)
    shown, said = (stream.buffer.getvalue().decode(errors="backslashreplace") for stream in (out, err))
    assert found == code, shown + said
    return shown, said


def on_terminal(*arguments, folder=None, before="", width=100, **variables):
    """Run the program in a new terminal and return all its output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", before + PROGRAM, *map(str, arguments)],
        cwd=folder,
        env=environment(COLUMNS=str(width), **variables),
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    pieces = []
    try:
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    except OSError:  # Linux ends a terminal's output so
        pass
    os.close(ours)
    assert process.wait(timeout=200) == 0, b"".join(pieces)
    return b"".join(pieces).decode().replace("\r\n", "\n")
