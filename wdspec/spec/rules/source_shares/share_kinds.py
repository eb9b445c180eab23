"""E301: one list, one way to state shares."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "E301",
    "shares of different kinds",
    "In one list every source states its share in the same way, or none does; else they cannot be compared.",
    bad="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, probability: 0.5}\n",
    good="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, weight: 1}\n",
)
def share_kinds(composed: Composed) -> Findings:
    """The first source of each list that differs from those before it."""
    for sources in composed.lists:
        kinds = [] if sources.scheduled else sources.share_kinds
        for draft, kind in zip(sources.drafts, kinds, strict=False):
            if kind != kinds[0]:
                message = f"the first source states {_named(kinds[0])}, this one {_named(kind)}"
                hint = "state every share of a list in the same way: all `probability`, all `weight`, or none"
                yield Finding(draft.node.key_or_self(kind or "shards"), message, hint)
                break


def _named(kind: str | None) -> str:
    return f"a `{kind}`" if kind else "no share"
