"""Where a run is: a `Position`, as a value and as the state that `state_dict` returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wdspec.base.errors import UsageError, warn_user
from wdspec.planning.digest import differences, reads_alike
from wdspec.planning.plan import SourcePlan
from wdspec.planning.shares import LiveShares, shares_as_text, shares_from_text
from wdspec.read.source import StreamState, pack_slot, unpack_slot
from wdspec.run.run import Run
from wdspec.run.state import (
    FORMAT,
    VERSION,
    State,
    check_undamaged,
    ranks_of,
    read_entry,
    skipped_steps,
    stamp,
)
from wdspec.run.state_text import encode
from wdspec.spec.language.steps import StepRanges


@dataclass(frozen=True)
class Position:
    """Where a run is, after the last item given."""

    step: int = 0
    """J of the step to resume with."""
    given: int = 0
    """Items of that step that were given already."""
    slots: Mapping[int, bytes] = field(default_factory=dict)
    """Slot -> packed state before that step."""
    shares: tuple[LiveShares, ...] = ()
    """The shares that were set at run time: those in effect, and later ones."""
    skipped: StepRanges = field(default_factory=StepRanges)
    """The steps before it that were skipped, and later ones that the training loop, not the spec, has set to be."""

    def all_skipped(self, run: Run) -> StepRanges:
        """The steps that were skipped up to here, and all later ones that a run which resumes here will skip."""
        return self.skipped | run.skipped.within(self.step) if run.skipped else self.skipped

    def to_state(self, run: Run) -> State:
        """The position of a rank as JSON values."""
        state = {
            "format": FORMAT,
            "version": VERSION,
            "batch": self.step,
            "given": self.given,
            "items": run.items_per_step,
            "epoch_batches": run.plan.epoch_batches,
            "shared": run.plan.batching.shared,
            "digest": run.digest,
            "order": run.order,
            "samples": run.samples,
            "sources": list(run.sources),
            "shares": shares_as_text(self.shares),
            "skip": self.skipped.as_text(),
        }
        return {**state, "ranks": entries_of(run, self.slots, stamp(state))}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        run: Run,
        allow_changed: bool = False,
        reads: Callable[[int], bool] = lambda slot: True,
    ) -> Position:
        """The position of a state, checked against the run that resumes from it, with the run's canonical ranks only.

        Args:
            state: what `to_state` or `merge_states` returned, perhaps through JSON.
            run: the run that resumes.
            allow_changed: accept a changed spec: sources are matched by name, added ones start afresh, removed
                ones are dropped, and one that is read in another way resumes at the start of its shard.
            reads: whether a slot is read here; the state may lack the others.

        Raises:
            UsageError: not a state, damaged, of another version, of other ranks, inside a step that other ranks shared,
                or of a spec with another order; the message lists what changed.
        """
        check_undamaged(state)
        before, now = json.loads(state["order"]), json.loads(run.order)
        _check_fits(state, run, before, now, allow_changed)
        slots = _resume_slots(state, run, before, now, reads)
        shares = _live_shares(state, run, before, now)
        return cls(state["batch"], state["given"], slots, shares, skipped_steps(state))


def entries_of(run: Run, table: Mapping[int, bytes], stamped: str) -> dict[str, str]:
    """Where the slots of each of the run's canonical ranks stand: canonical rank -> text."""
    workers = run.plan.topology.workers
    return {
        str(rank): stamped + encode([unpack_slot(table.get(rank * workers + k, b"")) for k in range(workers)])
        for rank in run.ranks
    }


def _live_shares(
    state: Mapping[str, Any], run: Run, before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[LiveShares, ...]:
    """What was set of shares, where the spec's own are as they were."""
    own, new = (
        (each.get("schedule"), {name: said["share"] for name, said in each["sources"].items()})
        for each in (before, now)
    )
    live, names = shares_from_text(state["shares"]), {source.name for source in run.spec.dataset}
    if live and (own != new or not all(names.issuperset(each.shares) for each in live)):
        warn_user(
            "the spec's shares have changed since the state was saved, so those that were set in the run are dropped "
            f"({state['shares']}, as [global batch, shares]); set them again if they are to hold"
        )
        return ()
    return live


def _resume_source(
    source: SourcePlan, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Callable[[int, StreamState], StreamState]:
    """What turns the state of a source in a slot into that with which it goes on in a run with another order."""
    written = old["sources"].get(source.name)
    if written is None or not reads_alike(source.name, old, new):
        return lambda slot, state: state.restarted()
    delays = replace(source.delays, size=written["shuffle"])
    if (delays, written["interleave"]) == (source.delays, source.interleave):
        return lambda slot, state: state
    return lambda slot, state: state.for_plan_with_other_sizes(slot, delays, written["interleave"])


def _keep(slot: int, state: StreamState) -> StreamState:
    """Where a stage stands goes on as it was saved."""
    return state


def _topology(elastic: Mapping[str, int]) -> str:
    return f"{elastic['ranks']} ranks × {elastic['workers']} workers"


def _check_fits(
    state: Mapping[str, Any],
    run: Run,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    allow_changed: bool,
) -> None:
    """Raise a UsageError unless the run can resume from the state: same topology, order, ranks and place in a step."""
    changed = list(differences(before, now))
    written, elastic = before["elastic"], now["elastic"]
    if written != elastic:
        raise UsageError(
            f"the state is of the topology {_topology(written)}, this run has {_topology(elastic)}; write "
            f"`elastic: {{ranks: {written['ranks']}, workers: {written['workers']}}}` in the spec, and run on any "
            "topology that divides it"
        )
    if changed and not allow_changed:
        raise UsageError(
            "the spec has changed since the state was saved, so the run cannot go on exactly:\n  "
            + "\n  ".join(changed)
            + "\nput it back, or load the state with allow_changed=True to go on as well as can be"
        )
    if state["samples"] != run.samples:
        warn_user(
            "decode, scale, rename, map or tags have changed since the state was saved: the order is the same, "
            "the samples may not be"
        )
    if any(str(rank) not in state["ranks"] for rank in run.ranks):
        raise UsageError(
            f"the state holds the canonical ranks {ranks_of(state)}, but this rank reads {list(run.ranks)}; merge the "
            "states of all ranks with wdspec.merge_states first"
        )
    given = state["given"]
    if given and state["items"] != run.items_per_step:
        raise UsageError(
            f"the state was saved inside a step: {given} of the {state['items']} items of a rank had been given, "
            f"and a rank of this run gets {run.items_per_step} a step; go on with as many ranks as saved it, or save "
            f"after a multiple of {state['items']} items"
        )


def _resume_slots(
    state: Mapping[str, Any],
    run: Run,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    reads: Callable[[int], bool],
) -> dict[int, bytes]:
    """The packed states of the run's slots, with which they resume."""
    old = {name: index for index, name in enumerate(state["sources"])}
    resume = [_resume_source(source, before, now) for source in run.plan.sources]
    resume += [_keep] * (len(run.sources) - len(resume))
    workers = run.plan.topology.workers
    slots = {}
    for rank in run.ranks:
        for worker, states in enumerate(read_entry(state, rank, workers, reads)):
            if states is not None:
                slot = rank * workers + worker
                resumed = [
                    resume_state(slot, states[old[name]]) if name in old else StreamState()
                    for name, resume_state in zip(run.sources, resume, strict=True)
                ]
                slots[slot] = pack_slot(resumed)
    if "pass" in before and "pass" not in now:
        fresh = pack_slot([StreamState()] * len(run.sources))
        return {r * workers + k: fresh for r in run.ranks for k in range(min(state["batch"], workers))}
    return slots
