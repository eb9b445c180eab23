"""What the training loop received: samples, their cost and tokens, by source, exact at every step and after a resume.

With draws, each step has a fixed number of samples of each source, so the counts follow from the position:

    samples of s up to step J = draws of s in the steps 0..J-1 of all slots - those in skipped steps

Elsewhere (windows, stages, passes that lose samples, padded ids), each step says what it has, and a state says how much
was received up to its position, in the entry of each canonical rank. So do states after shares were set or the spec has
changed, as the position then does not say any more how it was reached. A total is never stored if it follows from the
position.

A rank knows the totals of its canonical ranks. Ranks that share a canonical rank all count the whole of it.
"""

from __future__ import annotations

import base64
import json
import math
from array import array
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.passes import Pass, SourceCount
from wdspec.planning.shares import ScheduleSegment, segment_offset
from wdspec.planning.topology import Topology
from wdspec.read.counts import Amount, Amounts, Counts
from wdspec.run.run import Run
from wdspec.run.state import (
    NO_SHARES,
    damage_error,
    open_columns,
    pack_columns,
    ranks_of,
    read_column,
    skipped_steps,
    totals_of,
)
from wdspec.spec.language.steps import StepRanges

Received = dict[int, "Amounts | None"]
"""Canonical rank -> how much of each source was received of it; None if that is unknown."""
StepCounts = tuple["Counts | None", ...]
"""How much of each source a step has, for each canonical rank that is read here."""

_MOST_RANDOM = 1 << 30
"""Draws of a canonical rank with `draw: random` that are counted for a state; this takes some seconds."""


def add_up(parts: Sequence[Amounts | None]) -> Amounts | None:
    """Return the sum over canonical ranks; None if one is unknown."""
    total: Amounts = {}
    for part in parts:
        if part is None:
            return None
        for name, amount in part.items():
            total[name] = total[name].plus(amount) if name in total else amount
    return total


def encode(names: Sequence[str], amounts: Amounts) -> str:
    """Return amounts as ASCII text: columns of samples, cost and tokens, as the bits of floats.

    Args:
        names: the sources, in the order of the columns.
        amounts: how much of each of them.
    """
    columns = zip(*(amounts.get(name, Amount()) for name in names), strict=True)
    # As floats, in which None is not a number. Those of small integers share many bits, which take no room.
    return pack_columns(np.array(column, dtype=np.float64).view(np.int64) for column in columns)


def decode(text: str, names: Sequence[str]) -> Amounts:
    """Return the amounts in a text: the inverse of `encode`.

    Raises:
        ValueError: this is not such a text.
    """
    file = open_columns(base64.b85decode(text))
    columns = [map(_number, read_column(file, len(names)).view(np.float64).tolist()) for _ in Amount._fields]
    if file.read(1):
        raise ValueError("there is data after the counts")
    return {name: Amount(*row) for name, row in zip(names, zip(*columns, strict=True), strict=True)}


def _number(value: float) -> Any:
    """Return an integer, or another number; None for what is unknown."""
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def draws_of(order: Mapping[str, Any]) -> Draws | ScheduledDraws:
    """Return the draws of an order (`describe_order`)."""
    topology = Topology(order["elastic"]["ranks"], order["elastic"]["workers"])
    seed, names = order["seed"], list(order["sources"])
    segments = [ScheduleSegment(0, tuple(Fraction(each["share"]) for each in order["sources"].values()))]
    if "schedule" in order:
        segments = []
        for text, shares in order["schedule"].items():
            start = int(text.removeprefix("batch "))
            found = tuple(Fraction(shares[name]) for name in names)
            segments.append(ScheduleSegment(start, found, segment_offset(seed, "schedule", start)))
    draw, unit, size = order["mix"], order.get("unit", "sample"), order["batch"] or 1
    parts = [
        Draws(each.shares, seed, topology, size, draw, unit, each.start, each.offset) for each in segments
    ]
    return parts[0] if len(parts) == 1 else ScheduledDraws(parts)


