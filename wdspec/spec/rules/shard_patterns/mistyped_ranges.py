"""W311: braces that look like a range are one."""

from __future__ import annotations

import re

from wdspec.spec.compose.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts

_BETWEEN = r"\s*(?:\.{3,}|\.|-|–|:|;|~|to|\.\s+\.|,\s*\.+\s*,)\s*"
_RANGE = re.compile(
    rf"\{{\s*(\d+){_BETWEEN}(\d+)\s*\}}"
    r"|\[(\d{2,})\s*(?:-|\.\.)\s*(\d{2,})\]|\((\d+)\s*\.\.\s*(\d+)\)|(?<![{\d.])(\d+)\.\.(\d+)(?![}\d]|\.\.)"
)


@rule(
    "W311",
    "a range that is none",
    "Braces count with two dots: `{000..123}`. Anything else between them stands for itself, braces and all.",
    bad="dataset:\n  - shards: 'a-{000-123}.tar'\n",
    good="dataset:\n  - shards: 'a-{000..123}.tar'\n",
)
def mistyped_ranges(composed: Composed) -> Findings:
    """Two numbers in braces with three dots, one dot, a hyphen, a colon, a semicolon or words between them; or in other
    brackets than braces, or in none."""
    for text, written in written_texts(composed):
        for braces in _RANGE.finditer(written):
            low, high = (end for end in braces.groups() if end is not None)
            message = f"`{braces[0]}` is no range, it stands for itself"
            yield Finding(
                text,
                message,
                f"write `{{{low}..{high}}}`",
                text.column_at(braces.start()),
            )
