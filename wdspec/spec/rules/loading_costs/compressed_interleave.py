"""W362: shards that are interleaved can be entered anywhere."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import parts_of

_COMPRESSED = re.compile(r"(?i)\.(?:tgz|tbz2?|txz|tzst|gz|bz2|xz|zst)$")


@rule(
    "W362",
    "compressed shards that are interleaved",
    "A compressed shard can only be read from its beginning. To go on from a state, all of them are "
    "decompressed again up to where they stood, and meanwhile each holds a decompressor. Compressed members "
    "in plain tars (`jpg`, `txt.gz`) do not have that cost.",
    bad="dataset:\n  - {shards: 'a-{00..15}.tar.gz', interleave: 8}\n",
    good="dataset:\n  - {shards: 'a-{00..15}.tar', interleave: 8}\n",
)
def compressed_interleave(composed: Composed) -> Findings:
    """An `interleave` that somebody wrote, above 1, for shards whose names say that they are compressed."""
    seen = set()
    for leaf, text, parts in parts_of(composed):
        source = leaf.model
        written = "interleave" in leaf.node.entries and source is not None and source.interleave > 1
        if written and leaf.name not in seen and any(_COMPRESSED.search(part.text) for part in parts):
            seen.add(leaf.name)
            message = "compressed shards are read side by side, each from its beginning"
            yield Finding(text, message, "write plain tars, or leave `interleave` at 1")
