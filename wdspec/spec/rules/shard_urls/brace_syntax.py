"""E213: braces and `::` of shards can be expanded."""

from __future__ import annotations

from wdspec.base.errors import UrlError
from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import shard_texts


@rule(
    "E213",
    "wrong braces or `::` in shards",
    "Braces hold a range that counts up, `{000..123}`, or alternatives, `{a,b}`; `::` separates shard lists.",
    bad="dataset:\n  - shards: a-{0009..0000}.tar\n",
    good="dataset:\n  - shards: a-{0000..0009}.tar\n",
)
def brace_syntax(composed: Composed) -> Findings:
    """Each wrong text, at the character where it is wrong."""
    for _, text, error in shard_texts(composed):
        if isinstance(error, UrlError):
            column = None if error.column is None else text.column_at(error.column)
            yield Finding(text, error.message, column=column)
