"""From the states of slots in a saved state to those with which a run resumes, perhaps after its spec was changed.

A plain mix continues at once by the current spec. A section that is open, a window or the input of a stage, is finished
as it began, so its slot keeps its states until then. A section that cannot be finished, since a source is gone or the
batches are planned in another way, is given again from its start: nothing is lost, and the samples that are repeated
are reported.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from wdspec.base.errors import warn_user
from wdspec.planning.digest import reads_alike
from wdspec.planning.order import Stretch
from wdspec.planning.past import (
    Past,
    kinds_of_sections,
    name_of_section,
    past_from_text,
    plan_of,
    why_not_finished,
)
from wdspec.planning.plan import CompanionPlan, SourcePlan
from wdspec.planning.shares import LiveShares, count_unlimited, shares_from_text
from wdspec.planning.timeline import Timeline
from wdspec.read.sections import tops_of, with_shares
from wdspec.read.source import StreamState, pack_slot
from wdspec.read.windows import MAY_REPEAT, PLANNED_WHOLE
from wdspec.run.received import add_up, received_in
from wdspec.run.run import Run
from wdspec.run.state import VERSION, ranks_of, read_entry
from wdspec.run.stats import samples_given
from wdspec.spec.spec import Source

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
        self.state, self.run, self.before, self._now = state, run, before, now
        self._allow_changed, self._has_changed = allow_changed, before != now
        self._workers = run.plan.topology.workers
        count = len(before["sources"]) + len(before.get("companions", ()))
        self._old = {name: number for number, name in enumerate(state["sources"][:count])}
        """Source or companions of the state -> the number in the states of a slot; the places in sections follow."""
        self._sections = state["sources"][count:]
        earlier = past_from_text(state["past"]) if "past" in state else ()
        self.past = (*earlier, Past(state["batch"], json.dumps(before))) if self._has_changed else earlier
        """Earlier specs by which sections may have begun."""
        self._live = shares_from_text(state["shares"]) if state["version"] < VERSION else ()
        self._reasons: Counter[str] = Counter()
        """Why sections are given again, and in how many slots."""

    def slots(self, reads: Callable[[int], bool]) -> dict[int, bytes]:
        """Return slot -> packed state to resume with, of the canonical ranks of the run.

        Args:
            reads: whether a slot is read here; the state may lack the others.
        """
        if "pass" in self._now:
            if self._has_changed:
                warn_user(self._describe_changed_pass())
            if "pass" not in self.before or self._starts_like_the_first_epoch:
                return {}
        if "pass" in self.before and "pass" not in self._now:
            warn_user("the state is of a pass, and this is none: all sources start at their first samples")
            fresh, read = pack_slot([StreamState()] * len(self.run.state_names)), self.state["batch"]
            numbers = range(min(read, self._workers))
            return {rank * self._workers + k: fresh for rank in self.run.canonical_ranks for k in numbers}
        read_here = self._read_slots(self.run.canonical_ranks, reads)
        slots = {slot: pack_slot(self._resume(slot, states)) for slot, states in read_here}
        self._forget_past()
        for reason, count in self._reasons.items():
            warn_user(
                f"{count:,} of {len(slots):,} slots were inside {name_of_section(self.before)}, which cannot be "
                f"finished as it began, because {reason}: they resume at its start, so samples are repeated"
            )
        return slots

    @property
    def _starts_like_the_first_epoch(self) -> bool:
        """Whether an epoch starts here that is the same as all others, also in its companions."""
        timeline, step = self.run.plan.timeline, self.state["batch"]
        return timeline.is_pass and not self.state["given"] and timeline.begin(step) == step

    @property
    def place(self) -> tuple[int, int]:
        """J of the step to resume with, and the number of its items that were yielded already.

        If a pass that reshuffles has changed, its epoch begins anew: what was read of it does not follow from J.
        """
        step, given = self.state["batch"], self.state["given"]
        if not self._has_changed or not self._now.get("pass", {}).get("reshuffle"):
            return step, given
        number, first = self._epoch
        return first if self.timeline.start else self.timeline.first_step(number), 0

    @property
    def timeline(self) -> Timeline:
        """The timeline from there on."""
        timeline = self.run.plan.timeline
        return timeline if timeline.start is None else timeline.from_start(*self._epoch)

    @property
    def _epoch(self) -> tuple[int, int]:
        """The number of the epoch of a state, by the spec that saved it, and J of its first step."""
        if "epoch" in self.state:
            number, first = self.state["epoch"]
            return number, first
        length = self.before.get("pass", self._now["pass"])["batches"]
        number = self.state["batch"] // length
        return number, number * length

    def _describe_changed_pass(self) -> str:
        step = self.state["batch"]
        if not self._now["pass"].get("reshuffle"):
            return (
                f"the pass has changed since the state was saved: it continues with global batch {step:,}, and "
                "samples may be left out or repeated"
            )
        epoch, first = self._epoch
        read = step - first
        if not read and not self.state["given"]:
            return f"the pass has changed since the state was saved: it continues with epoch {epoch}"
        return (
            f"the pass has changed since the state was saved, so epoch {epoch} begins anew: the samples of its "
            f"first {read + bool(self.state['given']):,} steps may be repeated"
        )

    def count_open(self) -> Counter[str]:
        """Return the number of slots with an open section, by why it cannot be finished as it began; empty if it can.

        Only slots of which the state says something are counted.
        """
        counts: Counter[str] = Counter()
        if self._sections and "pass" not in self.before:
            for slot, states in self._read_slots(ranks_of(self.state)):
                places = self._places(slot, states)
                if any(place.ordinal for place in places):
                    counts[self._why_not(slot, places) or ""] += 1
        return counts

    def count_windows(self) -> tuple[int, int]:
        """Return how many windows the slots in the state have begun, and how many of them are open and get finished."""
        begun = unfinished = 0
        for slot, states in self._read_slots(ranks_of(self.state)):
            places = self._places(slot, states)
            is_open = bool(places[-1].ordinal) and self._why_not(slot, places) is None
            begun, unfinished = begun + places[-1].turn + is_open, unfinished + is_open
        return begun, unfinished

    def _read_slots(
        self, ranks: Iterable[int], reads: Callable[[int], bool] = lambda slot: True
    ) -> Iterator[tuple[int, list[StreamState]]]:
        """Yield the slots of these canonical ranks of which the state says something, with their states."""
        for rank in ranks:
            for worker, states in enumerate(read_entry(self.state, rank, self._workers, reads)):
                if states is not None:
                    yield rank * self._workers + worker, states

    def _places(self, slot: int, states: Sequence[StreamState]) -> list[StreamState]:
        """Return the places of a slot in its sections."""
        return [self._modernize(slot, place) for place in states[len(self._old) :]]

    def _resume(self, slot: int, states: Sequence[StreamState]) -> list[StreamState]:
        """Return the states of a slot to resume with."""
        places, sources = self._places(slot, states), self.run.plan.sources
        begun = next((place for place in places if place.ordinal), None)
        reason = self._why_not(slot, places)
        own = [states[self._old[each.name]] if each.name in self._old else StreamState() for each in sources]
        companions = [self._companions_by_now(each, states) for each in self.run.plan.companions]
        past = None if begun is None else self._past_of(slot, begun)
        order = self.before if past is None else json.loads(past.order)
        if begun is not None and reason is None:
            read = order["sources"]
            own = [
                state if each.name in read else self._by_now(slot, each, state, self.before)
                for each, state in zip(sources, own, strict=True)
            ]
            return [*own, *companions, *map(self._finish, places)]
        if reason is not None:
            self._reasons[reason] += 1
        own = [self._by_now(slot, each, state, order) for each, state in zip(sources, own, strict=True)]
        own += companions
        if kinds_of_sections(self.before) != kinds_of_sections(self._now):
            return [*own, *(StreamState() for _ in self.run.state_names[len(own) :])]
        return [*own, *(StreamState(place.turn) for place in places)]

    def _companions_by_now(self, companion: CompanionPlan, states: Sequence[StreamState]) -> StreamState:
        """Return the state with which a stream of companions resumes: from its beginning if it is another one now."""
        name, who = f"{companion.owner}/{companion.field}", {"chance": 0, "count": 0}
        orders = self.before, self._now
        before, now = ({**each.get("companions", {}).get(name, {}), **who} for each in orders)
        is_same = before == now and self.before["seed"] == self._now["seed"]
        return states[self._old[companion.name]] if is_same else StreamState()

    def _by_now(self, slot: int, source: SourcePlan, state: StreamState, old: Description) -> StreamState:
        """Return the state with which a source resumes by the current spec, after it was read by an old one."""
        if source.name not in self._old:
            return state
        written = old["sources"].get(source.name)
        if written is None or not reads_alike(source.name, old, self._now):
            return state.restart()
        delays = replace(source.delays, size=written["shuffle"])
        if (delays, written["interleave"]) == (source.delays, source.interleave):
            return state
        return state.for_plan_with_other_sizes(slot, delays, written["interleave"])

    def _modernize(self, slot: int, place: StreamState) -> StreamState:
        """Return a place of an older release as it is stored now.

        With the turn at which it began, its shares, and whether its window was planned whole.
        """
        if self.state["version"] == VERSION or not place.ordinal:
            return place
        worker = slot % self._workers
        if place.last < 0:  # a stage, which has read all of its input by the spec of the state
            return place._replace(last=max(0, (self.state["batch"] - 1 - worker) // self._workers))
        place = place._replace(end=PLANNED_WHOLE)
        live = [each for each in self._live if each.start <= place.last * self._workers + worker][-1:]
        return with_shares(place, live[0], tops_of(self.run.plan)) if live else place

    def _past_of(self, slot: int, place: StreamState) -> Past | None:
        """Return the earlier spec by which a section began; None if it is the current one."""
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
            is_flat = all(source.top == source.name for source in self.run.plan.sources)
            if place.stretches and not (is_flat and self.run.spec.mix.shares_in == "samples"):
                return "shares were set at run time in a mix of mixes, or of costs"
        return None

    def _finish(self, place: StreamState) -> StreamState:
        """Return the place in a section that is finished as it began.

        Its sources have the numbers of the run. If its samples have other costs now, it may be given again.
        """
        names = [*self._old]
        numbers = {source.name: number for number, source in enumerate(self.run.plan.sources)}
        stretches = (Stretch(numbers[names[number]], *rest) for number, *rest in place.stretches)
        place = place._replace(stretches=tuple(stretches))
        may_repeat = self._allow_changed and place.ordinal and place.end
        return place._replace(end=place.end | MAY_REPEAT) if may_repeat else place

    def _forget_past(self) -> None:
        """Forget earlier specs by which no open section began, if the state says so of all ranks."""
        ranks = range(self.run.plan.topology.ranks)
        if not self._sections:
            self.past = ()
        elif self.past and ranks_of(self.state) == [*ranks]:
            used = {
                self._past_of(slot, place)
                for slot, states in self._read_slots(ranks)
                for place in self._places(slot, states)
                if place.ordinal
            }
            self.past = tuple(past for past in self.past if past in used)
        kept = self._now["sources"].keys()  # a spec without any of its sources can finish nothing
        self.past = tuple(
            past for past in self.past if not kept.isdisjoint(json.loads(past.order)["sources"])
        )


def describe_passes(
    state: Mapping[str, Any], run: Run, before: Description, now: Description
) -> Iterator[str]:
    """Yield a line for each source that a changed run reads more or less often than its `max_passes` says.

    A spec counts the samples of a source by its own shares from the first step on, and not those that a run received
    by other shares before it was changed.

    Args:
        state: a state that fits the run; the more ranks it holds, the more exact the numbers.
        run: the run that resumes.
        before, now: descriptions of the order of the state and of the run.
    """
    plan, spec = run.plan, run.spec
    if before == now or not plan.exhausted or spec.stage is not None:
        return
    received = received_in(state)
    total = add_up([*received.values()])
    if not total:
        return
    of_ranks = Fraction(plan.topology.ranks, len(received))
    samples = {name: of_ranks * (amount.samples or 0) for name, amount in total.items()}
    size, counts = plan.batching.global_size, {each.name: len(each.shards) for each in plan.sources}
    at = Fraction(state["batch"])
    if plan.batching.windowed:
        at = _add_open_windows(samples, of_ranks, Resume(state, run, before, now, allow_changed=True))
    for source in spec.sources:
        if source.name not in {each.source for each in plan.exhausted} or not source.samples:
            continue
        counted = count_unlimited(
            spec, lambda each: counts.get(each.name, 0), size, plan.exhausted, source.name, at
        )
        same = before["sources"].get(source.name, {}).get("max_passes") == source.max_passes
        was = samples.get(source.name, Fraction(0))
        yield from _describe_passes_of(source, was, counted, Fraction(4 * plan.topology.slots), same)


def _add_open_windows(samples: dict[str, Fraction], of_ranks: Fraction, resume: Resume) -> Fraction:
    """Add what is left of open windows, which are finished as they began, to the samples that were received.

    Args:
        samples: source -> its samples that were received; changed.
        of_ranks: how many times the ranks in the state all ranks are.
        resume: how the slots resume.

    Returns:
        J of the first window that is not open yet, as the mean over the ranks.
    """
    run, state, before = resume.run, resume.state, resume.before
    begun, unfinished = resume.count_windows()
    at = of_ranks * begun / run.plan.topology.ranks
    ahead = of_ranks * unfinished * run.plan.batching.per_slot
    left = min(ahead, max(Fraction(0), at * run.plan.batching.global_size - sum(samples.values())))
    segments = plan_of(before, list(before["sources"])).segments
    shares, given = [each for each in segments if each.start <= at][-1].shares, samples_given(state)
    for name, share in zip(before["sources"], shares, strict=True):
        parts = run.parts.get(name)
        if parts is not None and not parts.drops_decoded and not parts.errors.skip:
            samples[name] = of_ranks * int(given[name].sum()) + ahead * share
        else:  # some of what was given was dropped later
            samples[name] = samples.get(name, Fraction(0)) + left * share
    return at


def _describe_passes_of(
    source: Source, was: Fraction, counted: Fraction, least: Fraction, is_same: bool
) -> Iterator[str]:
    """Yield a line if a source will be read more or less often than its `max_passes` says.

    Args:
        source: a source that has `samples`.
        was: its samples that were received.
        counted: those that the plan counts as received.
        least: the difference in samples that is not worth a line.
        is_same: whether the state was saved with the same `max_passes`.
    """
    size = source.samples
    assert size is not None, "it has them"
    most = Fraction(str(source.max_passes)) * size
    in_all = was + max(Fraction(0), most - counted)
    if abs(in_all - most) <= max(most / 50, least):
        return
    fits = float((most + counted - was) / size)
    advised = is_same and fits > 0
    hint = f"; for {source.max_passes:g} passes in all, write `max_passes: {fits:.4g}`" if advised else ""
    yield (
        f"`{source.name}` was read {float(was / size):.3g} passes before the spec changed, and counts as read "
        f"{float(counted / size):.3g}, by the shares that the spec has now: with `max_passes: {source.max_passes:g}` "
        f"it will be read {float(in_all / size):.3g} in all{hint}"
    )


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
