"""What a run reads from its stores: bytes and requests, per epoch and per run, and how much of it is cached.

The sizes of shards come from the file of `wdspec stats`, or from the lock next to the spec, so nothing is requested. A
pass reads each shard once, and whole. The first pass fills a cache that has room for all of the data, and all others
read the copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from wdspec.advice.explanation import Explanation
from wdspec.base.errors import UsageError, WdspecError
from wdspec.shards.lock import Lock, lock_name
from wdspec.spec.measurements import Measurements
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import UrlSequence, scheme_of

LOCAL = "local files"


@dataclass(frozen=True)
class SourceTraffic:
    """What a source reads of one store."""

    source: str
    store: str
    """`s3://bucket`, or `local files`."""
    shards: int
    bytes: int
    """Of these shards, as they are stored: what a pass reads."""
    requests: int | None
    """Requests of a pass without faults; None if the store does not say."""
    passes: float
    """Passes of an epoch over the source."""
    is_cached: bool
    """Whether copies are kept, and the cache has room for all of them."""

    def fetched_passes(self, epochs: float) -> float:
        """The passes of a run of some epochs that read from the store."""
        passes = self.passes * epochs
        return min(1.0, passes) if self.is_cached else passes

    def fetched_bytes(self, epochs: float = 1) -> float:
        """The bytes that come from the store in a run of some epochs."""
        return self.bytes * self.fetched_passes(epochs)

    def fetched_requests(self, epochs: float = 1) -> float | None:
        """The requests to the store in a run of some epochs; None if unknown."""
        return None if self.requests is None else self.requests * self.fetched_passes(epochs)


@dataclass(frozen=True)
class Traffic:
    """What a run reads."""

    sources: tuple[SourceTraffic, ...]
    unknown: tuple[str, ...]
    """Sources of which it is unknown what is read: the sizes of their shards, or the passes.

    Also companions, sources that read other shards (`join`) or objects (`fetch`) besides, and those whose shards are
    read in parts, by several slots.
    """
    by: str
    """Where the sizes come from: `stats` or `lock`."""
    per: str = "epoch"
    """What `passes` are per: `epoch`, or a number of samples if epochs have no end."""

    def bytes(self, epochs: float = 1) -> float:
        """The bytes that a run of some epochs reads, of stores and of copies."""
        return sum(each.bytes * each.passes * epochs for each in self.sources)

    def fetched_bytes(self, epochs: float = 1) -> float:
        """The bytes that come from stores."""
        return sum(each.fetched_bytes(epochs) for each in self.sources)

    def cached_part(self, epochs: float = 1) -> float:
        """The part of the bytes that is read from copies."""
        whole = self.bytes(epochs)
        return 1 - self.fetched_bytes(epochs) / whole if whole else 0.0

    @property
    def stores(self) -> dict[str, Traffic]:
        """The traffic of each store."""
        names = dict.fromkeys(each.store for each in self.sources)
        return {
            name: Traffic(tuple(each for each in self.sources if each.store == name), (), self.by, self.per)
            for name in names
        }

    def requests(self, epochs: float = 1) -> float | None:
        """The requests to stores; None if a store does not say."""
        found = [each.fetched_requests(epochs) for each in self.sources]
        return None if None in found else sum(each for each in found if each is not None)

    def as_json(self) -> dict[str, Any]:
        return {
            "sizes": self.by,
            "per": self.per,
            "bytes": round(self.bytes()),
            "from_stores": [
                {
                    "store": name,
                    "bytes": round(each.fetched_bytes()),
                    "requests": None if (count := each.requests()) is None else round(count),
                }
                for name, each in self.stores.items()
            ],
            "cached": round(self.cached_part(), 6),
            "sources": self.sources,
            "unknown": self.unknown,
        }


def find_traffic(explanation: Explanation) -> Traffic | None:
    """Find what an epoch reads; None if there is neither a file of `stats` nor a lock with sizes."""
    spec = explanation.spec
    by, sizes = "stats", _sizes_of_stats(spec)
    if sizes is None:
        by, sizes = "lock", _sizes_of_lock(spec)
    if sizes is None:
        return None
    per = "epoch" if explanation.plan.epoch_samples else "1,000 samples"
    found: list[SourceTraffic] = []
    unknown = [*spec.companions]
    by_name = {source.name: source for source in spec.sources}
    for leaf in explanation.active:
        known = sizes.get(leaf.name, {})
        shards = explanation.shards.lists[leaf.name]
        source = by_name[leaf.name]
        is_unknown = leaf.passes is None or leaf.parts_per_shard > 1 or source.join or source.fetch
        if is_unknown or any(known.get(shard.text) is None for shard in shards):
            unknown.append(leaf.name)
            continue
        found += _of_source(explanation, source, shards, known, leaf.passes or 0.0)
    return Traffic(tuple(_with_room(explanation, found)), tuple(unknown), by, per)


def _of_source(
    explanation: Explanation,
    source: Source,
    shards: UrlSequence,
    sizes: Mapping[str, int | None],
    passes: float,
) -> Iterator[SourceTraffic]:
    """The traffic of a source, for each store."""
    storage = explanation.shards.storages[source.name]
    counts: dict[str, list[int]] = {}
    requests: dict[str, int | None] = {}
    for shard in shards:
        location = storage.resolve(shard).location
        store, size = store_of_location(location), sizes[shard.text] or 0
        count = counts.setdefault(store, [0, 0])
        count[0] += 1
        count[1] += size
        more, known = storage.count_requests(location, size), requests.setdefault(store, 0)
        requests[store] = None if more is None or known is None else known + more
    for store, (number, size) in counts.items():
        is_cached = storage.cache is not None and store != LOCAL
        yield SourceTraffic(source.name, store, number, size, requests[store], passes, is_cached)


def _with_room(explanation: Explanation, found: list[SourceTraffic]) -> Iterator[SourceTraffic]:
    """The same, where a cache that is too small for its sources counts as none."""
    needs: dict[str, int] = {}
    rooms: dict[str, int | None] = {}
    places: dict[str, str] = {}
    for each in found:
        cache = explanation.shards.storages[each.source].cache
        if each.is_cached and cache is not None:
            place = places[each.source] = cache.names.directory
            needs[place] = needs.get(place, 0) + each.bytes
            rooms[place] = cache.rules.limit
    for each in found:
        room = rooms.get(places.get(each.source, ""))
        fits = room is None or needs[places[each.source]] <= room
        yield each if fits or not each.is_cached else _without_cache(each)


def _without_cache(each: SourceTraffic) -> SourceTraffic:
    return SourceTraffic(
        each.source, each.store, each.shards, each.bytes, each.requests, each.passes, is_cached=False
    )


def store_of_location(location: str) -> str:
    """The scheme and the bucket or the host of a location, without a login."""
    scheme = scheme_of(location)
    if scheme in ("", "file"):
        return LOCAL
    if "://" not in location:
        return f"{scheme}:"
    host = location.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f"{location.partition('://')[0]}://{host}"


Sizes = Mapping[str, Mapping[str, int | None]]
"""By source: URL of a shard -> its bytes."""


def _sizes_of_stats(spec: Spec) -> Sizes | None:
    if spec.stats is None:
        return None
    with suppress(OSError, UsageError):  # W108 warns about it
        measurements = Measurements.read(spec.stats)
        return {
            name: {text: shard.size for text, shard in shards.items()}
            for name, shards in measurements.shards.items()
        }
    return None


def _sizes_of_lock(spec: Spec) -> Sizes | None:
    if spec.file is None:
        return None
    with suppress(OSError, WdspecError):  # `validate --locked` reports it
        lock = Lock.read(lock_name(spec.file, spec.split, spec.environment))
        return {
            name: dict(zip(source.shards("").texts(), (each.size for each in source.objects), strict=True))
            for name, source in lock.sources.items()
        }
    return None
