"""W106: a number is not written with zeros before it."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.tree import scalars

_LED_BY_ZEROS = re.compile(r"[-+]?0[0-9_]+")


@rule(
    "W106",
    "a number with a leading zero",
    "YAML 1.2 reads `017` as 17; YAML 1.1, and so many other programs, as the octal number 15.",
    bad="batch: 017\ndataset:\n  - shards: a.tar\n",
    good="batch: 17\ndataset:\n  - shards: a.tar\n",
)
def leading_zeros(composed: Composed) -> Findings:
    """Each whole number so written."""
    for node in scalars(composed.top):
        if type(node.value) is int and node.text and _LED_BY_ZEROS.fullmatch(node.text):
            yield Finding(node, f"`{node.text}` is the number {node.value}", f"write `{node.value}`")
