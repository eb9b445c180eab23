"""Shuffling through a buffer, and drawing samples at random: keyed, the same on every run."""

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
    seed: int = 0,
) -> Iterator[Any]:
    """Shuffles through a buffer: every item goes in, and one drawn at random comes out.

    The order is another one in every pass, and the same ones in every run; the seed changes them all.

    Args:
        bufsize: items in the buffer; 0 leaves the order as it is.
        initial: items to wait for before the first one comes out; while the buffer fills, two go in for each
            that comes out.
        rng: draws the numbers instead; runs then differ if it does.
    """
    if bufsize < 0:
        raise UsageError(f"a shuffle needs a buffer of 0 or more items, not {bufsize}")
    if bufsize <= 1:
        return source
    return _shuffled(source, bufsize, min(initial, bufsize), rng or Random(context.key("shuffle", seed)))


def _shuffled(source: Iterator[Any], bufsize: int, initial: int, rng: Random) -> Iterator[Any]:
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
    """`shuffle` under its other name, with the pass to begin at: ``epoch + 1`` is added to the number of each."""
    return shuffle(bufsize, initial, seed=seed).run(
        source, context._replace(number=context.number + epoch + 1)
    )


@keyed_stage
def rsample(source: Iterator[Any], context: PassContext, p: float = 0.5, seed: int = 0) -> Iterator[Any]:
    """Keeps each item with probability p; others in every pass, the same ones in every run."""
    random = Random(context.key("rsample", seed)).random
    return (item for item in source if random() < p)


@keyed_stage
def resampled(source: Iterator[Any], context: PassContext, n: int = sys.maxsize) -> Iterator[Any]:
    """So many items drawn with replacement out of all that come.

    Raises:
        UsageError: none come.
    """
    items = list(source)
    if not items:
        raise UsageError("nothing comes that could be drawn from; `resampled` stands behind a list of shards")
    key = context.key("resampled", 0)
    for i in range(n):
        yield items[random64(key, i) * len(items) >> 64]
