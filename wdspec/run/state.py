"""The state of a run as JSON: its form, whether a value has it undamaged, and the states of several ranks merged.

    {"batch": J, "digest": …, "order": …, …,                  the same on every rank
     "ranks": {"6": "where its slots are", "7": …}}            one entry for each canonical rank that was read here

An entry holds, for every slot of its canonical rank, how far each source was read (`planning.stream_state`), in a
short text (`state_text`). Nothing else is needed to resume exactly at batch J, on any legal topology, and a rank that
resumes looks only at its own entries. Entries are named by canonical rank, so a program that saves a state by its
names, as `torch.distributed.checkpoint` does, puts the states of all ranks together, and gives each rank its part. An
entry starts with what must be the same on all ranks, which tells entries of different batches apart.

Without `batch` (or with `accumulate`) a step gives a rank one item for each of its canonical ranks; a state saved
inside a step also says how many of those were given.

Files get cut and edited, so a value is checked before anything is taken from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.planning.digest import differences, digest
from wdspec.planning.shares import shares_as_text, shares_from_text
from wdspec.run.state_text import Slot, decode
from wdspec.spec.language.steps import StepRanges

State = dict[str, Any]

FORMAT, VERSION = "wdspec-state", 4
WORKER_FORMAT = "wdspec-worker-state"
"""Of the state that a pipeline in one worker of somebody else's DataLoader has (`foreign_loader`)."""
_NO_STEPS = StepRanges().as_text()
"""Of a state whose run skips no steps."""
NO_SHARES = shares_as_text(())
"""Of a state where the spec's own shares hold."""


def check_undamaged(state: Any) -> None:
    """Raises a UsageError unless this is a state of a version that can be read, and all of it is as it was written."""
    if isinstance(state, Mapping) and state.get("format") == WORKER_FORMAT:
        raise UsageError(
            "this is the state of one worker of a DataLoader; load the state of the whole StatefulDataLoader into "
            "a StatefulDataLoader with as many workers"
        )
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise UsageError("this is no state of a wdspec pipeline or loader; pass what state_dict() returned")
    if not _is_count(state.get("version")):
        raise damaged("`version` is missing" if "version" not in state else "`version` is no number")
    if state["version"] != VERSION:
        raise UsageError(
            f"the state has format version {state['version']}, this wdspec reads version {VERSION}; finish the run "
            "with the release that wrote the state, or begin the data anew: no state, another `seed`"
        )
    for name, is_right in _KINDS.items():
        if name not in state and name in _OPTIONAL:
            continue
        if name not in state:
            raise damaged(f"`{name}` is missing")
        if not is_right(state[name]):
            raise damaged(f"`{name}` is {str(state[name])[:60]!r}")
    try:
        order = _order(state["order"], state["digest"])
    except (ValueError, RecursionError):
        raise damaged("`order` does not have the digest that was written with it") from None
    if state["given"] and state["given"] >= state["items"]:
        raise damaged(f"{state['given']} of {state['items']} items were given of a step")
    others = [name for name in state["sources"] if name not in order["sources"]]
    is_stage = others == state["sources"][-1:] and "stage.call" in order
    if len(state["sources"]) != len(order["sources"]) + is_stage or (others and not is_stage):
        raise damaged(f"`sources` is {state['sources']}, and `order` has others")
    written = stamp(state)
    for rank, entry in state["ranks"].items():
        if not (isinstance(rank, str) and rank.isdecimal() and isinstance(entry, str)):
            raise damaged(f"canonical rank {rank!r} is {str(entry)[:60]!r}")
        if not entry.startswith(written):
            raise UsageError(
                f"canonical rank {rank} was saved at another place than the rest of the state ({entry[:40]!r}…, not "
                f"{written!r}…); save on all ranks after the same batch, and load the whole of one checkpoint"
            )


@lru_cache(maxsize=4)
def _order(text: str, written: str) -> dict[str, Any]:
    """The order that a state describes; of thousands of states that are merged nearly always the same."""
    order: dict[str, Any] = json.loads(text)
    if not isinstance(order, dict) or digest(order) != written:
        raise ValueError
    return order


def stamp(state: Mapping[str, Any]) -> str:
    """What the entry of every canonical rank begins with: what has to be the same on all ranks."""
    own: str = state["digest"]
    said = {"shares": state["shares"]} if state["shares"] != NO_SHARES else {}
    if state.get("skip", _NO_STEPS) != _NO_STEPS:
        said["skip"] = state["skip"]
    if said:
        own = digest({"order": own, **said})
    return f"{state['batch']}.{state['given']}.{state['items']}.{own[:8]}:"


def skipped_steps(state: Mapping[str, Any]) -> StepRanges:
    """The steps that a state says were skipped, and are to be; states from before steps could be have no entry."""
    return StepRanges.from_text(state.get("skip", _NO_STEPS))


def ranks_of(state: Mapping[str, Any]) -> list[int]:
    """The canonical ranks that a state holds."""
    return sorted(map(int, state["ranks"]))


def entry_of(state: Mapping[str, Any], rank: int) -> str:
    """The text of one canonical rank (`slot_columns`), of a state that `check_undamaged` has passed."""
    return str(state["ranks"][str(rank)]).partition(":")[2]


