"""E218: the version of the format is one that is read here."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.compose.draft import Composed
from wdspec.spec.problems.codes import Code
from wdspec.spec.rules.rule import Finding, LintRule


def check(composed: Composed) -> Iterator[Finding]:
    """Any version but 1."""
    version = composed.spec.wdspec
    if version != 1:
        at = composed.top.entries["wdspec"].value
        yield Finding(at, f"there is no version {version} of the format", "this release reads `wdspec: 1`")


RULE = LintRule(
    Code(
        "E218",
        "an unknown version",
        "This release reads version 1 of the format.",
        bad="wdspec: 2\ndataset:\n  - shards: a.tar\n",
        good="wdspec: 1\ndataset:\n  - shards: a.tar\n",
    ),
    check,
)
