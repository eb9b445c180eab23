"""W352: `epoch` is a length, not a number of epochs."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.expected_samples import global_batch
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import parts_of

FEW_SAMPLES = 1_000
FEW_BATCHES = 4


@rule(
    "W352",
    "an epoch of a few samples",
    "`epoch` says how many samples an epoch has. How many epochs there are is a matter of the training loop.",
    bad="batch: 8\nepoch: 16\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
    good="batch: 8\nepoch: 16_000\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
)
def tiny_epochs(composed: Composed) -> Findings:
    """Epochs of less than four batches and a thousand samples, in specs with more shards than that many batches."""
    epoch, each = composed.spec.epoch, global_batch(composed)
    if epoch is None or not epoch.samples or not each or composed.spec.limit is not None:
        return
    if each <= epoch.samples < min(FEW_SAMPLES, FEW_BATCHES * each) and _shards(composed) > FEW_BATCHES:
        batches = epoch.samples // each
        length = f"{batches} batches" if batches > 1 else "one batch"
        message = f"an epoch of {epoch.samples:,} samples, {length}, ends very soon"
        yield Finding(
            composed.top.entries["epoch"].value,
            message,
            "give the samples of one epoch; the training loop counts epochs",
        )


def _shards(composed: Composed) -> int:
    return sum(1 if part.listed else len(part.braces) for _, _, parts in parts_of(composed) for part in parts)
