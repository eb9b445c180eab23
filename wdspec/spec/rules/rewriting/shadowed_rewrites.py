"""W332: a rewrite rule has its turn."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.rewrite_effects import rewrite_effects


@rule(
    "W332",
    "a rewrite rule that is never reached",
    "The first rule that changes a URL wins. One behind a more general rule has no effect; special rules go "
    "first.",
    bad="rewrite:\n  - {from: gs://, to: /mnt/}\n  - {from: gs://b/, to: /fast/}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: gs://b/, to: /fast/}\n  - {from: gs://, to: /mnt/}\n"
    "dataset:\n  - shards: [gs://b/a.tar, gs://c/a.tar]\n",
)
def shadowed_rewrites(composed: Composed) -> Findings:
    """Rules whose every shard an earlier rule takes."""
    for effect in rewrite_effects(composed):
        if effect.before is not None:
            message = (
                f"an earlier rule, {quoted(effect.before.pattern)}, takes every shard that this one is for"
            )
            yield Finding(
                effect.at.value_or_self("from"), message, "put the special rule before the general one"
            )
