"""Problems of a spec: what one is, how they are collected and shown, and comments that hide warnings.

`# wdspec: ignore=W301` says that a warning is known. The functions at the end show values and names in messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from wdspec.base.errors import SpecError
from wdspec.base.redaction import escape_controls, mask, redacted_urls
from wdspec.spec.tree import Node, Position

LINE_WIDTH = 100
OF_POLICIES = "W452"
"""What policies allow to ignore: only found where there is a policy, so that comments may be in vain elsewhere."""
MAX_PROBLEMS = 1_000
"""More are reported as one: no one would read them, and a hostile file could have a hundred thousand."""


def is_error(code: str) -> bool:
    """Whether what has this code is an error; else it is a warning."""
    return code.startswith(("E", "D1", "D2", "P1"))


@dataclass(frozen=True)
class Problem:
    """An error (`E…`) or a warning (`W…`) about a spec."""

    code: str
    message: str
    """What was seen."""
    hint: str = ""
    """What to do about it."""
    file: str = ""
    """The file as the user named it."""
    line: int = 0
    """Counted from 1; 0 if there is no text."""
    column: int = 0
    """Counted from 1, in characters."""
    length: int = 1
    """Number of characters that it is about."""
    source: str | None = None
    """The line itself."""

    @property
    def is_error(self) -> bool:
        """Whether the spec cannot be used."""
        return is_error(self.code)

    @property
    def severity(self) -> str:
        """`error` or `warning`."""
        return "error" if self.is_error else "warning"

    @property
    def advice(self) -> str:
        """The message, with the hint below it."""
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    @property
    def position(self) -> Position:
        """File, line and column."""
        return Position(self.file, self.line, self.column)

    def __str__(self) -> str:
        position, message, hint = map(escape_controls, (str(self.position), self.message, self.hint))
        lines = [f"{position}: {self.code} {message}"]
        if self.source is not None:
            text, caret_at, carets = _excerpt(self.source, self.column, self.length)
            margin = " " * len(str(self.line))
            lines.append(f"  {self.line} | {text}".rstrip())
            lines.append(f"  {margin} | {' ' * caret_at}{'^' * carets}")
            if hint:
                lines.append(f"  {margin} = {hint}")
        elif hint:
            lines.append(f"  = {hint}")
        return "\n".join(lines)


class Problems:
    """Collects problems, each once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, int, str], Problem] = {}
        self._files: dict[str, int] = {}
        self._hidden_at: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._hidden: set[tuple[str, int]] = set()

    def add(
        self, code: str, node: Node, message: str, hint: str = "", column: int | None = None, length: int = 1
    ) -> None:
        """Add a problem at a node, or at another column of the node's line, which is `length` characters long."""
        line = node.origin.shown(node.line) if node.line else None
        if column is None:
            column, length = node.column, node.length
        self.note(Problem(code, message, hint, node.origin.name, node.line, column, length, line))

    def note(self, problem: Problem) -> None:
        """Add a problem."""
        problem = replace(problem, message=redacted_urls(problem.message), hint=redacted_urls(problem.hint))
        if self.full:
            first = next(iter(self))
            message = f"more than {MAX_PROBLEMS:,} problems; the rest is not listed"
            overflow = Problem("E016", message, "", first.file, 1, 1)
            self._found.setdefault((overflow.code, "", 0, 0, ""), overflow)
            return
        self._files.setdefault(problem.file, len(self._files))
        message = "" if problem.code == "E201" else problem.message  # a default is unknown in many places
        key = (problem.code, problem.file, problem.line, problem.column, message)
        self._found.setdefault(key, problem)

    def forget_after(self, known: int) -> None:
        """Remove the problems that were added after the known ones."""
        self._found = dict(islice(self._found.items(), known))

    def set_hint(self, code: str, node: Node, hint: str) -> None:
        """Give the problem with a code at a node another hint, from more than its value."""
        place = (node.origin.name, node.line, node.column)
        for key, problem in self._found.items():
            if problem.code == code and problem.position == place:
                self._found[key] = replace(problem, hint=hint)

    def name_environment(self, known: int, name: str | None) -> None:
        """Say which environment those problems are of that were added after the known ones."""
        for key, problem in [*self._found.items()][known:]:
            self._found[key] = replace(problem, message=f"{problem.message} (in the environment `{name}`)")

    def saw(self, file: str) -> None:
        """Remember the order in which files are opened: their problems are listed in that order."""
        self._files.setdefault(file, len(self._files))

    def hide(self, node: Node) -> None:
        """Never show the line of a node: it has a secret."""
        self._hidden.add((node.origin.name, node.line))

    def hide_problems_at(self, node: Node) -> None:
        """Report no more problems of a value that is known to be wrong."""
        if node.line:
            span = (node.column, node.column + node.length)
            self._hidden_at.setdefault((node.origin.name, node.line), []).append(span)

    @property
    def full(self) -> bool:
        """Whether no more are added, so that there is no need to look for hints."""
        return len(self._found) >= MAX_PROBLEMS

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def sorted(self) -> list[Problem]:
        """All problems in file order, except those that follow from another one."""
        list_names = [
            replace(problem, source=None) if (problem.file, problem.line) in self._hidden else problem
            for problem in self
            if not self._follows(problem)
        ]
        return sorted(list_names, key=lambda p: (self._files[p.file], p.line, p.column, p.code))

    def _follows(self, problem: Problem) -> bool:
        """Whether a problem only follows from another one."""
        spans = self._hidden_at.get((problem.file, problem.line), ())
        return problem.code[1] in "23" and any(start <= problem.column < end for start, end in spans)


