"""How to reach the bytes of one source's shards, from the spec and the environment, as one value."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import BinaryIO

from wdspec.base.errors import ShardError, UsageError, warn_user
from wdspec.base.files import expand_home
from wdspec.cache.fill import CopyRules
from wdspec.cache.names import CacheNames
from wdspec.cache.shard_cache import Copy, CopyFile, ShardCache, find_copy, look_for_change
from wdspec.spec.language.locations import Verify
from wdspec.spec.language.options import Errors
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment, Resolution, ResolutionStep
from wdspec.storage.known_objects import KnownObjects
from wdspec.stores.ais_cluster import AisCluster, AisVariables
from wdspec.stores.outputs import Output
from wdspec.stores.rates import RateRules
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.settings import ObjectLogin, uses_login
from wdspec.stores.store import ObjectStat, Store, StoreSettings, unlistable
from wdspec.stores.table import store_of
from wdspec.stores.watchdog import NO_PROGRESS, open_watched
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import AIS_PREFIX, ShardUrl, lance_url


@dataclass(frozen=True)
class CacheSettings:
    """The cache of a source."""

    directory: str
    """Absolute."""
    size: int | None = None
    """Maximum number of bytes of wdspec's own files in it."""
    verify: Verify = "changed"

    @classmethod
    def of(
        cls, environment: Environment, spec: Spec | None = None, source: Source | None = None
    ) -> CacheSettings | None:
        """The cache of a source of a spec, or, without arguments, the cache of the environment.

        ``WDS_CACHE`` and ``WDS_CACHE_SIZE`` take precedence over the spec, but `cache: false` always counts.
        """
        directory, size, verify = None, None, cls.verify
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
                    verify = holder.cache.verify if "verify" in holder.cache.model_fields_set else verify
        if directory == "":
            return None
        directory = environment.cache_dir or directory
        if directory is None and environment.cache_size is not None:
            hint = "set WDS_CACHE to a directory, or add `cache:` to the spec"
            warn_user(f"WDS_CACHE_SIZE has no effect, as nothing is cached; {hint}")
        if directory is None:
            return None
        directory = os.path.expanduser(expand_home(directory, environment.home))
        directory = os.path.normpath(os.path.join(environment.directory, directory))
        return cls(directory, size if environment.cache_size is None else environment.cache_size, verify)


