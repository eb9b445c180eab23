"""E214: a schedule has steps."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.compose.draft import Composed
from wdspec.spec.language.value_codes import VALUE_CODES
from wdspec.spec.rules.rule import Finding, LintRule


def check(composed: Composed) -> Iterator[Finding]:
    """An empty list, which would leave every source without a share."""
    if composed.mix is not None and composed.schedule is not None and not composed.schedule.items:
        hint = "fill it in, or leave the key out"
        yield Finding(composed.mix.key("schedule"), "the schedule is empty", hint)


RULE = LintRule(VALUE_CODES["E214"], check)
