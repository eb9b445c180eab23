"""E302: the probabilities of a list sum to 1."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule

TOLERANCE = 1e-6


@rule(
    "E302",
    "probabilities that do not sum to 1",
    "`probability` is absolute within its list. `weight` is relative and needs no sum.",
    bad="dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.3}\n",
    good="dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.4}\n",
)
def probability_sums(composed: Composed) -> Findings:
    """Each list with another sum; sums of 0 are left to E303, lists that mix kinds of shares to E301."""
    for sources in composed.lists:
        if sources.scheduled or set(sources.share_kinds) != {"probability"}:
            continue
        numbers = sources.numbers("probability") or []
        total = sum(numbers)
        if total == 0 or abs(total - 1) <= TOLERANCE:
            continue
        first = list(zip(sources.drafts[:20], numbers, strict=False))
        shares = ", ".join(f"{draft.name}: {number / total:.9g}" for draft, number in first)
        more = ", …" if len(sources.drafts) > 20 else ""
        hint = f"normalised they are {shares}{more}; or write `weight` instead of `probability`"
        at = sources.drafts[0].node.entries["probability"].value
        yield Finding(at, f"the probabilities of this list sum to {total:.9g}, not to 1", hint)
