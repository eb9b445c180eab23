"""Everything that the spec and the environment say about reaching the bytes of one source's shards, as one value.

Where the cache of a source is, and how large: what the spec and the environment say, put together.

Objects that are not what their copies were made of any more: looked for in the background, and told in warnings.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import BinaryIO

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.files import expand_home
from wdspec.cache.fill import CopyRules
from wdspec.cache.names import CacheNames
from wdspec.cache.shard_cache import Copy, ShardCache, look_for_change
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.language.options import Errors
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment, Resolution, ResolutionStep
from wdspec.stores.ais_cluster import AisCluster, AisVariables
from wdspec.stores.outputs import Output
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.settings import ObjectLogin, uses_login
from wdspec.stores.store import ObjectStat, Store, StoreSettings, unlistable
from wdspec.stores.table import store_of, user_stores
from wdspec.stores.watchdog import NO_PROGRESS, open_watched
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import AIS_PREFIX, ShardUrl


@dataclass(frozen=True)
class CacheSettings:
    """The cache of a source, as the spec and the environment say."""

    directory: str
    """Absolute."""
    size: int | None = None
    """The most that wdspec's own files in it may take, in bytes."""

    @classmethod
    def of(
        cls, environment: Environment, spec: Spec | None = None, source: Source | None = None
    ) -> CacheSettings | None:
        """The cache of a source of a spec; without them, that of the environment.

        ``WDS_CACHE`` and ``WDS_CACHE_SIZE`` go before what the spec says, but `cache: false` is always heeded.
        """
        directory, size = None, None
        for holder in (spec, source):
            if holder is not None and "cache" in holder.model_fields_set:
                if holder.cache is None:
                    if holder is source:
                        return None
                    directory, size = "", None
                else:
                    same = holder.cache.dir == directory
                    directory = holder.cache.dir
                    size = holder.cache.size if holder.cache.size is not None or not same else size
        if directory == "":
            return None
        directory = environment.cache_dir or directory
        if directory is None:
            return None
        directory = os.path.expanduser(expand_home(directory, environment.home))
        directory = os.path.normpath(os.path.join(environment.directory, directory))
        return cls(directory, size if environment.cache_size is None else environment.cache_size)