def draws_alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the draws of two orders are the same."""

    def described(order: Mapping[str, Any]) -> Any:
        shares = {name: each["share"] for name, each in order["sources"].items()}
        keys = ("seed", "elastic", "batch", "mix", "unit", "schedule", "pass")
        return shares, [order.get(key) for key in keys]

    return bool(described(old) == described(new))


def count_drawn(
    draws: Draws | ScheduledDraws,
    names: Sequence[str],
    rank: int,
    first: int,
    stop: int,
    skipped: StepRanges,
) -> dict[str, int]:
    """Return the samples by source that a canonical rank has in the steps first..stop-1, without skipped ones."""
    workers, total = draws.topology.workers, None
    ranges = [(first, stop, 1), *((a, b, -1) for a, b in skipped.within(first, stop).ranges)]
    for start, end, sign in ranges:
        for worker in range(workers):
            m = -((worker - start) // workers)
            count = -((worker - end) // workers) - m
            if count or total is None:
                counted = sign * draws.counts(rank, worker, m, count)
                total = counted if total is None else total + counted
    assert total is not None, "there is a range"
    return dict(zip(names, total.tolist(), strict=True))


def count_passed(order: Mapping[str, Any], rank: int, step: int) -> dict[str, int] | None:
    """Return the samples by source that a canonical rank has in the first steps of passes that lose none.

    Returns:
        None if the order does not say how many samples each source has.
    """
    samples, batches = order["pass"]["samples"], order["pass"]["batches"]
    counts = {name: Fraction(each["share"]) * samples for name, each in order["sources"].items()}
    if any(count.denominator != 1 for count in counts.values()):
        return None
    topology = Topology(order["elastic"]["ranks"], order["elastic"]["workers"])
    found = dict.fromkeys(counts, 0)
    sources = tuple(SourceCount(array("q", [int(count)]), {}) for count in counts.values())
    whole = Pass(sources, samples, batches, topology, order["batch"] or 1)
    for steps, times in ((batches, step // batches), (step % batches, 1)):
        for worker in range(topology.workers if times else 0):
            first, stop = whole.slot_range(rank, worker)
            stop = min(stop, first + -((worker - steps) // topology.workers) * whole.per_slot)
            for segment in whole.segments(first, stop):
                name = list(counts)[segment.source]
                found[name] += times * (segment.stop - segment.first)
    return found


def lengths_of(order: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of tokens of a sample of each source of token files, where they all have the same."""
    found = {name: each.get("tokens.length") for name, each in order["sources"].items()}
    return {name: length for name, length in found.items() if length}


def follow(
    order: Mapping[str, Any], sections: Sequence[str], rank: int, step: int, skipped: StepRanges
) -> Amounts | None:
    """Return what a canonical rank has received by a position, where this follows from it; otherwise None.

    Args:
        order: the order of the run (`describe_order`).
        sections: the entries of a state's `sources` after those of the sources.
        rank: the canonical rank.
        step: J of the next step.
        skipped: the steps that were skipped.
    """
    if sections:
        return None
    if "pass" in order:
        counts = count_passed(order, rank, step)
    else:
        draws = draws_of(order)
        if step * draws.random_per_step > _MOST_RANDOM:
            return None
        counts = count_drawn(draws, list(order["sources"]), rank, 0, step, skipped)
    return None if counts is None else as_amounts(counts, lengths_of(order))


def as_amounts(counts: Mapping[str, int], lengths: Mapping[str, int]) -> Amounts:
    """Return the amounts of samples that all have the same number of tokens."""
    return {
        name: Amount(count, None, count * lengths[name] if name in lengths else None)
        for name, count in counts.items()
    }


def source_names(state: Mapping[str, Any]) -> list[str]:
    """Return the sources that the totals in a state count: those of its order, and others that were removed."""
    count = len(json.loads(state["order"])["sources"])
    return [*state["sources"][:count], *state.get("removed", ())]


def read_totals(state: Mapping[str, Any], rank: int) -> Amounts | None:
    """Return what a canonical rank has received, as a state says it; None if it does not.

    Raises:
        UsageError: it is damaged.
    """
    if not (text := totals_of(state, rank)):
        return None
    try:
        return decode(text, source_names(state))
    except (ValueError, TypeError) as error:
        raise damage_error(f"the counts of canonical rank {rank} cannot be decoded ({error})") from None


def received_in(state: Mapping[str, Any]) -> Received:
    """Return what was received up to a state that `check_undamaged` accepts, for each canonical rank that it holds.

    Raises:
        UsageError: the counts are damaged.
    """
    order, found = json.loads(state["order"]), Received()
    sections, skipped = state["sources"][len(order["sources"]) :], skipped_steps(state)
    live = json.loads(state["shares"])
    for rank in ranks_of(state):
        found[rank] = read_totals(state, rank)
        if found[rank] is None and not state["batch"] and not state["given"]:
            found[rank] = {}
        elif found[rank] is None and all(start > state["batch"] for start, _ in live):
            is_given = rank % state["items"] < state["given"]
            found[rank] = follow(order, sections, rank, state["batch"] + is_given, skipped)
    return found


def resume_received(state: Mapping[str, Any], run: Run, before: Mapping[str, Any]) -> Received | None:
    """Return what the canonical ranks of a run had received when a state was saved.

    Args:
        state: a state that `check_undamaged` accepts.
        run: the run that resumes.
        before: the order of the state.

    Returns:
        None if it follows from the position in the run.
    """
    is_stored = any(totals_of(state, rank) for rank in run.canonical_ranks)
    is_alike = draws_alike(before, json.loads(run.order_text)) and run.state_names == (*state["sources"],)
    if not is_stored and is_alike and run.follows_position and state["shares"] == NO_SHARES:
        return None
    held = {str(rank): state["ranks"][str(rank)] for rank in run.canonical_ranks}
    found = received_in({**state, "ranks": held})
    is_begun = state["batch"] or state["given"]
    if "pass" in before and not is_stored and is_begun and not run.follows_position:
        return dict.fromkeys(run.canonical_ranks)
    names = {source.name for source in run.plan.sources}
    return {
        rank: amounts and {name: each for name, each in amounts.items() if any(each) or name not in names}
        for rank, amounts in found.items()
    }


