"""Finds the rules and applies them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from wdspec.spec import rules
from wdspec.spec.draft import Composed
from wdspec.spec.problems import Problems
from wdspec.spec.rules.lint_rule import Findings, LintRule, SplitsRule


@cache
def all_rules() -> tuple[LintRule | SplitsRule, ...]:
    """The rules in the folders of `wdspec.spec.rules`, in order of codes."""
    modules = map(import_module, _rule_modules(rules.__path__, f"{rules.__name__}."))
    kinds = (LintRule, SplitsRule)
    found = (value for module in modules for value in vars(module).values() if isinstance(value, kinds))
    return tuple(sorted(found, key=lambda rule: rule.about.code))


def apply_rules(composed: Composed, problems: Problems, *, warnings: bool) -> None:
    """Adds what the rules find in one spec to the problems: errors, and on demand warnings."""
    for rule in all_rules():
        if isinstance(rule, LintRule) and (warnings or rule.about.is_error):
            _note(rule.about.code, rule.check(composed), problems)


def apply_rules_of_splits(splits: Sequence[Composed], problems: Problems) -> None:
    """Adds what the rules find in the splits of one file together."""
    for rule in all_rules():
        if isinstance(rule, SplitsRule):
            _note(rule.about.code, rule.check(splits), problems)


def _note(code: str, findings: Findings, problems: Problems) -> None:
    for at, message, hint, column in findings:
        problems.add(code, at, message, hint, column=column, length=None if column is None else 1)


def _rule_modules(paths: Iterable[str], prefix: str) -> Iterator[str]:
    """The modules one folder further down: this folder itself holds what rules share."""
    for folder in iter_modules(paths, prefix):
        if folder.ispkg:
            within = import_module(folder.name).__path__
            yield from (each.name for each in iter_modules(within, f"{folder.name}."))
