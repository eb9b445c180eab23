"""What a plain scalar means: the core schema of YAML 1.2, and `1_000_000` for long numbers.

YAML 1.1, which PyYAML follows, makes `yes` and `on` true, `1:30` ninety and `1e-3` text; here they are text,
text and a number.
"""

from __future__ import annotations

import math
import re

_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INTEGER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST = 60  # longer than any number that is one; and int() of thousands of digits is refused by Python


def typed(text: str) -> str | int | float | bool | None:
    """The value that a plain scalar stands for."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST or text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
