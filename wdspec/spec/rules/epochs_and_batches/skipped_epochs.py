"""W355: an epoch has steps that are not skipped."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.language.steps import steps_in
from wdspec.spec.rules.expected_samples import epoch_steps
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W355",
    "an epoch that is skipped",
    "Epochs keep their places when steps are skipped, so one of which nothing is left is an iteration without a "
    "batch, which a training loop may not expect. Steps are global batches, not samples, and count on over epochs.",
    bad="skip: 100..299\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
    good="skip: 101..298\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
)
def skipped_epochs(composed: Composed) -> Findings:
    """Ranges that hold a whole epoch, where the spec shows how many steps that has."""
    length = epoch_steps(composed)
    emptied = None if "skip" in composed.bad or not length else steps_in(composed.spec.skip).emptied(length)
    if length and emptied is not None:
        steps = f"{emptied * length:,} to {(emptied + 1) * length - 1:,}"
        message = f"nothing is left of epoch {emptied:,}, which is the steps {steps}"
        hint = "leave some of them, or be sure that the loop gets along with an epoch without a batch"
        yield Finding(composed.top.entries["skip"].value, message, hint)
