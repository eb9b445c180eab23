"""Finds the rules and applies them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from wdspec.spec import rules
from wdspec.spec.compose.draft import Composed
from wdspec.spec.problems.problems import Problems
from wdspec.spec.rules.lint_rule import LintRule


@cache
def all_rules() -> tuple[LintRule, ...]:
    """The rules in the folders of `wdspec.spec.rules`, in order of codes."""
    modules = map(import_module, _rule_modules(rules.__path__, f"{rules.__name__}."))
    found = (value for module in modules for value in vars(module).values() if isinstance(value, LintRule))
    return tuple(sorted(found, key=lambda rule: rule.about.code))


def apply_rules(composed: Composed, problems: Problems) -> None:
    """Adds what the rules find to the problems."""
    for rule in all_rules():
        for at, message, hint, column in rule.check(composed):
            length = None if column is None else 1
            problems.add(rule.about.code, at, message, hint, column=column, length=length)


def _rule_modules(paths: Iterable[str], prefix: str) -> Iterator[str]:
    """The modules one folder further down: this folder itself holds what rules share."""
    for folder in iter_modules(paths, prefix):
        if folder.ispkg:
            within = import_module(folder.name).__path__
            yield from (each.name for each in iter_modules(within, f"{folder.name}."))
