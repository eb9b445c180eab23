"""W321: data has a place that others reach."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts

_HOME = re.compile(r"(?://)?(?:/home/[^/]+/|/Users/[^/]+/|/root/|~[^/]*/|C:/Users/[^/]+/)")


@rule(
    "W321",
    "a path of one person",
    "Nobody else has `/home/name`, so the spec works in one place alone. A variable, or a rewrite rule of an "
    "environment, says where the data is elsewhere.",
    bad="dataset:\n  - shards: /home/ann/data/a.tar\n",
    good="dataset:\n  - shards: ${data:-data}/a.tar\n",
)
def home_paths(composed: Composed) -> Findings:
    """Shards below somebody's home directory."""
    for text, written in written_texts(composed):
        found = _HOME.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None:
            hint = "write `${data}/…` and set it where the spec is used, or a path relative to the spec"
            yield Finding(text, f"`{found[0]}` is the home of one person", hint)
