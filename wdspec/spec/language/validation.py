"""Trees -> models: pydantic checks the values, and what it finds is reported in our words, at the value's position."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from wdspec.spec.language.advice.remedies import remedy
from wdspec.spec.language.model import Model
from wdspec.spec.problems.message_words import shown
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, locate, plain
from wdspec.suggestions import did_you_mean

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
