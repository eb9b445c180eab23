"""Stages that look at a stream, or take a part of it."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from wdspec.base.errors import UsageError
from wdspec.fluent.stage import stage
from wdspec.fluent.stages.splitting import worker_place
from wdspec.planning.topology import find_seat


@stage
def slice(source: Iterator[Any], *args: int | None) -> Iterator[Any]:
    """Part of the stream, as `itertools.islice` has it: ``slice(stop)``, ``slice(start, stop, step)``."""
    return itertools.islice(source, *args)


@stage
def info(
    source: Iterator[Any],
    fmt: str | None = None,
    n: int = 3,
    every: int = -1,
    width: int = 50,
    stream: TextIO | None = None,
    name: str = "",
) -> Iterator[Any]:
    """Prints the first n samples, and each `every`-th one, and passes all of them on.

    Args:
        fmt: how one is printed, with `{sample}`; by default field by field.
        width: characters of a value that are shown.
        stream: where to; standard error by default.
        name: stands before each.
    """
    for index, sample in enumerate(source):
        if index < n or (every > 0 and (index + 1) % every == 0):
            text = _shown(sample, index, width, name) if fmt is None else fmt.format(sample, sample=sample)
            print(text, file=sys.stderr if stream is None else stream)
        yield sample


@stage
def log_keys(source: Iterator[Any], logfile: str | os.PathLike[str] | None = None) -> Iterator[Any]:
    """Appends a line to a file for each sample: number, worker, rank and `__key__`, with tabs between them.

    Each line is one write to a file opened for appending, so several processes may log to one file. None logs nothing.
    """
    if not logfile:
        yield from source
        return
    rank, worker = find_seat().rank, worker_place()[0]
    with open(logfile, "ab", buffering=0) as log:
        for index, sample in enumerate(source):
            log.write(f"{index}\t{worker}\t{rank}\t{sample.get('__key__')}\n".encode())
            yield sample


def non_empty(source: Iterable[Any]) -> Iterator[Any]:
    """Passes everything on; a stream without any item is an error.

    Raises:
        UsageError: nothing came.
    """
    came = False
    for item in source:
        came = True
        yield item
    if not came:
        raise UsageError("a pipeline stage got no items at all, and `non_empty` says that it must")


def _shown(sample: Any, index: int, width: int, name: str) -> str:
    title = f"--- {name} {index}".replace("  ", " ")
    values = sample if isinstance(sample, (dict, tuple)) else [sample]
    items = values.items() if isinstance(values, dict) else enumerate(values)
    return "\n".join([title, *(f"  {key}: {_value(value)[:width]}" for key, value in items)])


def _value(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return repr(value)
    return f"{type(value).__name__} {tuple(shape)} {getattr(value, 'dtype', '')}"
