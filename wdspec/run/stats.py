"""Counts of what a run has read, over all its workers: `stats()` of loaders and compiled datasets.

`samples_given` counts samples from a state instead, for all slots of a source at once, as a job may have thousands.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdspec.base.amounts import largest_places
from wdspec.base.errors import log_fields
from wdspec.base.process import ProcessCounts, process_counts
from wdspec.planning.order import Delays
from wdspec.read.error_budget import PackedCounts, SourceCounts, append_line
from wdspec.read.left import describe_left
from wdspec.read.source import StreamState
from wdspec.run.state import damage_error, decode_numbers, entry_of, ranks_of, read_entry
from wdspec.spec.spec import Source

log = logging.getLogger("wdspec")

MOST_DRIFT = 0.02
"""Drift of a share of the cost that needs no warning, as a part of the whole cost."""
FEWEST_OF_RANK = 100
"""The least number of samples in the part of a rank that says something about the source: with a tenth of the samples
left, a rank gets none of that many with a probability of 0.003%."""
Counts = Mapping[int, PackedCounts]
"""Number of the source in the plan -> counts."""


@dataclass(frozen=True)
class SourceStats:
    """Counts of one source."""

    delivered: int
    """Samples that readers have finished, perhaps ahead of the training loop. The parts of a sample that packing has
    cut count once. See `received` for what the training loop got. Of a source of companions: companions that were
    decoded for samples."""
    dropped: dict[str, int]
    """Samples dropped by `select` or `missing`, by cause."""
    skipped: dict[str, int]
    """Errors skipped by the `errors` policy, by code (`wdspec rule D202`)."""
    passes: float
    """Passes over the source. Each slot counts its part when it has read it, so the number may be fractional. The
    streams of a source of companions are added up."""
    shards: int
    """Shards, or parts of shards, that were opened."""
    cache_hits: int
    """Opened shards that were read from a complete cached copy."""
    bytes: int
    """Bytes read by this process and its workers since it was started, after decompression; members that no field needs
    are not read. They do not follow from the position of a run, so no state has them."""
    cost: float = 0
    """What the samples in `delivered` cost together (`batch.cost`); pieces that were cut off do not count."""
    cost_share: float | None = None
    """Its share of the cost of all sources; None if batches have no cost, or none was read."""
    planned_cost_share: float | None = None
    """What `cost_share` becomes if the samples cost what `mean_cost` says, with `mix: {shares_in: cost}`."""
    lost: int = 0
    """Objects of `fetch` that do not exist, where `missing: skip` leaves out their samples, or `missing: none` gives
    None. Null and empty references are no objects."""
    unjoined: int = 0
    """Samples of partners (`join`) that the source lacks, which are not read. They are counted in each pass, at the end
    of a shard that was read from its start."""
    received: int | None = 0
    """Samples that the training loop received since the run began, also before it was resumed, without padding. A
    sample that packing has cut counts with the part that has its start. None if unknown, as after older states or for
    companions."""
    received_cost: float | None = None
    """What these cost (`batch.cost`), parts of samples included; None without `batch.cost` and packing."""
    tokens: int | None = None
    """Their tokens, without padding: elements of the first packed field, of the first padded field that is a list of
    integers, or of samples of token files. None where there are no such fields."""


@dataclass(frozen=True)
class RunStats:
    """Counts of this rank: what its training loop received since the run began, and what its readers have read.

    `received`, `received_cost` and `tokens` of each source are exact at every step and after every resume. They count
    all of the canonical ranks of this rank (`of_ranks`), which several ranks may share.

    All other counts start when the loader or dataset is created, and count what was read. Workers read ahead, so these
    counts are ahead of the training loop. They are reported about 20 times a second, and at the end of an epoch.
    """

    batches: int
    """Steps that the training loop got."""
    seconds: float
    """Seconds since the first step was requested."""
    waited: float | None
    """Seconds of these in which the training loop waited for data. None for a compiled dataset: it reads on request, so
    all of its time is waiting, and is not measured."""
    sources: dict[str, SourceStats] = field(default_factory=dict)
    """By name: the sources of the mix, then those of companions."""
    ahead: int = 0
    """Steps that were requested from workers and that the training loop did not get yet."""
    retries: int = 0
    """Requests to stores that were repeated, by the workers and, since the loader was created, by this process."""
    cache_evictions: int = 0
    """Cached copies that the same processes deleted to make room."""
    cache_bypasses: int = 0
    """Shards that they read from a store, as no copy could be kept: no room, no permission, or `size: 0`."""
    cache_used: int | None = None
    """Bytes of all copies in the cache directories of the spec, also those of other runs; None without a cache."""
    of_ranks: str = ""
    """The canonical ranks that `received` counts, such as `0 to 1 of 4`; the other ranks count theirs."""

    def flat(self) -> dict[str, float]:
        """Return name -> number for metrics loggers, with names such as `skipped/laion/D202` and `tokens/laion`.

        Numbers that are unknown are left out.
        """
        numbers: dict[str, float] = {"batches": self.batches, "seconds": self.seconds}
        numbers |= {"ahead": self.ahead, "retries": self.retries}
        if self.waited is not None:
            numbers["waited"] = self.waited
        if self.cache_used is not None:
            of_cache = ("cache_used", "cache_evictions", "cache_bypasses")
            numbers |= {name: getattr(self, name) for name in of_cache}
        for name, source in self.sources.items():
            for key, value in asdict(source).items():
                if isinstance(value, dict):
                    numbers[f"{key}/{name}"] = sum(value.values())
                    numbers.update({f"{key}/{name}/{kind}": count for kind, count in value.items()})
                elif value is not None:
                    numbers[f"{key}/{name}"] = value
        return numbers


class Tally:
    """Adds up the counts of reading processes. Each one reports its totals so far.

    Another thread, such as that of a metrics exporter, may ask for `stats` at any time.

    Args:
        slots: number of slots of this rank, which are the parts of a pass over a source.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._counts: tuple[dict[int, SourceCounts], dict[int, dict[int, PackedCounts]]] = {}, {}
        """The counts of readers that have ended, and those of each other reader; replaced at once."""
        self._of_processes = {-1: tuple(-count for count in astuple(process_counts.value))}
        """`ProcessCounts` by reader; -1: minus those that this process had before."""
        self.batches, self.waited = 0, 0.0
        """Steps that the training loop got, and seconds in which it waited for them."""
        self._start: float | None = None

    def take(self, reader: int, counts: Counts, of_process: tuple[int, ...] = ()) -> None:
        """Record the totals of a reader, for sources in which something changed, and those of another process."""
        self._counts[1].setdefault(reader, {}).update(counts)
        if of_process:
            self._of_processes[reader] = of_process

    def _count_processes(self) -> ProcessCounts:
        """Return the counts of all workers, and of this process since this was created."""
        counts = (astuple(process_counts.value), *self._of_processes.copy().values())
        return ProcessCounts(*map(sum, zip(*counts, strict=True)))

    def begin(self) -> None:
        """Record the time of the first request."""
        if self._start is None:
            self._start = time.monotonic()

    def settle(self) -> None:
        """Record that all readers have ended; new ones start from zero."""
        self._counts = self._total(), {}

    def stats(
        self,
        names: Sequence[str],
        ahead: int = 0,
        mean_costs: Sequence[float] = (),
        companions: Sequence[str] = (),
    ) -> RunStats:
        """Return the totals.

        Args:
            names: the sources in the order of the plan.
            ahead: as in `RunStats`.
            mean_costs: the mean cost of a sample of each source, for `planned_cost_share`.
            companions: the sources of companions in the order of the plan. They have no share.
        """
        counts = self.totals(len(names) + len(companions))
        none, mixed = [None] * len(companions), counts[: len(names)]
        costs = [*_cost_shares([each.cost for each in mixed]), *none]
        planned = [*(_planned_shares(mixed, mean_costs) if mean_costs else [None] * len(names)), *none]
        return RunStats(
            self.batches,
            0.0 if self._start is None else time.monotonic() - self._start,
            self.waited,
            {
                name: SourceStats(
                    **self._shown(each), cost_share=cost_share, planned_cost_share=planned_share
                )
                for name, each, cost_share, planned_share in zip(
                    (*names, *companions), counts, costs, planned, strict=True
                )
            },
            ahead,
            **asdict(self._count_processes()),
        )

    def _shown(self, counts: SourceCounts) -> dict[str, Any]:
        """Return the counters that `SourceStats` has."""
        counted = {each.name: getattr(counts, each.name) for each in fields(counts)}
        shown = {each.name: counted[each.name] for each in fields(SourceStats) if each.name in counted}
        by_cause = {name: dict(value) for name, value in shown.items() if isinstance(value, Counter)}
        return shown | by_cause | {"passes": counts.passes / self._slots}

    def drifts(self, mean_costs: Sequence[float], most: float) -> list[tuple[int, float, float]]:
        """Return (number, share of the cost, planned share) of each source that is off by more than `most`.

        It compares whole windows, as batches have samples of similar cost. What may be chance does not count: less
        than four standard errors of the share. A few samples may lack the long ones, by which most costs vary, so the
        costs of each source are taken to vary as much as those of any other, relative to its mean cost.
        """
        counts = self.totals(len(mean_costs))
        cost = sum(each.measured_cost for each in counts)
        planned = _planned_shares(counts, mean_costs)
        varying = max(map(_relative_variance, counts), default=0.0)
        spreads = [
            varying * each.measured * max(mean, each.measured_cost / max(1, each.measured)) ** 2
            for each, mean in zip(counts, mean_costs, strict=True)
        ]
        found = []
        for number, (each, intended) in enumerate(zip(counts, planned, strict=True)):
            if not cost or intended is None:
                continue
            share = each.measured_cost / cost
            others = sum(spreads) - spreads[number]
            error = math.sqrt((1 - share) ** 2 * spreads[number] + share**2 * others) / cost
            if abs(share - intended) > max(most, 4 * error):
                found.append((number, share, intended))
        return found

    def totals(self, sources: int) -> list[SourceCounts]:
        """Return the totals of each source."""
        total = self._total()
        return [total.get(number, SourceCounts()) for number in range(sources)]

    def _total(self) -> dict[int, SourceCounts]:
        ended, by_reader = self._counts
        total = dict(ended)
        for counts in list(by_reader.values()):
            for number, each in counts.copy().items():
                total[number] = total.get(number, SourceCounts()).plus(each)
        return total


