"""The job of `wdspec lock`: ask stores about the shards of a spec, to write a lock or compare with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wdspec.base.errors import MissingShardError, WdspecError
from wdspec.jobs.engine import ThreadEngine
from wdspec.jobs.job import ShardFailed, ShardJob, ShardTask
from wdspec.shards.listing import shards_of
from wdspec.shards.lock import Lock, LockedSource, check_harmless, difference, place_of
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import UrlSequence


@dataclass(frozen=True)
class Change:
    """A shard that differs from the lock."""

    source: str
    url: str
    what: str
    """The change, in words."""


def lock_spec(spec: Spec, before: Lock | None = None) -> Lock:
    """Lock the current shards of a spec.

    Args:
        spec: the spec.
        before: an earlier lock; sources with the same shards and location in the spec are kept.

    Raises:
        UsageError: URLs contain a secret.
        WdspecError: shards cannot be listed, or a store does not have them.
    """
    environment = Environment.read()
    sources = {}
    for source in spec.sources:
        storage = Storage.of(environment, spec, source)
        old = None if before is None else before.sources.get(source.name)
        urls, via = tuple(source.shards or ()), place_of(source, storage)
        if old is not None and (old.asked, old.via) == (urls, via):
            runs, objects = old.runs, old.objects
        else:
            shards = shards_of(source, storage)
            runs = tuple(run._replace(base="") for run in shards.parts)
            check_harmless(source.name, runs)
            stats = _ask_store(source, storage, shards, allow_missing=False)
            objects = tuple(each or ObjectStat() for each in stats)
        about = (source.samples, source.license, source.homepage, source.revision)
        sources[source.name] = LockedSource(urls, via, runs, objects, *about)
    return Lock(sources, spec.split, spec.environment)


def find_changes(lock: Lock, spec: Spec) -> Iterator[Change]:
    """Find the shards that differ from a lock: missing, new, or with other bytes.

    Raises:
        UsageError: the lock is of another spec.
        WdspecError: shards cannot be listed, or a store does not answer.
    """
    locked = lock.shards(spec)
    environment = Environment.read()
    for source in spec.sources:
        storage = Storage.of(environment, spec, source)
        old, shards = lock.sources[source.name], locked[source.name]
        known = set(shards.texts())
        now = shards_of(source, storage).texts()
        yield from (Change(source.name, text, "new") for text in now if text not in known)
        moved = place_of(source, storage) != old.via
        seen = _ask_store(source, storage, shards, allow_missing=True)
        for text, was, each in zip(shards.texts(), old.objects, seen, strict=True):
            if (what := difference(was, each, moved)) is not None:
                yield Change(source.name, text, what)


class _StatJob(ShardJob[ShardTask, ObjectStat | Exception]):
    """Collects the size and validator of each shard of a source.

    Args:
        source: name of the source.
        allow_missing: whether the store may lack shards.
    """

    def __init__(self, source: str, allow_missing: bool) -> None:
        self.title = f"asking about {source}"
        self._allow_missing = allow_missing
        self.found: list[ObjectStat | None] = []
        """In order; None for a missing shard."""

    def take(self, task: ShardTask, outcome: ObjectStat | Exception | ShardFailed) -> None:
        if isinstance(outcome, ObjectStat):
            self.found.append(outcome)
        elif isinstance(outcome, MissingShardError) and self._allow_missing:
            self.found.append(None)
        elif isinstance(outcome, WdspecError):
            url = task.shard.text if isinstance(outcome, MissingShardError) else None
            raise outcome.at(url=url, source=task.source)
        elif isinstance(outcome, Exception):
            raise outcome


def _ask_store(
    source: Source, storage: Storage, shards: UrlSequence, *, allow_missing: bool
) -> list[ObjectStat | None]:
    def ask(task: ShardTask) -> ObjectStat | Exception:
        try:
            return storage.stat(task.shard)
        except Exception as error:
            return error

    job = _StatJob(source.name, allow_missing)
    tasks = [ShardTask(source.name, number, shard) for number, shard in enumerate(shards)]
    job.run_tasks(ask, tasks, ThreadEngine())
    return job.found
