"""Which keys may stand where, and what somebody who wrote another one may have meant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from wdspec.spec.language.advice.foreign_words import KEYS, KEYS_IN, advice_on
from wdspec.spec.language.effects import inner_model
from wdspec.spec.language.model import Model
from wdspec.spec.language.models import Source, SourceOptions, Spec
from wdspec.spec.language.options import LoaderOptions
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import ListNode, MapEntry, MapNode, Node, Scalar
from wdspec.suggestions import did_you_mean, nearest

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
        return value.mapped(
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
