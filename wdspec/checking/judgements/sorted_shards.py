"""D307: shards whose neighbours have one class, so that what a slot holds for shuffling spans only a few."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from wdspec.checking.judgements.checked_data import CheckedData, CheckedSource
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.checking.shards.shard_facts import FieldFacts, Seen
from wdspec.planning.delays import lanes_of, shuffle_size

FEWEST = 50
"""Neighbours of which something can be said."""
MUCH_MORE = 0.25
"""Part of the neighbours that is alike beyond chance."""
FEW_CLASSES = 0.5
"""Classes that a slot holds, as a part of all, below which batches are one-sided."""


def sorted_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """At most one for each source: of the field whose neighbours are most alike."""
    for source in collection.own:
        found = [
            (facts.alike / facts.pairs, name, facts, facts.classes)
            for name, facts in source.facts.fields.items()
            if facts.classes and len(facts.classes) > 1 and facts.pairs >= FEWEST
        ]
        for alike, name, facts, classes in sorted(found, key=lambda each: (-each[0], each[1]))[:1]:
            yield from _judged(collection, source, name, alike, facts, classes)


def _judged(
    collection: CheckedData,
    source: CheckedSource,
    name: str,
    alike: float,
    facts: FieldFacts,
    classes: dict[str, Seen],
) -> Iterator[DataProblem]:
    count = sum(seen.times for seen in classes.values())
    chance = sum((seen.times / count) ** 2 for seen in classes.values())
    if alike < chance + MUCH_MORE:
        return
    planned = collection.planned(source.name)
    share = planned.share if planned is not None else Fraction(1)
    held = planned.delays.size if planned is not None else shuffle_size(source.source.shuffle, share)
    lanes = planned.interleave if planned is not None else lanes_of(source.source.interleave, share)
    shards = len(source.shards)
    lanes = min(lanes, shards)
    # A run of one class ends with its shard.
    run = min(1 / max(1 - alike, 1e-9), source.facts.samples / max(1, len(source.read)))
    kinds = 1 / chance
    spanned = max(lanes, held / run)
    if spanned >= FEW_CLASSES * kinds:
        return
    wanted = min(shards, math.ceil(kinds))
    setting = math.ceil(wanted / share)
    remedy = f"set `interleave: {setting}`"
    if wanted < kinds:
        remedy += ", all of its shards, and shuffle the samples before they are packed: these are too few"
    elif setting > source.source.interleave:
        remedy += f" (it is {source.source.interleave})"
    place = next(iter(classes.values())).first
    yield DataProblem(
        "D307",
        f"neighbours have the same `{name}` in {100 * alike:.0f} % of places, where chance would be "
        f"{100 * chance:.0f} %: the shards are sorted. The {held:,} samples held for shuffling, of {lanes} shards, "
        f"span about {spanned:.0f} of {kinds:.0f} classes; {remedy}",
        source.name,
        place.shard,
        field=name,
    )
