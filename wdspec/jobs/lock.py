"""The job of `wdspec lock`: ask stores about the shards of a spec, to write a lock or compare with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from wdspec.base.errors import MissingShardError, WdspecError
from wdspec.jobs.engine import Engine, ThreadEngine
from wdspec.jobs.job import ShardFailed, ShardJob, ShardTask
from wdspec.shards.listing import list_texts, with_parts
from wdspec.shards.lock import Lock, LockedSource, check_harmless, difference, place_of_text
from wdspec.shards.lookup_tables import table_url
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import ShardRun, UrlSequence


class _List(NamedTuple):
    """A list of shards of a source, or a table."""

    texts: tuple[str, ...]
    base: str
    storage: Storage
    is_table: bool = False

    def list(self) -> UrlSequence:
        """List the shards. Raises as `list_texts`."""
        if self.is_table:
            return UrlSequence([ShardRun(self.texts, "", self.base)])
        return list_texts(self.texts, self.base, self.storage)


def _lists_of(source: Source, storage: Storage) -> Iterator[tuple[tuple[str, ...], _List]]:
    """Yield the lists of a source, each with its texts as written: its shards, its joins, its tables."""
    yield tuple(source.shards or ()), _List(tuple(source.shards or ()), source.base, storage)
    for join in source.join:
        yield tuple(join.shards), _List(tuple(join.shards), join.base, storage)
    for lookup in source.lookup:
        url = table_url(lookup)
        yield (lookup.table,), _List((url.text,), url.base, storage, is_table=True)


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
        locked = []
        for number, (texts, listed) in enumerate(_lists_of(source, storage)):
            was = None if old is None or number >= len(old.lists) else old.lists[number]
            via = place_of_text(texts[0] if texts else "", listed.base, storage)
            if was is not None and (was.asked, was.via) == (texts, via):
                locked.append(was)
                continue
            shards = listed.list()
            runs = tuple(run._replace(base="") for run in shards.parts)
            check_harmless(source.name, runs)
            commits = storage.find_pins(shards)
            pinned = replace(storage, pins=commits)
            stats = _ask_store(source, pinned, shards, start_engine(), allow_missing=False)
            objects = tuple(each or ObjectStat() for each in stats)
            locked.append(LockedSource(texts, via, runs, objects, commits=commits))
        first, *parts = locked
        joins, tables = tuple(parts[: len(source.join)]), tuple(parts[len(source.join) :])
        about = (source.samples, source.license, source.homepage, source.revision)
        sources[source.name] = LockedSource(
            first.asked, first.via, first.runs, first.objects, *about, joins, tables, first.commits
        )
        if joins:
            plain = source.model_copy(update={"lookup": ()})
            with_parts(first.shards(""), plain, storage, [join.shards("") for join in joins])
    return Lock(sources, spec.split, spec.environment)


def find_changes(
    lock: Lock, spec: Spec, start_engine: Callable[[], Engine] = ThreadEngine
) -> Iterator[Change]:
    """Find the shards that differ from a lock: missing, new, or with other bytes.

    Raises:
        UsageError: the lock is of another spec.
        WdspecError: shards cannot be listed, or a store does not answer.
    """
    lock.shards(spec)  # raises if it is of another spec
    environment = Environment.read()
    for source in spec.sources:
        storage = Storage.of(environment, spec, source)
        for old, (_, listed) in zip(lock.sources[source.name].lists, _lists_of(source, storage), strict=True):
            shards = old.shards(listed.base)
            known = set(shards.texts())
            now = listed.list().texts()
            yield from (Change(source.name, text, "new") for text in now if text not in known)
            moved = place_of_text(old.asked[0] if old.asked else "", listed.base, storage) != old.via
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
