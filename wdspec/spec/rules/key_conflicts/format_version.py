"""E218: the version of the format is one that is read here."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule(
    "E218",
    "an unknown version",
    "This release reads version 1 of the format.",
    bad="wdspec: 2\ndataset:\n  - shards: a.tar\n",
    good="wdspec: 1\ndataset:\n  - shards: a.tar\n",
)
def format_version(composed: Composed) -> Findings:
    """Any version but 1."""
    version = composed.spec.wdspec
    if version != 1:
        at = composed.top.entries["wdspec"].value
        yield Finding(at, f"there is no version {version} of the format", "this release reads `wdspec: 1`")
