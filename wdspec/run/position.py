"""The position of a run, as a value and as the state that `state_dict` returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from wdspec.base.amounts import join_names
from wdspec.base.errors import UsageError, warn_user
from wdspec.planning.digest import differences, samples_differences, with_unsaid
from wdspec.planning.order import SMALLEST, least_held
from wdspec.planning.past import Past, past_as_text
from wdspec.planning.shares import LiveShares, shares_as_text
from wdspec.planning.timeline import Timeline
from wdspec.planning.topology import Topology
from wdspec.read.counts import Amounts
from wdspec.read.source import unpack_slot
from wdspec.run.received import Received, resume_received
from wdspec.run.received import encode as encode_amounts
from wdspec.run.resume import Resume, describe_passes, live_shares
from wdspec.run.run import Run
from wdspec.run.state import (
    FORMAT,
    PLAIN_VERSION,
    TOTALS,
    VERSION,
    State,
    check_undamaged,
    encode,
    ranks_of,
    skipped_steps,
    stamp,
)
from wdspec.spec.language.steps import StepRanges


@dataclass(frozen=True)
class Position:
    """Where a run is, after the last item it yielded."""

    step: int = 0
    """J of the step to resume with."""
    items_given: int = 0
    """Items of that step that were yielded already."""
    slot_states: Mapping[int, bytes] = field(default_factory=dict)
    """Slot -> packed state before that step."""
    shares: tuple[LiveShares, ...] = ()
    """The shares set at run time: the current ones, and later ones."""
    skipped: StepRanges = field(default_factory=StepRanges)
    """Earlier steps that were skipped, and later ones that the training loop (not the spec) has set to be skipped."""
    past: tuple[Past, ...] = ()
    """Earlier specs by which sections of slots may have begun, in order."""
    received: Received | None = None
    """What was received before that step; None if it follows from the position."""
    timeline: Timeline | None = None
    """The timeline from that step on; None for that of the plan."""

    def to_state(self, run: Run) -> State:
        """Return the state of a rank, as JSON values."""
        timeline = self.timeline or run.plan.timeline
        received = {rank: each for rank, each in (self.received or {}).items() if each is not None}
        state: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION if run.has_sections or received else PLAIN_VERSION,
            "batch": self.step,
            "given": self.items_given,
            "items": run.items_per_step,
            "epoch_batches": timeline.epoch_steps,
            "shared": run.plan.batching.shared,
            "digest": run.order_digest,
            "order": run.order_text,
            "samples": run.samples_digest,
            "sources": list(run.state_names),
            "shares": shares_as_text(self.shares),
            "skip": self.skipped.as_text(),
            **({"past": past_as_text(self.past)} if self.past else {}),
        }
        if timeline.start is not None:
            state |= _describe_epoch(timeline, self.step)
        if received:
            return self._with_received(state, run, received)
        return {**state, "ranks": entries_of(run, self.slot_states, stamp(state))}

    def _with_received(self, state: Mapping[str, Any], run: Run, received: Mapping[int, Amounts]) -> State:
        """Return a state with what its ranks have received, and the states of their slots."""
        names = [source.name for source in run.plan.sources]
        # Sources that were received and are not in the spec any more.
        removed = sorted({name for amounts in received.values() for name in amounts}.difference(names))
        state = {**state, **({"removed": removed} if removed else {})}
        entries = entries_of(run, self.slot_states, stamp(state))
        for rank, amounts in received.items():
            known = {name: run.nothing_of(name) for name in (*names, *removed)} | amounts
            entries[str(rank)] += TOTALS + encode_amounts([*known], known)
        return {**state, "ranks": entries}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        run: Run,
        allow_changed: bool = False,
        reads: Callable[[int], bool] = lambda slot: True,
    ) -> Position:
        """Return the position of a state, checked against the run that resumes, with the run's canonical ranks only.

        Args:
            state: what `to_state` or `merge_states` returned, perhaps loaded from JSON.
            run: the run that resumes.
            allow_changed: accept a changed spec: sources are matched by name, added ones start at their beginning,
                removed ones are dropped, and one that is read in another way resumes at the start of its shard.
            reads: whether a slot is read here; the state may lack the others.

        Raises:
            UsageError: not a state, damaged, of another version, of other ranks, inside a step that another number of
                ranks shared, or of a spec with another order; the message lists the changes.
        """
        check_undamaged(state)
        before, now = json.loads(state["order"]), json.loads(run.order_text)
        if state["samples"] == run.samples_digest:
            before = with_unsaid(before, now)
        _check_fits(state, run, before, now, allow_changed)
        shares = live_shares(state, run, before, now)
        resume = Resume(state, run, before, now, allow_changed)
        slots = resume.slots(reads)
        received = resume_received(state, run, before, now)
        for line in describe_passes(state, run, before, now):
            warn_user(line)
        return cls(*resume.place, slots, shares, skipped_steps(state), resume.past, received, resume.timeline)


def _describe_epoch(timeline: Timeline, step: int) -> dict[str, Any]:
    """Return the epoch of a step, where epochs differ, as a state says it."""
    number, first = timeline.place(step)
    # The next epoch may never be read, so it is not planned to know its length.
    length = timeline.length(step) if step > first or not number else 0
    return {"epoch": [number, first], "epoch_batches": length}


def entries_of(run: Run, table: Mapping[int, bytes], stamped: str) -> dict[str, str]:
    """Return the states of the slots of the run's canonical ranks: canonical rank -> text."""
    workers = run.plan.topology.workers
    return {
        str(rank): stamped + encode([unpack_slot(table.get(rank * workers + k, b"")) for k in range(workers)])
        for rank in run.canonical_ranks
    }


