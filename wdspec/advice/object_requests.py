"""What `fetch` requests: how many objects of which stores, for a sample of the mix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from wdspec.advice.explanation import Explanation
from wdspec.advice.sizes import KnownSizes
from wdspec.advice.traffic import LOCAL, requesting_of, store_of_location
from wdspec.base.errors import WdspecError
from wdspec.base.redaction import redacted_urls
from wdspec.read.object_count import count_objects
from wdspec.read.transform import SourceParts
from wdspec.spec.files import ReadFile, read_from_disk
from wdspec.spec.spec import Source
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl, local_path

OF_SPAN = 2
"""Requests for a time span, about: its index is mostly known, and its bytes are one or two ranges."""
_MOST_READ = 100
"""Samples of a local shard that are read to see how many objects each one names."""


@dataclass(frozen=True)
class ObjectRequests:
    """What is requested of a store for the objects that samples name."""

    store: str
    """`s3://bucket`, or the `hosts` that references name themselves."""
    sources: tuple[str, ...]
    per_sample: float
    """Requests for a sample of the mix, without those for copies of a cache, faults and redirects."""
    of_headers: float
    """Those of them that only read the sizes of images, which batches are planned by."""
    is_least: bool
    """Whether it is not known how many objects a sample names: each reference counts as one, and may be a list."""


class _Requests(NamedTuple):
    """Requests of an entry of `fetch` for a sample of its source."""

    store: str
    per_sample: float
    of_headers: float
    is_least: bool


def find_object_requests(
    explanation: Explanation, read: ReadFile = read_from_disk
) -> tuple[ObjectRequests, ...]:
    """Return the requests of each store, those with the most first; none for local files.

    Args:
        explanation: the spec, planned.
        read: reads the file of `stats`.
    """
    found: dict[str, list[_Requests]] = {}
    sources: dict[str, dict[str, None]] = {}
    for source, drawn in _drawn(explanation):
        for each in _of_entries(explanation, source, read) if source.fetch else ():
            of_mix = each.per_sample * drawn, each.of_headers * drawn
            found.setdefault(each.store, []).append(_Requests(each.store, *of_mix, each.is_least))
            sources.setdefault(each.store, {})[source.name] = None
    totals = (
        ObjectRequests(
            store,
            tuple(sources[store]),
            sum(each.per_sample for each in parts),
            sum(each.of_headers for each in parts),
            any(each.is_least for each in parts),
        )
        for store, parts in found.items()
    )
    return tuple(sorted(totals, key=lambda each: (-each.per_sample, each.store)))


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


def _of_entries(explanation: Explanation, source: Source, read: ReadFile) -> Iterator[_Requests]:
    counts, storage = _count_objects(explanation, source, read), explanation.shards.storages[source.name]
    spec = explanation.spec.by_which(source)
    decodes_first = (spec.batch is not None and spec.batch.is_by_function) or source.select
    is_read_once = storage.cache is not None or decodes_first or spec.fields_after_map(source)
    measured = frozenset[str]() if is_read_once else spec.measured_objects(source)
    for name, entry in source.fetch.items():
        store = " or ".join(entry.hosts)
        if entry.root is not None:
            store = store_of_location(_location_of(entry.root, storage))
            if store == LOCAL:
                continue
        count = counts.get(name)
        each, of_headers = 1 if entry.seconds is None else OF_SPAN, int(name in measured)
        number = 1.0 if count is None else count
        yield _Requests(
            redacted_urls(store), (each + of_headers) * number, of_headers * number, count is None
        )


def _location_of(root: str, storage: Storage) -> str:
    try:
        return storage.resolve(ShardUrl(root, "/")).location
    except WdspecError:  # reading the first object raises it
        return root


def _count_objects(explanation: Explanation, source: Source, read: ReadFile) -> Mapping[str, float]:
    """Return how many objects a sample of a source names, by entry of `fetch`; empty if it is unknown.

    It is what `stats` counted, or what the first samples of a local shard name.
    """
    shards, spec = explanation.shards.lists[source.name], explanation.spec
    known = KnownSizes.read(spec, read)
    objects = known.objects(source, requesting_of(explanation, source), shards.texts()) if known else {}
    samples = known.count_samples(source) if known and objects else 0
    with suppress(WdspecError):  # reading the samples raises it
        location = explanation.shards.storages[source.name].resolve(shards[0]).location
        is_looked_at = explanation.found.looks and not spec.functions["decode"]  # it runs no code
        if not objects and is_looked_at and local_path(location) is not None:
            parts = SourceParts.of(spec, source, explanation.shards)
            samples, objects = count_objects(parts, shards[0], _MOST_READ)
    return {name: each.requests / samples for name, each in objects.items()} if samples else {}
