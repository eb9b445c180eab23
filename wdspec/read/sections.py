"""Sections of a slot: windows, and the input of a stage from one point to the next.

A section is read again after a resume within it. So it is drawn, to its end, by the shares with which it began, and by
the spec with which it began, even if the spec has changed since. What follows is read by the shares and the spec of
then. The place of a section in a state says at which turn of the slot it began, and which shares were set at run time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.order import Stretch
from wdspec.planning.plan import Plan
from wdspec.planning.shares import LiveShares, ScheduleSegment
from wdspec.read.slot import Mixture
from wdspec.read.source import StreamState
from wdspec.read.transform import LiveSource

_SHARE, _BITS = struct.Struct("<d"), struct.Struct("<q")


class Reading(NamedTuple):
    """By which plan sections are read that begin before a step: that of the current spec, or of an earlier one."""

    until: float
    """J of the first step that is read by the next one; infinite for the last one."""
    plan: Plan
    sources: Sequence[LiveSource]
    draws: Draws | ScheduledDraws
    """The draws of the shares of the spec."""
    segment: Callable[[LiveShares], ScheduleSegment]
    """Returns the segment of shares that are set at run time."""


class Begun(NamedTuple):
    """How a section began."""

    turn: int
    """The turn of the slot; -1 if it is not known."""
    reading: Reading
    segment: ScheduleSegment | None
    """The shares that were set at run time; None for those of the spec."""

    def is_like(self, other: Begun | None) -> bool:
        """Whether another section began by the same shares and spec."""
        return other is not None and other.reading is self.reading and other.segment == self.segment

    def place(self, number: int, done: int, end: int = 0) -> StreamState:
        """Return the place in the section.

        Args:
            number: the number of the section.
            done: what was given of it.
            end: a check of it.
        """
        if not done:
            return StreamState(number)
        live = None if self.segment is None else self.segment.live
        place = StreamState(number, done, self.turn, end)
        return place if live is None else with_shares(place, live, tops_of(self.reading.plan))


class Readings:
    """The readings of a process, and the shares that were set at run time.

    Args:
        earlier: those of earlier specs, in order.
        now: that of the current spec.
    """

    def __init__(self, earlier: Sequence[Reading], now: Reading) -> None:
        self._all = (*earlier, now)
        self.now = now
        self.segments: tuple[ScheduleSegment, ...] = ()
        """The segments of the shares that were set, ascending."""

    def begin(self, worker: int, turn: int) -> Begun:
        """Return how a section begins at a turn of canonical worker k."""
        step = turn * self.now.plan.topology.workers + worker
        reading = next(each for each in self._all if step < each.until)
        segments = self.segments if reading is self.now else ()
        return Begun(turn, reading, next((each for each in reversed(segments) if each.start <= step), None))

    def resume(self, worker: int, place: StreamState) -> Begun:
        """Return how the section of a place began."""
        if place.last < 0:  # of older releases, which did not store the turn of a stage
            return Begun(-1, self.now, None)
        begun = self.begin(worker, place.last)
        live = shares_of(place, tops_of(begun.reading.plan))
        return begun if live is None else begun._replace(segment=begun.reading.segment(live))


class SectionDraws:
    """Draws the sections of one slot.

    Args:
        readings: what they are read by.
        worker: k of the slot.
    """

    mixture: Mixture[Any]
    """What is drawn; another one after the slot returns to the start of a section."""

    def __init__(self, readings: Readings, worker: int) -> None:
        self._readings, self._worker = readings, worker
        self.current = Begun(-1, readings.now, None)
        """How the section that is being read began."""

    def begin(self, turn: int, place: StreamState | None = None) -> Begun:
        """Begin a section at a turn of the slot, or again at its place."""
        self.current = self.foresee(turn) if place is None else self.resume(place)
        return self.current

    def foresee(self, turn: int) -> Begun:
        """Return how the next section will begin, if nothing changes after this turn."""
        return self._readings.begin(self._worker, turn)

    def resume(self, place: StreamState) -> Begun:
        """Return how the section of a place began."""
        return self._readings.resume(self._worker, place)

    def end(self) -> None:
        """Read what follows by the current spec, since no later section begins by an earlier one.

        So the state of the sources between two sections is that of the current spec.
        """
        if self.current.reading is not self._readings.now:
            self.draw(Begun(-1, self._readings.now, None))

    def draw(self, begun: Begun) -> None:
        """Draw what follows as a section that began like this.

        The state of the sources at the start of a section is taken after this, so that it fits how the section is read.
        """
        reading, segment = begun.reading, begun.segment
        draws = reading.draws if segment is None else reading.plan.draws_of(segment)
        self.mixture.read_by(reading.plan, reading.sources, draws)


def tops_of(plan: Plan) -> tuple[str, ...]:
    """Return for each source of a plan the entry of the top-level list that it is in."""
    return tuple(source.top for source in plan.sources)


def shares_of(place: StreamState, tops: Sequence[str]) -> LiveShares | None:
    """Return the shares that were set when a section began; None if its place has none.

    They are stored as (number of the first source of the entry, bits of its share, J from which it applies).

    Args:
        tops: for each source the entry of the top-level list that it is in.
    """
    if not place.stretches:
        return None
    shares = {tops[number]: _SHARE.unpack(_BITS.pack(bits))[0] for number, bits, _ in place.stretches}
    return LiveShares(place.stretches[0][2], shares)


def with_shares(place: StreamState, live: LiveShares, tops: Sequence[str]) -> StreamState:
    """Return the place in a section that began with shares that were set: the inverse of `shares_of`."""
    stored = sorted((tops.index(name), share) for name, share in live.shares.items() if name in tops)
    lists = (Stretch(at, _BITS.unpack(_SHARE.pack(share))[0], live.start) for at, share in stored)
    return place._replace(stretches=tuple(lists))
