"""D303: samples of a source that have other fields than most.

D305, D306: images of another mode than most, or of a size that is none.

D310: a class far above all others that only few samples have.

D210: values of one field that differ in shape or type, so that a batch of them is an error.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from wdspec.base.errors import FieldError, WdspecError
from wdspec.jobs.check.data import MOST_EXAMPLES, CheckedData, CheckedSource
from wdspec.jobs.check.facts import CLASS_NAMES, DataProblem, FieldFacts, SamplePlace, Seen
from wdspec.read.budget import Budget
from wdspec.read.transform import MapSteps
from wdspec.spec.language.options import Errors


def mixed_fields(collection: CheckedData) -> Iterator[DataProblem]:
    """One for each rarer set of fields."""
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
                f"{verb} {', '.join(map(_quoted, which))}"
                for verb, which in (("lack", lacking), ("also have", more))
                if which
            )
            place = seen.first
            yield DataProblem(
                "D303",
                f"{seen.times:,} of {source.facts.delivered:,} samples {differs}; choose the fields that all have "
                "with `extensions`, or say with `missing` what happens to these",
                source.name,
                place.shard,
                key=place.key,
                offset=place.offset,
            )


def _quoted(name: str) -> str:
    return f"`{name}`"


SMALL = 2
"""Pixels of a side that hold no picture,"""
LARGE = 64
"""and times the area of most images that fill the memory."""
FEWEST_PIXELS = 20_000_000


def odd_images(collection: CheckedData) -> Iterator[DataProblem]:
    """One for each rarer mode of a field, and for its smallest and largest image, where they are odd."""
    for source in collection.own:
        for name, facts in source.facts.fields.items():
            if facts.modes:
                yield from _modes(source, name, facts)
            if facts.sizes and facts.smallest and facts.largest:
                yield from _sizes(source, name, facts, facts.smallest, facts.largest)


def _modes(source: CheckedSource, name: str, facts: FieldFacts) -> Iterator[DataProblem]:
    (most, _), *others = sorted(facts.modes.items(), key=lambda item: -item[1].times)
    count = sum(seen.times for seen in facts.modes.values())
    for mode, seen in others[:MOST_EXAMPLES]:
        message = (
            f"{seen.times:,} of {count:,} images are {mode}, and most are {most}; decoders convert them, or drop "
            "them with `select`"
        )
        yield _problem("D305", message, source, name, seen.first)


def _sizes(
    source: CheckedSource,
    name: str,
    facts: FieldFacts,
    smallest: tuple[int, SamplePlace],
    largest: tuple[int, SamplePlace],
) -> Iterator[DataProblem]:
    usual = _median([(width * height, seen.times) for (width, height), seen in _sides(facts)])
    side, place = smallest
    if side <= SMALL and usual > (4 * SMALL) ** 2:
        message = (
            f"an image is {side} pixel wide or high, where most have {usual:,} pixels: perhaps a placeholder"
        )
        yield _problem("D306", message, source, name, place)
    area, place = largest
    if area > max(FEWEST_PIXELS, LARGE * usual):
        message = f"an image has {area:,} pixels, where most have {usual:,}: one of these fills the memory"
        yield _problem("D306", message, source, name, place)


def _sides(facts: FieldFacts) -> Iterator[tuple[tuple[int, int], Seen]]:
    for text, seen in facts.sizes.items():
        width, _, height = text.partition("x")
        yield (int(width), int(height)), seen


def _median(counted: list[tuple[int, int]]) -> int:
    """The median of values with counts."""
    half = sum(count for _, count in counted) / 2
    for value, count in sorted(counted):
        half -= count
        if half <= 0:
            return value
    return 0


def _problem(code: str, message: str, source: CheckedSource, name: str, place: SamplePlace) -> DataProblem:
    return DataProblem(
        code, message, source.name, place.shard, key=place.key, field=name, offset=place.offset
    )


RARE = 0.001
"""Part of the samples, and"""
FEW = 3
"""number of them, that make a class rare."""


def lone_classes(collection: CheckedData) -> Iterator[DataProblem]:
    """One for each such class."""
    for source in collection.own:
        for name, facts in source.facts.fields.items():
            if name.rpartition(".")[2].lower() not in CLASS_NAMES or not facts.classes:
                continue
            numbers = {int(text): seen for text, seen in facts.classes.items() if text.lstrip("-").isdigit()}
            if len(numbers) < len(facts.classes):
                continue
            for number, seen, others in _lone(numbers):
                place = seen.first
                yield DataProblem(
                    "D310",
                    f"the class {number} stands alone: {seen.times:,} of {sum(s.times for s in numbers.values()):,} "
                    f"samples have it, and all others are at most {others}; mend the label, or drop it with `select`",
                    source.name,
                    place.shard,
                    key=place.key,
                    field=name,
                    offset=place.offset,
                )


def _lone(numbers: dict[int, Seen]) -> Iterator[tuple[int, Seen, int]]:
    count = sum(seen.times for seen in numbers.values())
    common = [number for number, seen in numbers.items() if seen.times > max(FEW, RARE * count)]
    if not common:
        return
    highest = max(common)
    lone = [number for number in sorted(numbers) if number > 2 * highest + 10]
    for number in lone[:MOST_EXAMPLES]:
        yield number, numbers[number], highest


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
