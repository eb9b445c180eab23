"""Stages that look at a stream, or take a part of it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from wdspec.pipeline.stages.stage import stage


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
            out = sys.stderr if stream is None else stream
            if fmt is not None:
                print(fmt.format(sample), file=out) if "{}" in fmt else print(
                    fmt.format(sample=sample), file=out
                )
            else:
                print(_shown(sample, index, width, name), file=out)
        yield sample


def _shown(sample: Any, index: int, width: int, name: str) -> str:
    title = f"--- {name} {index}".replace("  ", " ")
    items = (
        sample.items()
        if isinstance(sample, dict)
        else enumerate(sample if isinstance(sample, tuple) else [sample])
    )
    return "\n".join([title, *(f"  {key}: {_value(value)[:width]}" for key, value in items)])


def _value(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return (
        repr(value)
        if shape is None
        else f"{type(value).__name__} {tuple(shape)} {getattr(value, 'dtype', '')}"
    )
