"""Looking at the shards of a spec: what stores say of them, for a lock, and against one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from wdspec.errors import MissingShardError, UrlError, WdspecError
from wdspec.lockfiles.lock_file import Lock, LockedSource, check_harmless
from wdspec.redaction import redacted_urls
from wdspec.spec.language.models import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.shard_listing import shards_of
from wdspec.storage.side_by_side import side_by_side
from wdspec.storage.storage import Storage
from wdspec.stores.store import ObjectStat
from wdspec.urls.sequence import ShardUrl

Shown = Callable[[Iterable[ObjectStat | None], int, str], Iterator[ObjectStat | None]]
"""Passes on what comes while somebody watches: what comes, how many, of what."""


@dataclass(frozen=True)
class Change:
    """A shard that is not what it was."""

    source: str
    url: str
    what: str
    """In words: what it was, and what it is."""


def locked(spec: Spec, before: Lock | None = None, shown: Shown | None = None) -> Lock:
    """What a spec comes to now.

    Args:
        before: a lock whose sources are taken as they are where the spec asks for the same at the same place.
        shown: shows progress.

    Raises:
        UsageError: URLs that hold a secret.
        WdspecError: shards that cannot be listed, or of which a store says that they are not there.
    """
    environment = Environment.read()
    sources = {}
    for source in spec.sources:
        storage = Storage.of(environment, spec, source)
        old = None if before is None else before.sources.get(source.name)
        via = place_of(source, storage)
        if old is not None and (old.asked, old.via) == (tuple(source.shards or ()), via):
            runs, objects = old.runs, old.objects
        else:
            shards = shards_of(source, storage)
            runs = tuple(run._replace(base="") for run in shards.parts)
            check_harmless(source.name, runs)
            looked = _asked(shards, storage, source.name, may_lack=False)
            objects = tuple(each or ObjectStat() for each in _watched(looked, len(shards), source, shown))
        asked = tuple(source.shards or ())
        about = (source.samples, source.license, source.homepage, source.revision)
        sources[source.name] = LockedSource(asked, via, runs, objects, *about)
    return Lock(sources, spec.split, spec.environment)


def changes(lock: Lock, spec: Spec, shown: Shown | None = None) -> Iterator[Change]:
    """What is not as a lock says: shards that are gone or new, or have other bytes.

    Raises:
        UsageError: the lock is not of this spec.
        WdspecError: shards that cannot be listed, or a store that does not say.
    """
    then = lock.shards(spec)
    environment = Environment.read()
    for source in spec.sources:
        storage, old = Storage.of(environment, spec, source), lock.sources[source.name]
        texts, now = then[source.name].texts(), shards_of(source, storage).texts()
        known = set(texts)
        yield from (Change(source.name, text, "new") for text in now if text not in known)
        moved = place_of(source, storage) != old.via
        looked = _asked(then[source.name], storage, source.name, may_lack=True)
        for text, was, seen in zip(
            texts, old.objects, _watched(looked, len(texts), source, shown), strict=True
        ):
            if (what := difference(was, seen, moved)) is not None:
                yield Change(source.name, text, what)


def _watched(
    looked: Iterator[ObjectStat | None], count: int, source: Source, shown: Shown | None
) -> Iterator[ObjectStat | None]:
    return looked if shown is None else shown(looked, count, source.name)


def _asked(
    shards: Sequence[ShardUrl], storage: Storage, source: str, *, may_lack: bool
) -> Iterator[ObjectStat | None]:
    """What stores say of shards, in order; None of one that is not there."""

    def ask(shard: ShardUrl) -> ObjectStat | None:
        try:
            return storage.stat(shard)
        except MissingShardError as error:
            if may_lack:
                return None
            raise error.at(url=shard.text) from None

    try:
        yield from side_by_side(ask, shards)
    except WdspecError as error:
        raise error.at(source=source) from None


def difference(was: ObjectStat, seen: ObjectStat | None, moved: bool) -> str | None:
    """In words, how a shard differs from what it was; None where nothing shows that.

    Args:
        seen: None of one that is gone.
        moved: whether it is read from another place, where sizes alone can be compared.
    """
    if seen is None:
        return "gone"
    if None not in (was.size, seen.size) and was.size != seen.size:
        return f"{was.size:,} bytes then, {seen.size:,} now"
    if not moved and None not in (was.validator, seen.validator) and was.validator != seen.validator:
        return f"{was.validator} then, {seen.validator} now"
    return None


def is_the_same(was: ObjectStat, seen: ObjectStat, moved: bool) -> bool:
    """Whether a shard is surely what it was, as far as stores can tell: by its size and what changes with it.

    Args:
        moved: as for `difference`: then by its size.
    """
    if was.size != seen.size:
        return False
    return was.size is not None if moved else was.validator is not None and was.validator == seen.validator


def place_of(source: Source, storage: Storage) -> str:
    """Where the first of a source's shards leads, without secrets; what lies beside the spec, relative to it."""
    first = (source.shards or ("",))[0]
    try:
        location = storage.resolve(ShardUrl(first.removeprefix("@"), source.base)).location
    except UrlError:
        return ""
    inside = location.startswith(source.base + os.sep)
    return os.path.relpath(location, source.base) if inside else redacted_urls(location)
