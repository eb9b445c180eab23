"""Whether a value is an undamaged state: checked before anything is taken from it, as files get cut and edited."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from wdspec.errors import UsageError
from wdspec.planning.order_digest import digest

FORMAT, VERSION = "wdspec-state", 2
WORKER_FORMAT = "wdspec-worker-state"
"""Of the state that a pipeline in one worker of somebody else's DataLoader has (`foreign_loader`)."""

_FIELDS = 7
"""Numbers of a source in a slot, before those of its lanes (`StreamState.numbers`)."""
_LANE = 3


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
            f"the state has format version {state['version']}, this wdspec reads version {VERSION} and gives samples "
            "in another order; finish the run with the release that wrote the state, or begin the data anew: no state, "
            "another `seed`"
        )
    for name, is_right in _KINDS.items():
        if name not in state:
            raise damaged(f"`{name}` is missing")
        if not is_right(state[name]):
            raise damaged(f"`{name}` is {str(state[name])[:60]!r}")
    if digest(dict(state["order"])) != state["digest"]:
        raise damaged("`order` does not have the digest that was written with it")
    if state["given"] and state["given"] >= state["items"]:
        raise damaged(f"{state['given']} of {state['items']} items were given of a step")
    if sorted(state["sources"]) != sorted(state["order"]["sources"]):
        raise damaged(f"`sources` is {state['sources']}, and `order` has others")
    for slot, sources in state["slots"].items():
        if not (isinstance(slot, str) and slot.isdecimal() and isinstance(sources, list)):
            raise damaged(f"slot {slot!r} is {str(sources)[:60]!r}")
        if sources and len(sources) != len(state["sources"]):
            raise damaged(f"slot {slot} has {len(sources)} sources of {len(state['sources'])}")
        for numbers in sources:
            if not _are_positions(numbers):
                raise damaged(f"slot {slot} has a source at {str(numbers)[:60]}")


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
    except (KeyError, TypeError, ValueError):
        raise damaged("`run` is missing, or is not what was written") from None
    described = {"items": items, "order": order, "digest": digest, "samples": samples, "sources": sources}
    return {**state, "format": FORMAT, **described}


def damaged(fault: str) -> UsageError:
    """The error for a state that is not as it was written."""
    return UsageError(f"the state is damaged: {fault}; load an earlier checkpoint, or the whole of this one")


def check_slots(state: Mapping[str, Any], reads: Callable[[int], bool] = lambda slot: True) -> None:
    """Raises a UsageError if a state that `check_undamaged` has passed lacks a slot that was read before and is again.

    Going on without it would silently begin it again.
    """
    workers = state["order"]["elastic"]["workers"]
    if "pass" in state["order"]:  # where slots have no state of their own
        return
    for rank in state["ranks"]:
        for worker in range(min(state["batch"], workers)):
            slot = rank * workers + worker
            if reads(slot) and str(slot) not in state["slots"]:
                raise damaged(f"slot {slot} is missing")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _are_positions(numbers: Any) -> bool:
    """Whether these may be the numbers of a `StreamState`: counts, but for a length of -1, and lanes in threes."""
    if not isinstance(numbers, list) or len(numbers) < _FIELDS or (len(numbers) - _FIELDS) % _LANE:
        return False
    *counts, length, emitted = numbers[:_FIELDS]
    lanes = numbers[_FIELDS:]
    return (
        all(type(number) is int and abs(number) < 1 << 63 for number in numbers)
        and min(counts) >= 0
        and 0 <= emitted <= max(length, 0)
        and all(number >= 0 for at, number in enumerate(lanes) if at % _LANE)
    )


_KINDS: dict[str, Callable[[Any], bool]] = {
    "batch": _is_count,
    "given": _is_count,
    "items": _is_count,
    "ranks": lambda value: isinstance(value, list) and value != [] and all(map(_is_count, value)),
    "digest": lambda value: isinstance(value, str),
    "samples": lambda value: isinstance(value, str),
    "order": lambda value: isinstance(value, Mapping),
    "sources": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "slots": lambda value: isinstance(value, Mapping),
}
