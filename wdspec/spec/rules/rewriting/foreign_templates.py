"""W334: a group is `\\1`."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.rewrite_effects import rewrite_effects
from wdspec.urls.urls import scheme_of

_DOLLAR = re.compile(r"\$(\d)")


@rule(
    "W334",
    "a group of another language",
    "What a group of the regex matched is written `\\\\1` in `to`; `$1` stands for itself.",
    bad="rewrite:\n  - {from: 'gs://(.*)', to: '/mnt/$1'}\ndataset:\n  - shards: gs://b/a.tar\n",
    good="rewrite:\n  - {from: 'gs://(.*)', to: '/mnt/\\1'}\ndataset:\n  - shards: gs://b/a.tar\n",
)
def foreign_templates(composed: Composed) -> Findings:
    """`$1` and the like in a replacement; the shell of a `pipe:` may mean its own."""
    for effect in rewrite_effects(composed):
        found = _DOLLAR.search(effect.rule.replacement)
        if found is not None and scheme_of(effect.rule.replacement) != "pipe":
            message = f"`{found[0]}` stands for itself"
            yield Finding(
                effect.at.value_or_self("to"), message, f"write `\\{found[1]}` for group {found[1]}"
            )
