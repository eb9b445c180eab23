"""A spec measured: shards that are as they were are asked about, the others are read by their headers.

One shard at work: its samples counted, and the sizes of its files, from headers alone; or its values, too.

How large values are, in a few numbers: of a shard exactly, of a source put together from those of its shards.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from wdspec.base.errors import ShardError, WdspecError
from wdspec.formats.samples import Unread
from wdspec.jobs.engine import Engine
from wdspec.jobs.process import samples_in_order
from wdspec.read.budget import Budget
from wdspec.read.transform import SourceParts
from wdspec.shards.count import count_shard
from wdspec.shards.lock import check_harmless, place_of, still_measured
from wdspec.shards.shards import ListedSpec
from wdspec.spec.measurements import (
    LEVELS,
    MeasuredShard,
    MeasuredSource,
    Measurements,
    Spread,
    decoding_of,
    reading_of_shards,
)
from wdspec.spec.spec import Source, Spec
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import ShardUrl

Numbers = npt.NDArray[Any]


def spread_of(sizes: Sequence[int]) -> Spread:
    """The spread of some sizes: quantiles are sizes that occur."""
    values = np.asarray(sizes, np.int64)
    quantiles = np.quantile(values, LEVELS, method="inverted_cdf")
    return Spread(len(values), float(values.mean()), tuple(map(int, quantiles)))


def pooled(spreads: Sequence[Spread]) -> Spread:
    """The spread of the sizes behind several spreads.

    Count, mean, least and greatest are exact. Of each spread it is known which part of its sizes lies between two
    neighbouring quantiles, and they are taken to lie there evenly: so the part of all sizes below a quantile is off by
    less than the greatest such part, a quarter, and by nothing where spreads are alike.
    """
    if len(spreads) == 1:
        return spreads[0]
    counts = np.array([each.count for each in spreads], np.float64)
    bounds = np.array([each.quantiles for each in spreads], np.float64)
    low, high = bounds[:, :-1].ravel(), bounds[:, 1:].ravel()
    parts = (counts[:, None] * np.diff(LEVELS)).ravel()
    total = int(counts.sum())
    least, greatest = int(bounds.min()), int(bounds.max())

    def quantile(level: float) -> int:
        first, last = least, greatest
        while first < last:  # the least size that so many are not above
            middle = (first + last) // 2
            if _below(middle, low, high, parts) >= level * total - 1e-6:
                last = middle
            else:
                first = middle + 1
        return first

    inner = tuple(map(quantile, LEVELS[1:-1]))
    mean = float(sum(each.count * each.mean for each in spreads) / total)
    return Spread(total, mean, (least, *inner, greatest))


def _below(size: int, low: Numbers, high: Numbers, parts: Numbers) -> float:
    """How many sizes are at most so large, where those of each part lie evenly between its bounds."""
    width = np.maximum(high - low, 1.0)
    return float((parts * np.clip((size - low + (high == low)) / width, 0.0, 1.0)).sum())


MOST_FIELDS = 50
"""Fields of a shard that are told apart; where names hold numbers behind a dot there is no end of them."""


class SizingTask(NamedTuple):
    """Everything that a process on any machine needs to measure one shard; pickles."""

    source: str
    number: int
    """Its index among the shards of the source."""
    shard: ShardUrl
    parts: SourceParts
    seed: int
    lengths: bool
    """Whether samples are read and decoded, too, as training does."""
    directory: str
    """Joins `sys.path`, last: the user's modules may lie there."""
    job: str
    """Of each job another text, as for `samples_in_order`."""


class Sizing(NamedTuple):
    """What became of a task."""

    shard: MeasuredShard | None
    fault: str = ""
    """Why there is none."""


def size_up(task: SizingTask) -> Sizing:
    """Does one task. Never raises an Exception, so that every engine brings back what went wrong.

    No copy is made in a cache, for headers are a small part of the bytes.
    """
    try:
        parts = task.parts
        bare = replace(parts.open, storage=replace(parts.open.storage, cache=None))
        stat = ObjectStat()
        # Before it is read: what changes meanwhile is found next time. What fails, reading says as `errors` has it.
        with suppress(ShardError):
            stat = bare.storage.stat(task.shard)
        sizes = _Sizes()
        count = count_shard(bare, task.shard, Budget(parts.errors, task.source).without_log(), sizes.take)
        lengths = _lengths(task) if task.lengths else {}
        return Sizing(
            MeasuredShard(
                count.samples,
                sizes.total,
                stat.size,
                stat.validator,
                sizes.columns.spreads,
                lengths,
                count.marks,
                tuple(sorted(count.lost)),
            )
        )
    except Exception as error:
        said = str(error) if isinstance(error, WdspecError) else f"{type(error).__name__}: {error}"
        return Sizing(None, " ".join(said.split()))


class _Columns:
    """Numbers by field."""

    def __init__(self) -> None:
        self._found: dict[str, array[int]] = {}

    def add(self, name: str, number: int) -> None:
        """Notes a number; of more than so many fields those that come later are left out."""
        if name in self._found:
            self._found[name].append(number)
        elif len(self._found) < MOST_FIELDS:
            self._found[name] = array("q", [number])

    @property
    def spreads(self) -> dict[str, Spread]:
        """How large they are."""
        return {name: spread_of(numbers) for name, numbers in sorted(self._found.items())}


def _lengths(task: SizingTask) -> dict[str, Spread]:
    if task.directory not in sys.path:
        sys.path.append(task.directory)
    columns, budget = _Columns(), Budget(task.parts.errors, task.source).without_log()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the spec allows
        for sample in samples_in_order(task.parts, task.shard, task.number, task.seed, task.job, budget):
            for name, value in sample.items():
                if not name.startswith("__"):
                    for part, length in lengths_of(name, value):
                        columns.add(part, length)
    return columns.spreads


def lengths_of(name: str, value: Any) -> Iterator[tuple[str, int]]:
    """The lengths of a value, each with its name: characters of a text, entries of a list, sides of an array.

    The sides of arrays, tensors and images are `name[0]`, `name[1]`, …, height before width; of the parts of a tuple,
    as sound is decoded to, each has its own. Bytes, numbers and maps have none: the sizes of files are measured anyway.
    """
    if isinstance(value, (str, list)):
        yield name, len(value)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield from ((f"{name}[{axis}]", int(side)) for axis, side in enumerate(value.shape))
    elif hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
        yield from ((f"{name}[{axis}]", side) for axis, side in enumerate(value.size[::-1]))
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from lengths_of(f"{name}.{number}", part)


class _Sizes:
    """The sizes of the files of a shard, by suffix."""

    def __init__(self) -> None:
        self.columns = _Columns()
        self.total = 0

    def take(self, sample: dict[str, Any]) -> None:
        """Notes those of one sample, which has a dot before each suffix."""
        for name, value in sample.items():
            if name[0] != ".":
                continue
            if type(value) is str:  # in a record
                size = len(value.encode("utf-8", "surrogatepass"))
            elif isinstance(value, (bytes, Unread)):
                size = len(value)
            else:
                continue
            self.total += size
            self.columns.add(name[1:].lower(), size)


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
