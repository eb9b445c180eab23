"""The job of `wdspec cache prefetch`: fetch shards into the cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from wdspec.base.errors import ShardError
from wdspec.cache.follower import Follower
from wdspec.cache.shard_cache import find_copy
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import ShardFailed, ShardJob, ShardTask
from wdspec.shards.shards import list_shards
from wdspec.spec.spec import Spec
from wdspec.storage.storage import Storage

_MOST = 4 * 1024 * 1024


@dataclass(frozen=True)
class PrefetchTask(ShardTask):
    """A shard to fetch."""

    storage: Storage


class Prefetched(NamedTuple):
    """The outcome of one shard."""

    url: str
    outcome: Literal["fetched", "there", "not cached", "not kept", "failed"]
    """`not cached`: a local file, or a source without a cache. `not kept`: there was no room."""
    size: int = 0
    """Bytes fetched."""
    error: str | None = None


class PrefetchJob(ShardJob[PrefetchTask, Prefetched]):
    """The shards of a spec, and the outcome of each. Shards with the same location are fetched once.

    Raises:
        WdspecError: shards cannot be listed.
    """

    title = "fetching shards"
    reports_failures = True

    def __init__(self, spec: Spec) -> None:
        shards = list_shards(spec)
        self.tasks: Sequence[PrefetchTask] = list(
            {
                storage.resolve(shard).location: PrefetchTask(name, number, shard, storage)
                for name, storage in shards.storages.items()
                for number, whole in enumerate(shards.lists[name])
                for shard in (whole._replace(partners=(), tables=()), *whole.partners)
            }.values()
        )
        self.done: list[Prefetched] = []

    def run(self, engine: Engine) -> None:
        """Fetch the shards. Closes the engine."""
        self.run_tasks(fetch_shard, self.tasks, engine)

    def take(self, task: PrefetchTask, outcome: Prefetched | ShardFailed) -> None:
        if isinstance(outcome, ShardFailed):
            outcome = Prefetched(task.shard.text, "failed", error=outcome.cause)
        self.done.append(outcome)


def fetch_shard(task: PrefetchTask) -> Prefetched:
    """Make a copy of a shard, unless there is one. Raises as `Storage.open` and reading do."""
    resolution = task.storage.resolve(task.shard)
    url, copies = resolution.url.text, resolution.copies
    if copies is None or task.storage.cache is None:
        return Prefetched(url, "not cached")
    found = find_copy(copies)
    if found is not None:
        found.close()
        return Prefetched(url, "there")
    size = 0
    with task.storage.open(resolution) as stream:
        while piece := stream.read(_MOST):
            size += len(piece)
        if isinstance(stream, Follower) and stream.is_damaged:
            message = "the shard is damaged or incomplete, so no copy was made; `wdspec check` says where"
            raise ShardError(message, url=url)
    return Prefetched(url, "fetched" if os.path.exists(copies.path) else "not kept", size)
