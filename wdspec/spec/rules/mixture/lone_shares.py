"""W344: a share has something to be shared with."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W344",
    "a share of the only source",
    "A list with one source gives all to it, whatever its share says. Perhaps other sources were meant to "
    "stand beside it.",
    bad="dataset:\n  - {shards: a.tar, weight: 0.3}\n",
    good="dataset:\n  - {name: a, shards: a.tar, weight: 0.3}\n  - {name: b, shards: b.tar, weight: 0.7}\n",
)
def lone_shares(composed: Composed) -> Findings:
    """A weight or an upsampling of a source without others beside it, other than 1."""
    for sources in composed.lists:
        if len(sources.drafts) == 1 and not sources.scheduled:
            (draft,) = sources.drafts
            for key in draft.stated_shares[:1]:
                numbers = sources.numbers(key)
                if key != "probability" and numbers and numbers[0] not in (0, 1):
                    message = f"`{key}` has no effect: there is no other source to share with"
                    yield Finding(draft.node.key_or_self(key), message, "remove it, or add the other sources")
