"""E307: the ranks share a global batch equally."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "E307",
    "a batch that ranks cannot share",
    "`global_size` is dealt out equally, so `elastic.ranks` must divide it.",
    bad="batch: {global_size: 100}\nelastic: {ranks: 16}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 112}\nelastic: {ranks: 16}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
)
def indivisible_batches(composed: Composed) -> Findings:
    """A `global_size` that `elastic.ranks` does not divide."""
    batch, elastic = composed.spec.batch, composed.spec.elastic
    if batch is None or elastic is None or batch.size or not batch.global_size:
        return
    if batch.global_size % elastic.ranks:
        near = -(-batch.global_size // elastic.ranks) * elastic.ranks
        message = f"{batch.global_size:,} samples cannot be shared equally by {elastic.ranks} ranks"
        at = composed.top.entries["batch"].value.value_or_self("global_size")
        yield Finding(at, message, f"write `global_size: {near}`")
