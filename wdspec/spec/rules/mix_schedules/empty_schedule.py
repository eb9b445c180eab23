"""E214: a schedule has steps."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule


@rule("E214")
def empty_schedule(composed: Composed) -> Findings:
    """An empty list, which would leave every source without a share."""
    if composed.mix is not None and composed.schedule is not None and not composed.schedule.items:
        hint = "fill it in, or leave the key out"
        yield Finding(composed.mix.key("schedule"), "the schedule is empty", hint)
