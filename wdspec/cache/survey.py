"""What the parent looks up about cache directories before anything is read, so that all workers name copies alike."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from wdspec.cache.cache_names import TAG, CacheNames, shared_names
from wdspec.storage.resolver import Resolver
from wdspec.urls.sequence import ShardUrl


def with_surveyed_caches(
    resolvers: Mapping[str, Resolver], shards: Mapping[str, Sequence[ShardUrl]]
) -> dict[str, Resolver]:
    """The resolvers of all sources of a plan, which know more of their cache directories.

    Files that somebody put into such a directory under their bare names are used only if no two shards of the plan
    have that name. Where there are such files, all the plan's URLs are gone through once, about a second for a
    million; where there are none, as in directories that only wdspec fills, nothing is.
    """
    seen: dict[str, CacheNames] = {}
    for resolver in resolvers.values():
        names = resolver.cache
        if names is not None and names.directory not in seen:
            seen[names.directory] = surveyed(names, chain.from_iterable(shards.values()))
    return {
        name: resolver if resolver.cache is None else replace(resolver, cache=seen[resolver.cache.directory])
        for name, resolver in resolvers.items()
    }


def surveyed(names: CacheNames, urls: Iterable[ShardUrl]) -> CacheNames:
    """The names of one directory, for these shards; creates nothing."""
    flat: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(names.directory) as listed:
        flat = {each.name for each in listed if each.name != TAG and not each.is_dir()}
    return replace(
        names,
        folds_case=_folds_case(names.directory),
        ambiguous=shared_names(urls, flat) if flat else None,
    )


def _folds_case(directory: str) -> bool:
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    other = directory.swapcase()
    with contextlib.suppress(OSError):
        return other != directory and os.path.samefile(directory, other)
    return False
