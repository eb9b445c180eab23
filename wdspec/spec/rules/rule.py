"""A rule: one file that says what it checks, why, and shows it by a bad and a good spec."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from wdspec.spec.compose.draft import Composed
from wdspec.spec.problems.codes import Code
from wdspec.spec.tree.nodes import Node


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


Check = Callable[[Composed], Iterable[Finding]]


class LintRule(NamedTuple):
    """What a file of this folder defines as its `RULE`.

    A rule reports under one code, whose first letter says how grave it is. Most rules own their code, and give its
    page; a few report under one that reading reports too, and take its page from `value_codes` or `compose_codes`.
    """

    about: Code
    check: Check
    """Gives the violations of a composed spec. It is pure: it changes nothing, and reads nothing from outside."""