def read_entry(
    state: Mapping[str, Any], rank: int, workers: int, reads: Callable[[int], bool] = lambda slot: True
) -> list[Slot]:
    """Where the slots of one canonical rank stand, of a state that `check_undamaged` has passed.

    Args:
        workers: K.
        reads: whether a slot is read here; the state may lack those that are not.

    Raises:
        UsageError: the entry is damaged, or lacks a slot that was read before and is again. Going on without it
            would silently begin it again.
    """
    try:
        slots = decode(entry_of(state, rank), workers, len(state["sources"]))
    except (ValueError, TypeError, OverflowError) as error:
        raise damaged(f"canonical rank {rank} is not as it was written ({error})") from None
    if "pass" not in _order(state["order"], state["digest"]):  # where slots have no state of their own
        for worker in range(min(state["batch"], workers)):
            if slots[worker] is None and reads(rank * workers + worker):
                raise damaged(f"slot {rank * workers + worker} is missing")
    return slots


def rank_state(state: Any, items: int) -> dict[str, Any]:
    """The state of one worker in the form of a rank's, for `check_undamaged`; checks what is the worker's alone.

    Args:
        state: what a worker's `state_dict` returned, perhaps through JSON.
        items: items that one step gives the rank.

    Raises:
        UsageError: it is no such state, or damaged.
    """
    if not isinstance(state, Mapping) or state.get("format") != WORKER_FORMAT:
        raise UsageError(
            "this is no state of a pipeline in a DataLoader worker; the state of a whole rank goes into the "
            "pipeline before the DataLoader is made, or into wdspec.loader"
        )
    for name in ("worker", "workers", "first"):
        if not _is_count(state.get(name)):
            raise damaged(
                f"`{name}` is {str(state[name])[:60]!r}" if name in state else f"`{name}` is missing"
            )
    try:
        order, digest, samples, sources = json.loads(state["run"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise damaged("`run` is missing, or is not what was written") from None
    described = {"items": items, "order": order, "digest": digest, "samples": samples, "sources": sources}
    return {**state, "format": FORMAT, "epoch_batches": None, "shared": 1, **described}


def damaged(fault: str) -> UsageError:
    """The error for a state that is not as it was written."""
    return UsageError(f"the state is damaged: {fault}; load an earlier checkpoint, or the whole of this one")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _are_steps(value: Any) -> bool:
    try:
        return isinstance(value, str) and StepRanges.from_text(value).as_text() == value
    except (TypeError, ValueError, RecursionError):
        return False


def _are_shares(value: Any) -> bool:
    try:
        return isinstance(value, str) and shares_as_text(shares_from_text(value)) == value
    except (TypeError, ValueError, AttributeError, RecursionError, UsageError):
        return False


_KINDS: dict[str, Callable[[Any], bool]] = {
    "batch": _is_count,
    "given": _is_count,
    "items": _is_count,
    "epoch_batches": lambda value: value is None or _is_count(value),
    "digest": lambda value: isinstance(value, str),
    "samples": lambda value: isinstance(value, str),
    "order": lambda value: isinstance(value, str),
    "sources": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "shares": _are_shares,
    "skip": _are_steps,
    "shared": lambda value: _is_count(value) and value > 0,
    "ranks": lambda value: isinstance(value, Mapping) and len(value) > 0,
}
_OPTIONAL = ("skip",)
"""What states may lack that were written before there was such a thing."""


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
    first = parts[0]
    for part in parts[1:]:
        if part["digest"] != first["digest"]:
            raise UsageError(
                "the states are of different specs:\n  "
                + "\n  ".join(differences(json.loads(first["order"]), json.loads(part["order"])))
            )
        if part["batch"] != first["batch"]:
            raise UsageError(
                f"the states are of different batches: {first['batch']} (ranks {ranks_of(first)}) and "
                f"{part['batch']} (ranks {ranks_of(part)}); save on all ranks after the same batch"
            )
        if (part["given"], part["items"]) != (first["given"], first["items"]):
            raise UsageError(
                f"the states are of different places in a step: {first['given']} of {first['items']} items "
                f"(ranks {ranks_of(first)}) and {part['given']} of {part['items']} (ranks {ranks_of(part)}); save "
                "on all ranks after the same number of items"
            )
        if part["shares"] != first["shares"]:
            raise UsageError(
                f"the ranks were given different shares: {first['shares']} (ranks {ranks_of(first)}) and "
                f"{part['shares']} (ranks {ranks_of(part)}), as [global batch, shares]; set the same on all ranks, "
                "after the same batch"
            )
        if skipped_steps(part) != skipped_steps(first):
            raise UsageError(
                f"the ranks skip different steps: {skipped_steps(first) or 'none'} (ranks {ranks_of(first)}) and "
                f"{skipped_steps(part) or 'none'} (ranks {ranks_of(part)}); skip the same on all ranks, after the same "
                "batch"
            )
    entries: dict[str, str] = {}
    for part in parts:
        for rank, entry in part["ranks"].items():
            if entries.setdefault(rank, entry) != entry:
                raise UsageError(f"canonical rank {rank} stands in two places; merge one state of each rank")
    total = json.loads(first["order"])["elastic"]["ranks"]
    lacking = [rank for rank in range(total) if str(rank) not in entries]
    if lacking:
        raise UsageError(f"canonical ranks {_some(lacking)} are missing; merge one state of each rank")
    return {**first, "ranks": dict(sorted(entries.items(), key=lambda item: int(item[0])))}


def _some(ranks: Sequence[int]) -> str:
    return (
        str(list(ranks)) if len(ranks) <= 8 else f"{', '.join(map(str, ranks[:8]))}, … ({len(ranks)} in all)"
    )
