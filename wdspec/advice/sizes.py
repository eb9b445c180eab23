"""What is known of the sizes of objects without asking a store: by the file of `wdspec stats`, and by the lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from wdspec.base.amounts import sum_known
from wdspec.base.errors import UsageError, WdspecError
from wdspec.shards.lock import Lock, LockedSource, lock_name
from wdspec.spec.files import MOST_DATA, ReadFile
from wdspec.spec.measurements import MeasuredShard, Measurements, NamedObjects, Requested
from wdspec.spec.spec import Source, Spec


@dataclass(frozen=True)
class KnownSizes:
    """Bytes of shards, of their partners, and of tables."""

    measurements: Measurements | None
    lock: Lock | None

    @classmethod
    def read(cls, spec: Spec, read: ReadFile) -> KnownSizes | None:
        """Read the files of a spec; None if there is none that can be used."""
        measurements = lock = None
        if spec.stats is not None:
            with suppress(OSError, UsageError):  # W108 warns about it
                measurements = Measurements.of_text(read(spec.stats, True, MOST_DATA))
        if spec.file is not None:
            path = lock_name(spec.file, spec.split, spec.environment)
            with suppress(OSError, WdspecError):  # `validate --locked` reports it
                lock = Lock.of_text(read(os.path.abspath(path), True, MOST_DATA), path)
        return cls(measurements, lock) if measurements or lock else None

    @property
    def by(self) -> str:
        """Where they come from: `stats`, `lock`, or `stats and lock`."""
        found = {"stats": self.measurements, "lock": self.lock}
        return " and ".join(name for name, each in found.items() if each is not None)

    def of_shards(self, source: Source) -> Mapping[str, int | None]:
        """The bytes of the shards of a source, by URL. What was measured counts more than the lock."""
        locked = self._locked(source)
        measured = {
            url: shard.size for url, shard in self._measured(source).items() if shard.size is not None
        }
        return {**(_sizes(locked) if locked else {}), **measured}

    def of_partners(self, source: Source) -> Mapping[str, int | None]:
        """The bytes of the shards of all `join`s of a source, by URL."""
        locked = self._locked(source)
        return {url: size for each in (locked.joins if locked else ()) for url, size in _sizes(each).items()}

    def of_tables(self, source: Source) -> Mapping[str, int | None]:
        """The bytes of the tables of all `lookup`s of a source, by URL."""
        locked = self._locked(source)
        return {url: size for each in (locked.tables if locked else ()) for url, size in _sizes(each).items()}

    def requested(self, source: Source, requesting: str) -> Mapping[str, Requested]:
        """What a run requests of shards of which it reads parts, by URL, as far as it was measured.

        Args:
            source: the source.
            requesting: `digest_requesting` of the source.
        """
        shards = self._measured(source) if self._is_measured(source, requesting) else {}
        return {url: each.requested for url, each in shards.items() if each.requested is not None}

    def objects(self, source: Source, requesting: str, shards: Iterable[str]) -> Mapping[str, NamedObjects]:
        """The objects that all shards of a source name, by entry of `fetch`; empty if they were not counted."""
        measured = self._measured(source) if self._is_measured(source, requesting) else {}
        found = [measured[url].objects if url in measured else {} for url in shards]
        if not found or not all(found):
            return {}
        return {name: _sum([each[name] for each in found]) for name in source.fetch}

    def _is_measured(self, source: Source, requesting: str) -> bool:
        found = None if self.measurements is None else self.measurements.sources.get(source.name)
        return found is not None and found.requesting == requesting

    def count_samples(self, source: Source) -> int | None:
        """The samples of a source that are read: those that its selection keeps, those that it declares, or all."""
        shards = self._measured(source).values()
        if shards and (source.samples is None or any(shard.kept is not None for shard in shards)):
            return sum(shard.samples if shard.kept is None else shard.kept[0] for shard in shards)
        if source.samples is not None:
            return source.samples
        locked = self._locked(source)
        return locked.samples if locked else None

    def _measured(self, source: Source) -> Mapping[str, MeasuredShard]:
        return {} if self.measurements is None else self.measurements.shards.get(source.name, {})

    def _locked(self, source: Source) -> LockedSource | None:
        return None if self.lock is None else self.lock.sources.get(source.name)


def _sum(parts: Sequence[NamedObjects]) -> NamedObjects:
    return NamedObjects(
        sum(each.requests for each in parts),
        sum(each.objects for each in parts),
        sum_known(each.bytes for each in parts),
    )


def _sizes(locked: LockedSource) -> Mapping[str, int | None]:
    return dict(zip(locked.shards("").texts(), (each.size for each in locked.objects), strict=True))
