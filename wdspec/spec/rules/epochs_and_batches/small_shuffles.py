"""W354: a shuffle holds more than a batch."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W354",
    "a shuffle smaller than a batch",
    "Neighbours in a shard stay within one batch of each other, so batches are hardly mixed.",
    bad="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 100}\n",
    good="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 2000}\n",
)
def small_shuffles(composed: Composed) -> Findings:
    """Shuffles that somebody wrote, above 0 and below the batch of a rank."""
    batch = composed.spec.batch
    for leaf, source in composed.models if batch is not None and batch.size else ():
        if batch is not None and "shuffle" in leaf.node.entries and 0 < source.shuffle < (batch.size or 0):
            message = f"a shuffle of {source.shuffle} samples mixes less than one batch of {batch.size}"
            hint = "give it several times the batch, or 0 to read in order"
            yield Finding(leaf.node.entries["shuffle"].value, message, hint)
