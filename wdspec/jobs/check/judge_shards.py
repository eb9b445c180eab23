"""Judgements on whole shards: their number and size (D311, D214, D215, W512), and whether they are sorted (D307)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from statistics import median

from wdspec.jobs.check.facts import CheckedData, CheckedSource, DataProblem, FieldFacts, Seen
from wdspec.planning.delays import lanes_of, shuffle_size

FEWEST = 4
"""Shards from which on one can be called small."""
SMALL = 0.1
"""Part of the usual samples, below which a shard is small."""
FEWEST_PAIRS = 50
"""Neighbours from which on shards can be called sorted."""
MUCH_MORE = 0.25
"""Part of the neighbours with equal classes beyond chance."""
FEW_CLASSES = 0.5
"""Classes that a slot holds, as a part of all, below which batches are one-sided."""


def small_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """Shards with less than a tenth of the samples of others; the last one of a source may hold a remainder."""
    for source in collection.own:
        counts = [(each, each.facts.samples.samples) for each in source.read if each.facts.samples]
        if len(counts) < FEWEST:
            continue
        usual = median(count for _, count in counts)
        last = max(each.number for each in source.shards)
        for each, count in counts:
            broken = any(problem.code.startswith("D1") for problem in each.facts.problems)
            if 0 < count < SMALL * usual and each.number != last and not broken:
                yield DataProblem(
                    "D311",
                    f"the shard has {count:,} samples, and its source's have {usual:,.0f}; was it written whole?",
                    source.name,
                    each.shard.text,
                )


def expected_counts(collection: CheckedData) -> Iterator[DataProblem]:
    """Sources with more or fewer samples, or more samples left out, than `expect` says."""
    for source in collection.own:
        expect, facts = source.source.expect, source.facts
        if expect is None or not source.read:
            continue
        is_whole = len(source.read) == len(source.shards)
        if expect.samples is not None and is_whole and not expect.samples.hold(facts.samples):
            message = f"the source has {facts.samples:,} samples, where {expect.samples} is expected"
            yield DataProblem("D214", message, source.name)
        part = facts.dropped / max(1, facts.samples)
        if expect.dropped is not None and part > expect.dropped:
            yield DataProblem(
                "D215",
                f"{facts.dropped:,} of {facts.samples:,} samples are left out by `select` or `missing`, "
                f"{100 * part:.1f} %, where at most {100 * expect.dropped:g} % is expected",
                source.name,
            )


def few_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """Sources with fewer shards than slots."""
    plan = collection.plan
    for source in () if plan is None else plan.sources:
        if source.order.split > 1 and plan is not None:
            yield DataProblem(
                "W512",
                f"{len(source.shards):,} shards for {plan.topology.slots:,} slots: each is read in "
                f"{source.order.split} parts, every part by a walk through all of it; more and smaller shards read "
                "faster",
                source.name,
            )


def sorted_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """Shards with so many equal neighbours that a slot holds few classes: at most one problem for each source."""
    for source in collection.own:
        found = [
            (facts.alike / facts.pairs, name, facts, facts.classes)
            for name, facts in source.facts.fields.items()
            if facts.classes and len(facts.classes) > 1 and facts.pairs >= FEWEST_PAIRS
        ]
        for alike, name, facts, classes in sorted(found, key=lambda each: (-each[0], each[1]))[:1]:
            yield from _judge_order(collection, source, name, alike, facts, classes)


def _judge_order(
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
    yield DataProblem(
        "D307",
        f"neighbours have the same `{name}` in {100 * alike:.0f} % of places, where chance would be "
        f"{100 * chance:.0f} %: the shards are sorted. The {held:,} samples held for shuffling, of {lanes} shards, "
        f"span about {spanned:.0f} of {kinds:.0f} classes; {remedy}",
        source.name,
        next(iter(classes.values())).first.shard,
        field=name,
    )
