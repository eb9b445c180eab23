"""The page of every code: those of rules, and those that reading reports."""

from __future__ import annotations

from wdspec.spec.codes import COMPOSE_CODES, FILE_CODES, VALUE_CODES, Code
from wdspec.spec.data_codes import DATA_CODES, SAMPLE_CODES, SHARD_CODES
from wdspec.spec.rules.rule_table import all_rules


def all_codes() -> dict[str, Code]:
    """The page of every code a problem may carry, in order of codes."""
    pages = (
        FILE_CODES
        | COMPOSE_CODES
        | VALUE_CODES
        | DATA_CODES
        | SHARD_CODES
        | SAMPLE_CODES
        | {rule.about.code: rule.about for rule in all_rules() if rule.about.title}
    )
    return dict(sorted(pages.items()))
