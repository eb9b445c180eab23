"""The state of a run as JSON: made, checked against the run that is to go on, merged over ranks.

It holds, for every slot that was read, how far each source was read: seven numbers. Nothing else is needed to go
on exactly at batch J, on any legal topology (`planning.stream_state`). Without `batch` (or with `accumulate`)
a step gives a rank one item for each of its canonical ranks; a state made inside a step also says how many of
those were given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wdspec.errors import UsageError
from wdspec.planning.order_digest import differences
from wdspec.planning.stream_state import StreamState, pack_slot, unpack_slot
from wdspec.running.run import Run
from wdspec.running.state_checks import FORMAT, VERSION, check_slots, check_undamaged
from wdspec.system.user_warnings import warn_user

State = dict[str, Any]


class Checkpoint(NamedTuple):
    """Where the iterations over a run stand; what a state says, in the form that readers use."""

    batch: int = 0
    """J of the step to go on with."""
    table: Mapping[int, bytes] = {}
    """Slot -> packed state before that step."""
    given: int = 0
    """Items of that step already given."""


def make_state(run: Run, checkpoint: Checkpoint) -> State:
    """The state of a rank as JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "batch": checkpoint.batch,
        "given": checkpoint.given,
        "items": run.items_per_step,
        "ranks": list(run.ranks),
        "digest": run.digest,
        "order": json.loads(run.order),
        "samples": run.samples,
        "sources": list(run.sources),
        "slots": slots_of(run, checkpoint.table),
    }


def slots_of(run: Run, table: Mapping[int, bytes]) -> dict[str, list[list[int]]]:
    """The slots of the run's ranks as JSON values: slot -> for each source, the fields of its `StreamState`."""
    workers = run.plan.topology.workers
    return {
        str(slot): [state.numbers() for state in unpack_slot(packed)]
        for slot, packed in sorted(table.items())
        if slot // workers in run.ranks
    }


def read_state(
    state: Mapping[str, Any],
    run: Run,
    allow_changed: bool = False,
    reads: Callable[[int], bool] = lambda slot: True,
) -> Checkpoint:
    """Where a state stands, checked against the run that is to go on from it, and cut down to its canonical ranks.

    Args:
        state: what `make_state` or `merge_states` gave, perhaps through JSON.
        run: the run that is to go on.
        allow_changed: accept a changed spec: sources are matched by name, added ones start afresh, removed
            ones are dropped, and one that is read in another way goes on at the beginning of its shard.
        reads: whether a slot is read here; the state may lack those that are not.

    Raises:
        UsageError: not a state, damaged, of another version, of other ranks, inside a step that other ranks shared, or
            of a spec with another order; the message lists what changed.
    """
    check_undamaged(state)
    now = json.loads(run.order)
    changed = list(differences(state["order"], now))
    written, elastic = state["order"]["elastic"], now["elastic"]
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
    missing = sorted(set(run.ranks) - set(state["ranks"]))
    if missing:
        raise UsageError(
            f"the state holds the canonical ranks {state['ranks']}, but this rank reads {list(run.ranks)}; merge the "
            "states of all ranks with wdspec.merge_states first"
        )
    given = state["given"]
    if given and state["items"] != run.items_per_step:
        raise UsageError(
            f"the state was saved inside a step: {given} of the {state['items']} items of a rank had been given, "
            f"and a rank of this run gets {run.items_per_step} a step; go on with as many ranks as saved it, or save "
            f"after a multiple of {state['items']} items"
        )
    check_slots(state, reads)
    old = {name: index for index, name in enumerate(state["sources"])}
    fresh = {name for name in now["sources"] if _reads_otherwise(name, state["order"], now)}
    workers = run.plan.topology.workers
    table = {}
    for text, states in state["slots"].items():
        if states and int(text) // workers in run.ranks:  # in a pass, slots have no state of their own
            slot = [
                _carried(states[old[name]], name in fresh) if name in old else StreamState()
                for name in run.sources
            ]
            table[int(text)] = pack_slot(slot)
    if "pass" in state["order"] and "pass" not in now:
        begun = pack_slot([StreamState()] * len(run.sources))
        table = {r * workers + k: begun for r in run.ranks for k in range(min(state["batch"], workers))}
    return Checkpoint(state["batch"], table, given)


def merge_states(states: Iterable[Mapping[str, Any]]) -> State:
    """The state of the whole job from those of its ranks: load it on every rank of any legal topology.

    Raises:
        UsageError: not the states of all ranks after one and the same batch of one spec.
    """
    parts = list(states)
    if not parts:
        raise UsageError("no states to merge")
    for part in parts:
        check_undamaged(part)
        check_slots(part)
    first = parts[0]
    for part in parts[1:]:
        if part["digest"] != first["digest"]:
            raise UsageError(
                "the states are of different specs:\n  "
                + "\n  ".join(differences(first["order"], part["order"]))
            )
        if part["batch"] != first["batch"]:
            raise UsageError(
                f"the states are of different batches: {first['batch']} (ranks {first['ranks']}) and "
                f"{part['batch']} (ranks {part['ranks']}); save on all ranks after the same batch"
            )
        if (part["given"], part["items"]) != (first["given"], first["items"]):
            raise UsageError(
                f"the states are of different places in a step: {first['given']} of {first['items']} items "
                f"(ranks {first['ranks']}) and {part['given']} of {part['items']} (ranks {part['ranks']}); save on "
                "all ranks after the same number of items"
            )
    ranks = sorted(rank for part in parts for rank in part["ranks"])
    total = first["order"]["elastic"]["ranks"]
    if ranks != list(range(total)):
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        lacking = sorted(set(range(total)) - set(ranks))
        what = f"canonical ranks {twice} come twice" if twice else f"canonical ranks {lacking} are missing"
        raise UsageError(f"{what}; merge one state of each rank")
    slots = {slot: states for part in parts for slot, states in part["slots"].items()}
    return {**first, "ranks": ranks, "slots": dict(sorted(slots.items(), key=lambda item: int(item[0])))}


def _carried(numbers: Sequence[int], fresh: bool) -> StreamState:
    state = StreamState.from_numbers(numbers)
    if not fresh:
        return state
    turn = min(state.turn, *(lane[0] for lane in state.lanes)) if state.lanes else state.turn
    return StreamState(turn, window=state.window + 1, ordinal=state.ordinal + max(state.length, 0))


def _reads_otherwise(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the source's own stream differs, beyond its share."""
    before, now = ({k: v for k, v in d["sources"].get(name, {}).items() if k != "share"} for d in (old, new))
    return old["seed"] != new["seed"] or before != now


def _topology(elastic: Mapping[str, int]) -> str:
    return f"{elastic['ranks']} ranks × {elastic['workers']} workers"
