#!/usr/bin/env python3
"""Show how far a reader has to go to follow a spec through the code, from `wdspec validate` to a state.

    python scripts/journey.py [SPEC] [--functions]

For each stage, it counts the files of the package that calls enter, the calls that cross from one file to another, the
different functions called, and the lines of these functions. Files and crossings show how much a reader jumps;
functions and lines show how much there is to read. Without SPEC, it uses two sources of small tars.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import sys
import tarfile
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import wdspec
from wdspec.cli.main import main as run_command
from wdspec.stores.settings import HTTP_VARIABLES

PACKAGE = str(Path(wdspec.__file__).parent)


class Journey(NamedTuple):
    """The way through the code of one stage."""

    files: int
    crossings: int
    functions: int
    lines: int
    names: dict[str, list[str]]
    """File → the functions called in it, in the order of their first calls."""


def trace(action: Callable[[], Any]) -> tuple[Any, Journey]:
    """Run a function and record which functions of the package it calls, in its thread and in others that end with it.

    Threads that go on, such as a watchdog, may or may not have run by then.
    """
    calls: dict[int, list[CodeType]] = defaultdict(list)

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            calls[threading.get_ident()].append(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    going_on = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    names: dict[str, list[str]] = defaultdict(list)
    codes: dict[CodeType, None] = {}
    crossings = 0
    for thread in [each for each in calls if each not in going_on]:
        last = ""
        for code in calls[thread]:
            file = os.path.relpath(code.co_filename, PACKAGE)
            crossings, last, found = crossings + (file != last), file, names[file]
            if code not in codes and not code.co_name.startswith(
                "<"
            ):  # comprehensions belong to their functions
                codes[code] = None
                found.append(code.co_qualname)
    lines = sum(len({line for *_, line in code.co_lines() if line}) for code in codes)
    return result, Journey(len(names), crossings, len(codes), lines, dict(names))


def write_example(folder: Path) -> str:
    """Write two sources of two small shards each, and a spec that mixes them. Return the path of the spec."""
    for shard in range(4):
        with tarfile.open(folder / f"a-{shard:06d}.tar", "w") as tar:
            for sample in range(20):
                for extension, data in (("txt", b"hello"), ("cls", b"3")):
                    info = tarfile.TarInfo(f"{shard}{sample:04d}.{extension}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    spec = folder / "spec.yaml"
    spec.write_text(
        f"dataset:\n  - {{name: a, shards: '{folder}/a-{{000000..000001}}.tar', weight: 2}}\n"
        f"  - {{name: b, shards: '{folder}/a-{{000002..000003}}.tar', weight: 1}}\n"
        "defaults: {extensions: txt cls}\nbatch: 4\nepoch: 40\n"
    )
    return str(spec)


def journeys(spec: str) -> Iterator[tuple[str, Journey]]:
    """Yield the stages of a spec and their journeys."""

    def validate() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            run_command(["validate", spec.partition("#")[0]])

    _, journey = trace(validate)
    yield "wdspec validate", journey
    loaded, journey = trace(lambda: wdspec.load(spec))
    yield "load", journey
    _, journey = trace(lambda: wdspec.plan(loaded))
    yield "list shards and plan", journey
    loader, journey = trace(lambda: wdspec.loader(loaded, num_workers=0))
    yield "make a loader", journey
    with loader:
        batches = iter(loader)
        _, journey = trace(lambda: next(batches))
        yield "first batch", journey
        _, journey = trace(lambda: next(batches))
        yield "a later batch", journey
        _, journey = trace(loader.state_dict)
        yield "state", journey
        batches.close()


def trace_spec(spec: str) -> list[tuple[str, Journey]]:
    """Trace a spec twice and return the second trace: the first one imports everything."""
    for name in list(os.environ):  # other settings take other ways
        if name.startswith(("WDS", "AIS_")) or name in HTTP_VARIABLES:
            del os.environ[name]
    list(journeys(spec))
    gc.collect()  # what the first trace left open must not be closed during the second one
    return list(journeys(spec))


def main() -> None:
    """Print a line per stage."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spec", nargs="?", help="a spec, perhaps with #split; by default an example")
    parser.add_argument("--functions", action="store_true", help="list the functions of each file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for stage, journey in trace_spec(arguments.spec or write_example(Path(folder))):
            files, crossings, functions, lines, names = journey
            print(f"{stage:<22}{files:5} files{crossings:7} crossings{functions:6} functions{lines:7} lines")
            for file in names if arguments.functions else ():
                print(f"    {file}: {', '.join(names[file])}")


if __name__ == "__main__":
    main()
