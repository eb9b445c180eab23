"""Run pytest for each line of folders that standard input has, several at once, and print what each run has said.

    run_folders.py AT_ONCE FOLDER_FOR_OUTPUT [OPTION_OF_PYTEST...]

Each run is a fork of this process, which has imported the largest libraries: each would take seconds to import them,
and in a new checkout to compile them, too. Exits with 1 if a test failed.
"""

import gc
import logging
import os
import runpy
import sys
from glob import glob
from importlib import import_module
from pathlib import Path

LIBRARIES = ("torch", "pandas", "pydantic")


def start(arguments: list[str], output: Path) -> int:
    """Fork a process that does what `python -m pytest` does, and return its number."""
    if process := os.fork():
        return process
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["pytest", *arguments]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    raise AssertionError("pytest ends the process")


def main(at_once: int, place: Path, options: list[str]) -> None:
    """Start a run as soon as another has ended; end this process."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as tests/conftest.py, which comes too late for torch
    for library in LIBRARIES:
        import_module(library)
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            # Else pytest adds handlers to torch's 40 loggers, six times for each test.
            logger.propagate = True
    gc.freeze()
    waiting = [line.strip() for line in sys.stdin]
    running: dict[int, str] = {}
    status = 0
    while waiting or running:
        if waiting and len(running) < at_once:
            folders = waiting.pop(0)
            paths = [path for pattern in folders.split() for path in glob(pattern)]
            running[start([*options, *paths], place / folders.replace("/", "-"))] = folders
        else:
            process, ended = os.wait()
            folders = running.pop(process)
            print(f"\n== {folders}\n{(place / folders.replace('/', '-')).read_text()}", end="", flush=True)
            if os.waitstatus_to_exitcode(ended) not in (0, 5):  # 5: all tests of the folders are long
                status = 1
    sys.exit(status)


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # as `python -m`; the folder of this file has a site.py
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
