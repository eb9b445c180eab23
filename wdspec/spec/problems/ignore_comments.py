"""`# wdspec: ignore=W301`: comments that say which warnings are known and meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wdspec.spec.problems.problems import Problem

_COMMENT = re.compile(
    r"(?<!\S)#\s*wdspec:\s*ignore(?P<file>-file)?(?:\s*=\s*(?P<codes>[^\s,#]+(?:\s*,\s*[^\s,#]+)*))?"
)
"""Behind the codes may stand why."""
_WARNING = re.compile(r"W\d{3}", re.IGNORECASE)


class IgnoreComment(NamedTuple):
    """One code of such a comment."""

    code: str
    file: str
    line: int
    """Where the comment stands."""
    column: int
    target: int | None
    """The line whose warnings it hides; None for all of the file."""
    text: str
    """The line it stands in."""

    def hides(self, problem: Problem) -> bool:
        """Whether the comment is about this problem."""
        here = self.target is None or self.target == problem.line
        return here and (problem.code, problem.file) == (self.code, self.file)

    def as_problem(self, code: str, message: str, hint: str) -> Problem:
        """A problem with the comment itself."""
        return Problem(code, message, hint, self.file, self.line, self.column, len(self.code) or 1, self.text)


def ignore_comments(text: str, file: str) -> tuple[list[IgnoreComment], list[Problem]]:
    """The codes that the comments of a file ignore, and what is wrong with these comments.

    A comment behind a value is about its line, one on a line of its own about the next line that is no comment;
    `ignore-file=…` is about the whole file.
    """
    found: list[IgnoreComment] = []
    problems: list[Problem] = []
    if "wdspec:" not in text:
        return found, problems
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        comment = _COMMENT.search(line)
        if comment is None:
            continue
        target = None if comment["file"] else _target(lines, number)
        codes = (comment["codes"] or "").replace(",", " ").split()
        if not codes:
            at = IgnoreComment("", file, number, comment.start() + 1, target, line)
            hint = "write `# wdspec: ignore=W301`"
            problems.append(at.as_problem("W002", "this comment names no warning to ignore", hint))
        for code in codes:
            column = line.index(code, comment.start()) + 1
            ignored = IgnoreComment(code.upper(), file, number, column, target, line)
            if _WARNING.fullmatch(code):
                found.append(ignored)
                continue
            is_error = code[:1].upper() == "E" and code[1:].isdigit()
            message = f"`{code[:60]}` cannot be ignored: " + (
                "with an error the spec cannot be used" if is_error else "it is no code of a warning"
            )
            problems.append(ignored.as_problem("W002", message, "`wdspec rule` lists all codes"))
    return found, problems


def without_effect(comments: Iterable[IgnoreComment], problems: Sequence[Problem]) -> list[Problem]:
    """A warning for each comment that hides none of these problems."""
    unused = [comment for comment in comments if not any(map(comment.hides, problems))]
    return [
        comment.as_problem(
            "W003",
            f"there is no {comment.code} in {'this file' if comment.target is None else f'line {comment.target}'}",
            "remove the comment",
        )
        for comment in unused
    ]


def _target(lines: Sequence[str], number: int) -> int:
    """The line that a comment is about: its own, or the next one with something other than a comment."""
    if not lines[number - 1].lstrip().startswith("#"):
        return number
    for later in range(number, len(lines)):
        if lines[later].strip() and not lines[later].lstrip().startswith("#"):
            return later + 1
    return number
