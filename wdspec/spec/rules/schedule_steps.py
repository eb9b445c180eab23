"""The steps of `mix.schedule`, for the rules that look at them."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.draft import Composed
from wdspec.spec.tree import MapNode, Scalar


def steps_with_shares(composed: Composed) -> Iterator[MapNode]:
    """The `shares` of each step that has some."""
    for item in composed.schedule.items if composed.schedule else ():
        shares = item.get("shares") if isinstance(item, MapNode) else None
        if isinstance(shares, MapNode):
            yield shares


def positive_names(shares: MapNode) -> set[str]:
    """The sources that a step reads."""
    return {
        name
        for name, (_, value) in shares.entries.items()
        if not (isinstance(value, Scalar) and (value.value is None or value.value == 0))
    }
