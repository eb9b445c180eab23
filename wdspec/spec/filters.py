"""Filters of `defaults` and of what is below them: a sample is kept if both keep it.

The keys of a filter are declared with the word `both`. `null` removes a filter that comes from `defaults`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from pydantic_core import PydanticCustomError

from wdspec.spec.language.expressions import ExpressionError, parse_expression
from wdspec.spec.language.selection import describe_fraction, read_part
from wdspec.spec.problems import Problems
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar, is_null, plain


def combine_filters(below: MapNode, above: MapNode, merged: MapNode, problems: Problems) -> MapNode:
    """Return `merged` with filters that keep what the filters of both maps keep.

    Args:
        below: `defaults`.
        above: a source, or the `defaults` of a nested mix.
        merged: `above` laid over `below`.
    """
    _check_lists(below, above, problems)
    for key, combine in _COMBINE.items():
        far, near = below.get(key), above.get(key)
        if far is not None and near is not None and plain(far) != plain(near):
            merged = merged.setting(key, combine(far, near, above, problems))
    return merged


def _check_lists(below: MapNode, above: MapNode, problems: Problems) -> None:
    """Report lists of different values: `keys_of` says what all of them list."""
    names = [
        name
        for name in ("keys", "exclude")
        if below.get(name) is not None and not is_null(above.value_or_self(name))
    ]
    has_own = above.get("keys") is not None or above.get("exclude") is not None
    said = [plain(node) if (node := each.get("keys_of")) is not None else None for each in (below, above)]
    if not names or not has_own or "keys_of" not in above.entries or said[0] == said[1]:
        return
    lists, ours = (f"values of `{each}`" if each else "keys of samples" for each in said)
    message = f"`{names[0]}` of `defaults` lists {lists}, and the list of this source {ours}"
    problems.add(
        "E207",
        above.key("keys_of"),
        message,
        f"write one of the two as `where`; {_how_to_replace(names[0])}",
    )


def _how_to_replace(key: str) -> str:
    return f"or, to replace the inherited one, put this source into a nested mix with `defaults: {{{key}: null}}`"


def _and(far: Node, near: Node, above: MapNode, problems: Problems) -> Node:
    for each in (far, near):
        if not isinstance(each, Scalar) or not isinstance(each.value, str):
            return each  # its problem is reported
        try:
            parse_expression(each.value)
        except ExpressionError:
            return each
    return near.scalar(f"({plain(far)}) and ({plain(near)})", width=near.length)


def _overlap(far: Node, near: Node, above: MapNode, problems: Problems) -> Node:
    parts: list[tuple[Decimal, Decimal]] = []
    others = []
    for each in (far, near):
        held = each.get("part") if isinstance(each, MapNode) else each
        rest = plain(each.without("part")) if isinstance(each, MapNode) else {}
        try:
            parts.append(read_part(None if held is None else plain(held)))
        except PydanticCustomError:
            return each
        others.append((rest.get("of"), rest.get("seed", 0)))
    (start, stop), (first, last) = parts
    shown = " and ".join(f"{describe_fraction(low)} to {describe_fraction(high)}" for low, high in parts)
    if others[0] != others[1]:
        message = (
            "`subset` of `defaults` and of this source both apply, but choose by different hashes, and a source has "
            "one hash and one range"
        )
        hint = (
            f"give both the same `of` and `seed`, so that their ranges overlap, {_how_to_replace('subset')}"
        )
        problems.add("E207", above.key("subset"), message, hint)
    elif max(start, first) >= min(stop, last):
        message = f"no sample is in `subset` of `defaults` and of this source: {shown}"
        hint = f"both apply: choose parts that overlap, {_how_to_replace('subset')}"
        problems.add("E210", above.key("subset"), message, hint)
    else:
        ends = near.list_of(
            near.scalar(describe_fraction(end)) for end in (max(start, first), min(stop, last))
        )
        return near.setting("part", ends) if isinstance(near, MapNode) else ends
    return near


def _join(far: Node, near: Node, above: MapNode, problems: Problems) -> Node:
    """All entries of both. A file stays relative to the map that names it."""
    entries = {str(plain(each)): each for each in _entries(far)}
    for each in _entries(near):
        entries.setdefault(str(plain(each)), each)
    return near.list_of(entries.values())


def _common(far: Node, near: Node, above: MapNode, problems: Problems) -> Node:
    ours = {plain(each): each for each in _entries(near) if isinstance(each, Scalar)}
    theirs = {plain(each) for each in _entries(far) if isinstance(each, Scalar)}
    both = [each for key, each in ours.items() if key in theirs]
    at = above.key("keys")
    if any(str(key).startswith("@") for key in ours.keys() ^ theirs):
        message = (
            "`keys` of `defaults` and of this source both apply, but one of them is in a file, which is not read to "
            "find the keys that are in both"
        )
        hint = f"write the keys that are in both lists into one list, and remove the other, {_how_to_replace('keys')}"
        problems.add("E207", at, message, hint)
    elif not both:
        hint = f"both apply: name keys that are in both, {_how_to_replace('keys')}"
        problems.add("E210", at, "no key is in `keys` of `defaults` and of this source", hint)
    else:
        return near.list_of(both)
    return near


def _entries(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, ListNode) else (node,)


_COMBINE: dict[str, Callable[[Node, Node, MapNode, Problems], Node]] = {
    "where": _and,
    "subset": _overlap,
    "keys": _common,
    "exclude": _join,
    "select": _join,
}
