"""What a run has read so far, over all its reading processes: `stats()` of loaders and compiled datasets.

What each source has given, by a state: counted for all slots of a source at once, as a job may have thousands.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wdspec.planning.order import Delays
from wdspec.read.budget import PackedCounts, append_line
from wdspec.read.source import StreamState
from wdspec.run.state import damaged, entry_of, ranks_of, read_entry
from wdspec.run.state_text import decode_numbers

log = logging.getLogger("wdspec")

Counts = Mapping[int, PackedCounts]
"""By the number of the source in the plan."""


class SourceCounts(NamedTuple):
    """Counted where samples are read, since the process began to read the source."""

    delivered: int = 0
    """Samples that came out of all steps."""
    dropped: Mapping[str, int] | None = None
    """Samples left out as the spec asks, by `select` or `missing`."""
    skipped: Mapping[str, int] | None = None
    """Errors that the policy skipped, by kind."""
    passes: int = 0
    """Passes over the source that slots have ended, each over its part of the shards."""
    shards: int = 0
    """Shards, or parts of them, that were opened;"""
    copies: int = 0
    """of these, those read from a finished copy in a cache."""
    bytes: int = 0
    """Read, uncompressed; members that no field needs are not."""

    def __add__(self, other: object) -> SourceCounts:
        if not isinstance(other, SourceCounts):
            return NotImplemented
        return SourceCounts(
            self.delivered + other.delivered,
            dict(Counter(self.dropped or {}) + Counter(other.dropped or {})),
            dict(Counter(self.skipped or {}) + Counter(other.skipped or {})),
            self.passes + other.passes,
            self.shards + other.shards,
            self.copies + other.copies,
            self.bytes + other.bytes,
        )


@dataclass(frozen=True)
class SourceStats:
    """What was read of one source."""

    delivered: int
    """Samples that came out of all steps."""
    dropped: dict[str, int]
    """Samples left out as the spec asks, by `select` or `missing`."""
    skipped: dict[str, int]
    """Errors that the policy skipped, by kind."""
    passes: float
    """How often all of the source was read, as far as passes have ended."""
    shards: int
    """Shards, or parts of them, that were opened;"""
    cache_hits: int
    """of these, those read from a finished copy in a cache."""
    bytes: int
    """Read, uncompressed; members that no field needs are not."""


@dataclass(frozen=True)
class RunStats:
    """What a run has read, on this rank, since its loader or dataset was made.

    Samples are counted where they are read, which is ahead of the training loop by what workers hold ready.
    """

    batches: int
    """Steps given to the training loop."""
    seconds: float
    """Since the first one was asked for."""
    waited: float | None
    """Seconds of these in which the training loop waited for data; None of a compiled dataset, which reads when it is
    asked: all that it takes is waiting, and nobody measures it."""
    sources: dict[str, SourceStats] = field(default_factory=dict)

    def flat(self) -> dict[str, float]:
        """Each number under a name such as `skipped/laion/FieldError`, as loggers of metrics take them."""
        numbers: dict[str, float] = {"batches": self.batches, "seconds": self.seconds}
        if self.waited is not None:
            numbers["waited"] = self.waited
        for name, source in self.sources.items():
            for key, value in asdict(source).items():
                if isinstance(value, dict):
                    numbers[f"{key}/{name}"] = sum(value.values())
                    numbers.update({f"{key}/{name}/{kind}": count for kind, count in value.items()})
                else:
                    numbers[f"{key}/{name}"] = value
        return numbers


class Tally:
    """Adds up what reading processes report: each reports about itself, and always everything so far.

    Args:
        slots: of this rank: the parts that a pass over a source has.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._ended: dict[int, SourceCounts] = {}
        """Of readers that have ended."""
        self._by_reader: dict[int, dict[int, PackedCounts]] = {}
        self.batches = 0
        """Steps given to the training loop."""
        self.waited = 0.0
        """Seconds in which the training loop waited for steps."""
        self._start: float | None = None

    def take(self, reader: int, counts: Counts) -> None:
        """Note what a reader has counted so far, of the sources in which anything changed."""
        self._by_reader.setdefault(reader, {}).update(counts)

    def begin(self) -> None:
        """Note when the first batch was asked for."""
        if self._start is None:
            self._start = time.monotonic()

    def settle(self) -> None:
        """Note that all readers have ended, and others will come in their place."""
        self._ended = self._total()
        self._by_reader.clear()

    def stats(self, names: list[str]) -> RunStats:
        """All of it; `names` are those of the sources, in the order of the plan."""
        total = self._total()
        return RunStats(
            self.batches,
            0.0 if self._start is None else time.monotonic() - self._start,
            self.waited,
            {
                name: SourceStats(
                    counts.delivered,
                    dict(counts.dropped or {}),
                    dict(counts.skipped or {}),
                    counts.passes / self._slots,
                    counts.shards,
                    counts.copies,
                    counts.bytes,
                )
                for number, name in enumerate(names)
                for counts in [total.get(number, SourceCounts())]
            },
        )

    def _total(self) -> dict[int, SourceCounts]:
        total = dict(self._ended)
        for counts in self._by_reader.values():
            for number, each in counts.items():
                total[number] = total.get(number, SourceCounts()) + SourceCounts(*each)
        return total


