"""The paths in the tree of a spec, wherever the language has some."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from wdspec.spec.language.effects import Paths, paths_in
from wdspec.spec.language.joins import JoinOptions
from wdspec.spec.language.locations import CacheOptions
from wdspec.spec.language.making import STEPS, step_of
from wdspec.spec.language.values import FilePath, Model, is_size
from wdspec.spec.spec import Spec
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Scalar
from wdspec.urls.urls import is_relative

Change = Callable[[Scalar, FilePath, str], Scalar]
"""Takes a path as it is written, of which kind it is, and its key."""


def starts_here(path: str) -> bool:
    """Whether a path is relative to the file that has it. `\\1` at its start depends on a match."""
    return bool(path.strip()) and not path.startswith("\\") and is_relative(path)


def paths_of(model: type[BaseModel]) -> Paths:
    """The keys of a map whose values are paths, and the models of the maps under a key that have some."""
    # Filled in when shards are measured, so that the model has only its text.
    return paths_in(model) | ({"stats": FilePath()} if model is Spec else {})


def map_paths(node: MapNode, model: type[Model], change: Change) -> MapNode:
    """Change the paths of a map and of the maps in it. Values of a wrong type stay.

    Args:
        node: a map of keys of the model. The sources of a `dataset` are other maps.
        model: says which keys are paths.
        change: returns the new path.
    """
    for key, kind in paths_of(model).items():
        value = node.get(key)
        if value is None:
            continue
        new = (
            _map_file(value, kind, key, change)
            if isinstance(kind, FilePath)
            else _map_inside(value, kind, change)
        )
        if new is not value:
            node = node.setting(key, new)
    return node


def _map_inside(node: Node, model: type[Model], change: Change) -> Node:
    """Change the paths of a map, of a list of maps, or of what may stand in place of a map."""
    if isinstance(node, MapNode):
        return map_paths(node, model, change)
    if isinstance(node, ListNode) and (not model.short or model is JoinOptions):
        return node.map(lambda item: _map_inside(item, model, change))
    kind = paths_in(model).get(model.short) if model.short else None
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not isinstance(kind, FilePath):
        return node
    if model is CacheOptions and is_size(node.value):
        return node
    return _map_file(node, kind, model.short, change)


def _map_file(node: Node, kind: FilePath, key: str, change: Change) -> Node:
    if kind.in_steps:
        return _map_entries(node, lambda each: _map_step(each, change))
    if kind.in_entries:
        return _map_entries(node, lambda each: _map_root(each, kind.in_entries, change))
    if isinstance(node, MapNode):
        return _map_entries(node, lambda each: _map_file(each, kind, key, change))
    if isinstance(node, ListNode):
        return node.map(lambda item: _map_file(item, kind, key, change))
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node
    return change(node, kind, key) if not kind.in_lists or node.value.startswith("@") else node


def _map_entries(node: Node, change: Callable[[Node], Node]) -> Node:
    """Change the values of a map by name."""
    if not isinstance(node, MapNode):
        return node
    return node.with_entries(
        {name: MapEntry(key, change(value)) for name, (key, value) in node.entries.items()}
    )


def _map_step(node: Node, change: Change) -> Node:
    """Change the paths of an entry of `make`."""
    step = step_of(node.entries) if isinstance(node, MapNode) else None
    if step is None or not isinstance(node, MapNode):
        return node
    for key in STEPS[step].paths:
        if (value := node.get(key)) is not None:
            node = node.setting(key, _map_file(value, FilePath(), key, change))
    return node


def _map_root(node: Node, key: str, change: Change) -> Node:
    """Change the path under a key of a map. `@…` is no path there."""
    value = node.get(key) if isinstance(node, MapNode) else None
    if not isinstance(node, MapNode) or not isinstance(value, Scalar) or str(value.value).startswith("@"):
        return node
    return node.setting(key, _map_file(value, FilePath(), key, change))