@dataclass(frozen=True)
class Storage(StoreSettings):
    """Where the shards of one source are, and how to open them.

    A description only, which pickles: it is made once, in the parent. Clients and connections are made on first use in
    the process that reads. The engine, pipelines and commands all read through it.
    """

    environment: Environment = field(default_factory=Environment)
    rules: tuple[Rule, ...] = ()
    """Rewrite rules, in order; the first that changes a URL is applied once."""
    users: Mapping[str, Store] = field(default_factory=dict)
    """Stores that users have added, by scheme."""
    cache: ShardCache | None = None
    """The cache for copies of remote shards."""
    timeout: float = NO_PROGRESS
    """Seconds that one read may take."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Start of locations -> the same at a commit, which is read instead; see `Store.pin`."""
    known: KnownObjects | None = None
    """What a lock knows of the objects that samples name."""

    @classmethod
    def of(cls, environment: Environment, spec: Spec | None = None, source: Source | None = None) -> Storage:
        """The storage of a source of a spec, or, without arguments, the storage of URLs outside of specs.

        The order of rewrite rules: environment variable, overlay, source, top level.

        Raises:
            UrlError: a rule with a wrong regex or template.
            UsageError: an AIStore cluster without an address.
        """
        holders = [holder for holder in (spec, source) if holder is not None]
        named = {key for holder in holders for key in holder.model_fields_set}
        errors, name = (source.errors, source.name) if source else (Errors(), None)
        written = [rule for holder in reversed(holders) for rule in holder.rewrite]
        written.sort(key=lambda rule: not rule.overlay)
        rules = (Rule(rule.pattern, rule.replacement, rule.origin or "`rewrite`") for rule in written)
        usual, timeout = RetryPolicy(), NO_PROGRESS if errors.timeout is None else errors.timeout
        ais = cache = login = None
        if "aistore" in named or environment.ais != AisVariables():
            ais = AisCluster.of(environment.ais, environment.home, spec, source)
        if "storage" in named:
            login = ObjectLogin.of(environment.home, spec, source)
        if "cache" in named or (environment.cache_dir, environment.cache_size) != (None, None):
            cache = _cache_of(CacheSettings.of(environment, spec, source), source, environment.verbose_cache)
        return cls(
            # No single wait is longer than the watchdog allows.
            retry_policy=RetryPolicy(
                budget=usual.budget if errors.retry is None else errors.retry,
                read_timeout=min(usual.read_timeout, timeout),
                rates=RateRules(errors.slow_rate, errors.slow_after, errors.min_rate, name),
            ),
            http=environment.http,
            ais=ais,
            login=login,
            environment=environment,
            rules=(*environment.rules, *rules),
            users=environment.users,
            cache=cache,
            timeout=timeout,
        )

    def resolve(self, shard: ShardUrl) -> Resolution:
        """The location of a shard's bytes and of possible copies; see `Environment.locate` for errors."""
        found = self.environment.locate(shard, self.rules, self.ais)
        if self.pins:
            found = self._at_commit(found)
        if self.cache is None or found.location == "-" or found.location.startswith("/"):
            return found
        if lance_url(found.location) is not None:  # its library reads parts of several files
            return found
        variant = ""
        if self.ais is not None and found.location.startswith(AIS_PREFIX):
            variant = "&".join(filter(None, (self.ais.variant, self.ais.namespace)))
        elif self.login is not None and uses_login(found.location):
            variant = self.login.variant
        copies = self.cache.names(shard, found.rewritten, variant)
        step = ResolutionStep("cache", copies.path, "read from this copy, which is made if missing")
        return found._replace(copies=copies, steps=(*found.steps, step))

    def _at_commit(self, found: Resolution) -> Resolution:
        for start, pin in self.pins.items():
            if found.location.startswith(start):
                location = pin + found.location[len(start) :]
                step = ResolutionStep("lock", location, "the commit when the lock was written")
                return found._replace(location=location, rewritten=location, steps=(*found.steps, step))
        return found

    def open(self, resolution: Resolution) -> BinaryIO:
        """The bytes of a shard, unbuffered: the reader takes large pieces.

        `read` may return fewer bytes than requested, and b"" only at the true end. Local files can seek, and so can
        streams of stores with ranges. With a cache, remote shards are read from their copies, which are made meanwhile.

        Raises:
            MissingShardError: the shard does not exist; some stores notice only on the first `read`.
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
    def for_any_files(self) -> Storage:
        """This storage for files that are no shards: any bytes can become a copy."""
        if self.cache is None:
            return self
        rules = replace(self.cache.rules, format="tokens", may_be_empty=True)  # tokens may be any bytes, too
        return replace(self, cache=replace(self.cache, rules=rules))

    def find_copy(self, shard: ShardUrl) -> CopyFile | None:
        """Open the finished copy that a shard is read from; None without one."""
        copies = self.resolve(shard).copies
        return None if copies is None else find_copy(copies)

    @property
    def tells_changes(self) -> bool:
        """Whether copies can be compared with `stat`: the output of an ETL has no validator."""
        return self.ais is None or self.ais.etl is None

    def open_watched(self, shard: ShardUrl) -> BinaryIO:
        """The bytes of a shard, as `open`; reads that take too long are ended."""
        return open_watched(lambda: self.open(self.resolve(shard)), self.timeout, "", shard.text)

    def open_location(self, location: str) -> BinaryIO:
        """As `open`, for a bare location; never cached."""
        return store_of(location, self.users).open(location, self)

    def stat(self, shard: ShardUrl) -> ObjectStat:
        """The size and the validator of a shard in its store; ignores copies. See `Store.stat`."""
        return self.stat_location(self.resolve(shard).location)

    def stat_location(self, location: str) -> ObjectStat:
        """As `stat`, for a bare location."""
        return store_of(location, self.users).stat(location, self)

    def count_requests(self, location: str, size: int) -> int | None:
        """See `Store.count_requests`; None if nothing opens the location."""
        try:
            return store_of(location, self.users).count_requests(location, size)
        except ShardError:
            return None

    def find_pins(self, shards: Iterable[ShardUrl]) -> dict[str, str]:
        """Return the `pins` of the commits that shards are at now. Raises as `Store.pin`."""
        pins: dict[str, str] = {}
        for shard in shards:
            location = self.resolve(shard).location
            if not location.startswith(tuple(pins)):
                pins.update(filter(None, [store_of(location, self.users).pin(location, self)]))
        return pins

    @property
    def horizon(self) -> int:
        """How many shards to announce to stores ahead of those being read."""
        return 0 if self.ais is None else self.ais.prefetch

    def announce(self, shards: Iterable[Resolution]) -> None:
        """Announce shards to their stores; waits for their answers, and raises nothing."""
        by_store: dict[int, tuple[Store, list[str]]] = {}
        for each in shards:
            with contextlib.suppress(ShardError):  # opening it will raise this
                store = store_of(each.location, self.users)
                by_store.setdefault(id(store), (store, []))[1].append(each.location)
        for store, locations in by_store.values():
            store.announce(locations, self)

    def list(self, root: str, pattern: str) -> list[str]:
        """The files that match a glob below a location, or the shards directly in it; see `Store.list`."""
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
        """Open a path or URL for writing; rewrite rules apply as for reading.

        Args:
            url: a path, `file:`, a URL of a store that can be written, ``pipe:command`` (which gets the bytes on its
                standard input) or ``-`` for standard output. The last two cannot be taken back.
            overwrite: whether an object of this name may be replaced.
            since: see `LocalOutput`.

        Raises:
            UsageError: the name is taken, another writer uses it, or such URLs cannot be written.
            UrlError: the URL is invalid, or WDS_SECURE forbids it.
            OSError: it cannot be opened.
        """
        location = self.destination(url)
        try:
            return self._store_to_write(location).output(location, self, overwrite=overwrite, since=since)
        except UsageError as error:
            if not error.place:
                error.at(url=url)
            raise

    def destination(self, url: str) -> str:
        """The absolute path or URL that this name is written to."""
        return self.resolve(ShardUrl(url, self.environment.directory)).location

    def is_written(self, url: str) -> bool:
        """Whether this name was written completely."""
        location = self.destination(url)
        return self._store_to_write(location).exists(location, self)

    def delete(self, url: str) -> None:
        """Delete what was written by this name, if possible. Raises what the store raises."""
        location = self.destination(url)
        self._store_to_write(location).delete(location, self)

    def _store_to_write(self, location: str) -> Store:
        try:
            return store_of(location, self.users, to_write=True)
        except ShardError as error:
            raise UsageError(f"this URL cannot be written: {error.message}", location=location) from error


def with_surveyed_caches(
    storages: Mapping[str, Storage], shards: Mapping[str, Iterable[ShardUrl]]
) -> dict[str, Storage]:
    """The storages of all sources of a plan, with a survey of their cache directories (`CacheNames.survey`)."""
    if all(storage.cache is None for storage in storages.values()):
        return dict(storages)
    names: dict[str, CacheNames] = {}

    def survey(storage: Storage) -> Storage:
        if storage.cache is None:
            return storage
        directory = storage.cache.names.directory
        if directory not in names:
            names[directory] = storage.cache.names.survey(
                chain.from_iterable(map(_with_partners, shards.values()))
            )
        return replace(storage, cache=replace(storage.cache, names=names[directory]))

    return {name: survey(storage) for name, storage in storages.items()}


def _with_partners(shards: Iterable[ShardUrl]) -> Iterable[ShardUrl]:
    return (each for shard in shards for each in (shard, *shard.partners))


def _cache_of(settings: CacheSettings | None, source: Source | None, verbose: bool) -> ShardCache | None:
    if settings is None:
        return None
    if "\0" in settings.directory:
        raise UsageError(f"no directory has a name with a NUL character: {settings.directory!r}")
    rules = CopyRules(settings.size, verify=settings.verify, verbose=verbose)
    if source is not None:
        rules = replace(
            rules,
            # Partners of a join may have another format, which their names show.
            format=source.format if all(join.format == source.format for join in source.join) else "auto",
            lenient_end=source.tar.end == "lenient",
            may_be_empty=source.empty == "allow",
        )
    return ShardCache(CacheNames(settings.directory), rules)
