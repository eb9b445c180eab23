"""The page of every code: those of rules, and those that reading reports."""

from __future__ import annotations

from wdspec.spec.compose.compose_codes import COMPOSE_CODES
from wdspec.spec.language.value_codes import VALUE_CODES
from wdspec.spec.problems.codes import Code
from wdspec.spec.problems.data_codes import DATA_CODES
from wdspec.spec.problems.sample_codes import SAMPLE_CODES
from wdspec.spec.problems.shard_codes import SHARD_CODES
from wdspec.spec.rules.rule_table import all_rules
from wdspec.spec.yaml.file_codes import FILE_CODES


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
