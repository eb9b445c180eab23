"""How the bytes of one source's shards are fetched: the door to all stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

from wdspec.cache.cache import Cache
from wdspec.storage.ais_cluster import AisCluster
from wdspec.storage.resolver import Resolution
from wdspec.stores.http.http_settings import HttpSettings
from wdspec.stores.local.local_files import local_path, open_file
from wdspec.stores.openers import opener_of
from wdspec.streams.retrying import RetryPolicy


@dataclass(frozen=True)
class Access:
    """Describes only, and pickles: what it opens is made on first use, in the process that reads."""

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    openers: Mapping[str, Callable[[str], BinaryIO]] = field(default_factory=dict)
    """Users' own openers by scheme, found in the parent."""
    http: HttpSettings = field(default_factory=HttpSettings)
    ais: AisCluster | None = None
    """What serves the locations marked `ais+…`."""
    cache: Cache | None = None
    """Where the resolver names copies, who keeps them."""

    def open(self, resolution: Resolution) -> BinaryIO:
        """The bytes of a shard, unbuffered: the reader takes large pieces.

        `read` may return fewer bytes than asked for, and b"" only at the true end. Local files can seek, and so
        can what comes from stores that give ranges. With a cache, remote shards are read from their copies, which
        are made meanwhile.

        Raises:
            MissingShardError: there is no such shard; some stores say so only on the first `read`.
            ShardError: it cannot be read, or nothing opens its scheme.
        """
        copies = resolution.copies
        if copies is None or self.cache is None:
            return self.open_location(resolution.location)
        return self.cache.open(copies, partial(self.open_location, resolution.location))

    def open_location(self, location: str) -> BinaryIO:
        """As `open`, for a location of which nothing else is known; never cached."""
        path = local_path(location)
        return open_file(path) if path is not None else opener_of(location, self)(location)