@dataclass(frozen=True)
class Storage(StoreSettings):
    """Where the shards of one source are, and how they are opened.

    Describes only, and pickles: it is made once, in the parent, and clients and connections on first use in the process
    that reads. Engine, fluent pipelines and commands all reach bytes through one of these.
    """

    environment: Environment = field(default_factory=Environment)
    rules: tuple[Rule, ...] = ()
    """Rewrite rules, in order; the first that changes a URL wins, and wins once."""
    users: Mapping[str, Store] = field(default_factory=dict)
    """Stores that users have added, by scheme."""
    cache: ShardCache | None = None
    """Where copies of remote shards are kept."""
    timeout: float = NO_PROGRESS
    """Seconds that one read may take before it is given up."""

    @classmethod
    def of(cls, environment: Environment, spec: Spec | None = None, source: Source | None = None) -> Storage:
        """The storage of a source of a spec; without them, that of URLs that stand in no spec.

        The order of rewrite rules: environment variable, overlay, source, top level.

        Raises:
            UrlError: a rule with a wrong regex or template.
            UsageError: an AIStore cluster whose address is not known.
        """
        holders = [holder for holder in (spec, source) if holder is not None]
        named = {key for holder in holders for key in holder.model_fields_set}
        errors = source.errors if source else Errors()
        written = [rule for holder in reversed(holders) for rule in holder.rewrite]
        ais = cache = login = None
        if "aistore" in named or environment.ais != AisVariables():
            ais = AisCluster.of(environment.ais, environment.home, spec, source)
        if "storage" in named:
            login = ObjectLogin.of(environment.home, spec, source)
        if "cache" in named or environment.cache_dir is not None:
            cache = _cache(CacheSettings.of(environment, spec, source), source)
        return cls(
            retry_policy=_retry_policy(errors),
            http=environment.http,
            ais=ais,
            login=login,
            environment=environment,
            rules=(*environment.rules, *_rules(written)) if written else environment.rules,
            users=user_stores(environment.secure),
            cache=cache,
            timeout=_timeout(errors),
        )

    def resolve(self, shard: ShardUrl) -> Resolution:
        """Where the bytes of a shard come from, and where copies of it may be; see `Environment.locate` for errors."""
        found = self.environment.locate(shard, self.rules, self.ais)
        if self.cache is None or found.location == "-" or found.location.startswith("/"):
            return found
        variant = ""
        if self.ais is not None and found.location.startswith(AIS_PREFIX):
            variant = "&".join(filter(None, (self.ais.variant, self.ais.namespace)))
        elif self.login is not None and uses_login(found.location):
            variant = self.login.variant
        copies = self.cache.names(shard, found.rewritten, variant)
        step = ResolutionStep("cache", copies.path, "read from this copy, which is made if there is none")
        return found._replace(copies=copies, steps=(*found.steps, step))

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
        stream = self.cache.open(copies, partial(self.open_location, resolution.location))
        if isinstance(stream, Copy) and self.tells_changes:
            once = replace(self, retry_policy=replace(self.retry_policy, budget=0.0, brief=0.0))
            stat = partial(once.stat_location, resolution.location)
            look_for_change(stream, resolution.location, resolution.url.text, stat)
        return stream

    @property
    def tells_changes(self) -> bool:
        """Whether copies can be compared with what `stat` says: what an ETL makes of objects has no name of its own."""
        return self.ais is None or self.ais.etl is None

    def watched(self, shard: ShardUrl) -> BinaryIO:
        """The bytes of a shard, as `open`; reads that give nothing for too long are ended."""
        return open_watched(lambda: self.open(self.resolve(shard)), self.timeout, "", shard.text)

    def open_location(self, location: str) -> BinaryIO:
        """As `open`, for a location of which nothing else is known; never cached."""
        return store_of(location, self.users).open(location, self)

    def stat(self, shard: ShardUrl) -> ObjectStat:
        """What the store says of a shard that is not read; copies in a cache are not looked at. See `Store.stat`."""
        return self.stat_location(self.resolve(shard).location)

    def stat_location(self, location: str) -> ObjectStat:
        """As `stat`, for a location of which nothing else is known."""
        return store_of(location, self.users).stat(location, self)

    @property
    def horizon(self) -> int:
        """How many shards ahead of those being read stores are to be told of; 0: none."""
        return 0 if self.ais is None else self.ais.prefetch

    def announce(self, shards: Iterable[Resolution]) -> None:
        """Tells stores of shards that are going to be read; waits for their answers, and raises nothing."""
        told: dict[int, tuple[Store, list[str]]] = {}
        for each in shards:
            with contextlib.suppress(ShardError):  # which opening it will say
                store = store_of(each.location, self.users)
                told.setdefault(id(store), (store, []))[1].append(each.location)
        for store, locations in told.values():
            store.announce(locations, self)

    def list(self, root: str, pattern: str) -> list[str]:
        """What matches a glob below a location, or the shards directly in it; see `Store.list`."""
        try:
            store = store_of(root, self.users)
        except ShardError as error:
            raise unlistable(root, error.message) from None
        return store.list(root, pattern, self)

    def describe(self, location: str) -> str:
        """What opens a location, or why nothing does; opens nothing."""
        try:
            return store_of(location, self.users).describe(location, self)
        except ShardError as error:
            return error.message

    def output(self, url: str, *, overwrite: bool = True, since: int | None = None) -> Output:
        """Opens a path or URL to be written; rewrite rules apply to it as they do to what is read.

        Args:
            url: a path, `file:`, a URL of a store that can be written, ``pipe:command`` (which gets the bytes on its
                standard input) or ``-`` for standard output. Neither of the last two can be taken back.
            overwrite: whether something of this name may be replaced.
            since: see `LocalOutput`.

        Raises:
            UsageError: the name is taken, another writer is at it, or its kind of URL cannot be written.
            UrlError: the URL cannot be understood, or WDS_SECURE forbids it.
            OSError: it cannot be opened.
        """
        location = self.destination(url)
        try:
            return self._written(location).output(location, self, overwrite=overwrite, since=since)
        except UsageError as error:
            if not error.place:
                error.at(url=url)
            raise

    def destination(self, url: str) -> str:
        """The absolute path or URL where something is written by this name."""
        return self.resolve(ShardUrl(url, self.environment.directory)).location

    def is_written(self, url: str) -> bool:
        """Whether something was written by this name: it has its name only when it is whole."""
        location = self.destination(url)
        return self._written(location).exists(location, self)

    def delete(self, url: str) -> None:
        """Deletes what was written by this name, where that can be. Raises what the store raises."""
        location = self.destination(url)
        self._written(location).delete(location, self)

    def _written(self, location: str) -> Store:
        try:
            return store_of(location, self.users, to_write=True)
        except ShardError as error:
            raise UsageError(f"this URL cannot be written: {error.message}", location=location) from error


def with_surveyed_caches(
    storages: Mapping[str, Storage], shards: Mapping[str, Iterable[ShardUrl]]
) -> dict[str, Storage]:
    """The storages of all sources of a plan, which know what is in their cache directories (`cache.survey`)."""
    if all(storage.cache is None for storage in storages.values()):
        return dict(storages)
    seen: dict[str, CacheNames] = {}

    def knowing(storage: Storage) -> Storage:
        if storage.cache is None:
            return storage
        names = storage.cache.names
        if names.directory not in seen:
            seen[names.directory] = names.survey(chain.from_iterable(shards.values()))
        return replace(storage, cache=replace(storage.cache, names=seen[names.directory]))

    return {name: knowing(storage) for name, storage in storages.items()}


def _rules(rules: Iterable[RewriteRule]) -> Iterator[Rule]:
    """Rules of a spec, those of an overlay first."""
    for rule in sorted(rules, key=lambda rule: not rule.overlay):
        yield Rule(rule.pattern, rule.replacement, rule.origin or "`rewrite`")


def _cache(settings: CacheSettings | None, source: Source | None) -> ShardCache | None:
    if settings is None:
        return None
    rules = CopyRules(settings.size)
    if source is not None:
        rules = CopyRules(
            settings.size,
            format=source.format,
            lenient_end=source.tar.end == "lenient",
            may_be_empty=source.empty == "allow",
        )
    if "\0" in settings.directory:
        raise UsageError(f"no directory has a name with a NUL character: {settings.directory!r}")
    return ShardCache(CacheNames(settings.directory), rules)


def _timeout(errors: Errors) -> float:
    """Seconds that a read may take."""
    return NO_PROGRESS if errors.timeout is None else errors.timeout


def _retry_policy(errors: Errors) -> RetryPolicy:
    """How long failures of a store are retried. No single wait is longer than what the watchdog bears."""
    usual = RetryPolicy()
    budget = usual.budget if errors.retry is None else errors.retry
    longest = _timeout(errors)
    return RetryPolicy(budget=budget, read_timeout=min(usual.read_timeout, longest))
