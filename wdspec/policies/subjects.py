"""What rules are about: the values of a source, or of a spec, and where they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel

from wdspec.policies.patterns import ANY_TEXT
from wdspec.policies.places import Place, find_text, is_pinned, places_of, shards_of
from wdspec.spec.build import Composition
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import MapNode, Node, locate, scalars
from wdspec.spec.validation import keys_of

_SERVER = re.compile("endpoint|url|host|proxy", re.IGNORECASE)
"""Arguments of stores that name a server."""


class Value(NamedTuple):
    """A value of a subject."""

    text: str
    """`ANY_TEXT` if it is unknown."""
    at: Node


@dataclass(frozen=True, eq=False)
class Holder:
    """A source with shards, or the top level of a spec, as rules see it."""

    composition: Composition
    leaf: Draft | None = None
    """None for the top level."""
    source: Source | None = None

    @property
    def name(self) -> str:
        """The name of the source; empty for the top level."""
        return "" if self.source is None else self.source.name

    @property
    def at(self) -> Node:
        """Where to point if there is nothing else."""
        if self.leaf is None:
            return self.composition.top.key_or_self("dataset")
        own = self.leaf.own
        return own.key_or_self("name" if own.get("name") is not None else "shards")

    @property
    def node(self) -> MapNode:
        """Its merged tree."""
        return self.composition.top if self.leaf is None else self.leaf.node

    @property
    def model(self) -> Spec | Source:
        """Its model."""
        return self.composition.spec if self.source is None else self.source

    @cached_property
    def places(self) -> list[Place]:
        """Every URL that it reads."""
        if self.leaf is None or self.source is None:
            return []
        return places_of(self.composition, self.leaf, self.source)

    @cached_property
    def shards(self) -> list[Place]:
        """The shards that it reads, after rewriting."""
        if self.leaf is None or self.source is None:
            return []
        return shards_of(self.composition, self.leaf, self.source)

    def stated(self, key: str) -> list[Value] | None:
        """The values of a key of the spec language that is set; None if it is not, or has only blank text."""
        look = _servers if key == "storage.endpoint" else _stated
        found = look(self.model, self.node, key)
        if found is None and self.source is not None and key.partition(".")[0] in keys_of(Spec):
            found = look(self.composition.spec, self.composition.top, key)
        if found is None and key == "revision" and is_pinned(self.places):
            return [Value(place.text, place.at) for place in self.places]
        return found

    def values(self, key: str) -> list[Value]:
        """The values of a key, those by default included."""
        found = self.stated(key)
        if found is not None:
            return found
        return [Value(text, self.at) for text in _texts(_walk(self.model, key)) if text.strip()]

    @cached_property
    def functions(self) -> list[Value]:
        """The user functions that it names itself."""
        found: list[tuple[str, str]] = []
        if self.source is not None:
            found += [("map", call.call) for call in self.source.map]
            found += [("select", name) for name in self.source.selects]
            decode = self.source.decode
            names = () if decode is None else (*decode.names, *decode.fields.values())
            found += [("decode", name) for name in names if ":" in name]
        else:
            spec = self.composition.spec
            found += [("map", call.call) for call in spec.map]
            found += [("map_batches", spec.map_batches.call)] if spec.map_batches is not None else []
            found += [("stage", name) for name in ([] if spec.stage is None else spec.stage.functions)]
            of_batch = {key: names for key, names in spec.functions.items() if key in ("collate", "cost")}
            found += [("batch", name) for names in of_batch.values() for name in names]
        return [Value(name, find_text(self.node.value_or_self(key), name)) for key, name in found]


def holders_of(composition: Composition) -> list[Holder]:
    """The sources of a spec, those of companions last."""
    return [Holder(composition, leaf, source) for leaf, source in composition.models]


def is_of_sources(key: str) -> bool:
    """Whether a key is asked of each source."""
    return key.partition(".")[0] in keys_of(Source)


def _stated(model: Any, node: MapNode, key: str) -> list[Value] | None:
    first, *inner = key.split(".")
    held = node.get(first)
    if held is None:
        return None
    value = _walk(model, key)
    if value is None or (isinstance(value, (Mapping, list, tuple, Set)) and not value):
        return None
    at, texts = locate(held, inner), _texts(value)
    if not any(map(str.strip, texts)):
        return None
    return [Value(text, find_text(at, text)) for text in texts]


def _servers(model: Any, node: MapNode, key: str) -> list[Value] | None:
    """The endpoints of `storage`: also those among its other arguments, and those that only the environment knows."""
    found = _stated(model, node, key) or []
    storage = node.map_at("storage")
    options = None if storage is None else storage.get("options")
    found += [
        Value(each.value, each)
        for each in (scalars(options) if options is not None else ())
        if isinstance(each.value, str) and "://" in each.value
    ]
    for name in ("env", "files"):
        secret = None if storage is None else storage.map_at(name)
        for argument, entry in secret.entries.items() if secret is not None else ():
            if _SERVER.search(argument):
                found.append(Value(ANY_TEXT, entry.key))
    return found or None


@cache
def _attributes(model: type[BaseModel]) -> dict[str, str]:
    """The attributes of a model, by the keys that they stand for."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _walk(model: Any, key: str) -> Any:
    """The value at a path of keys in a model; None if there is none."""
    value = model
    for step in key.split("."):
        if isinstance(value, BaseModel):
            value = getattr(value, _attributes(type(value)).get(step, ""), None)
        elif isinstance(value, Mapping):
            value = value.get(step)
        else:
            return None
    return value


def _texts(value: Any) -> list[str]:
    """Values as patterns are compared with them: one text, or one for each item; what is no text has its kind."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, str):
        return [value]
    if isinstance(value, (Mapping, BaseModel)):
        return ["{…}"]
    if isinstance(value, float):
        return [f"{value:g}"]
    if isinstance(value, Iterable):
        return [text for item in value for text in _texts(item)]
    return [str(value)]
