"""The job of `wdspec lock`: ask stores about the shards of a spec, to write a lock or compare with it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from wdspec.base.errors import MissingShardError, ShardError, WdspecError
from wdspec.jobs.engine import Engine, ThreadEngine
from wdspec.jobs.job import ShardFailed, ShardJob, ShardTask
from wdspec.shards.listing import list_texts, with_parts
from wdspec.shards.lock import Lock, LockedSource, basis_of, check_harmless, difference, place_of_text
from wdspec.shards.lookup_tables import table_url
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import ShardRun, UrlSequence

_BLOCK = 1 << 20


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
    spec: Spec,
    before: Lock | None = None,
    start_engine: Callable[[], Engine] = ThreadEngine,
    update: bool = False,
    keep_hashes: bool = True,
    keep_objects: bool = True,
) -> Lock:
    """Lock the current shards of a spec.

    Args:
        spec: the spec.
        before: an earlier lock; sources with the same shards and location in the spec are kept.
        start_engine: returns an engine that asks the stores, for each source.
        update: whether to ask about all sources; then only checksums of unchanged shards are kept.
        keep_hashes: whether to keep these at all: other bytes may have the same size and time.
        keep_objects: whether to keep what is known of objects that samples name.

    Raises:
        UsageError: URLs contain a secret.
        WdspecError: shards cannot be listed, or a store does not have them.
    """
    environment = Environment.read()
    sources = {}
    for source in spec.collections:
        storage = Storage.of(environment, spec, source)
        old = None if before is None else before.sources.get(source.name)
        locked = []
        for number, (texts, listed) in enumerate(_lists_of(source, storage)):
            was = None if old is None or number >= len(old.lists) else old.lists[number]
            via = place_of_text(texts[0] if texts else "", listed.base, storage)
            if was is not None and not update and (was.asked, was.via) == (texts, via):
                locked.append(was)
                continue
            shards = listed.list()
            runs = tuple(run._replace(base="") for run in shards.parts)
            check_harmless(source.name, runs)
            commits = storage.find_pins(shards)
            pinned = replace(storage, pins=commits)
            stats = _ask_store(source, pinned, shards, start_engine(), allow_missing=False)
            objects = tuple(each or ObjectStat() for each in stats)
            hashes = _keep_hashes(was, via, shards, objects) if keep_hashes else ()
            locked.append(LockedSource(texts, via, runs, objects, commits=commits, hashes=hashes))
        first, *parts = locked
        joins, tables = tuple(parts[: len(source.join)]), tuple(parts[len(source.join) :])
        about = {key: getattr(source, key) for key in ("samples", "license", "homepage", "revision")}
        sources[source.name] = replace(first, **about, joins=joins, tables=tables)
        if joins:
            plain = source.model_copy(update={"lookup": ()})
            with_parts(first.shards(""), plain, storage, [join.shards("") for join in joins])
    kept = before.objects if before is not None and keep_objects else None
    return Lock(sources, spec.split, spec.environment, kept)


def _keep_hashes(
    was: LockedSource | None, via: str, shards: UrlSequence, objects: Sequence[ObjectStat]
) -> tuple[str | None, ...]:
    """The checksums of shards that are as they were in an earlier lock; none of others."""
    if was is None or was.via != via or not was.hashes:
        return ()
    then = dict(zip(was.shards("").texts(), zip(was.objects, was.hashes, strict=True), strict=True))
    found = (then.get(text, (None, None)) for text in shards.texts())
    return tuple(hash if stat == now else None for (stat, hash), now in zip(found, objects, strict=True))


def hash_shards(
    lock: Lock, spec: Spec, keep: Callable[[Lock], None], start_engine: Callable[[], Engine] = ThreadEngine
) -> None:
    """Read the shards of a lock that have no checksum yet, and add these.

    Args:
        lock: of the spec.
        spec: the spec.
        keep: saves the lock; called from time to time and at the end, also after an error.
        start_engine: returns an engine that reads the shards, for each list.

    Raises:
        ShardError: a shard cannot be read, or is no longer as it was locked.
    """
    environment = Environment.read()
    hashes = {
        name: [list(part.known_hashes) for part in source.lists] for name, source in lock.sources.items()
    }
    for source in spec.collections:
        storage = Storage.of(environment, spec, source)
        of_source = zip(
            lock.sources[source.name].lists, _lists_of(source, storage), hashes[source.name], strict=True
        )
        for part, (_, listed), found in of_source:
            pinned = replace(storage, pins=part.commits, cache=None)
            tasks = [
                _HashTask(source.name, number, shard, pinned, part.objects[number])
                for number, shard in enumerate(part.shards(listed.base))
                if found[number] is None
            ]
            job = _HashJob(source.name, found, lambda: keep(lock.with_hashes(hashes)))
            job.run_tasks(_hash, tasks, start_engine())


def find_changes(
    lock: Lock,
    spec: Spec,
    start_engine: Callable[[], Engine] = ThreadEngine,
    compared: Counter[str] | None = None,
    read_all: bool = False,
) -> Iterator[Change]:
    """Find the shards that differ from a lock: missing, new, or with other bytes.

    Shards with a checksum are read, unless their store says by an ETag that they are the same.

    Args:
        lock: of the spec.
        spec: the spec.
        start_engine: returns an engine that asks the stores, for each list.
        compared: gets how many shards were compared by their `checksum`, `ETag`, `time`, `size` or `name`.
        read_all: whether to also read shards whose ETag is the same.

    Raises:
        UsageError: the lock is of another spec.
        WdspecError: shards cannot be listed, or a store does not answer.
    """
    lock.shards(spec)  # raises if it is of another spec
    environment = Environment.read()
    for source in spec.collections:
        storage = Storage.of(environment, spec, source)
        for old, (_, listed) in zip(lock.sources[source.name].lists, _lists_of(source, storage), strict=True):
            shards = old.shards(listed.base)
            known = set(shards.texts())
            now = listed.list().texts()
            yield from (Change(source.name, text, "new") for text in now if text not in known)
            moved = place_of_text(old.asked[0] if old.asked else "", listed.base, storage) != old.via
            seen = _ask_store(source, storage, shards, start_engine(), allow_missing=True)
            tasks = []
            compared = Counter() if compared is None else compared
            for number, (shard, was, each) in enumerate(zip(shards, old.objects, seen, strict=True)):
                hashed = old.known_hashes[number] is not None
                # With a checksum, the bytes decide, and not that they were written again.
                if (what := difference(was, each, moved or hashed)) is not None:
                    yield Change(source.name, shard.text, what)
                elif each is not None:
                    basis = basis_of(was, each, moved)
                    if difference(was, each, moved) is not None:
                        basis = "checksum"
                    if hashed and (read_all or basis != "ETag"):
                        basis = "checksum"
                        tasks.append(
                            _HashTask(source.name, number, shard, replace(storage, cache=None), each)
                        )
                    compared[basis] += 1
            hashes: list[str | None] = [None] * len(old.objects)
            if tasks:
                _HashJob(source.name, hashes).run_tasks(_hash, tasks, start_engine())
            for task in tasks:
                locked, found = old.known_hashes[task.number], hashes[task.number]
                if locked != found:
                    what = f"SHA-256 {locked:.12}… then, {found:.12}… now"
                    yield Change(source.name, task.shard.text, what)


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
        else:
            _raise(task, outcome)


def _raise(task: ShardTask, outcome: Exception | ShardFailed) -> NoReturn:
    """Raise the error of a task, with its place."""
    if isinstance(outcome, WdspecError):
        url = task.shard.text if isinstance(outcome, MissingShardError) else None
        raise outcome.at(url=url, source=task.source)
    if isinstance(outcome, Exception):
        raise outcome
    raise WdspecError(outcome.cause, url=task.shard.text, source=task.source)


@dataclass(frozen=True)
class _HashTask(_StatTask):
    was: ObjectStat
    """Its size and validator, which must not change meanwhile."""


class _HashJob(ShardJob[_HashTask, str | Exception]):
    """Collects the SHA-256 of shards of a source.

    Args:
        source: name of the source.
        found: gets them, by the number of the shard.
        save: saves them.
    """

    def __init__(self, source: str, found: list[str | None], save: Callable[[], None] = lambda: None) -> None:
        self.title = f"reading {source}"
        self._found, self._save = found, save

    def take(self, task: _HashTask, outcome: str | Exception | ShardFailed) -> None:
        if not isinstance(outcome, str):
            _raise(task, outcome)
        self._found[task.number] = outcome

    def keep(self) -> None:
        self._save()


def _ask_store(
    source: Source, storage: Storage, shards: UrlSequence, engine: Engine, *, allow_missing: bool
) -> list[ObjectStat | None]:
    job = _StatJob(source.name, allow_missing)
    job.run_tasks(
        _ask, [_StatTask(source.name, number, shard, storage) for number, shard in enumerate(shards)], engine
    )
    return [job.found[number] for number in range(len(job.found))]


def _hash(task: _HashTask) -> str | Exception:
    """Return the SHA-256 of the bytes of a shard as they are stored, compressed or not."""
    try:
        digest = hashlib.sha256()
        with closing(task.storage.open_watched(task.shard)) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        changed = difference(task.was, task.storage.stat(task.shard), moved=False)
        if changed is not None:
            raise ShardError(
                f"the shard is not as it was locked: {changed}; `wdspec lock --update` locks it as it is now",
                url=task.shard.text,
            )
        return digest.hexdigest()
    except Exception as error:
        return error


def _ask(task: _StatTask) -> ObjectStat | Exception:
    try:
        return task.storage.stat(task.shard)
    except Exception as error:
        return error
