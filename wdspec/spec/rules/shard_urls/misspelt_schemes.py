"""W105: schemes of URLs are spelt like known ones, if nearly."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import parts_of
from wdspec.urls.urls import slip_in


@rule(
    "W105",
    "a URL that looks misspelt",
    "Its scheme is nearly one that is known, or one slash follows it where two belong. An opener or a rewrite"
    " rule of yours may know it all the same.",
    bad="dataset:\n  - shards: htps://host/a.tar\n",
    good="dataset:\n  - shards: https://host/a.tar\n",
)
def misspelt_schemes(composed: Composed) -> Findings:
    """Each slip once in a text."""
    for _, text, parts in parts_of(composed):
        for slip in dict.fromkeys(slip_in(part.text.removeprefix("@")) for part in parts):
            if slip is not None:
                yield Finding(text, slip.message, slip.hint)
