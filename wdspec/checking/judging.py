"""The table of judgements: what is said when the facts of all shards are there."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.checking.judgements.checked_data import CheckedData, Judgement
from wdspec.checking.judgements.lone_classes import lone_classes
from wdspec.checking.judgements.mixed_fields import mixed_fields
from wdspec.checking.judgements.odd_images import odd_images
from wdspec.checking.judgements.repeated_samples import repeated_contents, repeated_keys
from wdspec.checking.judgements.shard_counts import expected_counts, few_shards, small_shards
from wdspec.checking.judgements.similar_images import similar_images
from wdspec.checking.judgements.sorted_shards import sorted_shards
from wdspec.checking.judgements.unstackable_values import unstackable_values
from wdspec.checking.shards.data_problem import DataProblem

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
