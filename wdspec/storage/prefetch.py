"""Makes the copies of many shards before anybody reads them.

Stores that are asked about many shards at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, TypeVar

from wdspec.base.errors import WdspecError
from wdspec.cache.copies import find_copy
from wdspec.storage.resolve import Resolution
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl

_MOST = 4 * 1024 * 1024


class Prefetched(NamedTuple):
    """What became of one shard."""

    url: str
    outcome: Literal["fetched", "there", "not cached", "not kept", "failed"]
    """`not cached`: a local file, or a source without a cache. `not kept`: there was no room for it."""
    size: int = 0
    """Bytes fetched."""
    error: str | None = None


def prefetch(
    shards: Iterable[tuple[Storage, Resolution]], jobs: int, told: Callable[[Prefetched], None]
) -> list[Prefetched]:
    """Fetches the shards of which there is no copy, so many at a time.

    Args:
        told: called with each outcome, by whichever thread.
    """

    def fetch(shard: tuple[Storage, Resolution]) -> Prefetched:
        storage, resolution = shard
        try:
            outcome = _fetched(storage, resolution)
        except (WdspecError, OSError) as error:
            outcome = Prefetched(resolution.url.text, "failed", error=str(error))
        told(outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(fetch, shards))


def _fetched(storage: Storage, resolution: Resolution) -> Prefetched:
    url, copies = resolution.url.text, resolution.copies
    if copies is None or storage.cache is None:
        return Prefetched(url, "not cached")
    found = find_copy(copies)
    if found is not None:
        found.close()
        return Prefetched(url, "there")
    size = 0
    with storage.open(resolution) as stream:
        while piece := stream.read(_MOST):
            size += len(piece)
    return Prefetched(url, "fetched" if os.path.exists(copies.path) else "not kept", size)


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
