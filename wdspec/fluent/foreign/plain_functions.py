"""Functions that webdataset's stages are made of, as code takes them from its `filters` and `utils`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from wdspec.base.errors import FieldError
from wdspec.fluent.stage import StageMaker


def plain(maker: StageMaker[Any]) -> Callable[..., Iterator[Any]]:
    """The function behind a stage: of an iterable and the stage's arguments."""

    def function(data: Iterable[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
        return maker(*args, **kwargs)(data)

    function.__name__, function.__doc__ = f"_{maker.__name__}", maker.__doc__
    return function


def pick(buf: list[Any], rng: Random) -> Any:
    """One item out of a list, drawn, and taken from it."""
    at = rng.randint(0, len(buf) - 1)
    buf[at], buf[-1] = buf[-1], buf[at]
    return buf.pop()


def getfirst(
    a: Mapping[str, Any], keys: str | Sequence[str], default: Any = None, missing_is_error: bool = True
) -> Any:
    """The value of the first of some names (`jpg;png`, or a list) that a sample has.

    Raises:
        FieldError: it has none, and that is an error.
    """
    names = keys.split(";") if isinstance(keys, str) else keys
    for name in names:
        if name in a:
            return a[name]
    if missing_is_error:
        raise FieldError(f"the sample has none of {', '.join(names)}; it has {', '.join(a)}")
    return default


def transform_with(
    sample: Sequence[Any], transformers: Sequence[Callable[[Any], Any] | None] | None
) -> list[Any]:
    """Each value of a tuple through its function; those without one stay."""
    functions = list(transformers or ())
    return [f(x) if f is not None else x for x, f in itertools.zip_longest(sample, functions[: len(sample)])]


def tuple2dict(values: Sequence[Any]) -> dict[str, Any]:
    """Values under the names `_0`, `_1`, …"""
    return {f"_{i}": value for i, value in enumerate(values)}


def dict2tuple(sample: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values behind the names `_0`, `_1`, …, in order."""
    return tuple(sample[name] for name in sorted(sample, key=lambda name: int(name[1:])))


def guess_batchsize(batch: Any) -> int:
    """How many samples a batch has, by its first column."""
    columns = list(batch.values()) if isinstance(batch, dict) else batch
    return len(columns[0]) if isinstance(columns, (tuple, list)) else len(columns)


def repeatedly(
    source: Iterable[Any],
    nepochs: int | None = None,
    nbatches: int | None = None,
    nsamples: int | None = None,
    batchsize: Callable[[Any], int] = guess_batchsize,
) -> Iterator[Any]:
    """The items of something that can be iterated again and again, up to so many passes, items or samples in them."""
    items = samples = 0
    for number in itertools.count(1):
        empty = True
        for batch in source:
            empty = False
            yield batch
            items += 1
            samples += batchsize(batch) if nsamples is not None else 0
            if items >= (nbatches or sys.maxsize) or (nsamples is not None and samples >= nsamples):
                return
        if empty or number >= (nepochs or sys.maxsize):
            return
