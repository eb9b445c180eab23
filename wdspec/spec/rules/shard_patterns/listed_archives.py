"""W319: what `@` stands before is a list."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts

_SHARD = re.compile(r"@.*\.(tar|tgz|tar\.\w{2,4}|cbors?|msgpack)", re.DOTALL)


@rule(
    "W319",
    "a shard that is read as a list",
    "`@file` is a text file with the URL of a shard in each line.",
    bad="dataset:\n  - shards: '@a-000.tar'\n",
    good="dataset:\n  - shards: a-000.tar\n",
)
def listed_archives(composed: Composed) -> Findings:
    """An `@` before the name of a tar, or of another shard."""
    for text, written in written_texts(composed):
        if _SHARD.fullmatch(written):
            message = f"{quoted(written)} would be read as a list of URLs, and is named like a shard"
            yield Finding(text, message, "write it without the `@`")
