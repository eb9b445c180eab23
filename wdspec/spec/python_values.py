"""Python values (a spec given as a dict, overrides, variables) -> tree."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from wdspec.base.errors import UrlError
from wdspec.spec.problems import Problems
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Origin, Scalar
from wdspec.spec.yaml import MAX_DEPTH, MAX_NODES
from wdspec.urls.urls import pattern_of_path


class _NoTreeError(Exception):
    """The value has no tree; the problem has been added."""


def from_python(value: Any, origin: Origin, problems: Problems) -> Node | None:
    """Convert a Python value to a tree; None, and a problem, if that is impossible.

    Dicts, lists, tuples, text, paths, numbers, booleans and None are allowed, and configurations of OmegaConf. The
    nodes have no line; the name of their origin is the path to them: `spec['dataset'][0]['shards']`.
    """
    try:
        return _Reader(origin.directory, problems).read(value, origin.name, 0)
    except _NoTreeError:
        return None


class _Reader:
    def __init__(self, directory: str, problems: Problems) -> None:
        self.directory = directory
        self.problems = problems
        self.nodes = 0

    def read(self, value: Any, name: str, depth: int) -> Node:
        origin = Origin(name, self.directory, None)
        here = Scalar(origin, 0, 0, None)
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            is_deep = depth > MAX_DEPTH
            limit = f"{MAX_DEPTH} levels" if is_deep else f"{MAX_NODES:,} values"
            hint = "look for a value that contains itself"
            self.problems.add("E008" if is_deep else "E009", here, f"the spec is larger than {limit}", hint)
            raise _NoTreeError
        value = self._without_omegaconf(value, here)
        if isinstance(value, Mapping):
            return self._read_map(value, origin, depth)
        if isinstance(value, (list, tuple)):
            items = (self.read(item, f"{name}[{i}]", depth + 1) for i, item in enumerate(value))
            return ListNode(origin, 0, 0, tuple(items))
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str):
            value = str(value)
            if any(
                not c.isprintable() and c not in "\t\n\r\u00a0\u200b\ufeff" and _is_control(c) for c in value
            ):
                hint = "remove control characters"
                self.problems.add(
                    "E004", here, "this text has a character that is not allowed in a file", hint
                )
                return here
        elif not (value is None or isinstance(value, (bool, int, float))):
            value = self._read_number(value, here)
        return Scalar(origin, 0, 0, value)

    def _read_map(self, value: Mapping[Any, Any], origin: Origin, depth: int) -> MapNode:
        entries = {}
        for key, item in value.items():
            at = Origin(f"{origin.name}[{str(key)[:40]!r}]", self.directory, None)
            if not isinstance(key, str):
                message = f"a key must be text, but this is a {type(key).__name__}"
                self.problems.add("E012", Scalar(at, 0, 0, None), message, "put it in quotes")
            elif "\0" in key:
                hint = "remove it: names cannot have one"
                self.problems.add("E004", Scalar(at, 0, 0, None), "this key has a NUL character", hint)
            else:
                item = self._with_patterns(item, at) if key == "shards" else item
                node = self.read(item, at.name, depth + 1)
                entries[str(key)] = MapEntry(Scalar(at, 0, 0, str(key)), node)
        return MapNode(origin, 0, 0, entries)

    def _with_patterns(self, shards: Any, origin: Origin) -> Any:
        """Replace each path among shards by a pattern that means this one file."""
        if isinstance(shards, (list, tuple)):
            return [self._with_patterns(item, origin) for item in shards]
        if not isinstance(shards, os.PathLike):
            return shards
        try:
            return pattern_of_path(shards)
        except UrlError as error:
            self.problems.add("E213", Scalar(origin, 0, 0, None), error.message)
            raise _NoTreeError from None

    def _without_omegaconf(self, value: Any, here: Scalar) -> Any:
        """Convert a configuration of OmegaConf, as Hydra passes it, to plain values; return anything else as it is."""
        omegaconf = sys.modules.get("omegaconf")  # unless it is imported, no value can be of its types
        if omegaconf is None or not isinstance(value, (omegaconf.DictConfig, omegaconf.ListConfig)):
            return value
        try:
            return omegaconf.OmegaConf.to_container(
                value, resolve=True, throw_on_missing=True, enum_to_str=True
            )
        except omegaconf.errors.OmegaConfBaseException as error:
            message = f"OmegaConf cannot resolve this configuration: {str(error).splitlines()[0]}"
            hint = "set the value; in such a configuration, write variables of the spec as `\\${name}`"
            self.problems.add("E107", here, message, hint)
            raise _NoTreeError from None

    def _read_number(self, value: Any, here: Scalar) -> Any:
        """Convert a scalar of numpy or torch to a number."""
        item = getattr(value, "item", None)
        if callable(item) and getattr(value, "shape", None) == ():
            inner = item()
            if isinstance(inner, (bool, int, float)):
                return inner
        message = f"a spec cannot have a value of type {type(value).__name__}"
        hint = "use dicts, lists, text, numbers, True, False and None; write functions as text, 'package.module:name'"
        self.problems.add("E202", here, message, hint)
        return None


def _is_control(c: str) -> bool:
    return c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff"
