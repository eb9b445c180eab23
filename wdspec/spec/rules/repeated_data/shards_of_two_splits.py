"""W302: training and validation have no shard in common."""

from __future__ import annotations

from collections.abc import Sequence

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule_of_splits
from wdspec.spec.rules.shard_sets import ShardSets
from wdspec.spec.rules.shard_texts import parts_of


@rule_of_splits(
    "W302",
    "shards of two splits",
    "What is validated on must not be trained on. Splits with a shard in common measure what was learnt by "
    "heart.",
    bad="splits:\n  train: {dataset: [{shards: 'a-{000..090}.tar'}]}\n"
    "  val: {dataset: [{shards: 'a-{090..099}.tar'}]}\n",
    good="splits:\n  train: {dataset: [{shards: 'a-{000..089}.tar'}]}\n"
    "  val: {dataset: [{shards: 'a-{090..099}.tar'}]}\n",
)
def shards_of_two_splits(splits: Sequence[Composed]) -> Findings:
    """The first shard of each text that an earlier split has."""
    sets: ShardSets[str] = ShardSets()
    for composed in splits:
        split = composed.variant.split or ""
        for _, text, parts in parts_of(composed):
            for part in parts:
                found = sets.add(part, split)
                if found is not None and found[1] != split:
                    message = f"{quoted(found[0])} is also a shard of the split `{found[1]}`"
                    yield Finding(text, message, "keep the shards of splits apart")
                    break
