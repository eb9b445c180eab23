"""Whether a value has the form of a state: checked before anything is taken from it, as files get cut and edited."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from wdspec.errors import UsageError
from wdspec.planning.live_shares import shares_as_text, shares_from_text
from wdspec.planning.order_digest import digest
from wdspec.running.states.slot_columns import Slot, decode
from wdspec.spec.language.steps.step_ranges import StepRanges

FORMAT, VERSION = "wdspec-state", 4
WORKER_FORMAT = "wdspec-worker-state"
"""Of the state that a pipeline in one worker of somebody else's DataLoader has (`foreign_loader`)."""
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
    if skipped := skipped_steps(state):
        said["skip"] = skipped.as_text()
    if said:
        own = digest({"order": own, **said})
    return f"{state['batch']}.{state['given']}.{state['items']}.{own[:8]}:"


def skipped_steps(state: Mapping[str, Any]) -> StepRanges:
    """The steps that a state says were skipped, and are to be; states from before steps could be have no entry."""
    return StepRanges.from_text(state.get("skip", "[]"))


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
