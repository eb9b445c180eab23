"""Codes of problems: what one is, how grave it is, and the pages of those that no rule has.

The pages are prose, and so they are in `codes.md`: of problems with the text of a file (E0), with files, variables and
variants (E1), with keys and values (E2), and of what is found in data (D). A rule has its page above its function.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PAGE = re.compile(
    r"^## ([EWD]\d{3}): (.+)\n\n(.+)\n"
    r"(?:\n```yaml\n((?:.*\n)*?)```\n)?"
    r"(?:\nWithout the problem:\n\n```yaml\n((?:.*\n)*?)```\n)?",
    re.MULTILINE,
)


class Code(NamedTuple):
    """One kind of problem. E0: the file; E1: files and variables; E2: keys and values; E3: meaning; W: doubtful,
    W3 in what it means. Of data, D1: shards that cannot be read whole; D2: samples that cannot be used; D3: doubtful.
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


def is_error(code: str) -> bool:
    """Whether what has this code is an error; else it is a warning."""
    return code.startswith(("E", "D1", "D2"))


def general_codes() -> list[Code]:
    """The pages of the codes that no rule has."""
    text = Path(__file__).with_name("codes.md").read_text(encoding="utf-8")
    return [Code(*page.groups("")) for page in _PAGE.finditer(text)]
