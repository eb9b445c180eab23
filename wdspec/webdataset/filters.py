"""All stages that webdataset has in its module `filters`, and the functions that they are made of there."""

# ruff: noqa: F401 - imported for code that was written for webdataset

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, TextIO

from wdspec.base.errors import FieldError
from wdspec.base.replacements import missing_name
from wdspec.planning.topology import find_seat
from wdspec.webdataset.batching import batched, default_collation_fn, listed, unbatched, unlisted
from wdspec.webdataset.decoding import decode
from wdspec.webdataset.handlers import reraise_exception
from wdspec.webdataset.items import samples
from wdspec.webdataset.mapping import (
    associate,
    extract_keys,
    map,
    map_dict,
    map_tuple,
    rename,
    rename_keys,
    select,
    to_tuple,
    xdecode,
)
from wdspec.webdataset.shuffling import detshuffle, rsample, shuffle
from wdspec.webdataset.splitting import worker_place
from wdspec.webdataset.stage import PipelineStage, StageMaker, pipelinefilter, stage
from wdspec.webdataset.utils import identity


@stage
def slice(source: Iterator[Any], *args: int | None) -> Iterator[Any]:
    """Yield part of the stream, like `itertools.islice`: ``slice(stop)``, ``slice(start, stop, step)``."""
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
    """Print the first n samples and every `every`-th one, and yield all of them.

    Args:
        fmt: a format with `{sample}`; by default each field is printed on a line.
        width: characters to print of a value.
        stream: where to print; by default standard error.
        name: printed before each sample.
    """
    for index, sample in enumerate(source):
        if index < n or (every > 0 and (index + 1) % every == 0):
            text = _describe(sample, index, width, name) if fmt is None else fmt.format(sample, sample=sample)
            print(text, file=sys.stderr if stream is None else stream)
        yield sample


@stage
def log_keys(source: Iterator[Any], logfile: str | os.PathLike[str] | None = None) -> Iterator[Any]:
    """Append a line to a file for each sample: number, worker, rank and `__key__`, separated by tabs.

    Each line is one write to a file opened for appending, so several processes may use one file. None logs nothing.
    """
    if not logfile:
        yield from source
        return
    source = samples(source, "log_keys", or_batches=True)
    rank, worker = find_seat().rank, worker_place()[0]
    with open(logfile, "ab", buffering=0) as log:
        for index, sample in enumerate(source):
            log.write(f"{index}\t{worker}\t{rank}\t{sample.get('__key__')}\n".encode())
            yield sample


def _describe(sample: Any, index: int, width: int, name: str) -> str:
    title = f"--- {name} {index}".replace("  ", " ")
    values = sample if isinstance(sample, (dict, tuple)) else [sample]
    items = values.items() if isinstance(values, dict) else enumerate(values)
    return "\n".join([title, *(f"  {key}: {_describe_value(value)[:width]}" for key, value in items)])


def _describe_value(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return repr(value)
    return f"{type(value).__name__} {tuple(shape)} {getattr(value, 'dtype', '')}"


def as_function(maker: StageMaker[Any]) -> Callable[..., Iterator[Any]]:
    """Return a stage as a function of an iterable and the stage's arguments."""

    def function(data: Iterable[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
        return maker(*args, **kwargs)(data)

    function.__name__, function.__doc__ = f"_{maker.__name__}", maker.__doc__
    return function


def pick(buf: list[Any], rng: Random) -> Any:
    """Remove a random item from a list and return it."""
    at = rng.randint(0, len(buf) - 1)
    buf[at], buf[-1] = buf[-1], buf[at]
    return buf.pop()


class Cached(PipelineStage):
    """Keeps the items of the first whole pass in memory, in each process, and yields them in later passes."""

    def __init__(self) -> None:
        self._kept: list[Any] | None = None

    def run(self, source: Iterator[Any]) -> Iterator[Any]:
        """Yield the items, reading them only once."""
        if self._kept is not None:
            yield from self._kept
            return
        kept = []
        for item in source:
            kept.append(item)
            yield item
        self._kept = kept


def __getattr__(name: str) -> Any:
    """Return `_shuffle` and others: stages as functions of an iterable and the stage's arguments."""
    maker = globals().get(name.removeprefix("_")) if name.startswith("_") else None
    if isinstance(maker, StageMaker):
        return as_function(maker)
    return missing_name("filters", name)