def error_for(problems: Iterable[Problem]) -> SpecError:
    """Make the error that reports these problems."""
    list_names = tuple(problems)
    return SpecError("\n".join(str(problem) for problem in list_names), problems=list_names)


def _excerpt(line: str, column: int, length: int) -> tuple[str, int, int]:
    """The part of a line around a column, the indent of the caret below it, and the number of carets."""
    line = mask(line)
    start = max(0, min(column - 1, len(line)))
    end = max(start + 1, min(start + length, len(line)))
    first = 0 if end <= LINE_WIDTH else max(0, start - LINE_WIDTH // 3)
    last = min(len(line), first + LINE_WIDTH)
    head = "…" if first else ""
    text = head + _printable(line[first:last]) + ("…" if last < len(line) else "")
    indent = _width(head + _printable(line[first:start]))
    return text, indent, max(1, _width(_printable(line[start : min(end, last)])))


def _printable(text: str) -> str:
    """One printable character for each: a tab or control character would move the caret or the terminal."""
    return "".join(c if c.isprintable() else (" " if c == "\t" else "\ufffd") for c in text)


def _width(text: str) -> int:
    """How many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


# After the codes a reason may follow.
_COMMENT = re.compile(
    r"(?<!\S)#\s*wdspec:\s*ignore(?P<file>-file)?(?:\s*=\s*(?P<codes>[^\s,#]+(?:\s*,\s*[^\s,#]+)*))?"
)
_WARNING = re.compile(r"W\d{3}", re.IGNORECASE)


class IgnoreComment(NamedTuple):
    """One code of a comment that hides warnings."""

    code: str
    file: str
    line: int
    """The line of the comment."""
    column: int
    target: int | None
    """The line whose warnings it hides; None for the whole file."""
    text: str
    """The text of its line."""

    def hides(self, problem: Problem) -> bool:
        """Whether the comment hides a problem."""
        here = self.target is None or self.target == problem.line
        return here and (problem.code, problem.file) == (self.code, self.file)

    def as_problem(self, code: str, message: str, hint: str) -> Problem:
        """A problem with the comment itself."""
        return Problem(code, message, hint, self.file, self.line, self.column, len(self.code) or 1, self.text)


def ignore_comments(text: str, file: str, problems: Problems) -> list[IgnoreComment]:
    """Find the codes that comments hide, and add problems of comments that are wrong.

    A comment after a value is about its line. A comment on its own line is about the next line that is not a comment.
    `ignore-file=…` is about the whole file.
    """
    found: list[IgnoreComment] = []
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
            problems.note(at.as_problem("W002", "this comment names no warning to ignore", hint))
        for code in codes:
            column = line.index(code, comment.start()) + 1
            ignored = IgnoreComment(code.upper(), file, number, column, target, line)
            if _WARNING.fullmatch(code):
                found.append(ignored)
                continue
            is_error = code[:1].upper() == "E" and code[1:].isdigit()
            why = "a spec with an error cannot be used" if is_error else "it is not the code of a warning"
            message = f"`{code[:60]}` cannot be ignored: {why}"
            problems.note(ignored.as_problem("W002", message, "`wdspec rule` lists all codes"))
    return found


def without_effect(comments: Iterable[IgnoreComment], problems: Sequence[Problem]) -> list[Problem]:
    """Make a warning for each comment that hides none of these problems."""
    unused = [each for each in comments if each.code != OF_POLICIES and not any(map(each.hides, problems))]
    return [
        comment.as_problem(
            "W003",
            f"there is no {comment.code} in {'this file' if comment.target is None else f'line {comment.target}'}",
            "remove the comment",
        )
        for comment in unused
    ]


def _target(lines: Sequence[str], number: int) -> int:
    """The line that a comment is about: its own, or the next one that is not only a comment."""
    if not lines[number - 1].lstrip().startswith("#"):
        return number
    for later in range(number, len(lines)):
        if lines[later].strip() and not lines[later].lstrip().startswith("#"):
            return later + 1
    return number


_LONGEST_SHOWN = 40


def describe(value: object) -> str:
    """Describe a value in a message: its kind and, if it is short, the value."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        text = str(value) if isinstance(value, float) or abs(value) < 10**40 else "very many digits"
        return f"the number {text}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"a {type(value).__name__}"


def quote(text: str) -> str:
    """Put a text in quotes, cut if it is long, with line ends made visible."""
    cut = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
    return '"' + cut.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


def list_names(names: Sequence[str], most: int = 10) -> str:
    """List the first names in backquotes; `nothing` if there are none."""
    return ", ".join(f"`{name}`" for name in names[:most]) + (", …" if len(names) > most else "") or "nothing"


def advise_stats(split: str | None) -> str:
    """How to measure a spec for the first time: each split has a file of its own."""
    file, where = ("stats.json", "") if split is None else (f"{split}.stats.json", f" in the split `{split}`")
    return f"add `stats: {file}`{where} and run `wdspec stats SPEC`"
