"""E306: an epoch is at least one global batch."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "E306",
    "an epoch shorter than a batch",
    "An epoch is a whole number of global batches, and at least one.",
    bad="batch: 512\nepoch: 100\ndataset:\n  - shards: a.tar\n",
    good="batch: 512\nepoch: 512\ndataset:\n  - shards: a.tar\n",
)
def short_epochs(composed: Composed) -> Findings:
    """Epochs of fewer samples, and epochs counted in batches where there are none."""
    epoch, batch, elastic = composed.spec.epoch, composed.spec.batch, composed.spec.elastic
    if epoch is None or epoch.remainder is not None or (epoch.samples and epoch.batches):
        return
    node = composed.top.entries["epoch"].value
    if epoch.samples and batch:
        least = batch.global_size or (batch.size or 0) * (elastic.ranks if elastic else 1)
        if epoch.samples < least:
            message = f"an epoch of {epoch.samples:,} samples is shorter than one global batch of {least:,}"
            hint = f"give it at least {least}, or make the batch smaller"
            yield Finding(node.value_or_self("samples"), message, hint)
    elif epoch.batches and not batch:
        hint = "add `batch:`, or count the epoch in samples"
        yield Finding(node.key_or_self("batches"), "an epoch of batches needs a `batch`", hint)
