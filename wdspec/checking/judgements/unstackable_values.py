"""D210: values of one field that differ in shape or type, so that a batch of them is an error."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from wdspec.base.errors import FieldError, WdspecError
from wdspec.checking.judgements.checked_data import CheckedData, CheckedSource
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.checking.shards.shard_facts import SamplePlace
from wdspec.read.budget import Budget
from wdspec.read.transform import MapSteps
from wdspec.spec.language.options import Errors

MOST_TRIED = 8
"""Samples of different kinds that are put into one batch."""


def unstackable_values(collection: CheckedData) -> Iterator[DataProblem]:
    """Tries a batch of samples whose values differ, as the spec makes batches; needs torch.

    With `mix: {unit: batch}` those of each source by themselves.
    """
    spec = collection.spec
    if spec.batch is None or importlib.util.find_spec("torch") is None:
        return
    sources = collection.own
    groups = [[source] for source in sources] if spec.mix.unit == "batch" else [sources]
    for group in groups:
        yield from _tried(collection, group)


def _tried(collection: CheckedData, sources: list[CheckedSource]) -> Iterator[DataProblem]:
    from wdspec.read.batch import BatchMaker

    spec = collection.spec
    assert spec.batch is not None, "there are batches"
    places = dict(_different(sources))
    if len(places) < 2:
        return
    samples = [sample for place, source in places.items() if (sample := _made(collection, source, place))]
    try:
        BatchMaker(spec.batch, spec.to_tuple, spec.folder)(samples)
    except FieldError as error:
        first = next(iter(places))
        problem = DataProblem.of(
            error, "batch", source=", ".join(dict.fromkeys(s.name for s in places.values()))
        )
        yield DataProblem(
            "D210",
            problem.message,
            problem.source,
            first.shard,
            key=first.key,
            field=problem.field,
            offset=first.offset,
        )
    except Exception as error:
        yield DataProblem(
            "D203",
            f"a function of `batch: {{collate: …}}` failed: {type(error).__name__}: {error}",
            sources[0].name,
        )


def _different(sources: list[CheckedSource]) -> Iterator[tuple[SamplePlace, CheckedSource]]:
    """The first samples of each set of fields, and of each shape or type of a field; the rarest kinds first."""
    kinds: dict[str, dict[str, tuple[int, SamplePlace, CheckedSource]]] = {}
    for source in sources:
        facts = source.facts
        seen = [("", " ".join(sorted(names.split())), each) for names, each in facts.layouts.items()]
        seen += [(name, kind, each) for name, of in facts.fields.items() for kind, each in of.kinds.items()]
        for name, kind, (times, first) in seen:
            known = kinds.setdefault(name, {}).get(kind)
            kinds[name][kind] = (times + known[0], *known[1:]) if known else (times, first, source)
    for found in kinds.values():
        if len(found) > 1:
            for _, place, source in sorted(found.values(), key=lambda each: each[0])[:MOST_TRIED]:
                yield place, source


def _made(collection: CheckedData, source: CheckedSource, place: SamplePlace) -> dict[str, Any] | None:
    """The sample once more, through all steps of its source."""
    looked = next(each for each in source.read if each.shard.text == place.shard)
    found = source.raw(looked, place.number)
    if found is None:
        return None
    budget = Budget(Errors(), source.name)
    try:
        process = source.parts.transform.build(budget, collection.spec.seed, looked.number, MapSteps(False))
        return process(found[0], place.number)
    except (WdspecError, ValueError, TypeError):
        return None
