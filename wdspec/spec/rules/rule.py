"""A rule: a function that finds one kind of problem in a composed spec, and the page of its code.

Writing the function below `@rule` is all that is needed: loading, `wdspec rule CODE`, docs/spec.md and the tests of the
examples use `RULES`. A rule is pure: it changes nothing, and reads nothing but the spec.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from wdspec.spec.codes import Code
from wdspec.spec.tree import Node


class Finding(NamedTuple):
    """A violation of a rule."""

    at: Node
    """Where it is."""
    message: str
    """What was seen."""
    hint: str = ""
    """What to do about it."""
    column: int | None = None
    """Another column in the line of the node."""


Findings = Iterator[Finding]
Check = TypeVar("Check", bound=Callable[..., Findings])


class Rule(NamedTuple):
    """A check, and the code that it reports."""

    about: Code
    check: Callable[..., Findings]
    """Takes a `Composition`, or those of all splits of a file."""
    keys: frozenset[str]
    """It runs only if a spec has one of these keys; empty: always."""
    is_error: bool
    compares_splits: bool


RULES: list[Rule] = []
"""All rules, in order of codes."""


def rule(
    code: str,
    title: str = "",
    explanation: str = "",
    *,
    keys: str = "",
    bad: str = "",
    good: str = "",
    compares_splits: bool = False,
) -> Callable[[Check], Check]:
    """Make a function a rule. See `Code` for arguments that are not described here.

    Without `title` and `explanation`, the page of the code is that of another rule, or in `codes.md`.

    Args:
        keys: the rule needs at least one of these keys (`Composition.keys`) to find anything.
        compares_splits: whether it takes all splits of a file, each without an environment, in file order.
    """

    def register(check: Check) -> Check:
        about = Code(code, title, explanation, bad, good)
        made = Rule(about, check, frozenset(keys.split()), about.is_error, compares_splits)
        insort(RULES, made, key=lambda each: each.about.code)
        return check

    return register
