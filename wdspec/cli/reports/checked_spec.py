"""A spec that was checked, with what was found: what reports are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from wdspec.spec.problems import Problem


class CheckedSpec(NamedTuple):
    """One file; its problems may stand in files that it extends."""

    file: str
    """As the user named it."""
    problems: list[Problem]
    """In file order."""

    @property
    def errors(self) -> list[Problem]:
        """Those that make the spec useless."""
        return [problem for problem in self.problems if problem.is_error]


Report = Callable[[Iterable[CheckedSpec]], Iterator[str]]
"""Gives the lines of a report while files are checked."""
