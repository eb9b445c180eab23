"""The state of a run as JSON: made, checked against the spec, merged over ranks.

It holds, for every slot that was read, where each source stands: seven numbers. Nothing else is needed to go
on exactly at batch J, on any legal topology (`planning.state`). Without `batch` (or with `accumulate`)
a step gives a rank one item for each of its canonical ranks; a state made inside a step also says how many of
those were given.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wdspec.errors import UsageError
from wdspec.planning.order_digest import describe_order, describe_samples, differences, digest
from wdspec.planning.plan import Plan
from wdspec.planning.stream_state import StreamState, pack_slot, unpack_slot
from wdspec.running.blueprint import Blueprint
from wdspec.running.state_checks import FORMAT, VERSION, check_slots, check_whole

State = dict[str, Any]


@dataclass
class Position:
    """Where a rank's run stands."""

    batch: int = 0
    """J of the step to go on with."""
    table: dict[int, bytes] = field(default_factory=dict)
    """Slot -> packed state before that step."""
    given: int = 0
    """Items of that step already given."""


@dataclass(frozen=True)
class RunDescription:
    """What a state says of its run. Computed once: hashing long lists of shards takes time."""

    order: str
    """All that the order depends on (`planning.digest`), as JSON text."""
    digest: str
    samples: str
    """A digest of what changes the samples only."""
    sources: tuple[str, ...]
    workers: int
    """K, canonical workers a rank."""

    @classmethod
    def of(cls, blueprint: Blueprint, plan: Plan) -> RunDescription:
        """Describes the runs of a blueprint under a plan."""
        order = describe_order(blueprint.spec, plan)
        return cls(
            order=json.dumps(order),
            digest=digest(order),
            samples=describe_samples(blueprint.spec),
            sources=tuple(source.name for source in plan.sources),
            workers=plan.topology.workers,
        )


def make_state(run: RunDescription, ranks: range, position: Position, items: int) -> State:
    """The state at a position, of the given canonical ranks.

    Args:
        run: the run.
        ranks: the canonical ranks; slots of others are left out.
        position: where it stands.
        items: items that one step gives to these ranks together.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "batch": position.batch,
        "given": position.given,
        "items": items,
        "ranks": list(ranks),
        "digest": run.digest,
        "order": json.loads(run.order),
        "samples": run.samples,
        "sources": list(run.sources),
        "slots": slots_of(run, ranks, position.table),
    }


def slots_of(run: RunDescription, ranks: range, table: Mapping[int, bytes]) -> dict[str, list[list[int]]]:
    """The slots of some canonical ranks as JSON values: slot -> for each source, the fields of its `StreamState`."""
    return {
        str(slot): [state.numbers() for state in unpack_slot(packed)]
        for slot, packed in sorted(table.items())
        if slot // run.workers in ranks
    }


def read_state(
    state: Mapping[str, Any],
    run: RunDescription,
    ranks: range,
    items: int,
    allow_changed: bool = False,
    *,
    of_worker: bool = False,
) -> Position:
    """The position that a state says, checked against the run and cut down to the given canonical ranks.

    Args:
        state: what `make_state` or `merge_states` gave, perhaps through JSON.
        run: the run that is to go on from it.
        ranks: the canonical ranks to read.
        items: items that one step gives to these ranks together.
        allow_changed: accept a changed spec: sources are matched by name, added ones start afresh, removed
            ones are dropped, and one that is read in another way goes on at the beginning of its shard.
        of_worker: the state has the slots of one worker only.

    Raises:
        UsageError: not a state, damaged, of another version, of other ranks, inside a step that other ranks shared, or
            of a spec with another order; the message lists what changed.
    """
    check_whole(state)
    now = json.loads(run.order)
    changed = list(differences(state["order"], now))
    if state["order"]["elastic"] != now["elastic"]:
        raise UsageError(
            f"the state is of the topology {_topology(state['order'])}, this run has {_topology(now)}; write "
            f"`elastic: {{ranks: {state['order']['elastic']['ranks']}, workers: "
            f"{state['order']['elastic']['workers']}}}` in the spec, and run on any topology that divides it"
        )
    if changed and not allow_changed:
        raise UsageError(
            "the spec has changed since the state was saved, so the run cannot go on exactly:\n  "
            + "\n  ".join(changed)
            + "\nput it back, or load the state with allow_changed=True to go on as well as can be"
        )
    if state["samples"] != run.samples:
        warnings.warn(
            "decode, scale, rename, map or tags have changed since the state was saved: the order is the same, "
            "the samples may not be",
            stacklevel=3,
        )
    missing = sorted(set(ranks) - set(state["ranks"]))
    if missing:
        raise UsageError(
            f"the state holds the canonical ranks {state['ranks']}, but this rank reads {list(ranks)}; merge the "
            "states of all ranks with wdspec.merge_states first"
        )
    given = state["given"]
    if given and state["items"] != items:
        raise UsageError(
            f"the state was saved inside a step: {given} of the {state['items']} items of a rank had been given, "
            f"and a rank of this run gets {items} a step; go on with as many ranks as saved it, or save after a "
            f"multiple of {state['items']} items"
        )
    if not of_worker:
        check_slots(state)
    old = {name: index for index, name in enumerate(state["sources"])}
    fresh = {name for name in now["sources"] if _reads_otherwise(name, state["order"], now)}
    table = {}
    for text, states in state["slots"].items():
        if states and int(text) // run.workers in ranks:  # in a pass, slots have no state of their own
            slot = [
                _carried(states[old[name]], name in fresh) if name in old else StreamState()
                for name in run.sources
            ]
            table[int(text)] = pack_slot(slot)
    if "pass" in state["order"] and "pass" not in now:
        begun = pack_slot([StreamState()] * len(run.sources))
        table = {r * run.workers + k: begun for r in ranks for k in range(min(state["batch"], run.workers))}
    return Position(state["batch"], table, given)


def merge_states(states: Iterable[Mapping[str, Any]]) -> State:
    """The state of the whole job from those of its ranks: load it on every rank of any legal topology.

    Raises:
        UsageError: not the states of all ranks after one and the same batch of one spec.
    """
    parts = list(states)
    if not parts:
        raise UsageError("no states to merge")
    for part in parts:
        check_whole(part)
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


def _topology(order: Mapping[str, Any]) -> str:
    return f"{order['elastic']['ranks']} ranks × {order['elastic']['workers']} workers"
