"""Which shards are as they were when they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wdspec.errors import ShardError
from wdspec.lockfiles.looking import is_the_same, place_of
from wdspec.spec.compose.measurements import MeasuredShard, MeasuredSource
from wdspec.spec.language.models import Source
from wdspec.storage.side_by_side import side_by_side
from wdspec.storage.storage import Storage
from wdspec.stores.store import ObjectStat
from wdspec.urls.sequence import ShardUrl


def still_measured(
    measured: MeasuredSource, source: Source, storage: Storage, shards: Iterable[ShardUrl]
) -> Iterator[MeasuredShard | None]:
    """Of each shard what was measured, if the store says that it is the same; else None. In order, side by side."""
    moved = place_of(source, storage) != measured.via

    def ask(shard: ShardUrl) -> MeasuredShard | None:
        known = measured.shards.get(shard.text)
        if known is None:
            return None
        try:
            seen = storage.stat(shard)
        except ShardError:  # whoever reads it says so
            return None
        return known if is_the_same(ObjectStat(known.size, known.validator), seen, moved) else None

    return side_by_side(ask, shards)
