"""What `fetch` requests: how many objects of which stores, for a sample of the mix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wdspec.advice.explanation import Explanation
from wdspec.advice.traffic import LOCAL, store_of_location
from wdspec.base.errors import WdspecError
from wdspec.base.redaction import redacted_urls
from wdspec.spec.language.fetching import FetchedObject
from wdspec.spec.spec import Source
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl

OF_SPAN = 2
"""Requests for a time span, about: its index is mostly known, and its bytes are one or two ranges."""


@dataclass(frozen=True)
class ObjectRequests:
    """What is requested of a store for the objects that samples name."""

    store: str
    """`s3://bucket`, or the `hosts` that references name themselves."""
    sources: tuple[str, ...]
    per_sample: float
    """Requests for a sample of the mix, without those for copies of a cache, faults and redirects."""


def find_object_requests(explanation: Explanation) -> tuple[ObjectRequests, ...]:
    """Return the requests of each store, those with the most first; none for local files."""
    counts: dict[str, float] = {}
    sources: dict[str, dict[str, None]] = {}
    for source, drawn in _drawn(explanation):
        for store, count in _of_entries(source.fetch.values(), explanation.shards.storages[source.name]):
            counts[store] = counts.get(store, 0.0) + count * drawn
            sources.setdefault(store, {})[source.name] = None
    found = (ObjectRequests(store, tuple(sources[store]), count) for store, count in counts.items())
    return tuple(sorted(found, key=lambda each: (-each.per_sample, each.store)))


def _drawn(explanation: Explanation) -> Iterator[tuple[Source, float]]:
    """How many samples of each source, and of each companion, are read for a sample of the mix."""
    spec, plan = explanation.spec, explanation.plan
    by_name = {source.name: source for source in spec.sources}
    total = sum(leaf.expected for leaf in explanation.active)
    shares = {leaf.name: leaf.expected / total for leaf in explanation.active} if total else {}
    yield from ((by_name[name], share) for name, share in shares.items())
    for each in plan.companions:
        chance = each.threshold / (1 << 64)
        yield spec.companions[each.stream.name], shares.get(each.owner, 0.0) * chance * each.count


def _of_entries(entries: Iterable[FetchedObject], storage: Storage) -> Iterator[tuple[str, int]]:
    for entry in entries:
        store = " or ".join(entry.hosts)
        if entry.root is not None:
            try:
                location = storage.resolve(ShardUrl(entry.root, "/")).location
            except WdspecError:  # reading the first object raises it
                location = entry.root
            store = store_of_location(location)
            if store == LOCAL:
                continue
        yield redacted_urls(store), 1 if entry.seconds is None else OF_SPAN
