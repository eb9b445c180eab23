"""Trees -> models. pydantic checks the values; its errors are reported in our words, at the position of the value.

Unknown keys are found before, with a hint at the key that the user may have meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from wdspec.base.amounts import join_names
from wdspec.base.errors import did_you_mean, nearest
from wdspec.spec.language.advice import KEYS, KEYS_IN, advice_on, first_sentence, remedy
from wdspec.spec.language.effects import OF_SOURCES, inner_model, named_model
from wdspec.spec.language.fetching import FetchedObject
from wdspec.spec.language.making import STEPS, step_meant
from wdspec.spec.language.options import LoaderOptions, MixOptions
from wdspec.spec.language.values import Model
from wdspec.spec.problems import Problems, describe
from wdspec.spec.spec import Source, SourceOptions, Spec
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Scalar, locate, plain

M = TypeVar("M", bound=Model)

MERGED_TOP = ("extends", "vars", "environments", "splits", "defaults")
"""Top-level keys that are applied before models are made."""
MERGED_SOURCE = ("spec", "defaults", "each")
"""Keys of sources that are applied before models are made."""
_MERGED: dict[type[Model], tuple[str, ...]] = {Spec: MERGED_TOP, Source: MERGED_SOURCE}

_OURS = re.compile(r"[EW]\d{3}")
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
_EXPECTED = {
    "string_type": "text",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
    "tuple_type": "a list",
    "list_type": "a list",
}


def make_model(
    node: MapNode, model: type[M], extra: Mapping[str, Any], problems: Problems
) -> tuple[M | None, frozenset[str]]:
    """Make the model of a map; returns it with the keys whose values are wrong.

    The model is made without wrong keys, so that the others can be checked further. It is None if that is impossible.

    Args:
        extra: values of fields that are not keys, or in place of those in the map.
    """
    data = {**plain(node), **extra}
    try:
        return model.model_validate(data), frozenset()
    except ValidationError as error:
        bad = _add_problems(error, node, model, problems)
    try:
        return model.model_validate({key: value for key, value in data.items() if key not in bad}), bad
    except ValidationError:
        return None, bad


def _add_problems(
    error: ValidationError, node: MapNode, model: type[Model], problems: Problems
) -> frozenset[str]:
    """Add what is wrong with a map; returns the keys whose values are wrong."""
    details = error.errors(include_url=False)
    paths = [detail["loc"] for detail in details]
    for detail in details:
        path = detail["loc"]
        follows = detail["type"] == "too_short" and any(p != path == p[: len(path)] for p in paths)
        if not follows:  # a list is also too short if its only item is wrong
            _add_problem(detail, node, model, problems)
    return frozenset(str(path[0]) for path in paths if path)


def _add_problem(detail: Any, node: MapNode, model: type[Model], problems: Problems) -> None:
    kind, path, given = detail["type"], detail["loc"], detail.get("input")
    context = detail.get("ctx", {})
    at = locate(node, path)
    is_item = bool(path) and isinstance(locate(node, path[:-1]), ListNode)
    advice = _remedy_of_item(given) if is_item else ""
    advice = advice or remedy(path, given)
    if not advice and kind != "literal_error":
        advice = _describe_key(model, path)
    name = _name_of(path, node)
    if _OURS.fullmatch(kind):
        at = at.key_or_self(context["key"]) if isinstance(at, MapNode) else at
        is_empty = is_item and given in (None, "")
        problems.add(kind, at, context["message"], advice if is_empty else context["hint"] or advice)
    elif kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        hint = advice or did_you_mean(given, choices) or f"write {_either(choices)}"
        problems.add("E203", at, f"{describe(given)} is not a choice for `{name}`", hint)
    elif kind == "missing":
        parent = locate(node, path[:-1])
        hint = remedy(path[:-1], None) or f"add `{path[-1]}: …`"
        problems.add("E206", parent, f"`{path[-1]}` is missing here", hint)
    elif kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        number = f"{given:g}" if isinstance(given, float) else describe(given).removeprefix("the number ")
        bound = context[key]
        limit = f"{bound:,.15g}" if abs(bound) < 1e15 else f"{bound:.0e}"
        problems.add("E204", at, f"`{name}` must be {words} {limit}, but this is {number}", advice)
    elif kind in ("too_short", "string_too_short"):
        problems.add("E214", at, f"`{name}` is empty", "fill it in, or leave the key out")
    elif kind in _EXPECTED:
        hint = "put it in quotes" if kind == "string_type" and isinstance(given, (int, float)) else advice
        problems.add("E202", at, f"`{name}` takes {_EXPECTED[kind]}, but this is {describe(given)}", hint)
    else:
        problems.add("E202", at, f"`{name}` cannot be {describe(given)}", advice)


def _remedy_of_item(given: Any) -> str:
    """What to do about an item of a list that is nothing, or a list; empty for others."""
    if given in (None, ""):
        return "fill it in, or remove this item"
    return "write its items into the list around it" if given.__class__ is list else ""


def _describe_key(model: type[Model], path: Sequence[Any]) -> str:
    """What the last key on a path means: the first sentence of its description, as for editors."""
    found = ""
    for step in path:
        fields = ((field.alias or name, field) for name, field in model.model_fields.items())
        field = next((field for key, field in fields if key == step), None)
        if field is not None and field.description:
            found = f"`{step}`: {first_sentence(field.description)}"
        inner = (
            STEPS.get(str(step).removeprefix("a "))
            if field is None
            else inner_model(field) or named_model(field)
        )
        model = inner if inner is not None and issubclass(inner, Model) else model
    return found


def _name_of(path: tuple[Any, ...], node: MapNode) -> str:
    """The last key on a path that is in the file: the name by which the user knows the value."""
    names = [
        step
        for depth, step in enumerate(path)
        if isinstance(step, str) and (depth == 0 or isinstance(locate(node, path[:depth]), MapNode))
    ]
    return names[-1][:60] if names else "this"


def _either(choices: list[str]) -> str:
    quoted = [f"`{choice}`" for choice in choices]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


@cache
def keys_of(model: type[Model]) -> tuple[str, ...]:
    """The keys of a model in the order of the reference: its fields with a description."""
    fields = model.model_fields
    return tuple(field.alias or name for name, field in fields.items() if field.description)


@cache
def maps_of(model: type[Model]) -> dict[str, type[Model]]:
    """The keys of a model whose values are maps with keys, or lists of such maps; except `OF_SOURCES`."""
    fields = ((field.alias or name, inner_model(field)) for name, field in model.model_fields.items())
    return {
        key: inner
        for key, inner in fields
        if key not in OF_SOURCES and inner is not None and issubclass(inner, Model) and keys_of(inner)
    }


@cache
def named_maps_of(model: type[Model]) -> dict[str, type[Model]]:
    """The keys of a model whose values are maps of names, each with a map with keys."""
    fields = ((field.alias or name, named_model(field)) for name, field in model.model_fields.items())
    return {key: inner for key, inner in fields if inner is not None}


def refuse_key(name: str, entry: MapEntry, where: str, hint: str, problems: Problems) -> None:
    """Report an unknown key. One with a colon is not shown: it is a line of another file, such as `/etc/shadow`."""
    shown = "…" if ":" in name else name[:60]
    if shown == "…":
        problems.hide(entry.key)
    problems.add("E201", entry.key, f"unknown key `{shown}` {where}", hint)


def check_keys(node: MapNode, model: type[Model], where: str, problems: Problems) -> MapNode:
    """Remove the keys that a model does not have; each one is a problem."""
    known = keys_of(model)
    inner_models, named_models = maps_of(model), named_maps_of(model)
    entries: dict[str, MapEntry] = {}
    for name, entry in node.entries.items():
        if name in known:
            inner = inner_models.get(name)
            value = _check_inside(entry.value, inner, f"in `{name}`", problems) if inner else entry.value
            if name in named_models and isinstance(value, MapNode):
                value = _check_named(value, named_models[name], name, problems)
            entries[name] = entry if value is entry.value else MapEntry(entry.key, value)
        elif name not in _MERGED.get(model, ()):
            hint = "" if problems.full else _hint(name, model, known, entry.value)
            refuse_key(name, entry, where, hint, problems)
    if len(entries) == len(node.entries) and entries == node.entries:
        return node
    return node.with_entries(entries)


def _check_inside(value: Node, model: type[Model], where: str, problems: Problems) -> Node:
    if isinstance(value, MapNode):
        return check_keys(value, model, where, problems) if model.takes(value.entries) else value
    if isinstance(value, ListNode):
        return value.map(
            lambda item: _check_inside(item, model, where, problems) if isinstance(item, MapNode) else item
        )
    return value


def _check_named(node: MapNode, model: type[Model], key: str, problems: Problems) -> MapNode:
    """As `check_keys`, for each map in a map of names.

    An unknown key whose hint names one that is required has its value, so that this one need not be missing, too.
    """
    known = keys_of(model)
    required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    entries = dict(node.entries)
    for name, entry in node.entries.items():
        if not isinstance(entry.value, MapNode):
            continue
        given = entry.value.entries
        kept = check_keys(entry.value, model, f"in `{key}: {name[:60]}`", problems)
        for needed in (each for each in required if each not in given):
            hints = (
                (other, _hint(other, model, known, given[other].value))
                for other in given
                if other not in known
            )
            found = next((other for other, hint in hints if f"`{needed}`" in hint), None)
            if found is not None:
                kept = kept.with_entries({**kept.entries, needed: given[found]})
        entries[name] = MapEntry(entry.key, kept)
    return node.with_entries(entries) if entries != node.entries else node


def stands_for(key: str, node: MapNode, known: Sequence[str]) -> bool:
    """Whether a map has an unknown key whose hint will name this one, so that it need not be reported as missing."""
    return any(
        _meaning(name, Spec) == key or nearest(name, (*known, key)) == key
        for name in list(node.entries)[:50]
        if name not in known
    )


def _meaning(name: str, model: type[Model]) -> str | None:
    """The key that a user of another tool may mean by a name."""
    folded = name.strip().lower().replace("-", "_")
    return KEYS_IN.get(model.__name__, {}).get(folded) or KEYS.get(folded)


def _home_of(name: str) -> str:
    """Where a key belongs that exists, but not in a map below the top level or a source; empty if it does not exist."""
    if name in keys_of(Spec):
        return f"`{name}` belongs at the top level"
    if name in keys_of(Source):
        return f"`{name}` belongs in a source" + ", or in `defaults:` for all of them" * (
            name in keys_of(SourceOptions)
        )
    return _place_inside(name, Spec)


def _place_inside(name: str, model: type[Model]) -> str:
    """Where a key belongs that exists in one of the maps inside a model; empty if it is in none or in several."""
    paths = _paths_to(name, model)
    if len(paths) != 1:
        return ""
    written = f"{': {'.join((*paths[0], name))}: …{'}' * len(paths[0])}"
    return f"`{name}` belongs in `{paths[0][-1]}`: `{written}`"


def _paths_to(name: str, model: type[Model], depth: int = 2) -> list[tuple[str, ...]]:
    """The keys of the maps, at most two inside each other, that have a key; only the outermost ones."""
    inner = maps_of(model).items() if depth else ()
    found: list[tuple[str, ...]] = [(key,) for key, each in inner if name in keys_of(each)]
    return found or [(key, *path) for key, each in inner for path in _paths_to(name, each, depth - 1)]


def _inner_home(name: str) -> str:
    """Where a key belongs that steps of `make`, or entries of `fetch`, have; empty if none of them has it."""
    steps = [f"`{step}`" for step, recipe in STEPS.items() if name != step and name in keys_of(recipe)]
    if steps:
        return f"`{name}` is a key of {join_names(steps)} in `make`: write it there"
    if name in keys_of(FetchedObject):
        return f"`{name}` is a key of an entry of `fetch`: `fetch: {{image: {{url: path, {name}: …}}}}`"
    return ""


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
            return _home_of(name)
        return f"put it in a source, under `dataset:`: `- {name}: …`"
    given = value.value if isinstance(value, Scalar) else None
    if given == name and (home := _inner_home(name)):  # `labels: labels`
        return home
    if (model is Spec or issubclass(model, SourceOptions)) and (advice := step_meant(folded, plain(value))):
        return advice
    is_share = model is not MixOptions or name in ("weight", "probability") or not _home_of(name)
    if is_share and (advice := advice_on(folded, model.__name__, given)):
        return advice
    if model is not Spec and (inside := _place_inside(name, model)):
        return inside
    meant = _meaning(name, model)
    if model not in (Spec, Source) and meant not in known and (home := _home_of(name)):
        return home
    if meant is not None:
        meant = meant.removeprefix("loader.") if model is LoaderOptions else meant
        if model is Spec and meant in keys_of(Source) and meant not in known:
            is_shards = meant == "shards"
            place = "under `dataset:`" if is_shards else "in a source, or in `defaults:` for all of them"
            return f"did you mean `{meant}`? It belongs {place}"
        return f"did you mean `{meant}`?"
    found = filter(None, (_home_of(name) or _inner_home(name), did_you_mean(name, mine)))
    return "; or ".join(found) or f"the keys here are {', '.join(sorted(mine))}"
