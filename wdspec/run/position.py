"""The position of a run, as a value and as the state that `state_dict` returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wdspec.base.errors import UsageError, warn_user
from wdspec.planning.digest import differences, reads_alike, with_reads
from wdspec.planning.plan import SourcePlan
from wdspec.planning.shares import LiveShares, shares_as_text, shares_from_text
from wdspec.read.slot import with_shares
from wdspec.read.source import StreamState, pack_slot, unpack_slot
from wdspec.run.run import Run
from wdspec.run.state import (
    FORMAT,
    VERSION,
    State,
    check_undamaged,
    encode,
    ranks_of,
    read_entry,
    skipped_steps,
    stamp,
    version_of,
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

    def to_state(self, run: Run) -> State:
        """Return the state of a rank, as JSON values."""
        state = {
            "format": FORMAT,
            "version": version_of(run.state_names),
            "batch": self.step,
            "given": self.items_given,
            "items": run.items_per_step,
            "epoch_batches": run.plan.timeline.epoch_steps,
            "shared": run.plan.batching.shared,
            "digest": run.order_digest,
            "order": run.order_text,
            "samples": run.samples_digest,
            "sources": list(run.state_names),
            "shares": shares_as_text(self.shares),
            "skip": self.skipped.as_text(),
        }
        return {**state, "ranks": entries_of(run, self.slot_states, stamp(state))}

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
            before = with_reads(before, now)
        _check_fits(state, run, before, now, allow_changed)
        shares = _live_shares(state, run, before, now)
        slots = _resume_slots(state, run, before, now, reads, shares)
        return cls(state["batch"], state["given"], slots, shares, skipped_steps(state))


def entries_of(run: Run, table: Mapping[int, bytes], stamped: str) -> dict[str, str]:
    """Return the states of the slots of the run's canonical ranks: canonical rank -> text."""
    workers = run.plan.topology.workers
    return {
        str(rank): stamped + encode([unpack_slot(table.get(rank * workers + k, b"")) for k in range(workers)])
        for rank in run.canonical_ranks
    }


def _live_shares(
    state: Mapping[str, Any], run: Run, before: Mapping[str, Any], now: Mapping[str, Any]
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


def _resume_source(
    source: SourcePlan, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Callable[[int, StreamState], StreamState]:
    """Return the function from (slot, state of a source) to the state it resumes with, in a run with another order."""
    written = old["sources"].get(source.name)
    if written is None or not reads_alike(source.name, old, new):
        return lambda slot, state: state.restart()
    delays = replace(source.delays, size=written["shuffle"])
    if (delays, written["interleave"]) == (source.delays, source.interleave):
        return lambda slot, state: state
    return lambda slot, state: state.for_plan_with_other_sizes(slot, delays, written["interleave"])


def _resume_section(
    state: Mapping[str, Any], run: Run, live: tuple[LiveShares, ...]
) -> Callable[[int, StreamState], StreamState]:
    """Return the function from (slot, place in a stage or window) to the place it resumes with."""
    names, workers = sorted(source.name for source in run.spec.dataset), run.plan.topology.workers
    if not live:
        return lambda slot, place: place._replace(stretches=())
    if state["version"] == VERSION:
        return lambda slot, place: place

    def resume(slot: int, place: StreamState) -> StreamState:
        # Older states hold all shares that were ever set, and not those of the window itself.
        begun = place.last * workers + slot % workers
        of_window = [each for each in live if each.start <= begun][-1:] if place.ordinal else []
        return with_shares(place, of_window[0], names) if of_window else place

    return resume


def _topology(elastic: Mapping[str, int]) -> str:
    return f"{elastic['ranks']} ranks × {elastic['workers']} workers"


def _check_fits(
    state: Mapping[str, Any],
    run: Run,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    allow_changed: bool,
) -> None:
    """Raise a UsageError unless the run can resume from the state: topology, order, ranks, and position in a step."""
    changed = list(differences(before, now))
    written, elastic = before["elastic"], now["elastic"]
    if written != elastic:
        raise UsageError(
            f"the state has the topology {_topology(written)}, this run has {_topology(elastic)}; write "
            f"`elastic: {{ranks: {written['ranks']}, workers: {written['workers']}}}` in the spec, and run on any "
            "topology that divides it"
        )
    if changed and not allow_changed:
        raise UsageError(
            "the spec has changed since the state was saved, so the run cannot resume exactly:\n  "
            + "\n  ".join(changed)
            + "\nundo the change, or load the state with allow_changed=True to resume as closely as possible"
        )
    if state["samples"] != run.samples_digest:
        warn_user(
            "decode, scale, rename, map or tags have changed since the state was saved: the order is the same, but "
            "the samples may differ"
        )
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


def _resume_slots(
    state: Mapping[str, Any],
    run: Run,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    reads: Callable[[int], bool],
    live: tuple[LiveShares, ...],
) -> dict[int, bytes]:
    """Return slot -> packed state to resume with.

    Args:
        live: the shares set at run time with which the run resumes.
    """
    old = {name: index for index, name in enumerate(state["sources"])}
    resume = [_resume_source(source, before, now) for source in run.plan.sources]
    resume += [_resume_section(state, run, live)] * (len(run.state_names) - len(resume))
    workers = run.plan.topology.workers
    slots = {}
    for rank in run.canonical_ranks:
        for worker, states in enumerate(read_entry(state, rank, workers, reads)):
            if states is not None:
                slot = rank * workers + worker
                resumed = [
                    resume_state(slot, states[old[name]]) if name in old else StreamState()
                    for name, resume_state in zip(run.state_names, resume, strict=True)
                ]
                slots[slot] = pack_slot(resumed)
    if "pass" in before and "pass" not in now:
        fresh = pack_slot([StreamState()] * len(run.state_names))
        return {
            r * workers + k: fresh for r in run.canonical_ranks for k in range(min(state["batch"], workers))
        }
    return slots
