"""W314: paths have slashes."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts
from wdspec.urls.urls import scheme_of

_ONE = "\\"
_BACKSLASH = re.compile(r"\\(?![{},*?\[\]\\:@$])")


@rule(
    "W314",
    "a path with backslashes",
    "A backslash makes the next character literal, so `C:\\\\data\\\\a.tar` is read without them. Paths are "
    "written with `/`.",
    bad="dataset:\n  - shards: 'data\\train\\a.tar'\n",
    good="dataset:\n  - shards: data/train/a.tar\n",
)
def backslashes(composed: Composed) -> Findings:
    """Backslashes before what needs none."""
    for text, written in written_texts(composed):
        found = _BACKSLASH.search(written)
        if found is not None and scheme_of(written) != "pipe":
            message = "the backslash is not part of the path, it makes the next character literal"
            yield Finding(
                text, message, f"write `{written.replace(_ONE, '/')}`", text.column_at(found.start())
            )
