"""`wdspec lock`: what stores say of the shards of a spec, for a lock, and compared with one."""

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
    """A shard that is not as it was locked."""

    source: str
    url: str
    what: str
    """In words: what it was, and what it is."""


def lock_spec(spec: Spec, before: Lock | None = None) -> Lock:
    """The lock of a spec as its shards are now.

    Args:
        spec: the spec.
        before: a lock whose sources are kept where the spec still names the same shards at the same place.

    Raises:
        UsageError: URLs that hold a secret.
        WdspecError: shards that cannot be listed, or that a store does not have.
    """
    environment = Environment.read()
    sources = {}
    for source in spec.sources:
        storage = Storage.of(environment, spec, source)
        old = None if before is None else before.sources.get(source.name)
        asked, via = tuple(source.shards or ()), place_of(source, storage)
        if old is not None and (old.asked, old.via) == (asked, via):
            runs, objects = old.runs, old.objects
        else:
            shards = shards_of(source, storage)
            runs = tuple(run._replace(base="") for run in shards.parts)
            check_harmless(source.name, runs)
            objects = tuple(
                each or ObjectStat() for each in _ask_store(source, storage, shards, may_lack=False)
            )
        about = (source.samples, source.license, source.homepage, source.revision)
        sources[source.name] = LockedSource(asked, via, runs, objects, *about)
    return Lock(sources, spec.split, spec.environment)


def find_changes(lock: Lock, spec: Spec) -> Iterator[Change]:
    """The shards that are not as a lock says: missing, new, or with other bytes.

    Raises:
        UsageError: the lock is of another spec.
        WdspecError: shards that cannot be listed, or a store that does not answer.
    """
    then = lock.shards(spec)
    environment = Environment.read()
    for source in spec.sources:
        storage, old, shards = (
            Storage.of(environment, spec, source),
            lock.sources[source.name],
            then[source.name],
        )
        known = set(shards.texts())
        now = shards_of(source, storage).texts()
        yield from (Change(source.name, text, "new") for text in now if text not in known)
        moved = place_of(source, storage) != old.via
        seen = _ask_store(source, storage, shards, may_lack=True)
        for text, was, each in zip(shards.texts(), old.objects, seen, strict=True):
            if (what := difference(was, each, moved)) is not None:
                yield Change(source.name, text, what)


class _Asking(ShardJob[ShardTask, ObjectStat | Exception]):
    """What a store says of the shards of a source.

    Args:
        source: name of the source.
        may_lack: whether shards that the store does not have are no error.
    """

    def __init__(self, source: str, may_lack: bool) -> None:
        self.title = f"asking about {source}"
        self._may_lack = may_lack
        self.found: list[ObjectStat | None] = []
        """In order; None for a shard that the store does not have."""

    def take(self, task: ShardTask, outcome: ObjectStat | Exception | ShardFailed) -> None:
        if isinstance(outcome, ObjectStat):
            self.found.append(outcome)
        elif isinstance(outcome, MissingShardError) and self._may_lack:
            self.found.append(None)
        elif isinstance(outcome, WdspecError):
            url = task.shard.text if isinstance(outcome, MissingShardError) else None
            raise outcome.at(url=url, source=task.source)
        elif isinstance(outcome, Exception):
            raise outcome


def _ask_store(
    source: Source, storage: Storage, shards: UrlSequence, *, may_lack: bool
) -> list[ObjectStat | None]:
    def ask(task: ShardTask) -> ObjectStat | Exception:
        try:
            return storage.stat(task.shard)
        except Exception as error:
            return error

    asking = _Asking(source.name, may_lack)
    tasks = [ShardTask(source.name, number, shard) for number, shard in enumerate(shards)]
    asking.run_tasks(ask, tasks, ThreadEngine())
    return asking.found
