"""A spec measured: shards that are as they were are asked about, the others are read by their headers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import uuid4

from wdspec.measuring.shard_sizing import Sizing, SizingTask, size_up
from wdspec.measuring.spreads import pooled
from wdspec.offline.engines import Engine
from wdspec.shards.lock import check_harmless, place_of, still_measured
from wdspec.shards.shards import ListedSpec
from wdspec.spec.measurements import (
    MeasuredShard,
    MeasuredSource,
    Measurements,
    Spread,
    decoding_of,
    reading_of_shards,
)
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

SAVE_EVERY = 30.0
"""Seconds between two savings of what was measured so far."""


class Fault(NamedTuple):
    """A shard that could not be measured."""

    source: str
    shard: str
    why: str


@dataclass(frozen=True)
class Outdated:
    """How the shards of a spec stand to what was measured of them."""

    tasks: list[SizingTask]
    """Shards that are new or not the same."""
    gone: list[tuple[str, str]]
    """(source, URL) of those that were measured, and are not listed any more."""


Asking = Callable[[Iterable[MeasuredShard | None], int, str], Iterator[MeasuredShard | None]]
"""Passes on what comes while somebody watches: what comes, how many, of what source."""


class MeasureJob:
    """A spec on its way to being measured.

    Args:
        spec: the spec; shares have no say, all of its sources are measured.
        before: what was measured at another time; None for nothing.
        lengths: whether samples are decoded, too, for the lengths of values; else only of sources of which that was
            done before, and that are still decoded so.
        asking: shows progress, while stores are asked about shards that were measured.

    Raises:
        UsageError: URLs that hold a secret, which the file would keep.
        WdspecError: shards cannot be listed.
    """

    def __init__(
        self,
        spec: Spec,
        before: Measurements | None,
        *,
        lengths: bool = False,
        asking: Asking = lambda coming, count, source: iter(coming),
    ) -> None:
        self._spec = spec
        self._listed = ListedSpec.of(spec.of(spec.sources))
        self._known: dict[str, dict[str, MeasuredShard]] = {}
        self._job = uuid4().hex
        self._decoding: dict[str, str] = {}
        """Of sources whose values are measured: how."""
        self.outdated = Outdated([], [])
        for source in spec.sources:
            shards = self._listed.shards[source.name]
            check_harmless(source.name, shards.parts, "the file")
            known = self._known[source.name] = {}
            then = None if before is None else before.of(spec, source)
            has_lengths = then is not None and then.decoding == decoding_of(spec, source)
            if lengths or has_lengths:
                self._decoding[source.name] = decoding_of(spec, source)
            if before is None or then is None or (lengths and not has_lengths):
                self.outdated.tasks.extend(self._task(source, *each) for each in enumerate(shards))
                continue
            coming = still_measured(before, spec, source, self._listed.storages[source.name], shards)
            watched = asking(coming, len(shards), source.name)
            for number, (shard, same) in enumerate(zip(shards, watched, strict=True)):
                if same is None:
                    self.outdated.tasks.append(self._task(source, number, shard))
                else:
                    known[shard.text] = same if has_lengths else replace(same, lengths={})
            texts = set(shards.texts())
            were = before.shards.get(source.name, ())
            self.outdated.gone.extend((source.name, text) for text in were if text not in texts)

    @property
    def unchanged(self) -> int:
        """Shards that are as they were measured."""
        return sum(map(len, self._known.values()))

    def run(
        self,
        engine: Engine,
        *,
        kept: Callable[[Measurements], None] = lambda measurements: None,
        told: Callable[[SizingTask, Sizing], None] = lambda task, sizing: None,
    ) -> tuple[Measurements, list[Fault]]:
        """Measures what is to be measured.

        Args:
            engine: who works; closed at the end.
            kept: gets from time to time, and however this ends, what is known so far.
            told: called with each shard that was read.

        Returns:
            What is known of all shards, and why some could not be measured.
        """
        faults: list[Fault] = []
        last = time.monotonic()
        try:
            for task, sizing in engine.run(size_up, self.outdated.tasks, lambda why: Sizing(None, why)):
                if sizing.shard is None:
                    faults.append(Fault(task.source, task.shard.text, sizing.fault))
                else:
                    self._known[task.source][task.shard.text] = sizing.shard
                told(task, sizing)
                if time.monotonic() - last > SAVE_EVERY:
                    kept(self.measurements())
                    last = time.monotonic()
        finally:
            engine.close()
            found = self.measurements()
            kept(found)
        return found, sorted(faults)

    def measurements(self) -> Measurements:
        """What is known so far."""
        shards = {
            name: {text: known[text] for text in self._listed.shards[name].texts() if text in known}
            for name, known in self._known.items()
        }
        sources = {source.name: self._source(source, shards[source.name]) for source in self._spec.sources}
        return Measurements(sources, shards, self._spec.split, self._spec.environment)

    def _source(self, source: Source, shards: Mapping[str, MeasuredShard]) -> MeasuredSource:
        return MeasuredSource(
            tuple(source.shards or ()),
            place_of(source, self._listed.storages[source.name]),
            reading_of_shards(self._spec, source),
            len(set(self._listed.shards[source.name].texts())),
            len(shards),
            sum(shard.samples for shard in shards.values()),
            sum(shard.bytes for shard in shards.values()),
            _of_all(shard.fields for shard in shards.values()),
            _of_all(shard.lengths for shard in shards.values()),
            self._decoding.get(source.name, ""),
        )

    def _task(self, source: Source, number: int, shard: ShardUrl) -> SizingTask:
        return SizingTask(
            source.name,
            number,
            shard,
            self._listed.parts[source.name],
            self._spec.seed,
            source.name in self._decoding,
            os.getcwd(),
            self._job,
        )


def _of_all(spreads: Iterable[Mapping[str, Spread]]) -> dict[str, Spread]:
    found: dict[str, list[Spread]] = {}
    for of_shard in spreads:
        for name, spread in of_shard.items():
            found.setdefault(name, []).append(spread)
    return {name: pooled(spreads) for name, spreads in sorted(found.items())}
