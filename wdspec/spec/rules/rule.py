"""A rule: one function that finds one kind of problem in a composition spec, and the page of its code.

Writing the function below `@rule` is all it takes: loading, `wdspec rule CODE`, docs/spec.md and the tests of examples
go through `RULES`. A rule is pure, and only reports: it changes nothing, and reads nothing but the spec.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from wdspec.spec.codes import Code
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
Check = TypeVar("Check", bound=Callable[..., Findings])


class Rule(NamedTuple):
    """A check, and the code that it reports; the code's first letter says how grave that is."""

    about: Code
    check: Callable[..., Findings]
    """Gives the violations in a `Composition`, or in those of all splits of a file."""
    keys: frozenset[str]
    """It is entered only where a spec has one of these; empty: always."""
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
    """Makes a rule of a function. See `Code` for the arguments that are not described here.

    Without `title` and `explanation` the code's page is elsewhere: with another rule, or in `codes.md`.

    Args:
        keys: the keys that it needs, as `Composition.keys` has them, one of them at least: without them it cannot
            find anything.
        compares_splits: whether it takes the splits of a file, each without an environment, in file order.
    """

    def register(check: Check) -> Check:
        about = Code(code, title, explanation, bad, good)
        made = Rule(about, check, frozenset(keys.split()), about.is_error, compares_splits)
        insort(RULES, made, key=lambda each: each.about.code)
        return check

    return register