def _topology(elastic: Mapping[str, int]) -> str:
    return f"{elastic['ranks']} ranks × {elastic['workers']} workers"


def _name_fewer_held(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """Return the places of sources that hold fewer samples now only because of the rule of `least_held`."""
    return {
        f"sources.{name}.shuffle"
        for name, new in now["sources"].items()
        if (old := before["sources"].get(name)) is not None
        and old["share"] == new["share"]
        and old["shuffle"] == SMALLEST > new["shuffle"] == least_held(Fraction(new["share"]))
    }


def _describe_fewer_held(places: set[str]) -> list[str]:
    if not places:
        return []
    one = min(places).removeprefix("sources.").removesuffix(".shuffle")
    return [
        f"sources with small shares ({len(places):,}, such as `{one}`): an earlier version of wdspec held {SMALLEST} "
        "samples of each in the shuffle buffer, and this one holds fewer. With allow_changed=True, those that are held "
        "are yielded as before, and nothing is lost or repeated"
    ]


def _keep_topology(run: Run, written: Mapping[str, int]) -> str:
    """Return how a run resumes a state of another topology."""
    elastic = f"`elastic: {{ranks: {written['ranks']}, workers: {written['workers']}}}` in the spec"
    topology, errors = Topology(written["ranks"], written["workers"]), []
    # With `elastic`, those of this process are unknown.
    workers = run.plan.topology.workers if run.spec.elastic is None else 1
    for check in (
        lambda: run.seat.places(topology, run.plan.batching.shared),
        lambda: topology.check_workers(workers),
    ):
        try:
            check()
        except UsageError as error:
            errors.append(error.message)
    if errors:
        return f"{'; '.join(errors)}, with {elastic}. To resume on more, write `elastic` before a run starts"
    return f"write {elastic}, which keeps the order on other topologies (`wdspec simulate` lists them)"


def _check_fits(
    state: Mapping[str, Any],
    run: Run,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    allow_changed: bool,
) -> None:
    """Raise a UsageError unless the run can resume from the state: topology, order, ranks, and position in a step."""
    fewer = _name_fewer_held(before, now)
    changed = [
        *(line for line in differences(before, now, spec=run.spec) if line.partition(": ")[0] not in fewer),
        *_describe_fewer_held(fewer),
    ]
    written, elastic = before["elastic"], now["elastic"]
    if written != elastic:
        raise UsageError(
            f"the state has the topology {_topology(written)}, this run has {_topology(elastic)}; "
            + _keep_topology(run, written)
        )
    if run.plan.batching.windowed:
        changed = [line.replace("schedule.batch ", "schedule.window ", 1) for line in changed]
    if changed and not allow_changed:
        raise UsageError(
            "the spec has changed since the state was saved, so the run cannot resume exactly:\n  "
            + "\n  ".join(changed)
            + "\nundo the change, or load the state with allow_changed=True to resume as closely as possible"
        )
    if state["samples"] != run.samples_digest:
        whats = list(samples_differences(state["samples"], run.samples_digest, run.spec))
        if before["sources"].keys() != now["sources"].keys():
            whats.insert(0, "the sources")
        same = "" if changed else "the order is the same, but "
        warn_user(f"since the state was saved, {join_names(whats)} changed: {same}the samples may differ")
    if any(str(rank) not in state["ranks"] for rank in run.canonical_ranks):
        raise UsageError(
            f"the state holds the canonical ranks {ranks_of(state)}, but this rank reads {list(run.canonical_ranks)}; "
            "save wdspec.gather_state(loader), which has those of all ranks (frameworks that save the loader itself "
            "get wdspec.integrations.loaders.WholeJob(loader)), or merge saved states with wdspec.merge_states"
        )
    items = state["items"]
    if state["given"] and items != run.items_per_step:
        raise UsageError(
            f"the state was saved inside a step: {state['given']} of the {items} items of a rank had been yielded, "
            f"and a rank of this run gets {run.items_per_step} per step; resume with the number of ranks that saved "
            f"the state, or save it after a multiple of {items} items"
        )
