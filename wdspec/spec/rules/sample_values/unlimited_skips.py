"""W374: what is skipped has a limit."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import Node

MOST = 0.5


@rule(
    "W374",
    "skips without a limit",
    "With `errors: skip` a source may lose any number of its samples, and training goes on with what is left."
    " A budget ends it where that is no longer an exception.",
    bad="errors: skip\ndataset:\n  - shards: a.tar\n",
    good="errors: {max_rate: 0.001}\ndataset:\n  - shards: a.tar\n",
)
def unlimited_skips(composed: Composed) -> Findings:
    """Policies that skip without `max_count` and `max_rate`, or up to half of the samples."""
    seen: set[int] = set()
    for leaf, source in composed.models:
        errors = source.errors
        node: Node | None = leaf.node.get("errors") or composed.top.get("errors")
        if node is None or id(node) in seen or not errors.skip:
            continue
        limited = errors.max_count is not None or (errors.max_rate is not None and errors.max_rate < MOST)
        if not limited:
            seen.add(id(node))
            hint = "write a budget such as `errors: {max_rate: 0.001}`"
            yield Finding(node, "any number of samples may be skipped", hint)
