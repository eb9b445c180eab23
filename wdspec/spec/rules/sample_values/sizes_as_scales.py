"""W377: `scale` is a factor."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.visible_fields import right_sources

LARGEST = 16
"""Factors above are no way to look at a picture."""


@rule(
    "W377",
    "a scale that looks like a size",
    "`scale` is the factor by which width and height are multiplied: 224 makes a picture of 100 by 100 pixels "
    "one of 22,400 by 22,400. To one size pictures are brought by a transform.",
    bad="dataset:\n  - {shards: a.tar, scale: 224}\n",
    good="dataset:\n  - {shards: a.tar, scale: 0.5}\n",
)
def sizes_as_scales(composed: Composed) -> Findings:
    """Factors above sixteen."""
    for leaf, source in right_sources(composed, "scale"):
        if source.scale is not None and source.scale[1] > LARGEST:
            message = f"`scale` is a factor: pictures become {source.scale[1]:g} times as wide and as high"
            hint = "write a factor such as `0.5`; a size is a transform: `decode: rgb8+resize=224`"
            yield Finding(leaf.node.value_or_self("scale"), message, hint)