class Receipts:
    """What the training loop received on this rank. Another thread, such as that of an exporter, may ask for it.

    Args:
        run: what it receives.
        step: J of the step to start with.
        given: its items that were yielded already.
        received: what was received before; None if it follows from the position.
        is_stored: whether a state has to say it, even where it would follow from the position.
    """

    def __init__(
        self, run: Run, step: int, given: int, received: Received | None, is_stored: bool = False
    ) -> None:
        self._run = run
        self._is_stored = is_stored or received is not None
        if received is None and run.counts_steps and (step or given):
            received = self._follow(step, given)
        elif received is None:
            step, received = 0, {rank: {} for rank in run.canonical_ranks}
        nothing = {source.name: run.nothing_of(source.name) for source in run.plan.sources}
        self._known: tuple[int, Received] = (
            step,
            {rank: None if total is None else {**nothing, **total} for rank, total in received.items()},
        )
        """What was received up to a step; replaced at once, where steps do not say it."""
        self._draws: tuple[tuple[ScheduleSegment, ...], Draws | ScheduledDraws] | None = None

    def add(self, counts: StepCounts, first: int, stop: int | None = None) -> None:
        """Count a part of a step: that of the canonical ranks at places first..stop-1 of this rank."""
        _, totals = self._known
        for rank, step in islice(zip(list(totals), counts, strict=True), first, stop):
            total = totals[rank]
            if total is None or step is None:
                totals[rank] = None
                continue
            for name, amount in step.items():
                total[name] = total[name].plus(amount)

    def upto(
        self, step: int, given: int, skipped: StepRanges, segments: tuple[ScheduleSegment, ...]
    ) -> Received:
        """Return what was received up to a position.

        Args:
            step: J of the next step.
            given: its items that were yielded already; each is of one canonical rank.
            skipped: the steps that were skipped.
            segments: the shares set at run time that hold for the steps since the last call.
        """
        first, totals = self._known
        if self._run.counts_steps:
            return totals
        if first < step:
            totals = self._draw(totals, first, step, skipped, segments)
            self._known = step, totals
        if given:
            begun = {rank: totals[rank] for rank in [*totals][:given]}
            return {**totals, **self._draw(begun, step, step + 1, skipped, segments)}
        return totals

    def _draw(
        self,
        totals: Received,
        first: int,
        stop: int,
        skipped: StepRanges,
        segments: tuple[ScheduleSegment, ...],
    ) -> Received:
        """Return totals with what the steps first..stop-1 add to them by their draws."""
        run = self._run
        draws = self._draws
        if draws is None or draws[0] != segments:
            draws = self._draws = segments, run.plan.with_shares(segments).draws()
        names, lengths = [source.name for source in run.plan.sources], run.tokens_of_samples or {}
        found = Received()
        for rank, total in totals.items():
            more = as_amounts(count_drawn(draws[1], names, rank, first, stop, skipped), lengths)
            found[rank] = total and {**total, **{name: total[name].plus(each) for name, each in more.items()}}
        return found

    def to_store(
        self, step: int, given: int, skipped: StepRanges, segments: tuple[ScheduleSegment, ...]
    ) -> Received | None:
        """Return what a state has to say of what was received; None if it follows from the position."""
        run = self._run
        if not run.counts_steps and not self._is_stored:
            return None
        totals = self.upto(step, given, skipped, segments)
        if all(total is None for total in totals.values()):
            return None
        if run.counts_steps and run.follows_position and totals == self._follow(step, given):
            return None
        return totals

    def keep(self, step: int, given: int, skipped: StepRanges, segments: tuple[ScheduleSegment, ...]) -> None:
        """Count up to a position by the shares until now: states have to say it, as later shares are others."""
        self.upto(step, given, skipped, segments)
        self._is_stored = True

    @property
    def removed(self) -> list[str]:
        """The sources that were received and are not in the spec any more."""
        names = {source.name for source in self._run.plan.sources}
        return sorted({name for total in self._known[1].values() for name in total or ()} - names)

    def copy(self) -> Receipts:
        """Return an independent copy."""
        step, totals = self._known
        copy = Receipts(self._run, step, 0, totals)
        copy._is_stored = self._is_stored
        return copy

    def _follow(self, step: int, given: int) -> Received:
        """Return what follows from a position in passes; None for each canonical rank if it does not."""
        run, found = self._run, Received()
        for at, rank in enumerate(run.canonical_ranks):
            amounts = None
            if run.follows_position:
                amounts = follow(json.loads(run.order_text), (), rank, step + (at < given), StepRanges())
            found[rank] = amounts and {
                name: run.nothing_of(name).plus(each) for name, each in amounts.items()
            }
        return found
