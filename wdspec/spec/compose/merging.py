"""One rule for laying one tree over another: maps merge, lists and scalars replace, `rewrite` and `allow` join."""

from __future__ import annotations

from typing import overload

from wdspec.spec.tree.nodes import ListNode, MapEntry, MapNode, Node, is_null

JOINED = frozenset({"rewrite", "allow"})
_FREE_FORM = frozenset({"vars", "tags", "args", "rename", "decode"})
"""Keys below which names are the user's own, so that `rewrite` there is no list of rules."""


@overload
def merge(below: Node | None, above: MapNode, *, joins: bool = True) -> MapNode: ...
@overload
def merge(below: Node | None, above: Node, *, joins: bool = True) -> Node: ...
def merge(below: Node | None, above: Node, *, joins: bool = True) -> Node:
    """The tree `above` laid over `below`.

    `null` replaces like any scalar: it stays in the tree as a mark of absence, so that an overlay kept in one
    file can remove a key that another file sets.
    """
    if not isinstance(below, MapNode) or not isinstance(above, MapNode):
        return above
    merged = dict(below.entries)
    for name, entry in above.entries.items():
        held = merged.get(name)
        if held is None:
            merged[name] = entry
        elif joins and name in JOINED:
            merged[name] = MapEntry(entry.key, _joined(entry.value, held.value))
        else:
            value = merge(held.value, entry.value, joins=joins and name not in _FREE_FORM)
            merged[name] = MapEntry(entry.key if value is entry.value else held.key, value)
    return above.with_entries(merged)


def _joined(near: Node, far: Node) -> Node:
    """Both lists, the nearer first; `null` above removes what is below."""
    if is_null(near) or is_null(far):
        return near
    items = [*(near.items if isinstance(near, ListNode) else (near,))]
    items += far.items if isinstance(far, ListNode) else (far,)
    return near.list_of(items)
