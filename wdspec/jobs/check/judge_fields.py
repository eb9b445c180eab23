"""Judgements on fields: samples with other fields (D303), images of other modes and sizes (D305, D306), lone classes
(D310), and values that cannot be batched (D210)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from wdspec.base.errors import FieldError, WdspecError
from wdspec.jobs.check.facts import (
    CLASS_NAMES,
    MOST_EXAMPLES,
    CheckedData,
    CheckedSource,
    DataProblem,
    FieldFacts,
    SamplePlace,
    Seen,
)
from wdspec.read.budget import Budget
from wdspec.read.transform import MapSteps
from wdspec.spec.language.options import Errors

SMALL = 2
"""Pixels of a side that hold no picture."""
LARGE = 64
"""How many times the usual area fills the memory, from `FEWEST_PIXELS` on."""
FEWEST_PIXELS = 20_000_000
RARE = 0.001
"""Part of the samples, and"""
FEW = 3
"""number of them, that make a class rare."""
MOST_TRIED = 8
"""Samples of different kinds that are put into one batch."""


def mixed_fields(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for each rarer set of fields."""
    for source in collection.own:
        layouts = sorted(source.facts.layouts.items(), key=lambda item: -item[1].times)
        if len({frozenset(names.split()) for names, _ in layouts}) < 2:
            continue
        most = layouts[0][0].split()
        for names, seen in layouts[1 : 1 + MOST_EXAMPLES]:
            own = names.split()
            if set(own) == set(most):
                continue
            lacking = [name for name in most if name not in own]
            more = [name for name in own if name not in most]
            differs = " and ".join(
                f"{verb} {', '.join(f'`{name}`' for name in which)}"
                for verb, which in (("lack", lacking), ("also have", more))
                if which
            )
            message = (
                f"{seen.times:,} of {source.facts.delivered:,} samples {differs}; choose the fields that all have "
                "with `extensions`, or say with `missing` what happens to these"
            )
            yield DataProblem.at("D303", message, source.name, seen.first)


def odd_images(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for each rarer mode of a field, and for its smallest and largest image, if they are odd."""
    for source, name, facts in collection.fields():
        if facts.modes:
            (most, _), *others = sorted(facts.modes.items(), key=lambda item: -item[1].times)
            count = sum(seen.times for seen in facts.modes.values())
            for mode, seen in others[:MOST_EXAMPLES]:
                message = (
                    f"{seen.times:,} of {count:,} images are {mode}, and most are {most}; decoders convert them, or "
                    "drop them with `select`"
                )
                yield DataProblem.at("D305", message, source.name, seen.first, name)
        if facts.sizes and facts.smallest and facts.largest:
            usual = _median_area(facts)
            side, place = facts.smallest
            if side <= SMALL and usual > (4 * SMALL) ** 2:
                message = (
                    f"an image is {side} pixel wide or high, where most have {usual:,} pixels: perhaps a "
                    "placeholder"
                )
                yield DataProblem.at("D306", message, source.name, place, name)
            area, place = facts.largest
            if area > max(FEWEST_PIXELS, LARGE * usual):
                message = (
                    f"an image has {area:,} pixels, where most have {usual:,}: one of these fills the memory"
                )
                yield DataProblem.at("D306", message, source.name, place, name)


def _median_area(facts: FieldFacts) -> int:
    """The median of the areas of the images of a field, in pixels."""
    counted = []
    for text, seen in facts.sizes.items():
        width, _, height = text.partition("x")
        counted.append((int(width) * int(height), seen.times))
    half = sum(count for _, count in counted) / 2
    for area, count in sorted(counted):
        half -= count
        if half <= 0:
            return area
    return 0


def lone_classes(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for each class far above all others that only few samples have."""
    for source, name, facts in collection.fields():
        if name.rpartition(".")[2].lower() not in CLASS_NAMES or not facts.classes:
            continue
        numbers = {int(text): seen for text, seen in facts.classes.items() if text.lstrip("-").isdigit()}
        if len(numbers) < len(facts.classes):
            continue
        count = sum(seen.times for seen in numbers.values())
        for number, seen, others in _find_lone(numbers, count):
            message = (
                f"the class {number} stands alone: {seen.times:,} of {count:,} samples have it, and all others are at "
                f"most {others}; mend the label, or drop it with `select`"
            )
            yield DataProblem.at("D310", message, source.name, seen.first, name)


def _find_lone(numbers: dict[int, Seen], count: int) -> Iterator[tuple[int, Seen, int]]:
    common = [number for number, seen in numbers.items() if seen.times > max(FEW, RARE * count)]
    if not common:
        return
    highest = max(common)
    lone = [number for number in sorted(numbers) if number > 2 * highest + 10]
    for number in lone[:MOST_EXAMPLES]:
        yield number, numbers[number], highest


def unstackable_values(collection: CheckedData) -> Iterator[DataProblem]:
    """Try a batch of samples whose values differ in shape or type, made as the spec makes batches; needs torch.

    With `mix: {unit: batch}` a batch of each source by itself.
    """
    spec = collection.spec
    if spec.batch is None or importlib.util.find_spec("torch") is None:
        return
    sources = collection.own
    groups = [[source] for source in sources] if spec.mix.unit == "batch" else [sources]
    for group in groups:
        yield from _try_batch(collection, group)


def _try_batch(collection: CheckedData, sources: list[CheckedSource]) -> Iterator[DataProblem]:
    from wdspec.read.batch import BatchMaker

    spec = collection.spec
    assert spec.batch is not None, "there are batches"
    places = dict(_find_different(sources))
    if len(places) < 2:
        return
    samples = [
        sample for place, source in places.items() if (sample := _read_again(collection, source, place))
    ]
    try:
        BatchMaker(spec.batch, spec.to_tuple, spec.folder)(samples)
    except FieldError as error:
        names = ", ".join(dict.fromkeys(source.name for source in places.values()))
        problem = DataProblem.of(error, "batch", source=names)
        yield DataProblem.at("D210", problem.message, problem.source, next(iter(places)), problem.field)
    except Exception as error:
        message = f"a function of `batch: {{collate: …}}` failed: {type(error).__name__}: {error}"
        yield DataProblem("D203", message, sources[0].name)


def _find_different(sources: list[CheckedSource]) -> Iterator[tuple[SamplePlace, CheckedSource]]:
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


def _read_again(collection: CheckedData, source: CheckedSource, place: SamplePlace) -> dict[str, Any] | None:
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
