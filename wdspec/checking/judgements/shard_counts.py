"""D311, W512: shards that are much smaller than others, and fewer of them than slots."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from wdspec.checking.judgements.checked_data import CheckedData
from wdspec.checking.shards.data_problem import DataProblem

FEWEST = 4
"""Shards of which one can be told to be small."""
SMALL = 0.1


def small_shards(collection: CheckedData) -> Iterator[DataProblem]:
    """Shards with less than a tenth of the samples of others; the last one of a source holds what is left."""
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
    """Sources with more or fewer samples, or with more of them left out, than `expect` says."""
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
