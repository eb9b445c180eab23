"""The cache of one source: copies of remote shards in a local directory, made while they are read.

What the parent looks up about cache directories before anything is read, so that all workers name copies alike.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

from wdspec.base.process import PerProcess
from wdspec.cache.copies import find_copy
from wdspec.cache.fill import CopyRules
from wdspec.cache.follower import Follower
from wdspec.cache.index import Index
from wdspec.cache.names import TAG, CacheNames, Copies, shared_names
from wdspec.urls.urls import ShardUrl


@dataclass(frozen=True)
class ShardCache:
    """Describes only, and pickles. With a limit of 0 copies are used but none is made."""

    names: CacheNames
    rules: CopyRules = field(default_factory=CopyRules)

    def open(self, copies: Copies, fetch: Callable[[], BinaryIO]) -> BinaryIO:
        """The bytes of a shard: of its copy, or of the store while a copy is made.

        Args:
            copies: where it may stand.
            fetch: opens the shard at its store.

        Raises:
            ShardError, MissingShardError: here or on `read`, as `fetch` and its stream.
        """
        found = find_copy(copies)
        if found is not None:
            return cast(BinaryIO, found)
        limit = self.rules.limit
        if limit == 0:
            return fetch()
        if limit is not None:
            _keep_to(limit, copies.directory)
        return cast(BinaryIO, Follower(copies, fetch, self.rules))


_kept_to: PerProcess[set[tuple[str, int]]] = PerProcess(set)


def _keep_to(limit: int, directory: str) -> None:
    """Once in a process: the limit may be lower than it was when the directory was filled."""
    if (directory, limit) not in _kept_to.value:
        _kept_to.value.add((directory, limit))
        index = Index(directory)
        if index.is_marked:
            with contextlib.suppress(OSError):
                index.make_room(limit)


def surveyed(names: CacheNames, urls: Iterable[ShardUrl]) -> CacheNames:
    """The names of one directory, for the shards of a plan; creates nothing.

    Files that somebody put into the directory under their bare names are used only if no two shards of the plan
    have that name. Where there are such files, all the plan's URLs are gone through once, about a second for a
    million; where there are none, as in directories that only wdspec fills, nothing is.
    """
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
