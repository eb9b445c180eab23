"""D310: a class far above all others that only few samples have."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.checking.judgements.checked_data import MOST_EXAMPLES, CheckedData
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.checking.shards.shard_facts import CLASS_NAMES, Seen

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
