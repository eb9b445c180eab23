"""Where a spec names functions of the user's."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.draft import Composed
from wdspec.spec.rules.decoder_names import decoder_names
from wdspec.spec.tree import MapNode, Node


def user_functions(composed: Composed) -> Iterator[tuple[Node, str]]:
    """The place of each, and what it is, for messages."""
    for holder in (composed.top, *(leaf.node for leaf in composed.leaves)):
        for key in ("map", "select", "stage"):
            if holder.get(key) is not None:
                yield holder.key(key), f"`{key}`"
    batch = composed.top.get("batch")
    collate = batch.get("collate") if isinstance(batch, MapNode) else None
    for at in () if collate is None else _collating(collate):
        yield at, "the function of `collate`"
    for leaf in composed.leaves:
        for at, name in decoder_names(leaf):
            if ":" in name:
                yield at, f"the decoder `{name}`"


def _collating(collate: Node) -> Iterator[Node]:
    """What names functions in `collate`: the whole, or the ways of fields."""
    ways = [collate]
    if isinstance(collate, MapNode) and "call" not in collate.entries:
        ways = [entry.value for entry in collate.entries.values()]
    for way in ways:
        text = getattr(way.get("call") if isinstance(way, MapNode) else way, "value", None)
        if isinstance(text, str) and ":" in text:
            yield way
