"""Finds the rules, applies them, and knows the page of every code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from wdspec.spec import rules
from wdspec.spec.compose.compose_codes import COMPOSE_CODES
from wdspec.spec.compose.draft import Composed
from wdspec.spec.language.value_codes import VALUE_CODES
from wdspec.spec.problems.codes import Code
from wdspec.spec.problems.problems import Problems
from wdspec.spec.rules.lint_rule import LintRule
from wdspec.spec.yaml.file_codes import FILE_CODES


@cache
def all_rules() -> tuple[LintRule, ...]:
    """The rules in the folders of `wdspec.spec.rules`, in order of codes."""
    modules = map(import_module, _rule_modules(rules.__path__, f"{rules.__name__}."))
    found = (value for module in modules for value in vars(module).values() if isinstance(value, LintRule))
    return tuple(sorted(found, key=lambda rule: rule.about.code))


def all_codes() -> dict[str, Code]:
    """The page of every code a problem may carry, in order of codes."""
    pages = (
        FILE_CODES
        | COMPOSE_CODES
        | VALUE_CODES
        | {rule.about.code: rule.about for rule in all_rules() if rule.about.title}
    )
    return dict(sorted(pages.items()))


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
