"""A rule: a function that finds one kind of problem in a composed spec, and the page of its code.

Writing the function below `@rule` is all that is needed: loading, `wdspec rule CODE`, docs/spec.md and the tests of the
examples use `RULES`. A rule is pure: it changes nothing, and reads nothing but the spec. Rules that need more
than the spec, such as facts about the data, are in `wdspec.advice`.

The pages of codes that no rule has are in `codes.md`: of problems with the text of a file (E0), with files, variables
and variants (E1), with keys and values (E2), of what is found in data (D), and of policies (P).
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wdspec.spec.problems import is_error
from wdspec.spec.tree import Node

_PAGE = re.compile(
    r"^## ([EWDP]\d{3}): (.+)\n\n(.+)\n"
    r"(?:\n```yaml\n((?:.*\n)*?)```\n)?"
    r"(?:\nWithout the problem:\n\n```yaml\n((?:.*\n)*?)```\n)?",
    re.MULTILINE,
)


class Code(NamedTuple):
    """One kind of problem. E0: the file; E1: files and variables; E2: keys and values; E3: meaning; W: doubtful,
    W3 in what it means. Of data, D1: shards that cannot be read whole; D2: samples that cannot be used; D3: doubtful.
    Of policies, P1: errors, P2: warnings.
    """

    code: str
    """`E302`: the letter says how grave it is."""
    title: str
    """One sentence without its full stop."""
    explanation: str
    """Why it is a problem and what to do."""
    bad: str = ""
    """A spec that has the problem; empty where a file alone cannot show it."""
    good: str = ""
    """The same without the problem."""

    @property
    def is_error(self) -> bool:
        """Whether a spec that has it cannot be used, or part of its data cannot."""
        return is_error(self.code)


def general_codes() -> list[Code]:
    """The pages of the codes that no rule has."""
    text = (Path(__file__).parents[1] / "codes.md").read_text(encoding="utf-8")
    return [Code(*page.groups("")) for page in _PAGE.finditer(text)]


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
Check = TypeVar("Check", bound=Callable[..., Iterator[Any]])


class Rule(NamedTuple):
    """A check, and the code that it reports."""

    about: Code
    check: Callable[..., Iterator[Any]]
    """Takes a `Composition`, or what it needs."""
    keys: frozenset[str]
    """It runs only if a spec has one of these keys; empty: always."""
    is_error: bool
    warns_at_load: bool = False
    needs: tuple[str, ...] = ()
    """What it takes in place of a `Composition`: `splits`, or facts (`wdspec.advice.facts`)."""


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
    warns_at_load: bool = False,
    needs: str = "",
) -> Callable[[Check], Check]:
    """Make a function a rule. See `Code` for arguments that are not described here.

    Without `title` and `explanation`, the page of the code is that of another rule, or in `codes.md`.

    Args:
        keys: the rule needs at least one of these keys (`Composition.keys`) to find anything.
        warns_at_load: whether loading a spec reports it too, although it is a warning.
        needs: what it takes in place of a composition: `splits` are all splits of a file, each without an environment,
            in file order; or the names of `wdspec.advice.facts`, and it runs if all are known.
    """

    def register(check: Check) -> Check:
        about = Code(code, title, explanation, bad, good)
        facts = tuple(needs.split())
        made = Rule(about, check, frozenset(keys.split()), about.is_error, warns_at_load, facts)
        insort(RULES, made, key=lambda each: each.about.code)
        return check

    return register
