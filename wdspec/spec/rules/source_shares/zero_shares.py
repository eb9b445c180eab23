"""E303: something has a share above 0, in every list and in every step of a schedule."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.schedule_steps import positive_names, steps_with_shares


@rule(
    "E303",
    "shares that are all zero",
    "A share of 0 switches a source off; with all of them off there is nothing to read.",
    bad="dataset:\n  - {shards: a.tar, weight: 0}\n",
    good="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, weight: 0}\n",
)
def zero_shares(composed: Composed) -> Findings:
    """Lists and steps that give nothing to read."""
    for sources in composed.lists:
        kinds = set() if sources.scheduled else set(sources.share_kinds)
        for key in kinds if len(kinds) == 1 else ():
            if key is None and sources.has_zero_sum("upsample"):
                message = "every source of this list is upsampled 0 times"
                yield Finding(sources.node, message, "give one more than 0")
            elif key is not None and sources.has_zero_sum(key):
                hint = "give at least one source a share above 0"
                at = sources.drafts[0].node.entries[key].value
                yield Finding(at, f"every `{key}` of this list is 0", hint)
    for shares in steps_with_shares(composed):
        if not positive_names(shares):
            hint = "give at least one source a share above 0"
            yield Finding(shares, "every share of this step is 0", hint)
