"""One spec of a file that has several: the split, the overlay of an environment, and overrides."""

from __future__ import annotations

import re

from wdspec.base.errors import did_you_mean
from wdspec.spec.problems import Problems, list_names
from wdspec.spec.python_values import from_python
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Origin, Position, Scalar, merge, plain
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
        dataset = top.key("dataset")
        hint = f"move `dataset` ({dataset.position}) into a split: " + (
            f"`splits: {{{names[0]}: {{dataset: …}}}}`, or remove it"
            if "train" in names
            else f"`splits: {{train: {{dataset: …}}, {', '.join(f'{name}: …' for name in names[:3])}}}`"
        )
        problems.add(
            "E207", top.key("splits"), "`splits` and `dataset` cannot both be at the top level", hint
        )
    if split is None and splits is None:
        return top.without("splits")
    if split is None:
        name, file = names[0] if names else "NAME", top.origin.name
        form = f"`split={name!r}`" if top.origin.text is None else f"`{file}#{name}` in place of `{file}`"
        hint = f"choose one of {list_names(names)}: write {form}"
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

    The positions of its rewrite rules are added to `overlaid`: they come before all others. So are those of the keys of
    its `defaults`.
    """
    environments = top.get("environments")
    if environments is not None and not isinstance(environments, MapNode):
        problems.add(
            "E202", environments, "`environments` takes a map of names", "write `environments: {laptop: {…}}`"
        )
        return None
    names = names_under(top, "environments")
    if name is None:
        if "default" in names and environments is not None:
            hint = "move its keys to the top level, which applies without an environment, or choose it: `--env default`"
            message = "no environment is chosen, so `default` of `environments` is not applied"
            problems.add("W402", environments.key("default"), message, hint)
        return top.without("environments")
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
    if "epoch" in overlay.entries:
        _note_lost_pass(top, overlay, name, problems)
    return lay_over(
        top.without("environments"), overlay.without("extends", "environments", "splits"), overlaid
    )


def _note_lost_pass(top: MapNode, overlay: MapNode, name: str, problems: Problems) -> None:
    """Warn about an environment that makes a stream of a pass."""
    before, after = (
        plain(top.entries["epoch"].value) if "epoch" in top.entries else None,
        overlay.get("epoch"),
    )
    length = after.get("samples") if isinstance(after, MapNode) else after
    if not isinstance(before, str) and not (isinstance(before, dict) and before.get("pass")):
        return
    if isinstance(length, Scalar) and type(length.value) is int:
        message = f"the environment `{name}` replaces `epoch: pass`, which reads each sample once, by an endless stream"
        hint = f"to read at most {length.value:,} samples, write `limit: {length.written}` in the environment"
        problems.add("W400", overlay.key("epoch"), message, hint)


def lay_over(top: MapNode, overlay: MapNode, overlaid: set[Position]) -> MapNode:
    """Lay an overlay over a tree, and remember its rewrite rules and the keys of its defaults."""
    overlaid.update(_rules(overlay))
    if (defaults := overlay.map_at("defaults")) is not None:
        overlaid.update(entry.key.position for entry in defaults.entries.values())
    return merge(top, overlay)


def override_tree(
    key: str, value: object, origin: Origin, problems: Problems, dataset: Node | None
) -> MapNode | None:
    """Make the map `{a: {b: value}}` of `a.b` and a value; `dataset` has the sources, for messages."""
    steps, position = key.split("."), Scalar(origin, 0, 0, None)
    if not _is_path(steps, key, position, problems, dataset):
        return None
    node = from_python(value, origin, problems)
    return None if node is None else _nest(steps, node)


def override_text(text: str, directory: str, problems: Problems, dataset: Node | None) -> MapNode | None:
    """Parse an override of the command line: `a.b=value`, where the value is YAML; `dataset` as for `override_tree`."""
    key, equals, value = text.partition("=")
    steps = key.strip().split(".")
    origin = Origin(f"--set {key}"[:200], directory, None if "vars" in steps else value)  # may be a secret
    if not _is_path(steps if equals else [""], text, Scalar(origin, 1, 1, None), problems, dataset):
        return None
    tree = parse(value, origin, problems)
    return None if tree is None else _nest(steps, tree)


_MOST_TEXTS = 4


def override_texts(overlay: MapNode) -> list[str]:
    """The overrides that do the same as an overlay; empty if these are more than a few, or have lists."""
    found: list[str] = []
    left: list[tuple[str, Node]] = [("", overlay)]
    while left:
        path, node = left.pop(0)
        if isinstance(node, MapNode):
            left = [*((f"{path}.{key}".lstrip("."), each.value) for key, each in node.entries.items()), *left]
        elif isinstance(node, Scalar):
            found.append(f"{path}={node.written or 'null'}")
        if len(found) > _MOST_TEXTS or isinstance(node, ListNode):
            return []
    return found


def _is_path(steps: list[str], text: str, at: Node, problems: Problems, dataset: Node | None) -> bool:
    """Whether these are keys that an override can have; adds a problem if not."""
    outer = steps[0].partition("[")[0]
    message, hint = f"{text!r} is not an override", "write `key=value` or `key.key=value`"
    if all(steps) and (outer != "dataset" or steps == ["dataset"]) and (outer not in _CHOSEN):
        return True
    if all(steps) and outer == "dataset":
        message = "a source cannot be changed by its place in `dataset`"
        hint = _by_name(text, dataset)
        hint = hint or f"use its name: `sources.NAME.{steps[-1]}`; `wdspec explain` lists the names"
    elif all(steps):
        message = f"`{outer}` cannot be overridden: what it says is chosen before"
        hint = f"{_CHOSEN[outer]}, and override its keys without `{outer}`"
    problems.add("E113", at, message, hint)
    return False


_BY_PLACE = re.compile(r"dataset(?:\.|\[)(\d+)\]?\.(.+)", re.DOTALL)


def _by_name(text: str, dataset: Node | None) -> str:
    """How to write an override of the source at a place of `dataset`; empty if it has no name there."""
    found = _BY_PLACE.fullmatch(text.strip())
    place = int(found[1][:9]) if found is not None else 0
    if found is None or not isinstance(dataset, ListNode) or place >= len(dataset.items):
        return ""
    source = dataset.items[place]
    name = source.get("name") if isinstance(source, MapNode) else None
    return f"write `sources.{name.value}.{found[2]}`" if isinstance(name, Scalar) else ""


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
