"""The table of judgements: what is said when the facts of all shards are there."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.jobs.check.counts import expected_counts, few_shards, small_shards, sorted_shards
from wdspec.jobs.check.data import CheckedData, Judgement
from wdspec.jobs.check.facts import DataProblem
from wdspec.jobs.check.oddities import lone_classes, mixed_fields, odd_images, unstackable_values
from wdspec.jobs.check.repetitions import repeated_contents, repeated_keys, similar_images

JUDGEMENTS: tuple[Judgement, ...] = (
    mixed_fields,
    repeated_keys,
    repeated_contents,
    similar_images,
    odd_images,
    lone_classes,
    sorted_shards,
    small_shards,
    few_shards,
    expected_counts,
    unstackable_values,
)


def judged(collection: CheckedData) -> Iterator[DataProblem]:
    """What all judgements say."""
    for judgement in JUDGEMENTS:
        yield from judgement(collection)
