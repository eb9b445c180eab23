"""Which trials a spec is timed by, and what their figures say: where time goes, how many workers pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from wdspec.base.process import cores
from wdspec.cli.bench.trial import Measured, Part, Trial, measured
from wdspec.cli.support.spec_options import SpecChoice
from wdspec.spec.spec import Spec

ENOUGH = 0.95
"""Of the best rate, from which on fewer workers are recommended."""
_PARTS: tuple[Part, ...] = ("read", "decode", "map", "batch")


@dataclass(frozen=True)
class StageTime:
    """What one part of the work takes."""

    part: Part
    microseconds: float
    """A sample, in one process."""
    of_all: float
    """Its part of the whole, 0 to 1."""


@dataclass(frozen=True)
class Bench:
    """The figures of a spec."""

    cores: int
    parts: dict[Part, Measured]
    """In one process, each with all that comes before it."""
    loaders: dict[int, Measured]
    """What the training loop gets, by workers."""
    one_thread: Measured | None = None
    """Without workers and with one thread of torch's, where that was tried."""
    webdataset: Measured | None = None
    """The same files by webdataset."""

    @property
    def bytes_per_sample(self) -> float:
        """Of the files that are wanted."""
        read = self.parts["read"]
        return read.bytes / read.samples if read.samples else 0.0

    @property
    def stages(self) -> list[StageTime]:
        """What each part adds, in the order of the work; what it would take less than nothing is 0."""
        times = {part: 1e6 / found.rate for part, found in self.parts.items() if found.rate}
        added, before = {}, 0.0
        for part, time in times.items():
            added[part] = max(0.0, time - before)
            before = max(before, time)
        return [StageTime(part, time, time / before if before else 0.0) for part, time in added.items()]

    @property
    def recommended(self) -> int:
        """The fewest workers whose rate is nearly the best."""
        best = max(found.rate for found in self.loaders.values())
        return min(workers for workers, found in self.loaders.items() if found.rate >= ENOUGH * best)

    @property
    def waiting(self) -> float:
        """Microseconds a sample that reading alone waits, for disks and stores, in one process."""
        read = self.parts["read"]
        return 1e6 * max(0.0, read.wall - read.own) / read.samples if read.samples else 0.0

    @property
    def hand_over(self) -> float | None:
        """Microseconds a sample of the loop's own process that it takes to get batches from workers."""
        workers = max((count for count, found in self.loaders.items() if found.samples), default=0)
        return 1e6 * self.loaders[workers].own / self.loaders[workers].samples if workers else None

    @property
    def reading_limit(self) -> float:
        """Samples a second that reading alone would give, over as many processes as are recommended or cores are."""
        return self.parts["read"].rate * max(1, min(self.recommended, self.cores))


def worker_counts(asked: tuple[int, ...], own: int) -> list[int]:
    """The numbers of workers to try: those asked for, else none, 1, 2, 4, … up to the cores, and the spec's own."""
    if asked:
        return sorted(set(asked))
    counts = {0, own, cores()}
    power = 1
    while power <= cores():
        counts.add(power)
        power *= 2
    return sorted(counts)


def bench_of(
    choice: SpecChoice,
    spec: Spec,
    seconds: float,
    workers: list[int],
    *,
    webdataset: bool = False,
    advance: Callable[[], Any] = lambda: None,
) -> Bench:
    """Times a spec, each trial in a fresh process, one after the other.

    Raises:
        WdspecError: what reading raises.
    """

    def timed(trial: Trial) -> Measured:
        found = measured(trial)
        advance()
        return found

    parts = {part: timed(Trial(choice, part, seconds)) for part in parts_of(spec)}
    loaders = {count: timed(Trial(choice, "loader", seconds, count)) for count in workers}
    one_thread = timed(Trial(choice, "loader", seconds, threads=1)) if tries_threads(spec, workers) else None
    other = timed(Trial(choice, "webdataset", seconds)) if webdataset else None
    return Bench(cores(), parts, loaders, one_thread, other)


def parts_of(spec: Spec) -> list[Part]:
    """The parts that there are to be timed."""
    has_functions = bool(spec.map) or any(source.map or source.select for source in spec.sources)
    there = {"map": has_functions, "batch": spec.batch is not None}
    return [part for part in _PARTS if there.get(part, True)]


def tries_threads(spec: Spec, workers: list[int]) -> bool:
    """Whether torch's threads may matter: functions of the user's in the process of the loop."""
    return "map" in parts_of(spec) and 0 in workers and cores() > 1


def trial_count(spec: Spec, workers: list[int], webdataset: bool) -> int:
    """How many trials `bench_of` makes."""
    return len(parts_of(spec)) + len(workers) + tries_threads(spec, workers) + webdataset


def profiled(choice: SpecChoice, seconds: float, file: str) -> None:
    """Writes a profile of the loop without workers: an interactive page, or a file for speedscope."""
    measured(replace(Trial(choice, "loader", seconds), profile=file))
