"""One spec of a file that has several: the split, the overlay of an environment, and overrides."""

from __future__ import annotations

from wdspec.base.errors import did_you_mean
from wdspec.spec.problems import Problems, list_names
from wdspec.spec.python_values import from_python
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Origin, Position, Scalar, merge
from wdspec.spec.yaml import parse


def names_under(top: MapNode, key: str) -> list[str]:
    """List the names of the splits or environments of a file."""
    held = top.get(key)
    return list(held.entries) if isinstance(held, MapNode) else []


def choose_split(
    top: MapNode, split: str | None, problems: Problems, at: Node | None = None
) -> MapNode | None:
    """Lay a split over the top level of a file; None, and a problem, if it cannot be chosen.

    Args:
        at: the value that chose it, if it is in a file (`spec: x.yaml#val`).
    """
    splits = top.get("splits")
    names = names_under(top, "splits")
    if splits is not None and not isinstance(splits, MapNode):
        problems.add("E202", splits, "`splits` takes a map of names", "write `splits: {train: {dataset: …}}`")
        return None
    if splits is not None and top.get("dataset") is not None:
        hint = "move the sources into one of the splits"
        problems.add(
            "E207", top.key("splits"), "`splits` and `dataset` cannot both be at the top level", hint
        )
    if split is None and splits is None:
        return top.without("splits")
    if split is None:
        hint = (
            f"choose one: {list_names(names)}, for example `{top.origin.name}#{names[0] if names else '…'}`"
        )
        problems.add("E103", at or top.key("splits"), "the spec has splits, but none is chosen", hint)
        return None
    held = splits.get(split) if isinstance(splits, MapNode) else None
    if not isinstance(held, MapNode):
        hint = did_you_mean(split, names) or (
            f"there are {list_names(names)}" if names else "it has no splits"
        )
        position = at or (top.key("splits") if splits is not None else top)
        if split in names and splits is not None:
            form = f"write `{split}: {{dataset: …}}`"
            problems.add("E202", splits.entries[split].value, "a split takes a map of top-level keys", form)
        else:
            problems.add("E103", position, f"the spec has no split `{split}`", hint)
        return None
    return merge(top.without("splits"), held)


def choose_environment(
    top: MapNode, name: str | None, overlaid: set[Position], problems: Problems, chosen_by: str = ""
) -> MapNode | None:
    """Lay the overlay of an environment over a file, in which `sources` remains a key.

    The positions of its rewrite rules are added to `overlaid`: they come before all others.
    """
    environments = top.get("environments")
    if environments is not None and not isinstance(environments, MapNode):
        problems.add(
            "E202", environments, "`environments` takes a map of names", "write `environments: {laptop: {…}}`"
        )
        return None
    if name is None:
        return top.without("environments")
    names = names_under(top, "environments")
    if name not in names:
        hint = did_you_mean(name, names) or (
            f"there are {list_names(names)}" if names else "it has no environments"
        )
        position = top.key("environments") if environments is not None else top
        problems.add("E104", position, f"the spec has no environment `{name}`{chosen_by}", hint)
        return None
    assert environments is not None
    overlay = environments.get(name)
    if overlay is None:
        return top.without("environments")
    if not isinstance(overlay, MapNode):
        form = f"write `{name}: {{cache: /data/cache}}`, for example"
        problems.add("E202", overlay, "an environment takes a map of top-level keys", form)
        return None
    for key in ("extends", "environments", "splits"):
        if key in overlay.entries:
            message = f"`{key}` is not allowed in an environment"
            problems.add(
                "E216", overlay.key(key), message, "an overlay changes values of the spec that was chosen"
            )
    return lay_over(
        top.without("environments"), overlay.without("extends", "environments", "splits"), overlaid
    )


def lay_over(top: MapNode, overlay: MapNode, overlaid: set[Position]) -> MapNode:
    """Lay an overlay over a tree, and remember its rewrite rules."""
    overlaid.update(_rules(overlay))
    return merge(top, overlay)


def override_tree(key: str, value: object, origin: Origin, problems: Problems) -> MapNode | None:
    """Make the map `{a: {b: value}}` of `a.b` and a value."""
    steps, position = key.split("."), Scalar(origin, 0, 0, None)
    if not _is_path(steps, key, position, problems):
        return None
    node = from_python(value, origin, problems)
    return None if node is None else _nest(steps, node)


def override_text(text: str, directory: str, problems: Problems) -> MapNode | None:
    """Parse an override of the command line: `a.b=value`, where the value is YAML."""
    key, equals, value = text.partition("=")
    origin = Origin(f"--set {key}"[:200], directory, value)
    steps = key.strip().split(".")
    if not _is_path(steps if equals else [""], text, Scalar(origin, 1, 1, None), problems):
        return None
    tree = parse(value, origin, problems)
    return None if tree is None else _nest(steps, tree)


def _is_path(steps: list[str], text: str, at: Node, problems: Problems) -> bool:
    """Whether these are keys that an override can have; adds a problem if not."""
    outer = steps[0].partition("[")[0]
    message, hint = f"{text!r} is not an override", "write `key=value` or `key.key=value`"
    if all(steps) and (outer != "dataset" or steps == ["dataset"]) and (outer not in _CHOSEN):
        return True
    if all(steps) and outer == "dataset":
        message = "a source cannot be changed by its place in `dataset`"
        hint = f"use its name: `sources.NAME.{steps[-1]}`; `wdspec explain` lists the names"
    elif all(steps):
        message = f"`{outer}` cannot be overridden: what it says is chosen before"
        hint = f"{_CHOSEN[outer]}, and override its keys without `{outer}`"
    problems.add("E113", at, message, hint)
    return False


_CHOSEN = {
    "splits": "choose a split with `--split NAME` or `split=`",
    "environments": "choose an environment with `--env NAME` or `env=`",
    "extends": "name the file with the keys that you want",
}
"""Keys that are applied before overrides, and what to do instead."""


def _nest(steps: list[str], node: Node) -> MapNode:
    for step in reversed(steps):
        key = node.scalar(step)
        node = MapNode(node.origin, node.line, node.column, {step: MapEntry(key, node)})
    assert isinstance(node, MapNode)
    return node


def _rules(overlay: MapNode) -> set[Position]:
    """The positions of the rewrite rules of an overlay: at its top level, in its defaults and in its sources."""
    holders: list[Node | None] = [overlay, overlay.get("defaults")]
    sources = overlay.get("sources")
    if isinstance(sources, MapNode):
        holders += [entry.value for entry in sources.entries.values()]
    found: set[Position] = set()
    for holder in holders:
        rules = holder.get("rewrite") if isinstance(holder, MapNode) else None
        if isinstance(rules, ListNode):
            found.update(rule.position for rule in rules.items)
    return found
