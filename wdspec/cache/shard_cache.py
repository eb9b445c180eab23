"""The cache of one source: copies of remote shards in a local directory, made while they are read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from wdspec.cache.cache_names import CacheNames, Copies
from wdspec.cache.copies import find_copy
from wdspec.cache.fill import CopyRules
from wdspec.cache.follower import Follower
from wdspec.cache.index import Index
from wdspec.system.per_process import PerProcess


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
