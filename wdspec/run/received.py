"""What the training loop received: samples, their cost and tokens, by source, exact at every step and after a resume.

With draws, each step has a fixed number of samples of each source, so the counts follow from the position:

    samples of s up to step J = draws of s in the steps 0..J-1 of all slots - those in skipped steps

The same holds for passes that lose no samples. `PlannedCounts` counts them from the description of the order, so it
also does for a state without its spec. Elsewhere (windows, stages, passes that lose samples, padded ids), each step
says what it has, and a state says how much was received up to its position, in the entry of each canonical rank. So do
states after shares were set, a pass was left early or the spec has changed, as the position then does not say any more
how it was reached.

A rank knows the totals of its canonical ranks. Ranks that share a canonical rank all count the whole of it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, cast

import numpy as np

from wdspec.planning.draws import Draws, IntArray, ScheduledDraws
from wdspec.planning.past import plan_of
from wdspec.planning.shares import ScheduleSegment, shares_from_text
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
Known = dict[int, tuple[int, "Amounts | None"]]
"""Canonical rank -> what was received of it, up to a step."""
Part = tuple[int, StepCounts, int, "int | None"]
"""J, and a part of its step: that of the canonical ranks at places first..stop-1 of this rank."""

_MOST_PARTS = 64
"""Parts of steps that are added up at once, which is faster than one after the other."""

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


class PlannedCounts:
    """How much of each source steps have, where it follows from their numbers: with draws, or in passes that lose none.

    Args:
        order: the description of the order (`describe_order`).
        segments: the shares that were set at run time.
    """

    def __init__(self, order: Mapping[str, Any], segments: tuple[ScheduleSegment, ...] = ()) -> None:
        self._tokens = {name: source.get("tokens.length") for name, source in order["sources"].items()}
        """The number of tokens of each sample of a source; None if it has none."""
        self._plan = plan_of(order, [*self._tokens]).with_shares(segments)

    @cached_property
    def _draws(self) -> Draws | ScheduledDraws:
        return self._plan.draws()

    def count(self, rank: int, first: int, stop: int, skipped: StepRanges) -> Amounts:
        """Return what a canonical rank has in the steps first..stop-1, without skipped ones."""
        if self._plan.finite is not None:
            total = self._plan.finite.count(rank, stop) - self._plan.finite.count(rank, first)
        else:
            total = self._count_draws(rank, first, stop)
            for start, end in skipped.within(first, stop).ranges:
                total = total - self._count_draws(rank, start, end)
        return {
            name: Amount(count, None, tokens and tokens * count)
            for (name, tokens), count in zip(self._tokens.items(), total.tolist(), strict=True)
        }

    def count_all(self, rank: int, step: int, skipped: StepRanges) -> Amounts | None:
        """Return what a canonical rank has in the first steps; None if it is unknown, or takes too long to count."""
        finite = self._plan.finite
        is_known = bool(finite.counts) if finite else step * self._draws.random_per_step <= _MOST_RANDOM
        return self.count(rank, 0, step, skipped) if is_known else None

    def _count_draws(self, rank: int, first: int, stop: int) -> IntArray:
        workers = self._plan.topology.workers
        total = np.zeros(len(self._tokens), dtype=np.intp)
        for worker in range(workers):
            m, end = (-((worker - step) // workers) for step in (first, stop))
            if m < end:
                total += self._draws.counts(rank, worker, m, end - m)
        return total


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
    planned, skipped = PlannedCounts(order), skipped_steps(state)
    has_sections = len(state["sources"]) > len(order["sources"])
    is_planned = not has_sections and all(
        each.start > state["batch"] for each in shares_from_text(state["shares"])
    )
    for rank in ranks_of(state):
        step = state["batch"] + (rank % state["items"] < state["given"])
        found[rank] = read_totals(state, rank)
        if found[rank] is None and not step:
            found[rank] = {}
        elif found[rank] is None and is_planned:
            found[rank] = planned.count_all(rank, step, skipped)
    return found


def resume_received(
    state: Mapping[str, Any], run: Run, before: Mapping[str, Any], now: Mapping[str, Any]
) -> Received | None:
    """Return what the canonical ranks of a run had received when a state was saved.

    Args:
        state: a state that `check_undamaged` accepts.
        run: the run that resumes.
        before, now: descriptions of the order of the state and of the run.

    Returns:
        None if it follows from the position in the run.
    """
    is_stored = any(totals_of(state, rank) for rank in run.canonical_ranks)
    names = [*now["sources"]]
    is_alike = run.state_names == (*state["sources"],) and plan_of(before, names) == plan_of(now, names)
    if not is_stored and is_alike and not run.counts_steps and state["shares"] == NO_SHARES:
        return None
    is_begun = state["batch"] or state["given"]
    if "pass" in before and not is_stored and is_begun and run.counts_steps:
        return dict.fromkeys(run.canonical_ranks)
    found = received_in(
        {**state, "ranks": {str(rank): state["ranks"][str(rank)] for rank in run.canonical_ranks}}
    )
    return {
        rank: amounts and {name: each for name, each in amounts.items() if any(each) or name not in names}
        for rank, amounts in found.items()
    }


def _add_parts(known: Known, parts: Sequence[Part]) -> Known:
    """Return what was received, with parts of steps added, each once: one that was interrupted is added again."""
    totals: Known = {}
    for at, (rank, (step, total)) in enumerate(known.items()):
        of_step = {
            number: counts[at]
            for number, counts, first, stop in parts
            if number >= step and first <= at and (stop is None or at < stop)
        }
        own = of_step.values()
        if total is None or None in own:
            totals[rank] = step, None
            continue
        more: dict[str, list[tuple[Any, Any, Any]]] = {}
        for name, amount in chain.from_iterable(map(dict.items, cast("Iterable[Counts]", own))):
            more.setdefault(name, []).append(amount)
        after = max(of_step, default=step - 1) + 1
        totals[rank] = after, total | {name: total[name].plus(*amounts) for name, amounts in more.items()}
    return totals


class Receipts:
    """What the training loop received on this rank. Another thread, such as that of an exporter, may ask for it.

    Args:
        run: what it receives.
        step: J of the step to start with.
        given: its items that were yielded already; each is of one canonical rank.
        received: what was received before; None if it follows from the position.
        segments: the shares that were set at run time.
    """

    def __init__(
        self,
        run: Run,
        step: int,
        given: int,
        received: Received | None,
        segments: tuple[ScheduleSegment, ...] = (),
    ) -> None:
        self._run, self._segments = run, segments
        if received is None:
            step, given, received = 0, 0, {rank: {} for rank in run.canonical_ranks}
        nothing = {source.name: run.nothing_of(source.name) for source in run.plan.sources}
        known = {
            rank: (step + (at < given), None if total is None else {**nothing, **total})
            for at, (rank, total) in enumerate(received.items())
        }
        self._known: tuple[Known, list[Part]] = known, []
        """What was received, and parts of steps that are not in it yet; replaced at once, unless parts are added."""

    @cached_property
    def _planned(self) -> PlannedCounts:
        return PlannedCounts(json.loads(self._run.order_text), self._segments)

    def add(self, step: int, counts: StepCounts, first: int, stop: int | None = None) -> None:
        """Count a part of step J: that of the canonical ranks at places first..stop-1 of this rank."""
        parts = self._known[1]
        parts.append((step, counts, first, stop))
        if len(parts) == _MOST_PARTS:
            self._known = _add_parts(*self._known), []

    def upto(self, step: int, given: int, skipped: StepRanges) -> Received:
        """Return what was received up to a position.

        Args:
            step: J of the next step.
            given: its items that were yielded already.
            skipped: the steps that were skipped.
        """
        totals, parts = self._known
        if self._run.counts_steps:
            totals = _add_parts(totals, parts)
        else:
            totals = {
                rank: self._advance(rank, known, step + (at < given), skipped)
                for at, (rank, known) in enumerate(totals.items())
            }
            self._known = totals, parts
        return {rank: total for rank, (_, total) in totals.items()}

    def _advance(
        self, rank: int, known: tuple[int, Amounts | None], step: int, skipped: StepRanges
    ) -> tuple[int, Amounts | None]:
        """Return what a canonical rank has received up to a step, from what it had up to an earlier one."""
        first, total = known
        if total is None or first >= step:  # another thread may know more
            return known
        more = self._planned.count(rank, first, step, skipped)
        return step, {**total, **{name: total[name].plus(each) for name, each in more.items()}}
