"""The order in which keys are documented, and in which `wdspec fmt` puts them."""

from __future__ import annotations

from functools import cache

from wdspec.spec.language.json_schema import Document, SourceEntry
from wdspec.spec.language.known_keys import keys_of, maps_of
from wdspec.spec.language.model import Model
from wdspec.spec.language.models import Source, Spec

_FIRST: dict[type[Model], tuple[str, ...]] = {
    Document: ("wdspec", "name", "description", "extends", "vars", "seed", "defaults", "dataset", "sources"),
    SourceEntry: ("name", "shards", "spec"),
}
_LAST: dict[type[Model], tuple[str, ...]] = {
    Document: ("environments", "splits"),
    SourceEntry: ("mix", "defaults", "dataset"),
}
_BY_NAME: dict[str, type[Model]] = {"environments": Document, "splits": Document, "sources": SourceEntry}
"""Keys of maps from names of one's own to such maps."""
_ALIKE: dict[str, type[Model]] = {"dataset": SourceEntry, "defaults": SourceEntry}
_MODELS: dict[type[Model], type[Model]] = {Document: Spec, SourceEntry: Source}


@cache
def documented_keys(model: type[Model]) -> tuple[str, ...]:
    """The keys of a map in the order of the reference: of a file (`Document`), a source (`SourceEntry`) or a model."""
    first, last = _FIRST.get(model, ()), _LAST.get(model, ())
    return (*first, *(key for key in keys_of(model) if key not in {*first, *last}), *last)


def maps_under(model: type[Model], key: str) -> tuple[type[Model] | None, bool]:
    """What the maps under a key are, if they have keys of their own; and whether they stand there by name."""
    if model in _MODELS and key in _BY_NAME:
        return _BY_NAME[key], True
    if model in _MODELS and key in _ALIKE:
        return _ALIKE[key], False
    return maps_of(_MODELS.get(model, model)).get(key), False
