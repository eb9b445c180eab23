"""W331: a rewrite rule changes some shard."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.rewrite_effects import rewrite_effects


@rule(
    "W331",
    "a rewrite rule that matches nothing",
    "The regex is matched at the start of a shard's URL as the spec spells it. A rule that changes no shard "
    "is misspelt, or left over.",
    bad="rewrite:\n  - {from: s3://, to: /mnt/}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: gs://, to: /mnt/}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def unmatched_rewrites(composed: Composed) -> Findings:
    """Rules that leave every shard of the spec as it is."""
    for effect in rewrite_effects(composed):
        if not effect.matched:
            message = f"no shard begins with {quoted(effect.rule.pattern)}, so this rule changes nothing"
            yield Finding(effect.at.value_or_self("from"), message, "compare it with `shards`, or remove it")
