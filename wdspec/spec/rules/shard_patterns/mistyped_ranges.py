"""W311: braces that look like a range are one."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts

_BETWEEN = r"\s*(?:\.{3,}|\.|-|–|:|;|~|to|\.\s+\.|,\s*\.+\s*,)\s*"
_RANGE = re.compile(
    rf"\{{\s*(\d+){_BETWEEN}(\d+)\s*\}}"
    r"|\[(\d{2,})\s*(?:-|\.\.)\s*(\d{2,})\]|\((\d+)\s*\.\.\s*(\d+)\)|(?<![{\d.])(\d+)\.\.(\d+)(?![}\d]|\.\.)"
)
_ENDS = re.compile(r"\{(\w+)\.\.(\w+)\}")
_IS_END = (re.compile(r"\d+"), re.compile(r"[A-Za-z]"))


@rule(
    "W311",
    "a range that is none",
    "Braces count with two dots: `{000..123}`. Anything else between them stands for itself, braces and all.",
    bad="dataset:\n  - shards: 'a-{000-123}.tar'\n",
    good="dataset:\n  - shards: 'a-{000..123}.tar'\n",
)
def mistyped_ranges(composed: Composed) -> Findings:
    """Two numbers in braces with three dots, one dot, a hyphen, a colon, a semicolon or words between them; or in other
    brackets than braces, or in none; or two ends of which one is no number."""
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
        for braces in _ENDS.finditer(written):
            if not any(kind.fullmatch(braces[1]) and kind.fullmatch(braces[2]) for kind in _IS_END):
                message = f"`{braces[0]}` is no range, it stands for itself: its ends are no two numbers"
                yield Finding(text, message, "write `{000..123}`", text.column_at(braces.start()))
