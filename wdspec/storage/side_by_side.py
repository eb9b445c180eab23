"""Stores that are asked about many shards at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from wdspec.urls.sequence import ShardUrl

T = TypeVar("T")

SIDES = 16
"""Stores that are asked at once."""


def side_by_side(ask: Callable[[ShardUrl], T], shards: Iterable[ShardUrl]) -> Iterator[T]:
    """What a function says of each shard, in order; raises what it raises. Whoever closes this asks no more."""
    with ThreadPoolExecutor(SIDES, "wdspec-stat") as pool:
        try:
            yield from pool.map(ask, shards)
        finally:
            pool.shutdown(cancel_futures=True)
