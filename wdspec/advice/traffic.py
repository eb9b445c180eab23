"""What a run reads from its stores: bytes and requests, per epoch and per run, and how much of it is cached.

The sizes of shards come from the file of `wdspec stats`, or from the lock next to the spec, so nothing is requested. A
shard is requested whole each time that a slot opens it: once in a pass, or once for each slot that reads a part of it.
The first pass fills a cache that has room for all of the data, and all others read the copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from wdspec.advice.explanation import Explanation
from wdspec.advice.sizes import KnownSizes
from wdspec.base.amounts import join_names, pluralize, size, sum_known
from wdspec.base.errors import WdspecError
from wdspec.formats.compression import format_of
from wdspec.formats.readers import seeks
from wdspec.shards.lookup_tables import table_url
from wdspec.spec.files import ReadFile, read_from_disk
from wdspec.spec.language.fetching import FetchedObject
from wdspec.spec.measurements import NamedObjects, Requested
from wdspec.spec.reading import digest_requesting
from wdspec.spec.spec import Source
from wdspec.storage.storage import Storage
from wdspec.urls.references import parse_place
from wdspec.urls.urls import ShardUrl, scheme_of

LOCAL = "local files"
NOTHING: Mapping[str, Requested] = {}


@dataclass(frozen=True)
class SourceTraffic:
    """What a source reads of one store."""

    source: str
    what: str
    """`shards`, `join` (their partners), `lookup` (tables) or `fetch` (objects that samples name)."""
    store: str
    """`s3://bucket`, or `local files`."""
    shards: int
    """The number of shards, partners, tables or objects."""
    bytes: int
    """Of all of them, as they are stored; of those that are read in part, the bytes that are requested."""
    requests: int | None
    """Requests for each of them once, without faults; None if the store does not say."""
    passes: float
    """Passes of an epoch over the source; 1 for tables, which are read once per run."""
    read_bytes: float
    """Bytes that an epoch reads. More than those of the passes if several slots read parts of one shard."""
    read_requests: float | None
    """Requests of an epoch that finds no copies; None if the store does not say."""
    is_cached: bool
    """Whether copies are kept, and the cache has room for all of them."""

    @property
    def is_read_once(self) -> bool:
        """Whether a run reads it once, however many epochs it has."""
        return self.what == "lookup"

    def bytes_of(self, epochs: float) -> float:
        """The bytes that a run of some epochs reads, of the store and of copies."""
        return self.read_bytes * (1 if self.is_read_once else epochs)

    def fetched_bytes(self, epochs: float = 1) -> float:
        """The bytes that come from the store in a run of some epochs."""
        copied = self.bytes * min(1.0, self.passes * (1 if self.is_read_once else epochs))
        return min(copied, self.bytes_of(epochs)) if self.is_cached else self.bytes_of(epochs)

    def fetched_requests(self, epochs: float = 1) -> float | None:
        """The requests to the store in a run of some epochs; None if unknown."""
        if self.requests is None or self.read_requests is None:
            return None
        times = 1 if self.is_read_once else epochs
        copied = self.requests * min(1.0, self.passes * times)
        return min(copied, self.read_requests * times) if self.is_cached else self.read_requests * times


class Unknown(NamedTuple):
    """What is read, but not known."""

    source: str
    what: str
    """`shards` for all that is read of the source; `join`, `lookup`, `fetch` for partners, tables and objects."""

    @property
    def in_words(self) -> str:
        """`a`, or `the objects of a`."""
        things = {
            "shards": "",
            "join": "the partners of ",
            "lookup": "tables of ",
            "fetch": "the objects of ",
        }
        return things[self.what] + self.source


@dataclass(frozen=True)
class Traffic:
    """What a run reads."""

    sources: tuple[SourceTraffic, ...]
    unknown: tuple[Unknown, ...]
    by: str
    """Where the sizes come from; see `KnownSizes`."""
    per: str = "epoch"
    """What `passes` are per: `epoch`, or a number of samples if epochs have no end."""

    def bytes(self, epochs: float = 1) -> float:
        """The bytes that a run of some epochs reads, of stores and of copies."""
        return sum(each.bytes_of(epochs) for each in self.sources)

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
        return sum_known(each.fetched_requests(epochs) for each in self.sources)

    def describe(self, epochs: float, per: str, note: str) -> str:
        """Describe what a run of some epochs reads, by which sizes, and what is unknown.

        Args:
            epochs: how many.
            per: what this is per, as in ` per epoch`; or empty.
            note: put after the sizes.
        """
        if not self.sources:
            return f"unknown of {self.unknown_in_words}{self.remedy}"
        excluding = f"; excluding {self.unknown_in_words}, of which this is unknown{self.remedy}"
        return (
            f"{self.in_words(epochs)}{per}, by the sizes of {self.by}{note}{excluding * bool(self.unknown)}"
        )

    def in_words(self, epochs: float = 1) -> str:
        """What a run of some epochs reads of which stores."""
        parts = []
        for name, store in self.stores.items():
            requests = store.requests(epochs)
            by = f" in {pluralize(round(requests), 'request')}" if requests else ""
            parts.append(f"{size(store.fetched_bytes(epochs))} of {name}{by}")
        return " and ".join(parts)

    @property
    def unknown_in_words(self) -> str:
        """What is not known: `a, the objects of b`; empty if all is known."""
        return join_names(each.in_words for each in self.unknown)

    @property
    def remedy(self) -> str:
        """What measures what is not known, as the end of a sentence; empty if that was done."""
        is_done = not self.unknown or "stats" in self.by
        return "" if is_done else "; run `wdspec stats SPEC -o stats.json`, and write `stats: stats.json`"

    def as_json(self, epochs: float = 1) -> dict[str, Any]:
        """The numbers of a run of some epochs; those of `sources` are per epoch."""
        return {
            "sizes": self.by,
            "per": self.per,
            "bytes": round(self.bytes(epochs)),
            "from_stores": [
                {
                    "store": name,
                    "bytes": round(each.fetched_bytes(epochs)),
                    "requests": None if (count := each.requests(epochs)) is None else round(count),
                }
                for name, each in self.stores.items()
            ],
            "cached": round(self.cached_part(epochs), 6),
            "sources": self.sources,
            "unknown": self.unknown,
        }


def find_traffic(explanation: Explanation, read: ReadFile = read_from_disk) -> Traffic | None:
    """Find what an epoch reads; None if there is neither a file of `stats` nor a lock with sizes.

    Args:
        explanation: the spec, planned.
        read: reads the file of `stats` and the lock.
    """
    known = KnownSizes.read(explanation.spec, read)
    if known is None:
        return None
    per = "1,000 samples" if explanation.epoch_samples is None else "epoch"
    found: list[SourceTraffic] = []
    unknown: list[Unknown] = []
    for reading in (*_readings_of_mix(explanation), *_readings_of_companions(explanation, known)):
        source, shards = reading.source, explanation.shards.lists[reading.source.name]
        storage = explanation.shards.storages[source.name]
        sizes = known.of_shards(source)
        requesting = requesting_of(explanation, source)
        if source.fetch:
            objects = known.objects(source, requesting, shards.texts())
            fetched = _count_objects(reading, objects, storage)
            unknown += [Unknown(source.name, "fetch")] if fetched is None else []
            found += fetched or []
        requested = known.requested(source, requesting)
        parts = _count(reading, "shards", shards, sizes, source.format, storage, requested)
        if parts is None:
            unknown.append(Unknown(source.name, "shards"))
            continue
        found += parts
        for place, join in enumerate(source.join):
            sizes = known.of_partners(source)
            partners = [shard.partners[place] for shard in shards]
            is_out_of_order = join.on is not None and _is_requested(partners, storage)
            parts = (
                None if is_out_of_order else _count(reading, "join", partners, sizes, join.format, storage)
            )
            unknown += [Unknown(source.name, "join")] if parts is None else []
            found += parts or []
        for table in map(table_url, source.lookup):
            parts = _count(
                Reading(source, 1.0, [1.0]), "lookup", [table], known.of_tables(source), None, storage
            )
            unknown += [Unknown(source.name, "lookup")] if parts is None else []
            found += parts or []
    found = list(_with_room(explanation, found))
    return Traffic(tuple(found), tuple(dict.fromkeys(unknown)), known.by, per)


def requesting_of(explanation: Explanation, source: Source) -> str:
    """`digest_requesting` of a source."""
    files = explanation.shards.files.get(source.name, {})
    return digest_requesting(explanation.spec.by_which(source), source, files)


class Reading(NamedTuple):
    """How often an epoch reads a source."""

    source: Source
    passes: float | None
    """None if unknown."""
    opened: Sequence[float]
    """How often each shard is opened."""


def _readings_of_mix(explanation: Explanation) -> Iterator[Reading]:
    by_name = {source.name: source for source in explanation.spec.sources}
    opened = _count_openings(explanation)
    for leaf in explanation.active:
        source = by_name[leaf.name]
        passes, each = leaf.passes, opened.get(leaf.name)
        if each is None:
            each = [(passes or 0.0) * leaf.parts_per_shard] * (leaf.shards or 0)
        else:  # samples that are left out while it is read count as well, and `limit` may end it before
            passes = min(float(source.copies), passes or float(source.copies)) if any(each) else 0.0
        yield Reading(source, passes, each)


def _count_openings(explanation: Explanation) -> dict[str, list[float]]:
    """How often a pass opens each shard of each source: a shard that several slots read, once in each of them."""
    plan, finite = explanation.plan, explanation.plan.finite
    if finite is None:
        return {}
    opened = [[0.0] * len(source.shards) for source in plan.sources]
    for slot in range(plan.topology.slots):
        pieces = finite.first_pieces(*divmod(slot, plan.topology.workers), most=1 << 60)
        for source, counts, own in zip(plan.sources, opened, pieces, strict=True):
            for place, *_ in own:
                counts[finite.shard_at(source.order, place)] += 1
    return {source.name: counts for source, counts in zip(plan.sources, opened, strict=True)}


def _readings_of_companions(explanation: Explanation, known: KnownSizes) -> Iterator[Reading]:
    """A reading for each source of companions: each of its streams reads as many samples as are drawn of it."""
    drawn = {leaf.name: leaf.expected for leaf in explanation.active}
    passes: dict[str, float | None] = {}
    opened: dict[str, float] = {}
    for each in explanation.plan.companions:
        name = each.stream.name
        samples = known.count_samples(explanation.spec.companions[name])
        if not samples or passes.get(name, 0.0) is None:
            passes[name] = None
            continue
        own = drawn[each.owner] * each.threshold / (1 << 64) * each.count / samples
        passes[name] = (passes.get(name) or 0.0) + own
        opened[name] = opened.get(name, 0.0) + own * each.stream.order.split
    for name, total in passes.items():
        number_of_shards = len(explanation.shards.lists[name])
        yield Reading(explanation.spec.companions[name], total, [opened.get(name, 0.0)] * number_of_shards)


def _is_requested(shards: Iterable[ShardUrl], storage: Storage) -> bool:
    """Whether some shards are read from their stores, and not from the disk."""
    return storage.cache is None and any(
        store_of_location(storage.resolve(shard).location) != LOCAL for shard in shards
    )


def _count(
    reading: Reading,
    what: str,
    objects: Iterable[ShardUrl],
    sizes: Mapping[str, int | None],
    format: str | None,
    storage: Storage,
    requested: Mapping[str, Requested] = NOTHING,
) -> list[SourceTraffic] | None:
    """Return what is read of some objects, for each store; None if it is unknown.

    Args:
        sizes: the bytes of the objects.
        format: their format; None if they are always read whole.
        requested: what is requested of those that are read in part.
    """
    if reading.passes is None:
        return None
    parts: dict[str, SourceTraffic] = {}
    for shard, times in zip(objects, reading.opened, strict=True):
        location, length = storage.resolve(shard).location, sizes.get(shard.text)
        if length is None:
            return None
        store = store_of_location(location)
        known = parts.get(store)
        if known is None:
            is_cached = storage.cache is not None and store != LOCAL
            known = SourceTraffic(
                reading.source.name, what, store, 0, 0, 0, reading.passes, 0.0, 0.0, is_cached
            )
        requests = storage.count_requests(location, length)
        is_in_part = format is not None and seeks(format_of(shard.text, format))
        if is_in_part and store != LOCAL and not known.is_cached:
            if (part := requested.get(shard.text)) is None:
                return None
            length, requests = part.bytes, _count_ranges(part, location, storage)
        parts[store] = replace(
            known,
            shards=known.shards + 1,
            bytes=known.bytes + length,
            requests=_sum(known.requests, requests, 1),
            read_bytes=known.read_bytes + length * times,
            read_requests=_sum(known.read_requests, requests, times),
        )
    return list(parts.values())


def _count_ranges(part: Requested, location: str, storage: Storage) -> int | None:
    """The requests for parts of a shard; None if its store does not say."""
    is_one = storage.count_requests(location, _LONG)
    return is_one and (part.ranges if is_one == 1 else part.parts)


_LONG = 1 << 40
"""Bytes of an object that stores are asked for in parts, if they are asked so."""


def _count_objects(
    reading: Reading, objects: Mapping[str, NamedObjects], storage: Storage
) -> list[SourceTraffic] | None:
    """Return what is read of the objects that samples name, for each entry of `fetch`; None if it is unknown."""
    found: list[SourceTraffic] = []
    for name, entry in reading.source.fetch.items():
        named, location = objects.get(name), location_of(entry, storage)
        if named is None or named.bytes is None or reading.passes is None or location is None:
            return None
        store = store_of_location(location)
        is_cached = storage.cache is not None and store != LOCAL
        is_in_part = entry.span is not None or entry.seconds is not None
        if entry.seconds is not None or (is_cached and (is_in_part or named.objects < named.requests)):
            return None  # copies are of whole objects, and of each one once
        each = storage.count_requests(location, named.bytes // max(1, named.requests))
        requests = None if each is None else each * named.requests
        found.append(
            SourceTraffic(
                reading.source.name,
                "fetch",
                store,
                named.objects,
                named.bytes,
                requests,
                reading.passes,
                named.bytes * reading.passes,
                _sum(0.0, requests, reading.passes),
                is_cached,
            )
        )
    return found


def location_of(entry: FetchedObject, storage: Storage) -> str | None:
    """Where the objects of an entry of `fetch` are; None if references say it themselves."""
    if entry.root is None:
        places = [place for place in map(parse_place, entry.hosts) if place.scheme]
        is_one = len(places) == 1 and "*" not in places[0].host
        return f"{places[0].scheme}://{places[0].host}" if is_one else None
    try:
        return storage.resolve(ShardUrl(entry.root, "/")).location
    except WdspecError:  # reading the first object raises it
        return entry.root


def _sum(total: float | None, more: int | None, times: float) -> Any:
    """Add some requests, made several times; None if a number is unknown."""
    return None if total is None or more is None else total + more * times


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
        yield each if fits or not each.is_cached else replace(each, is_cached=False)


def store_of_location(location: str) -> str:
    """The scheme and the bucket or the host of a location, without a login."""
    scheme = scheme_of(location)
    if scheme in ("", "file"):
        return LOCAL
    if "://" not in location:
        return f"{scheme}:"
    host = location.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f"{location.partition('://')[0]}://{host}"
