"""W353: a batch of several ranks says how many they are."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W353",
    "several ranks without `elastic`",
    "`global_size` is for several ranks. Without `elastic` the order is that of the first run's ranks and "
    "workers, and a state goes on with no other numbers.",
    bad="batch: {global_size: 512}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 512}\nelastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..31}.tar'\n",
)
def missing_elastic(composed: Composed) -> Findings:
    """`batch.global_size` in a spec without `elastic`."""
    batch = composed.spec.batch
    if (
        batch is not None
        and batch.global_size
        and composed.spec.elastic is None
        and "elastic" not in composed.bad
    ):
        at = composed.top.entries["batch"].value.key_or_self("global_size")
        hint = "write `elastic: {ranks: …, workers: …}`, of the largest job that is meant"
        yield Finding(at, "the order depends on how many ranks the first run has", hint)
