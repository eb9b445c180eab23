"""Specs with parts of their work left out, for commands that show or time one part after the other."""

from __future__ import annotations

from typing import Any

from wdspec.cli.support.spec_options import source_named
from wdspec.spec.language.decoders import RAW
from wdspec.spec.language.samples import Decode
from wdspec.spec.spec import Source, Spec

_NO_FUNCTIONS: dict[str, Any] = {"map": (), "select": None, "expect": None}
_SINGLE: dict[str, Any] = {"batch": None, "fields": None, "to_tuple": None, "stage": None, "map": ()}


def only_source(spec: Spec, name: str) -> Spec:
    """The spec with one source, whatever its share was.

    Raises:
        UsageError: there is no such source.
    """
    return spec.of([source_named(name, spec)])


def files_of(spec: Spec) -> Spec:
    """The spec without all that changes samples: the files that are wanted of each, as bytes, sample by sample."""
    update: dict[str, Any] = {
        "decode": Decode(names=(RAW,)),
        "scale": None,
        "scaleprob": 1.0,
        "rename": {},
        "tags": {},
    }
    return _changed(spec, {**update, **_NO_FUNCTIONS}).model_copy(update=_SINGLE)


def decoded(spec: Spec) -> Spec:
    """The spec without the user's functions of samples: what is decoded and scaled, sample by sample."""
    return _changed(spec, _NO_FUNCTIONS).model_copy(update=_SINGLE)


def samples_of(spec: Spec) -> Spec:
    """The spec without batches."""
    return spec.model_copy(update={"batch": None, "stage": None})


def _changed(spec: Spec, update: dict[str, Any]) -> Spec:
    """The spec with these values in all sources that have shards."""
    return spec.model_copy(update={"dataset": tuple(_source(source, update) for source in spec.dataset)})


def _source(source: Source, update: dict[str, Any]) -> Source:
    if source.dataset is None:
        return source.model_copy(update=update)
    return source.model_copy(update={"dataset": tuple(_source(inner, update) for inner in source.dataset)})
