"""What a code is: one kind of problem, with why it is one, and specs that have it and do not."""

from __future__ import annotations

from typing import NamedTuple


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


def table(*codes: Code) -> dict[str, Code]:
    """Codes by name."""
    return {code.code: code for code in codes}
