"""W351: an epoch is a whole number of global batches."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.expected_samples import global_batch
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W351",
    "an epoch that is rounded",
    "An epoch is a whole number of global batches; what is over is left to the next one, so the epoch is "
    "shorter than the spec says.",
    bad="batch: 64\nepoch: 10_000\ndataset:\n  - shards: a.tar\n",
    good="batch: 64\nepoch: 9_984\ndataset:\n  - shards: a.tar\n",
)
def rounded_epochs(composed: Composed) -> Findings:
    """Epochs of samples that the batch does not divide."""
    epoch, each = composed.spec.epoch, global_batch(composed)
    if epoch is None or not epoch.samples or not each or epoch.samples < each or epoch.batches:
        return
    over = epoch.samples % each
    if over:
        kept = epoch.samples - over
        batches = f"{kept // each:,} batches" if kept > each else "one batch"
        parts = f"{batches} of {each:,}, and {over:,} {'is' if over == 1 else 'are'} over"
        message = f"an epoch of {epoch.samples:,} samples is {parts}"
        hint = f"write `{kept}`, or `{{batches: {kept // each}}}`"
        yield Finding(composed.top.entries["epoch"].value.value_or_self("samples"), message, hint)
