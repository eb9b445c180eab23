"""A pass that is shuffled anew in each epoch, in batches that are planned from windows.

Each slot has a contiguous part of the draws of an epoch, and cuts it into windows:

    draws      A B A A B A A B A B | A B A A B A A B A A | A B A …
    slot       0                   | 1                   | 2
    windows    A B A A , B A A B , A B                           the samples of each follow from the epoch

As the costs of all samples are known, so is the number of batches of each slot, and of steps. It differs between
epochs, so where an epoch starts follows from the lengths of all epochs before it. It would take long to plan all of
these again: states say where the epoch of their step starts.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from wdspec.planning.epochs import Epoch, Ints, ShuffledPass, SlotDraws, replace_ended
from wdspec.planning.keys import key64
from wdspec.planning.order import Delays
from wdspec.planning.passes import (
    PositionNames,
    WindowedPass,
    WindowPlace,
    count_batches,
    count_steps,
    find_window,
)
from wdspec.planning.timeline import NO_STEPS, EpochSpan, Timeline
from wdspec.spec.language.batch import Batch
from wdspec.spec.language.steps import StepRanges
from wdspec.spec.measurements import SampleCosts

_STRIDE = 1 << 32
"""Batches and windows of slots are numbered as if each epoch had so many, which none has."""


@dataclass(frozen=True)
class ShuffledWindows(ShuffledPass, WindowedPass):
    """A finite pass by cost that is shuffled anew in each epoch; `batches` is E of the first one."""

    batch: Batch | None = None
    """How windows become batches."""
    remainder: str = "pad"
    """How to treat the steps after a slot has run dry: `pad` or `drop`."""
    delays: tuple[Delays, ...] = ()
    """Those of each source."""
    widths: tuple[int, ...] = ()
    """For each source, the number of shards that a slot reads in turn."""
    costs: SampleCosts = field(default=SampleCosts(array("d")), compare=False, repr=False)
    """What the samples at all positions cost, source by source."""
    _steps: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    """E of some epochs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", self.steps(0))  # what one of them has says how long the pass is

    def __hash__(self) -> int:
        return hash((self.seed, self.digest, self.names))

    @cached_property
    def digest(self) -> int:
        """A hash of the sample counts of all shards, and of what all samples cost."""
        found = hashlib.blake2b(repr(self.costs.groups).encode("utf-8", "surrogatepass"))
        for column in (self.costs.costs, *self.costs.sums):
            found.update(column)
        return key64(super().digest, found.hexdigest())

    @property
    def given(self) -> int:
        """M': samples of an epoch."""
        return self.samples

    @property
    def slot_batches(self) -> int:
        """Distance between the numbers of the first batches of two epochs of a slot."""
        return _STRIDE

    def batches_of(self, slot: int) -> int:
        ends = self.windows(0).ends(slot)
        return ends[-1] if ends else 0

    @property
    def rounds(self) -> int:
        """Number of rounds in which each slot of a canonical worker draws a window of an epoch."""
        most = -(-self.samples // self.topology.slots)
        return -(-most // self.per_slot) * self.topology.workers

    def slot_range(self, rank: int, worker: int) -> tuple[int, int]:
        """Return (first draw, stop) of slot (c, k) in an epoch."""
        return WindowedPass.slot_range(self, rank, worker)

    def number(self, step: int, start: EpochSpan | None = None) -> int:
        """Return J as slots count it.

        Args:
            step: J.
            start: an epoch from which others are counted; None for the first one, which starts at step 0.
        """
        epoch = self.span(step) if start is None else self.span(step, start[:2])
        return epoch.number * _STRIDE * self.topology.workers + step - epoch.first

    def span(self, step: int, start: tuple[int, int] = (0, 0)) -> EpochSpan:
        """Return the epoch of a step; `start` is the number of an epoch and J of its first step."""
        number, first = self.place(step, start)
        return EpochSpan(number, first, first + self.steps(number))

    def place(self, step: int, start: tuple[int, int]) -> tuple[int, int]:
        """Return the number of the epoch of a step, and J of its first step; it is not planned if it starts there."""
        number, first = start if step >= start[1] else (0, 0)
        while step > first and step >= (end := first + self.steps(number)):
            number, first = number + 1, end
        return number, first

    def note(self, epoch: EpochSpan) -> None:
        """Note the length of an epoch, which another process knows: otherwise, all slots would have to be planned."""
        self._steps[epoch.number] = epoch.end - epoch.first

    def steps(self, number: int) -> int:
        """Return E of an epoch.

        Raises:
            UsageError: it has no batches, or `drop` drops them all.
        """
        if number not in self._steps:
            ends = map(self.windows(number).ends, range(self.topology.slots))
            counts = [each[-1] if each else 0 for each in ends]
            self._steps[number] = count_steps(counts, self.topology.workers, self.remainder)
        return self._steps[number]

    def windows(self, number: int) -> WindowedEpoch:
        """Return the order of an epoch, from 0."""
        epoch = self.epoch(number)
        assert isinstance(epoch, WindowedEpoch), "its batches are planned from windows"
        return epoch

    def plan_epoch(self, number: int) -> WindowedEpoch:
        """Plan the order of an epoch."""
        return WindowedEpoch(self, number)

    def last_batch(self, rank: int, worker: int, m: int = 0) -> int:
        """Return the number of the last batch of slot (c, k) that has samples, in the pass of its m-th; -1 if none."""
        number, workers = m // _STRIDE, self.topology.workers
        ends = self.windows(number).ends(self.topology.slot(rank, worker))
        return min((self.steps(number) - worker - 1) // workers, ends[-1] - 1 if ends else -1)

    def window_of(self, slot: int, batch: int) -> WindowPlace | None:
        """Return the place of a batch of a slot in its windows; None after its last one in this epoch."""
        number, inside = divmod(batch, _STRIDE)
        if inside > self.last_batch(*divmod(slot, self.topology.workers), batch):
            return None
        place = find_window(self.windows(number).ends(slot), inside)
        return place and WindowPlace(*(number * _STRIDE + each for each in place))


class WindowedEpoch(Epoch):
    """The order of one epoch, for all slots, in windows."""

    finite: ShuffledWindows

    def _plan(self) -> None:
        self._ends: dict[int, tuple[int, ...]] = {}

    @cached_property
    def _starts(self) -> Ints:
        slots = self.finite.topology.slots
        bounds = np.array([slot * self.finite.samples // slots for slot in range(slots + 1)])
        found = self._tree.before(self._start + bounds)
        starts: Ints = found - found[0]
        return starts

    def draws(self, rank: int, worker: int) -> SlotDraws:
        """Return the draws of slot (c, k), window by window."""
        first, stop = self.finite.slot_range(rank, worker)
        ends = np.append(np.arange(first, stop, self.finite.per_slot), stop)
        counts = np.diff(self._tree.before(self._start + ends), axis=0)
        return SlotDraws(counts, self.key, self.finite.topology.slot(rank, worker), range(len(counts)))

    def ends(self, slot: int) -> tuple[int, ...]:
        """Return the number of batches of a slot up to the end of each of its windows."""
        if slot not in self._ends:
            self._ends[slot] = tuple(accumulate(self._count_batches(slot)))
        return self._ends[slot]

    def _count_batches(self, slot: int) -> list[int]:
        finite, (sources, places) = self.finite, self.positions(slot)
        assert finite.batch is not None, "batches are planned from windows"
        before = np.cumsum([0, *(count.samples for count in finite.counts)])
        costs = take_costs(finite.costs, before[sources] + places)
        names = PositionNames(finite.counts, finite.shards)
        found, total = [], len(places)
        for first in range(0, total, finite.per_slot):
            stop, own = min(first + finite.per_slot, total), None
            if finite.shards:
                own = [*map(names.name, sources[first:stop].tolist(), places[first:stop].tolist())]
            found.append(count_batches(costs, first, stop, finite.batch, own))
        return found

    def positions(self, slot: int) -> tuple[Ints, Ints]:
        """Return the source of each sample of a slot, and its position in the source, in the order of the slot."""
        sources = self.draws(*divmod(slot, self.finite.topology.workers)).sequence()
        places = np.empty(len(sources), dtype=np.int64)
        for source in range(len(self.finite.counts)):
            places[sources == source] = self._read(slot, source)
        return sources, places

    def _read(self, slot: int, source: int) -> Ints:
        """Return the positions of a source in the order in which a slot gives them."""
        finite, count = self.finite, self.finite.counts[source]
        split, delays, found = finite.split(source), finite.delays[source], [np.empty(0, dtype=np.int64)]
        for copy, runs in enumerate(self.runs(slot, source)):
            parts = []
            for run in runs:
                parts.append(count.start(run.turn) + run.residue + split * np.arange(run.first, run.stop))
            read = take_turns(parts, finite.widths[source])
            if delays.size > 1 and len(read):
                key = key64(delays.key(slot), "epoch", self.number, copy)
                read = read[np.argsort(delays.releases(key, 0, len(read)), kind="stable")]
            found.append(read)
        return np.concatenate(found)


def take_turns(runs: list[Ints], width: int) -> Ints:
    """Return the elements of runs of which some are read in turn: in each round, each lane gives one."""
    lanes = [(run, 0) for run in range(min(width, len(runs)))]
    lengths, following, found = [*map(len, runs)], len(lanes), [np.empty(0, dtype=np.int64)]
    while lanes:
        rounds = min(lengths[run] - taken for run, taken in lanes)
        found.append(np.stack([runs[run][taken : taken + rounds] for run, taken in lanes], axis=1).ravel())
        lanes = [(run, taken + rounds) for run, taken in lanes]
        lanes, following = replace_ended(lanes, lengths, following)
    return np.concatenate(found)


def take_costs(costs: SampleCosts, places: Ints) -> SampleCosts:
    """Return the costs at some places; `SampleCosts.take` would take 30 times as long."""

    def take(column: Any) -> array[float]:
        return array("d", np.frombuffer(column)[places].tobytes())

    groups = [costs.groups[at] for at in places.tolist()] if costs.groups else ()
    return SampleCosts(take(costs.costs), tuple(map(take, costs.sums)), groups)


@dataclass(frozen=True)
class EpochTimeline(Timeline):
    """The steps of a stream whose epochs have different lengths.

    `epoch_steps` is that of the first one, and `start` where the epoch of a state starts.
    """

    start: tuple[int, int] = (0, 0)
    finite: ShuffledWindows = field(kw_only=True)

    def span(self, step: int) -> EpochSpan:
        """Return the epoch of a step."""
        return self.finite.span(step, self.start)

    def from_start(self, number: int, first: int) -> EpochTimeline:
        """Return the timeline if an epoch starts at a step."""
        return replace(self, start=(number, first))

    def place(self, step: int) -> tuple[int, int]:
        """Return the number of the epoch of a step, and J of its first step."""
        return self.finite.place(step, self.start)

    def first_step(self, epoch: int) -> int:
        """Return J of the first step of an epoch."""
        number, first = self.start if epoch >= self.start[0] else (0, 0)
        return first + sum(map(self.finite.steps, range(number, epoch)))

    def end(self, step: int) -> int:
        """Return J of the first step after the epoch of a step."""
        return self.span(step).end

    def next(self, step: int) -> int:
        """Return J of the first step of the first epoch that starts at a step or later."""
        _, first, end = self.span(step)
        return first if step == first else end

    def iteration(self, step: int, skipped: StepRanges = NO_STEPS) -> tuple[int, int]:
        """Return (J of its first step, J after its last one) of an iteration that resumes at a step."""
        return step, self.end(step)

    def length(self, step: int, skipped: StepRanges = NO_STEPS) -> int:
        """Return the number of steps of the epoch of a step."""
        _, first, end = self.span(step)
        return end - first
