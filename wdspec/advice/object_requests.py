"""What `fetch` requests: how many objects of which stores, for a sample of the mix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from wdspec.advice.explanation import Explanation
from wdspec.advice.sizes import KnownSizes
from wdspec.advice.traffic import LOCAL, location_of, requesting_of, store_of_location
from wdspec.base.errors import WdspecError
from wdspec.base.redaction import redacted_urls
from wdspec.read.object_count import count_objects
from wdspec.read.transform import SourceParts
from wdspec.spec.files import ReadFile, read_from_disk
from wdspec.spec.spec import Source
from wdspec.urls.urls import local_path

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


def find_object_requests(
    explanation: Explanation, read: ReadFile = read_from_disk
) -> tuple[ObjectRequests, ...]:
    """Return the requests of each store, those with the most first; none for local files.

    Args:
        explanation: the spec, planned.
        read: reads the file of `stats`.
    """
    found: dict[str, ObjectRequests] = {}
    for source, drawn in _drawn(explanation):
        for each in _of_entries(explanation, source, drawn, read) if source.fetch else ():
            before = found.get(each.store, ObjectRequests(each.store, (), 0.0, 0.0, False))
            found[each.store] = ObjectRequests(
                each.store,
                tuple(dict.fromkeys((*before.sources, source.name))),
                before.per_sample + each.per_sample,
                before.of_headers + each.of_headers,
                before.is_least or each.is_least,
            )
    return tuple(sorted(found.values(), key=lambda each: (-each.per_sample, each.store)))


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


def _of_entries(
    explanation: Explanation, source: Source, drawn: float, read: ReadFile
) -> Iterator[ObjectRequests]:
    counts, storage = _count_objects(explanation, source, read), explanation.shards.storages[source.name]
    spec = explanation.spec.by_which(source)
    decodes_first = (spec.batch is not None and spec.batch.is_by_function) or source.select
    is_read_once = storage.cache is not None or decodes_first or spec.fields_after_map(source)
    measured = frozenset[str]() if is_read_once else spec.measured_objects(source)
    for name, entry in source.fetch.items():
        store = " or ".join(entry.hosts)
        if entry.root is not None:
            store = store_of_location(location_of(entry, storage) or "")
            if store == LOCAL:
                continue
        count = counts.get(name)
        each, of_headers = 1 if entry.seconds is None else OF_SPAN, int(name in measured)
        number = drawn * (1.0 if count is None else count)
        per_sample = (each + of_headers) * number
        yield ObjectRequests(
            redacted_urls(store), (source.name,), per_sample, of_headers * number, count is None
        )


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
