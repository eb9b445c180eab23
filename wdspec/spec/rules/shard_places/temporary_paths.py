"""W322: data has a place that stays."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts

_TEMPORARY = re.compile(r"(?://)?(?:/tmp/|/var/tmp/|/dev/shm/)")


@rule(
    "W322",
    "data in a temporary directory",
    "What lies below `/tmp`, `/var/tmp` or `/dev/shm` is gone after a restart, and is not there on other "
    "machines.",
    bad="dataset:\n  - shards: /tmp/a.tar\n",
    good="dataset:\n  - shards: data/a.tar\n",
)
def temporary_paths(composed: Composed) -> Findings:
    """Shards below a directory that the system empties; not in specs that a program makes."""
    for text, written in written_texts(composed):
        found = _TEMPORARY.match(written.removeprefix("@").removeprefix("file:"))
        if found is not None and composed.variant.file is not None:
            yield Finding(
                text, f"`{found[0]}` is a temporary directory", "move the data to a place that stays"
            )
