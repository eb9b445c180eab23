"""From the states of slots in a saved state to those with which a run resumes, perhaps after its spec was changed.

A plain mix continues at once by the spec of now. A section that is open, a window or the input of a stage, is finished
as it began, so its slot keeps its states until then. A section that cannot be finished, since a source is gone or the
batches are planned in another way, is given again from its start: nothing is lost, and the samples that are repeated
are reported.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wdspec.base.errors import warn_user
from wdspec.planning.digest import reads_alike
from wdspec.planning.order import Stretch
from wdspec.planning.past import Past, name_of_section, past_from_text, why_not_finished
from wdspec.planning.plan import SourcePlan
from wdspec.planning.shares import LiveShares, shares_from_text
from wdspec.read.sections import tops_of, with_shares
from wdspec.read.source import StreamState, pack_slot
from wdspec.read.windows import MAY_REPEAT, PLANNED_WHOLE
from wdspec.run.run import Run
from wdspec.run.state import VERSION, is_section, ranks_of, read_entry

Description = Mapping[str, Any]


class Resume:
    """How the slots of a state resume.

    Args:
        state: a state that fits the run.
        run: the run that resumes.
        before, now: descriptions of the order of the state and of the run.
        allow_changed: whether windows whose samples have other costs now are given again.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        run: Run,
        before: Description,
        now: Description,
        allow_changed: bool,
    ) -> None:
        self._state, self._run, self._now = state, run, now
        self._allow_changed = allow_changed
        self._workers = run.plan.topology.workers
        names = state["sources"]
        self._old = {name: number for number, name in enumerate(names) if not is_section(name)}
        self._kinds = {
            name.partition(" ")[0]: number for number, name in enumerate(names) if is_section(name)
        }
        """Kind of section -> its number in the states of a slot."""
        self._new_kinds = [name for name in run.state_names if is_section(name)]
        self._is_planned_alike = {*names[len(self._old) :]} == {*filter(is_section, run.state_names)}
        earlier = past_from_text(state["past"]) if "past" in state else ()
        has_changed = before != now
        self.past = (*earlier, Past(state["batch"], json.dumps(before))) if has_changed else earlier
        """Earlier specs by which sections may have begun."""
        self._before, self._has_changed = before, has_changed
        self._live = shares_from_text(state["shares"]) if state["version"] < VERSION else ()
        self._reasons: Counter[str] = Counter()
        """Why sections are given again, and in how many slots."""

    def slots(self, reads: Callable[[int], bool]) -> dict[int, bytes]:
        """Return slot -> packed state to resume with, of the canonical ranks of the run.

        Args:
            reads: whether a slot is read here; the state may lack the others.
        """
        if "pass" in self._now and self._has_changed:
            warn_user(
                "the pass has changed since the state was saved: it continues with global batch "
                f"{self._state['batch']:,}, and samples may be left out or repeated"
            )
            if "pass" not in self._before:
                return {}
        if "pass" in self._before and "pass" not in self._now:
            warn_user("the state is of a pass, and this is none: all sources start at their first samples")
            fresh, read = pack_slot([StreamState()] * len(self._run.state_names)), self._state["batch"]
            numbers = range(min(read, self._workers))
            return {rank * self._workers + k: fresh for rank in self._run.canonical_ranks for k in numbers}
        slots = {}
        for rank in self._run.canonical_ranks:
            for worker, states in enumerate(read_entry(self._state, rank, self._workers, reads)):
                if states is not None:
                    slot = rank * self._workers + worker
                    slots[slot] = pack_slot(self._resume(slot, states))
        self._forget_past()
        for reason, count in self._reasons.items():
            warn_user(
                f"{count:,} of {len(slots):,} slots were inside {name_of_section(self._before)}, which cannot be "
                f"finished as it began, because {reason}: they resume at its start, so samples are repeated"
            )
        return slots

    def count_open(self) -> Counter[str]:
        """Return the number of slots with an open section, by why it cannot be finished as it began; empty if it can.

        Only slots of which the state says something are counted.
        """
        counts: Counter[str] = Counter()
        for rank in ranks_of(self._state) if self._kinds and "pass" not in self._before else ():
            for worker, states in enumerate(read_entry(self._state, rank, self._workers)):
                if states is not None:
                    slot = rank * self._workers + worker
                    places = self._places(slot, states)
                    if any(place.ordinal for place in places):
                        counts[self._why_not(slot, places) or ""] += 1
        return counts

    def _places(self, slot: int, states: Sequence[StreamState]) -> list[StreamState]:
        """Return the places of a slot in its sections."""
        return [self._modernize(slot, states[number]) for number in self._kinds.values()]

    def _resume(self, slot: int, states: Sequence[StreamState]) -> list[StreamState]:
        """Return the states of a slot to resume with."""
        places = self._places(slot, states)
        begun = next((place for place in places if place.ordinal), None)
        past = None if begun is None else self._past_of(slot, begun)
        if begun is not None and not self._has_changed:
            return [*self._by_name(states), *map(self._mark, places)]
        if begun is not None:
            reason = self._why_not(slot, places)
            if reason is None:
                return [*self._by_name(states), *(self._mark(self._renumber(place)) for place in places)]
            self._reasons[reason] += 1
        described = self._before if past is None else json.loads(past.order)
        sources = [
            self._source(source, described)(slot, states[self._old[source.name]])
            if source.name in self._old
            else StreamState()
            for source in self._run.plan.sources
        ]
        if not self._is_planned_alike:
            return [*sources, *(StreamState() for _ in self._new_kinds)]
        return [*sources, *(StreamState(place.turn) for place in places)]

    def _by_name(self, states: Sequence[StreamState]) -> list[StreamState]:
        """Return the states of the sources in the order of the run."""
        names = (source.name for source in self._run.plan.sources)
        return [states[self._old[name]] if name in self._old else StreamState() for name in names]

    def _source(self, source: SourcePlan, old: Description) -> Callable[[int, StreamState], StreamState]:
        """Return the function from (slot, state of a source) to the state it resumes with, by the spec of now."""
        written = old["sources"].get(source.name)
        if written is None or not reads_alike(source.name, old, self._now):
            return lambda slot, state: state.restart()
        delays = replace(source.delays, size=written["shuffle"])
        if (delays, written["interleave"]) == (source.delays, source.interleave):
            return lambda slot, state: state
        return lambda slot, state: state.for_plan_with_other_sizes(slot, delays, written["interleave"])

    def _modernize(self, slot: int, place: StreamState) -> StreamState:
        """Return a place of an older release as it is stored now.

        With the turn at which it began, its shares, and whether its window was planned whole.
        """
        if self._state["version"] == VERSION or not place.ordinal:
            return place
        worker = slot % self._workers
        if place.last < 0:  # a stage, which has read all of its input by the spec of the state
            return place._replace(last=max(0, (self._state["batch"] - 1 - worker) // self._workers))
        place = place._replace(end=PLANNED_WHOLE)
        live = [each for each in self._live if each.start <= place.last * self._workers + worker][-1:]
        return with_shares(place, live[0], tops_of(self._run.plan)) if live else place

    def _past_of(self, slot: int, place: StreamState) -> Past | None:
        """Return the earlier spec by which a section began; None if it is that of now."""
        step = place.last * self._workers + slot % self._workers
        return next((past for past in self.past if step < past.until), None)

    def _why_not(self, slot: int, places: Sequence[StreamState]) -> str | None:
        """Return why the open sections of a slot cannot be finished as they began; None if they can."""
        for place in places:
            past = self._past_of(slot, place) if place.ordinal else None
            if past is None:
                continue
            reason = why_not_finished(json.loads(past.order), self._now)
            if reason is not None:
                return reason
            is_flat = all(source.top == source.name for source in self._run.plan.sources)
            if place.stretches and not (is_flat and self._run.spec.mix.shares_in == "samples"):
                return "shares were set at run time in a mix of mixes, or of costs"
        return None

    def _renumber(self, place: StreamState) -> StreamState:
        """Return a place in which the sources have the numbers of the run."""
        names = [*self._old]
        numbers = {source.name: number for number, source in enumerate(self._run.plan.sources)}
        return place._replace(
            stretches=tuple(Stretch(numbers[names[number]], *rest) for number, *rest in place.stretches)
        )

    def _mark(self, place: StreamState) -> StreamState:
        """Return a place in a window that may be given again if its samples have other costs now."""
        may_repeat = self._allow_changed and place.ordinal and place.end
        return place._replace(end=place.end | MAY_REPEAT) if may_repeat else place

    def _forget_past(self) -> None:
        """Forget earlier specs by which no open section began, if the state says so of all ranks."""
        total = self._run.plan.topology.ranks
        if not self.past or not self._kinds or ranks_of(self._state) != [*range(total)]:
            self.past = self.past if self._kinds else ()
            return
        used: set[Past | None] = set()
        for rank in range(total):
            entries = read_entry(self._state, rank, self._workers, lambda slot: True)
            for worker, states in enumerate(entries):
                slot = rank * self._workers + worker
                places = self._places(slot, states) if states else []
                used.update(self._past_of(slot, place) for place in places if place.ordinal)
        self.past = tuple(past for past in self.past if past in used)


def live_shares(
    state: Mapping[str, Any], run: Run, before: Description, now: Description
) -> tuple[LiveShares, ...]:
    """Return the shares set at run time, unless the shares of the spec have changed."""
    old, new = (
        (order.get("schedule"), {name: source["share"] for name, source in order["sources"].items()})
        for order in (before, now)
    )
    live, names = shares_from_text(state["shares"]), {source.name for source in run.spec.dataset}
    if live and (old != new or not all(names.issuperset(each.shares) for each in live)):
        warn_user(
            "the spec's shares have changed since the state was saved, so the shares set at run time are dropped "
            f"({state['shares']}, as [global batch, shares]); set them again if you still want them"
        )
        return ()
    return live
