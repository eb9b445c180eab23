"""W315: both ends of a range have one width."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)(?:\.\.\d+)?\}")


@rule(
    "W315",
    "a range of uneven width",
    "Where one end begins with a zero, every number gets the width of the longer end: `{00..123}` is 000, "
    "001, …, 123. Where the shards were written with a fixed width, both ends have it.",
    bad="dataset:\n  - shards: 'a-{00..123}.tar'\n",
    good="dataset:\n  - shards: 'a-{000..123}.tar'\n",
)
def uneven_padding(composed: Composed) -> Findings:
    """Ranges of which one end is padded to another width than the other."""
    for text, written in written_texts(composed):
        for found in _RANGE.finditer(written):
            low, high = found[1], found[2]
            if len(low) != len(high) and (len(low) > len(high) or (low.startswith("0") and len(low) > 1)):
                width = max(len(low), len(high))
                message = f"the ends of `{found[0]}` differ in width; all numbers get {width} digits"
                hint = f"write `{{{low.zfill(width)}..{high.zfill(width)}}}`"
                yield Finding(text, message, hint, text.column_at(found.start()))
