"""Where something stands in a file."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """A position in a text: the file as the user named it, and line and column counted from 1.

    Where there is no text (a spec given as a dict) line and column are 0 and ``file`` says what it was.
    """

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file