class StatsLog:
    """Says from time to time what was read, where a batch is given anyway.

    Args:
        every: seconds.
        file: gets a line of JSON each time; None: a line goes to the log `wdspec`.
    """

    def __init__(self, every: float, file: str | None) -> None:
        self._every, self._file = every, None if file is None else os.path.abspath(file)
        self._next = time.monotonic() + every

    def tick(self, stats: Callable[[], RunStats]) -> None:
        """Says it if it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            self.say(stats())

    def say(self, stats: RunStats) -> None:
        """Says it now."""
        if self._file is None:
            log.info("%s", in_words(stats))
        else:
            append_line(self._file, {"time": round(time.time(), 3), **asdict(stats)})


def in_words(stats: RunStats) -> str:
    """`1,024 batches, 3 % waiting; laion 9,000, FieldError 3; coyo 1,000`."""
    waited = 100 * (stats.waited or 0.0) / max(stats.seconds, 1e-9)
    parts = [f"{stats.batches:,} batches, {waited:.0f} % waiting"]
    for name, source in stats.sources.items():
        left = {**source.dropped, **source.skipped}
        parts.append(f"{name} {source.delivered:,}" + "".join(f", {kind} {n:,}" for kind, n in left.items()))
    return "; ".join(parts)


def samples_given(state: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
    """How many samples each source has given, or left out, in every slot that was read: name -> shape (slots,).

    Args:
        state: that `check_undamaged` has passed.

    Raises:
        UsageError: an entry is damaged.
    """
    order, names = json.loads(state["order"]), state["sources"]
    workers = order["elastic"]["workers"]
    slots: list[int] = []
    numbers = []
    rest: dict[str, list[int]] = {name: [] for name in names}
    delays = {name: Delays(order["seed"], name, said["shuffle"]) for name, said in order["sources"].items()}
    for rank in ranks_of(state):
        try:
            found = decode_numbers(entry_of(state, rank), workers, len(names))
        except (ValueError, TypeError, OverflowError) as error:
            raise damaged(f"canonical rank {rank} is not as it was written ({error})") from None
        if found is not None:
            is_read, own = found
            slots += (rank * workers + np.flatnonzero(is_read)).tolist()
            numbers.append(own)
            continue
        for worker, states in enumerate(read_entry(state, rank, workers, lambda slot: False)):
            for name, stream in zip(names, states or (), strict=False):
                if name in delays:
                    rest[name].append(stream.given(rank * workers + worker, delays[name]))
    columns = np.concatenate(numbers, axis=1) if numbers else np.zeros((len(names), 0, 5), dtype=np.int64)
    given = {}
    for name, column in zip(names, columns, strict=True):
        if name in delays:  # a stage stands behind the sources
            try:
                counts = StreamState.given_by(column, slots, delays[name])
            except ValueError as error:
                raise damaged(f"source {name!r} cannot stand where it says: {error}") from None
            given[name] = np.concatenate([counts, np.array(rest[name], dtype=np.int64)])
    return given
