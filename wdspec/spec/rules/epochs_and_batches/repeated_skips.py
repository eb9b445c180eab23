"""E317: no step is skipped twice."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import ListNode


@rule(
    "E317",
    "ranges that overlap",
    "Two ranges of `skip` that overlap say of some steps twice that they are left out: one of them may be a slip.",
    bad="skip: [1200..1260, 1250..1300]\ndataset:\n  - shards: a.tar\n",
    good="skip: 1200..1300\ndataset:\n  - shards: a.tar\n",
)
def repeated_skips(composed: Composed) -> Findings:
    """Ranges with a step that is in one before them."""
    if "skip" in composed.bad or len(composed.spec.skip) < 2:
        return
    node = composed.top.entries["skip"].value
    items = node.items if isinstance(node, ListNode) else (node,) * len(composed.spec.skip)
    stated = sorted((steps.first, steps.last, number) for number, steps in enumerate(composed.spec.skip))
    end, before = -1, 0
    for first, last, number in stated:
        if first <= end:
            message = f"step {first:,} is skipped already, by another of these ranges"
            yield Finding(items[max(number, before)], message, "join the two, or take it out")
        if last > end:
            end, before = last, number
