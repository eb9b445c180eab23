"""What is wrong with a spec: one object for each problem, the list that collects them, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from wdspec.errors import SpecError
from wdspec.masking import masked
from wdspec.redaction import redacted_urls
from wdspec.spec.problems.codes import is_error
from wdspec.spec.tree.nodes import Node, Position

LINE_WIDTH = 100
MAX_PROBLEMS = 1_000
"""More are counted as one: nobody reads them, and a hostile file could hold a hundred thousand."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong (code `E…`) or doubtful (`W…`) with a spec."""

    code: str
    message: str
    """What was seen."""
    hint: str = ""
    """What to do about it."""
    file: str = ""
    """The file as the user named it."""
    line: int = 0
    """Counted from 1; 0 where there is no text."""
    column: int = 0
    """Counted from 1, in characters."""
    length: int = 1
    """How many characters of the line it concerns."""
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
        """The message, and the hint below it."""
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    @property
    def position(self) -> Position:
        """File, line and column."""
        return Position(self.file, self.line, self.column)

    def __str__(self) -> str:
        lines = [f"{self.position}: {self.code} {self.message}"]
        if self.source is not None:
            text, caret_at, carets = _excerpt(self.source, self.column, self.length)
            margin = " " * len(str(self.line))
            lines.append(f"  {self.line} | {text}".rstrip())
            lines.append(f"  {margin} | {' ' * caret_at}{'^' * carets}")
            if self.hint:
                lines.append(f"  {margin} = {self.hint}")
        elif self.hint:
            lines.append(f"  = {self.hint}")
        return "\n".join(lines)


class Problems:
    """Collects problems, each once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, int, str], Problem] = {}
        self._files: dict[str, int] = {}
        self._hidden_at: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._hidden: set[tuple[str, int]] = set()

    def hide_problems_at(self, node: Node) -> None:
        """Says that a value is wrong for a reason already noted, so that no more problems are reported for it."""
        if node.line:
            span = (node.column, node.column + node.length)
            self._hidden_at.setdefault((node.origin.name, node.line), []).append(span)

    def hide(self, node: Node) -> None:
        """Says that the line of a node holds a secret, so that it is not shown with any problem."""
        self._hidden.add((node.origin.name, node.line))

    def _follows(self, problem: Problem) -> bool:
        """Whether a problem only follows from another one."""
        spans = self._hidden_at.get((problem.file, problem.line), ())
        return problem.code[1] in "23" and any(start <= problem.column < end for start, end in spans)

    def add(
        self,
        code: str,
        node: Node,
        message: str,
        hint: str = "",
        *,
        column: int | None = None,
        length: int | None = None,
    ) -> None:
        """Notes a problem at a node, or at another column of the node's line."""
        line = node.origin.shown(node.line) if node.line else None
        at = node.column if column is None else column
        size = node.length if length is None else length
        self.note(Problem(code, message, hint, node.origin.name, node.line, at, size, line))

    def note(self, problem: Problem) -> None:
        """Notes a problem that is already made."""
        problem = replace(problem, message=redacted_urls(problem.message), hint=redacted_urls(problem.hint))
        if self.full:
            first = next(iter(self))
            overflow = Problem(
                "E016", f"more than {MAX_PROBLEMS:,} problems; the rest is not listed", "", first.file, 1, 1
            )
            self._found.setdefault((overflow.code, "", 0, 0, ""), overflow)
            return
        self._files.setdefault(problem.file, len(self._files))
        message = "" if problem.code == "E201" else problem.message  # a default is unknown in many places
        key = (problem.code, problem.file, problem.line, problem.column, message)
        self._found.setdefault(key, problem)

    def saw(self, file: str) -> None:
        """Fixes the order of files: that in which they were opened."""
        self._files.setdefault(file, len(self._files))

    @property
    def full(self) -> bool:
        """Whether no more are taken, so that no hints need be sought either."""
        return len(self._found) >= MAX_PROBLEMS

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def sorted(self) -> list[Problem]:
        """All of them but those that only follow from others, in file order."""
        listed = [
            replace(problem, source=None) if (problem.file, problem.line) in self._hidden else problem
            for problem in self
            if not self._follows(problem)
        ]
        return sorted(listed, key=lambda p: (self._files[p.file], p.line, p.column, p.code))


def error_for(problems: Iterable[Problem]) -> SpecError:
    """The error that reports these problems."""
    listed = tuple(problems)
    return SpecError("\n".join(str(problem) for problem in listed), problems=listed)


def _excerpt(line: str, column: int, length: int) -> tuple[str, int, int]:
    """The part of a line around a column, the caret's indent below it, and how many carets."""
    line = masked(line)
    start = max(0, min(column - 1, len(line)))
    end = max(start + 1, min(start + length, len(line)))
    first = 0 if end <= LINE_WIDTH else max(0, start - LINE_WIDTH // 3)
    last = min(len(line), first + LINE_WIDTH)
    head = "…" if first else ""
    text = head + _visible(line[first:last]) + ("…" if last < len(line) else "")
    indent = _columns(head + _visible(line[first:start]))
    return text, indent, max(1, _columns(_visible(line[start : min(end, last)])))


def _visible(text: str) -> str:
    """One printable character for each: a tab or control character would move the caret or the terminal."""
    return "".join(c if c.isprintable() else (" " if c == "\t" else "\ufffd") for c in text)


def _columns(text: str) -> int:
    """How wide a terminal shows it."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
