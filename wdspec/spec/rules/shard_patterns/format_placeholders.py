"""W312: nothing is left to fill in."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts

_PLACEHOLDER = re.compile(r"%0?(\d{1,2})?d|\{\w*:0?(\d{1,2})?d\}|\{(?:i|idx|index|n|shard|num)?\}|##+")


@rule(
    "W312",
    "a placeholder of another language",
    "`%03d`, `{:03d}` and `{i}` are not filled in here: the shards are looked for under this very name. "
    "Ranges count: `{000..123}`.",
    bad="dataset:\n  - shards: a-%06d.tar\n",
    good="dataset:\n  - shards: 'a-{000000..000123}.tar'\n",
)
def format_placeholders(composed: Composed) -> Findings:
    """What `printf`, `str.format` and f-strings fill in."""
    for text, written in written_texts(composed):
        for found in _PLACEHOLDER.finditer(written):
            message = f"`{found[0]}` is not filled in, it stands for itself"
            width = int(found[1] or found[2] or (len(found[0]) if found[0].startswith("#") else 6))
            hint = f"write the range that is there, such as `{{{0:0{width}d}..{123:0{width}d}}}`"
            yield Finding(text, message, hint, text.column_at(found.start()))
