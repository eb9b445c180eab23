"""Which shards are as they were when they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from wdspec.errors import ShardError
from wdspec.lockfiles.looking import is_the_same, place_of
from wdspec.spec.compose.measurements import MeasuredShard, Measurements
from wdspec.spec.language.models import Source, Spec
from wdspec.storage.side_by_side import side_by_side
from wdspec.storage.storage import Storage
from wdspec.stores.store import ObjectStat
from wdspec.urls.sequence import ShardUrl


def still_measured(
    measurements: Measurements, spec: Spec, source: Source, storage: Storage, shards: Iterable[ShardUrl]
) -> Iterator[MeasuredShard | None]:
    """Of each shard what was measured, if the store says that it is the same; else None. In order, side by side.

    Of one that was measured in another place, the validator is that of the place where it is now.
    """
    measured = measurements.of(spec, source)
    if measured is None:
        return (None for _ in shards)
    moved = place_of(source, storage) != measured.via
    of_source = measurements.shards.get(source.name, {})

    def ask(shard: ShardUrl) -> MeasuredShard | None:
        known = of_source.get(shard.text)
        if known is None:
            return None
        try:
            seen = storage.stat(shard)
        except ShardError:  # whoever reads it says so
            return None
        if not is_the_same(ObjectStat(known.size, known.validator), seen, moved):
            return None
        return replace(known, validator=seen.validator) if moved else known

    return side_by_side(ask, shards)
