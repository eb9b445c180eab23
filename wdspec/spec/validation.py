"""Trees -> models: pydantic checks the values, and what it finds is reported in our words, at the value's position.

Which keys may stand where, and what somebody who wrote another one may have meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from wdspec.base.errors import did_you_mean, nearest
from wdspec.spec.language.advice import KEYS, KEYS_IN, advice_on, remedy
from wdspec.spec.language.effects import inner_model
from wdspec.spec.language.options import LoaderOptions
from wdspec.spec.language.values import Model
from wdspec.spec.problems import Problems, shown
from wdspec.spec.spec import Source, SourceOptions, Spec
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Scalar, locate, plain

M = TypeVar("M", bound=Model)
_OURS = re.compile(r"[EW]\d{3}")
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}


def checked(
    node: MapNode, model: type[M], extra: Mapping[str, Any], problems: Problems
) -> tuple[M | None, frozenset[str]]:
    """The model of a map, and the keys that are wrong.

    Where keys are wrong the model is made without them, so that the others can be looked at further; it is None
    if nothing can be made at all.

    Args:
        extra: values for fields that are no keys.
    """
    data = {**plain(node), **extra}
    try:
        return model.model_validate(data), frozenset()
    except ValidationError as error:
        details = error.errors(include_url=False)
    paths = [detail["loc"] for detail in details]
    for detail in details:
        follows = detail["type"] == "too_short" and any(
            p != detail["loc"] == p[: len(detail["loc"])] for p in paths
        )
        if not follows:  # a list is too short, too, when its only item is wrong
            _note(detail, node, problems)
    bad = frozenset(str(detail["loc"][0]) for detail in details if detail["loc"])
    try:
        return model.model_validate({key: value for key, value in data.items() if key not in bad}), bad
    except ValidationError:
        return None, bad


def _note(detail: Any, node: MapNode, problems: Problems) -> None:
    kind, path, given = detail["type"], detail["loc"], detail.get("input")
    context = detail.get("ctx", {})
    at = locate(node, path)
    advice = remedy(path, given)
    name = _name(path, node)
    if _OURS.fullmatch(kind):
        problems.add(kind, at, context["message"], context["hint"] or advice)
    elif kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        hint = advice or did_you_mean(given, choices) or f"write {_either(choices)}"
        problems.add("E203", at, f"{shown(given)} is not a choice for `{name}`", hint)
    elif kind == "missing":
        parent = locate(node, path[:-1])
        problems.add("E206", parent, f"`{path[-1]}` is missing here", f"add `{path[-1]}: …`")
    elif kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        number = f"{given:g}" if isinstance(given, float) else shown(given).removeprefix("the number ")
        bound = context[key]
        limit = f"{bound:,.15g}" if abs(bound) < 1e15 else f"{bound:.0e}"
        problems.add("E204", at, f"`{name}` must be {words} {limit}, but this is {number}", advice)
    elif kind in ("too_short", "string_too_short"):
        problems.add("E214", at, f"`{name}` is empty", "fill it in, or leave the key out")
    elif kind in _EXPECTED:
        hint = "put it in quotes" if kind == "string_type" and isinstance(given, (int, float)) else advice
        problems.add("E202", at, f"`{name}` takes {_EXPECTED[kind]}, but this is {shown(given)}", hint)
    else:
        problems.add("E202", at, f"`{name}` cannot be {shown(given)}", advice)


_EXPECTED = {
    "string_type": "text",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
    "tuple_type": "a list",
    "list_type": "a list",
}


def _name(path: tuple[Any, ...], node: MapNode) -> str:
    """The last key on a path that somebody wrote, which is what the user knows the value by."""
    names = [
        step
        for depth, step in enumerate(path)
        if isinstance(step, str) and (depth == 0 or isinstance(locate(node, path[:depth]), MapNode))
    ]
    return names[-1][:60] if names else "this"


def _either(choices: list[str]) -> str:
    quoted = [f"`{choice}`" for choice in choices]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


MERGED_TOP = ("extends", "vars", "environments", "splits", "defaults")
"""Top-level keys that have taken effect before the models are made."""
MERGED_SOURCE = ("spec", "defaults")
"""The same for sources."""
_MERGED: dict[type[Model], tuple[str, ...]] = {Spec: MERGED_TOP, Source: MERGED_SOURCE}


@cache
def keys_of(model: type[Model]) -> tuple[str, ...]:
    """The keys of a model in the order of the reference: its fields that have a description."""
    fields = model.model_fields
    return tuple(field.alias or name for name, field in fields.items() if field.description)


@cache
def maps_of(model: type[Model]) -> dict[str, type[Model]]:
    """The keys of a model that take maps with keys of their own, or lists of such maps, but `dataset`."""
    fields = ((field.alias or name, inner_model(field)) for name, field in model.model_fields.items())
    return {
        key: inner
        for key, inner in fields
        if key != "dataset" and inner is not None and issubclass(inner, Model) and keys_of(inner)
    }


def check_keys(node: MapNode, model: type[Model], where: str, problems: Problems) -> MapNode:
    """The map without the keys its model does not know, each of which is a problem."""
    known = keys_of(model)
    inner_models = maps_of(model)
    entries: dict[str, MapEntry] = {}
    for name, entry in node.entries.items():
        if name in known:
            inner = inner_models.get(name)
            value = _inside(entry.value, inner, f"in `{name}`", problems) if inner else entry.value
            entries[name] = entry if value is entry.value else MapEntry(entry.key, value)
        elif name not in _MERGED.get(model, ()):
            message = f"unknown key `{name[:60]}` {where}"
            problems.add(
                "E201", entry.key, message, "" if problems.full else _hint(name, model, known, entry.value)
            )
    return (
        node if len(entries) == len(node.entries) and entries == node.entries else node.with_entries(entries)
    )


def stands_for(key: str, node: MapNode, known: Sequence[str]) -> bool:
    """Whether a map has, instead of a key, an unknown one that the message will say means it."""
    return any(
        _called(name, Spec) == key or nearest(name, (*known, key)) == key
        for name in list(node.entries)[:50]
        if name not in known
    )


def _inside(value: Node, model: type[Model], where: str, problems: Problems) -> Node:
    if isinstance(value, MapNode):
        return check_keys(value, model, where, problems) if model.takes(value.entries) else value
    if isinstance(value, ListNode):
        return value.map(
            lambda item: _inside(item, model, where, problems) if isinstance(item, MapNode) else item
        )
    return value


def _called(name: str, model: type[Model]) -> str | None:
    """The key that somebody who writes this name may mean."""
    folded = name.strip().lower().replace("-", "_")
    return KEYS_IN.get(model.__name__, {}).get(folded) or KEYS.get(folded)


def _hint(name: str, model: type[Model], known: tuple[str, ...], value: Node) -> str:
    mine = [*known, *_MERGED.get(model, ())]
    best = nearest(name, mine)
    folded = name.strip().lower().replace("-", "_")
    if best is not None and best == folded:
        return f"did you mean `{best}`?"
    if issubclass(model, SourceOptions) and name in (*keys_of(Spec), *MERGED_TOP):
        return f"`{name}` belongs at the top level, not in a source"
    if model is Spec and name in keys_of(Source):
        if name in keys_of(SourceOptions):
            return f"`{name}` belongs in a source, or in `defaults:` for all of them"
        return f"put it in a source, under `dataset:`: `- {name}: …`"
    if advice := advice_on(folded, model.__name__, value.value if isinstance(value, Scalar) else None):
        return advice
    meant = _called(name, model)
    if meant is not None:
        meant = meant.removeprefix("loader.") if model is LoaderOptions else meant
        if model is Spec and meant in keys_of(Source):
            within = (
                "under `dataset:`" if meant == "shards" else "in a source, or in `defaults:` for all of them"
            )
            return f"did you mean `{meant}`? It stands {within}"
        return f"did you mean `{meant}`?"
    return did_you_mean(name, mine) or f"the keys here are {', '.join(sorted(mine))}"
