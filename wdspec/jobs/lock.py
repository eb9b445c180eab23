"""The job of `wdspec lock`: ask stores about the shards of a spec, to write a lock or compare with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wdspec.base.errors import MissingShardError, WdspecError
from wdspec.jobs.engine import Engine, ThreadEngine
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


def lock_spec(
    spec: Spec, before: Lock | None = None, start_engine: Callable[[], Engine] = ThreadEngine
) -> Lock:
    """Lock the current shards of a spec.

    Args:
        spec: the spec.
        before: an earlier lock; sources with the same shards and location in the spec are kept.
        start_engine: returns an engine that asks the stores, for each source.

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
            stats = _ask_store(source, storage, shards, start_engine(), allow_missing=False)
            objects = tuple(each or ObjectStat() for each in stats)
        about = (source.samples, source.license, source.homepage, source.revision)
        sources[source.name] = LockedSource(urls, via, runs, objects, *about)
    return Lock(sources, spec.split, spec.environment)


def find_changes(
    lock: Lock, spec: Spec, start_engine: Callable[[], Engine] = ThreadEngine
) -> Iterator[Change]:
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
        seen = _ask_store(source, storage, shards, start_engine(), allow_missing=True)
        for text, was, each in zip(shards.texts(), old.objects, seen, strict=True):
            if (what := difference(was, each, moved)) is not None:
                yield Change(source.name, text, what)


@dataclass(frozen=True)
class _StatTask(ShardTask):
    storage: Storage


class _StatJob(ShardJob[_StatTask, ObjectStat | Exception]):
    """Collects the size and validator of each shard of a source.

    Args:
        source: name of the source.
        allow_missing: whether the store may lack shards.
    """

    def __init__(self, source: str, allow_missing: bool) -> None:
        self.title = f"asking about {source}"
        self._allow_missing = allow_missing
        self.found: dict[int, ObjectStat | None] = {}
        """By the number of the shard; None for a missing one."""

    def take(self, task: _StatTask, outcome: ObjectStat | Exception | ShardFailed) -> None:
        if isinstance(outcome, ObjectStat):
            self.found[task.number] = outcome
        elif isinstance(outcome, MissingShardError) and self._allow_missing:
            self.found[task.number] = None
        elif isinstance(outcome, WdspecError):
            url = task.shard.text if isinstance(outcome, MissingShardError) else None
            raise outcome.at(url=url, source=task.source)
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            raise WdspecError(outcome.cause, url=task.shard.text, source=task.source)


def _ask_store(
    source: Source, storage: Storage, shards: UrlSequence, engine: Engine, *, allow_missing: bool
) -> list[ObjectStat | None]:
    job = _StatJob(source.name, allow_missing)
    job.run_tasks(
        _ask, [_StatTask(source.name, number, shard, storage) for number, shard in enumerate(shards)], engine
    )
    return [job.found[number] for number in range(len(job.found))]


def _ask(task: _StatTask) -> ObjectStat | Exception:
    try:
        return task.storage.stat(task.shard)
    except Exception as error:
        return error
