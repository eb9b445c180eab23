"""The state of a run as JSON: made, checked against the spec, merged over ranks.

It holds, for every slot that was read, where each source stands: seven numbers. Nothing else is needed to go
on exactly at batch J, on any legal topology (`planning.state`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from wdspec.pipeline.blueprint import Blueprint
from wdspec.planning.digest import describe_order, describe_samples, differences, digest
from wdspec.planning.plan import Plan
from wdspec.planning.state import StreamState, pack_slot, unpack_slot
from wdspec.spec.errors import UsageError

FORMAT, VERSION = "wdspec-state", 1

State = dict[str, Any]


def make_state(
    blueprint: Blueprint, plan: Plan, ranks: range, batch: int, table: Mapping[int, bytes]
) -> State:
    """The state after the batches before J, of the given canonical ranks.

    Args:
        batch: J of the next batch.
        table: packed states of the slots that were read, of any ranks; only those of `ranks` are kept.
    """
    order = describe_order(blueprint.spec, plan)
    workers = plan.topology.workers
    return {
        "format": FORMAT,
        "version": VERSION,
        "batch": batch,
        "ranks": list(ranks),
        "digest": digest(order),
        "order": order,
        "samples": describe_samples(blueprint.spec),
        "sources": [source.name for source in plan.sources],
        "slots": {
            str(slot): [list(state) for state in unpack_slot(packed)]
            for slot, packed in sorted(table.items())
            if slot // workers in ranks
        },
    }


def read_state(
    state: Mapping[str, Any], blueprint: Blueprint, plan: Plan, ranks: range, allow_changed: bool = False
) -> tuple[int, dict[int, bytes]]:
    """(J, table) of a state, checked against the spec and cut down to the given canonical ranks.

    Args:
        state: what `make_state` or `merge_states` gave, perhaps through JSON.
        allow_changed: accept a changed spec: sources are matched by name, added ones start afresh, removed
            ones are dropped, and one that is read in another way goes on at the beginning of its shard.

    Raises:
        UsageError: not a state, of another version, of other ranks, or of a spec with another order; the
            message lists what changed.
    """
    check_state(state)
    now = describe_order(blueprint.spec, plan)
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
    if state["samples"] != describe_samples(blueprint.spec):
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
    old = {name: index for index, name in enumerate(state["sources"])}
    fresh = {name for name in now["sources"] if _reads_otherwise(name, state["order"], now)}
    table = {}
    for text, states in state["slots"].items():
        if int(text) // plan.topology.workers in ranks:
            slot = [
                _carried(states[old[source.name]], source.name in fresh)
                if source.name in old
                else StreamState()
                for source in plan.sources
            ]
            table[int(text)] = pack_slot(slot)
    return int(state["batch"]), table


def check_state(state: Mapping[str, Any]) -> None:
    """Raises a UsageError unless this is a state of a version that can be read."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise UsageError("this is no state of a wdspec pipeline or loader; pass what state_dict() returned")
    if state.get("version") != VERSION:
        raise UsageError(
            f"the state has format version {state.get('version')}, this wdspec reads version {VERSION}; use the "
            "release that wrote it"
        )


def merge_states(states: Iterable[Mapping[str, Any]]) -> State:
    """The state of the whole job from those of its ranks: load it on every rank of any legal topology.

    Raises:
        UsageError: not the states of all ranks after one and the same batch of one spec.
    """
    parts = list(states)
    if not parts:
        raise UsageError("no states to merge")
    for part in parts:
        check_state(part)
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
    ranks = sorted(rank for part in parts for rank in part["ranks"])
    total = first["order"]["elastic"]["ranks"]
    if ranks != list(range(total)):
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        lacking = sorted(set(range(total)) - set(ranks))
        what = f"canonical ranks {twice} come twice" if twice else f"canonical ranks {lacking} are missing"
        raise UsageError(f"{what}; merge one state of each rank")
    slots = {slot: states for part in parts for slot, states in part["slots"].items()}
    return {**first, "ranks": ranks, "slots": dict(sorted(slots.items(), key=lambda item: int(item[0])))}


def _carried(numbers: Iterable[int], fresh: bool) -> StreamState:
    state = StreamState(*numbers)
    if not fresh:
        return state
    return StreamState(state.turn, window=state.window + 1, ordinal=state.ordinal + max(state.length, 0))


def _reads_otherwise(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the source's own stream differs, beyond its share."""
    before, now = ({k: v for k, v in d["sources"].get(name, {}).items() if k != "share"} for d in (old, new))
    return old["seed"] != new["seed"] or before != now


def _topology(order: Mapping[str, Any]) -> str:
    return f"{order['elastic']['ranks']} ranks × {order['elastic']['workers']} workers"
