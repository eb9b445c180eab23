"""Drafts of the sources of companions: the entries of `companions`, and those that a source has in place."""

from __future__ import annotations

from collections.abc import Sequence

from wdspec.spec.language.companions import OWN_KEYS, Companion
from wdspec.spec.problems import Problems, describe
from wdspec.spec.sources import Draft
from wdspec.spec.tree import MapEntry, MapNode, Node, is_null, merge, plain
from wdspec.spec.validation import check_keys

NOT_FOR_COMPANIONS = frozenset(
    {
        *("name", "dataset", "spec", "mix", "defaults", "companions"),
        *("probability", "weight", "upsample", "max_passes", "on_exhausted", "repeat", "mean_cost"),
    }
)
"""The keys of sources that a source of companions cannot have."""


def draft_companions(top: MapNode, leaves: Sequence[Draft], problems: Problems) -> list[Draft]:
    """Draft the sources of companions.

    Args:
        top: the top level.
        leaves: the sources of the mix. Where one has companions in place, it gets their name.
    """
    errors = top.with_entries({"errors": top.entries["errors"]} if "errors" in top.entries else {})
    found: list[Draft] = []

    def add(node: MapNode, name: str) -> None:
        if any(each.name == name for each in (*leaves, *found)):
            hint = "rename one of them"
            problems.add("E304", node, f"there is another source `{name[:60]}`", hint)
            return
        found.append(Draft(merge(errors, node.without(*NOT_FOR_COMPANIONS)), node, name))

    named = top.get("companions")
    for name, entry in named.entries.items() if isinstance(named, MapNode) else ():
        if isinstance(entry.value, MapNode) and entry.value.get("shards") is not None:
            add(entry.value, name)
        elif not is_null(entry.value):
            _refuse(entry.value, name, problems)
    if named is not None and not isinstance(named, MapNode):
        hint = "write `companions: {musan: {shards: musan-*.tar}}`"
        problems.add(
            "E202",
            named,
            f"`companions` takes a map of sources by name, but this is {describe(plain(named))}",
            hint,
        )
    for leaf in leaves:
        companions = leaf.node.map_at("companions")
        if companions is None:
            continue
        entries: dict[str, MapEntry] = {}
        for field, entry in companions.entries.items():
            value: Node = entry.value
            if isinstance(value, MapNode) and value.get("shards") is not None and value.get("source") is None:
                name = f"{leaf.name}/{field}"
                add(value.without(*OWN_KEYS, "source"), name)
                kept = {key: each for key, each in value.entries.items() if key in OWN_KEYS}
                value = value.with_entries(kept).setting("source", value.scalar(name))
            elif isinstance(value, MapNode) and value.get("shards") is not None:
                what, hint = "companions cannot have both `source` and `shards`", "keep one of them"
                problems.add("E207", value.key("shards"), what, hint)
                kept = {key: each for key, each in value.entries.items() if key in (*OWN_KEYS, "source")}
                value = value.with_entries(kept)
            elif isinstance(value, MapNode):
                value = check_keys(value, Companion, f"in the companions `{field[:60]}`", problems)
            entries[field] = MapEntry(entry.key, value)
        leaf.node = leaf.node.setting("companions", companions.with_entries(entries))
    return found


def _refuse(value: Node, name: str, problems: Problems) -> None:
    """Add the problem of an entry without shards."""
    written = plain(value)
    if isinstance(value, MapNode):
        what, hint = f"the companions `{name[:60]}` have no `shards`", "write `shards: musan-*.tar`"
        problems.add("E206", value, what, hint)
        return
    hint = f"write `{name[:60]}: {{shards: {str(written)[:60]}}}`"
    problems.add(
        "E202", value, f"companions are a map of keys of a source, but this is {describe(written)}", hint
    )
