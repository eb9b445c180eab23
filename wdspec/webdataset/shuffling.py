"""Stages that shuffle and draw at random; the results are the same in every run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.planning.keys import random64
from wdspec.webdataset.stage import PassContext, keyed_stage


@keyed_stage
def shuffle(
    source: Iterator[Any],
    context: PassContext,
    bufsize: int = 1000,
    initial: int = 100,
    rng: Random | None = None,
    seed: int | None = None,
    handler: Any = None,
) -> Iterator[Any]:
    """Shuffle through a buffer: each item enters it, and a random one leaves it.

    Every pass has a different order, but every run has the same ones. The seed changes them all.

    Args:
        bufsize: items in the buffer; 0 keeps the order.
        initial: items to wait for before yielding the first one. While the buffer fills, two items enter for each one
            that leaves.
        rng: a generator of random numbers to use instead; it decides whether runs differ.
        handler: has no effect, as in webdataset: nothing fails here.
    """
    if bufsize < 0:
        raise UsageError(f"`bufsize` is {bufsize}; a shuffle buffer has 0 or more items")
    if bufsize <= 1:
        return source
    return _shuffle(source, bufsize, min(initial, bufsize), rng or Random(context.key("shuffle", seed or 0)))


def _shuffle(source: Iterator[Any], bufsize: int, initial: int, rng: Random) -> Iterator[Any]:
    random = rng.random
    buffer: list[Any] = []
    for item in source:
        buffer.append(item)
        if len(buffer) >= bufsize:
            break
        if len(buffer) > initial:
            index = int(random() * len(buffer))
            buffer[index], buffer[-1] = buffer[-1], buffer[index]
            yield buffer.pop()
            buffer.extend(islice(source, 1))
    index = 0
    for item in source:
        index = int(random() * bufsize)
        yield buffer[index]
        buffer[index] = item
    rng.shuffle(buffer)
    while buffer:
        yield buffer.pop()


@keyed_stage
def detshuffle(
    source: Iterator[Any],
    context: PassContext,
    bufsize: int = 1000,
    initial: int = 100,
    seed: int = 0,
    epoch: int = -1,
) -> Iterator[Any]:
    """Like `shuffle`, starting at another pass: ``epoch + 1`` is added to the number of each pass."""
    return shuffle(bufsize, initial, seed=seed).run(
        source, context._replace(number=context.number + epoch + 1)
    )


@keyed_stage
def rsample(source: Iterator[Any], context: PassContext, p: float = 0.5, seed: int = 0) -> Iterator[Any]:
    """Keep each item with probability p: different ones in every pass, the same ones in every run."""
    random = Random(context.key("rsample", seed)).random
    return (item for item in source if random() < p)


@keyed_stage
def resampled(source: Iterator[Any], context: PassContext, n: int = sys.maxsize) -> Iterator[Any]:
    """Draw n of the items with replacement.

    Raises:
        UsageError: there are no items.
    """
    items = list(source)
    if not items:
        raise UsageError("`resampled` got no items to draw from; put it after a list of shards")
    key = context.key("resampled", 0)
    for i in range(n):
        yield items[random64(key, i) * len(items) >> 64]