def _relative_variance(counts: SourceCounts) -> float:
    """Return the variance of the costs of samples, as a part of their squared mean."""
    cost = counts.measured_cost
    return max(0.0, counts.measured_squares * counts.measured / cost**2 - 1) if cost else 0.0


def _cost_shares(costs: Sequence[float]) -> list[float | None]:
    total = sum(costs)
    return [cost / total if total else None for cost in costs]


def _planned_shares(counts: Sequence[SourceCounts], mean_costs: Sequence[float]) -> list[float | None]:
    return _cost_shares([each.measured * mean for each, mean in zip(counts, mean_costs, strict=True)])


class StatsLog:
    """Logs the stats from time to time, when the training loop gets a batch.

    Args:
        every: least number of seconds between two lines.
        file: appends lines of JSON to this file; None logs text to the logger `wdspec`.
    """

    def __init__(self, every: float, file: str | None) -> None:
        self._every, self._file = every, None if file is None else os.path.abspath(file)
        self._next = time.monotonic() + every

    def tick(self, stats: Callable[[], RunStats]) -> None:
        """Log the stats if it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            self.write(stats())

    def write(self, stats: RunStats) -> None:
        """Log the stats now."""
        if self._file is None:
            log.info("%s", describe_stats(stats))
        else:
            try:
                append_line(self._file, {"time": round(time.time(), 3), **asdict(stats)})
            except OSError as error:  # training continues
                log.warning(
                    "stats cannot be written to %s: %s; they are logged here", self._file, error.strerror
                )
                self._file = None
                self.write(stats)


class DriftWatch:
    """Warns once if shares of the cost drift from those of the spec, with `mix: {shares_in: cost}`.

    Samples are drawn by share / `mean_cost`, so a source whose samples cost more than `mean_cost` says gets a larger
    share of the cost than the spec says: after a change of its shards, for example, or of the function that measures.

    Args:
        names: the sources of the plan.
        mean_costs: the cost that the spec says for a sample of each source.
    """

    def __init__(self, names: Sequence[str], mean_costs: Sequence[float]) -> None:
        self._names, self._mean_costs = names, mean_costs
        self._steps, self._next = 0, 64

    def tick(self, tally: Callable[[], Tally]) -> None:
        """Count a step of the training loop, and look at the shares at steps 64, 128, 256, …"""
        self._steps += 1
        if self._steps < self._next:
            return
        self._next *= 2
        drifts = tally().drifts(self._mean_costs, MOST_DRIFT)
        if not drifts:
            return
        self._next = sys.maxsize
        shares = [
            f"{self._names[at]!r} has {share:.1%} instead of {planned:.1%}" for at, share, planned in drifts
        ]
        log.warning(
            "the shares of the cost drift from those of the spec by more than %.0f%%: %s; samples cost more or less "
            "than `mean_cost` says: run `wdspec stats` again before the next run (this one keeps its order)",
            100 * MOST_DRIFT,
            ", ".join(shares),
        )


def warn_if_nothing_is_left(tally: Tally, sources: Sequence[Source], ranks: str) -> None:
    """Warn about the sources of a pass that had samples, but of which all were dropped.

    Args:
        tally: the counts after the pass.
        sources: the sources in the order of the plan.
        ranks: the canonical ranks that the tally counts, as in `describe_ranks`; empty if these are all. A part with a
            few samples says nothing about the others.
    """
    basis = f"in what rank {ranks} has read" if ranks else ""
    for source, counts in zip(sources, tally.totals(len(sources)), strict=True):
        samples = counts.dropped.total() + counts.skipped.total()
        if counts.dropped and not counts.delivered and (samples >= FEWEST_OF_RANK or not ranks):
            left = describe_left(source, samples, 0, counts.dropped, basis)
            assert left is not None, "nothing is left"
            message = f"{left.message}; {left.hint}".removesuffix("; ")
            log.warning("%s", message, extra=log_fields(code="W393", source=source.name))


def describe_stats(stats: RunStats) -> str:
    """Return a line such as `1,024 batches, 3% waiting; laion 9,000, D202 3; coyo 1,000`.

    Of many sources, it has those with most samples, and those that lost some.
    """
    waited = 100 * (stats.waited or 0.0) / max(stats.seconds, 1e-9)
    parts = [f"{stats.batches:,} batches, {waited:.0f}% waiting"]
    sources = list(stats.sources.items())
    sizes = [source.delivered for _, source in sources]
    places = largest_places(sizes, (place for place, (_, each) in enumerate(sources) if _left_of(each)))
    for name, source in (sources[place] for place in places):
        left = "".join(f", {kind} {n:,}" for kind, n in _left_of(source).items())
        parts.append(f"{name} {source.delivered:,}{left}")
    if more := len(sources) - len(places):
        rest = sum(sizes) - sum(sizes[place] for place in places)
        parts.append(f"{more:,} more sources {rest:,}")
    return "; ".join(parts)


def _left_of(source: SourceStats) -> dict[str, int]:
    """Return how many samples were left out, by cause."""
    return {
        **source.dropped,
        **source.skipped,
        **({"lost": source.lost} if source.lost else {}),
        **({"unjoined": source.unjoined} if source.unjoined else {}),
    }


def describe_ranks(ranks: Sequence[int], total: int) -> str:
    """Return a text such as `0 to 1 of 4` for consecutive canonical ranks; ranges for others."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    texts = [f"{first}" if first == last else f"{first} to {last}" for first, last in parts]
    return f"{', '.join(texts[:8])}{', …' if len(texts) > 8 else ''} of {total}"


def samples_given(state: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
    """Return how many samples of each source every slot has read, dropped ones included.

    Args:
        state: a state that `check_undamaged` accepts.

    Returns:
        Source name -> counts, shape (slots,), for the slots that were read.

    Raises:
        UsageError: an entry is damaged.
    """
    order, names = json.loads(state["order"]), state["sources"]
    workers = order["elastic"]["workers"]
    slots: list[int] = []
    numbers = []
    rest: dict[str, list[int]] = {name: [] for name in names}
    delays = {
        name: Delays(order["seed"], name, source["shuffle"]) for name, source in order["sources"].items()
    }
    for rank in ranks_of(state):
        try:
            decoded = decode_numbers(entry_of(state, rank), workers, len(names))
        except (ValueError, TypeError, OverflowError) as error:
            raise damage_error(f"the entry of canonical rank {rank} cannot be decoded ({error})") from None
        if decoded is not None:
            is_read, own = decoded
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
        if name in delays:  # not the stage, which comes after the sources
            try:
                counts = StreamState.given_by(column, slots, delays[name])
            except ValueError as error:
                raise damage_error(f"the position of source {name!r} is impossible: {error}") from None
            given[name] = np.concatenate([counts, np.array(rest[name], dtype=np.int64)])
    return given
