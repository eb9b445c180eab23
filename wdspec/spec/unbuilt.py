"""What the language knows and this release refuses: better refused than ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wdspec.spec.nodes import MapNode, Node, Scalar
from wdspec.spec.problems import Problems


def _always(value: Any) -> bool:
    return True


_UNBUILT: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("errors", "log"), _always, "leave it out: skips are counted and logged"),
    (("errors", "timeout"), _always, "leave it out"),
)


def refuse_unbuilt(node: MapNode, problems: Problems) -> None:
    """Notes every key of a top level or a source whose machinery comes later."""
    for path, applies, hint in _UNBUILT:
        holder: Node | None = node
        for step in path[:-1]:
            holder = holder.get(step) if isinstance(holder, MapNode) else None
        if not isinstance(holder, MapNode):
            continue
        value = holder.get(path[-1])
        if value is not None and applies(value.value if isinstance(value, Scalar) else value):
            said = ".".join(path)
            problems.add("E401", holder.key(path[-1]), f"`{said}` is not built yet", hint)
