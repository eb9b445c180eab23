"""D305, D306: images of another mode than most, or of a size that is none."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.checking.judgements.checked_data import MOST_EXAMPLES, CheckedData, CheckedSource
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.checking.shards.shard_facts import FieldFacts, SamplePlace, Seen

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
