"""A rule: one function that says what it checks, why, and shows it by a bad and a good spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from wdspec.spec.codes import Code
from wdspec.spec.draft import Composed
from wdspec.spec.tree import Node


class Finding(NamedTuple):
    """One violation of a rule."""

    at: Node
    """What to point at."""
    message: str
    """What was seen."""
    hint: str = ""
    """What to do about it."""
    column: int | None = None
    """Another column of the node's line, for one character."""


Findings = Iterator[Finding]
Check = Callable[[Composed], Findings]
"""Gives the violations in a composed spec. It is pure: it changes nothing, and reads nothing from outside."""


CheckOfSplits = Callable[[Sequence[Composed]], Findings]
"""The same for all splits of a file together, each without an environment, in file order."""


class LintRule(NamedTuple):
    """A check, and the code under which it reports; its first letter says how grave that is."""

    about: Code
    check: Check


class SplitsRule(NamedTuple):
    """A check of the splits of a file against each other."""

    about: Code
    check: CheckOfSplits


def rule(
    code: str, title: str = "", explanation: str = "", *, bad: str = "", good: str = ""
) -> Callable[[Check], LintRule]:
    """Makes a rule of a check. See `Code` for the arguments.

    Without `title` and `explanation` the code is a general one, whose page is among `VALUE_CODES` or `COMPOSE_CODES`.
    """
    return lambda check: LintRule(Code(code, title, explanation, bad, good), check)


def rule_of_splits(
    code: str, title: str, explanation: str, *, bad: str, good: str
) -> Callable[[CheckOfSplits], SplitsRule]:
    """Makes a rule of a check that compares splits."""
    return lambda check: SplitsRule(Code(code, title, explanation, bad, good), check)
