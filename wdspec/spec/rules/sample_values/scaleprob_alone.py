"""W372: `scaleprob` says how often, and `scale` by how much."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "W372",
    "scaleprob alone",
    "`scaleprob` is the probability that a sample is rescaled, never a share of the mix. Without `scale` the "
    "factors are drawn from [0.5, 2.0].",
    bad="dataset:\n  - {shards: a.tar, scaleprob: 0.3}\n",
    good="dataset:\n  - {shards: a.tar, scaleprob: 0.3, scale: [0.5, 2.0]}\n",
)
def scaleprob_alone(composed: Composed) -> Findings:
    """A `scaleprob` above 0 in a source that nothing gives a `scale`."""
    for leaf, source in composed.models:
        if leaf.node.get("scaleprob") is not None and leaf.node.get("scale") is None and source.scaleprob > 0:
            hint = "write `scale: [0.5, 2.0]`; a share of the mix is `probability` or `weight`"
            yield Finding(leaf.node.key("scaleprob"), "samples are rescaled by factors from 0.5 to 2", hint)
