"""W313: a list of shards is a list."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.problems import quoted
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts
from wdspec.urls.urls import scheme_of

_BRACES = re.compile(r"\{[^{}]*\}")
_JOINED = re.compile(
    r"\.(?:tar|tgz|jsonl|cbors?|msgpack)(?:\.\w{2,4})?(\s*(?:[,;|]|(?<!:):(?![:/]))\s*|\s+(?:-\s+)?)(?=[\w./~@])"
)


@rule(
    "W313",
    "several shards in one text",
    "A text is one pattern. Commas outside braces, spaces and line ends are parts of it, so a list that was "
    "joined, or an item that was indented too far, becomes one long name.",
    bad="dataset:\n  - shards: a.tar, b.tar\n",
    good="dataset:\n  - shards: [a.tar, b.tar]\n",
)
def joined_lists(composed: Composed) -> Findings:
    """The end of one shard and the beginning of another."""
    for text, written in written_texts(composed):
        found = _JOINED.search(_without_braces(written))
        if found is not None and scheme_of(written) != "pipe":
            folded = "- " in found[0]
            message = f"{quoted(found[0].strip())} stands inside one text, which is one pattern"
            hint = (
                "begin each item of the list in the same column"
                if folded
                else "write a list: `[first, second]`"
            )
            yield Finding(text, message, hint, text.column_at(found.start(1)))


def _without_braces(text: str) -> str:
    """The text with what stands in braces blotted out, where commas are right."""
    while (outer := _BRACES.sub(lambda match: "_" * len(match[0]), text)) != text:
        text = outer
    return text
