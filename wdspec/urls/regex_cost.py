"""How long a regex may take on a text: Python's engine tries all ways to match, and has no limit of its own.

A repeat inside a repeat, as in `(a+)+$`, takes time that doubles with each character. Without such ones the time grows
with a power of the length, which is bounded here: by the number of repeats that may end anywhere in what they meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from math import factorial
from typing import Any

from wdspec.errors import UrlError

MOST_STEPS = 10**8
"""Steps of the engine for one match: about a second."""
NESTED = "holds a repeat inside a repeat, which some texts keep busy for ever"
"""What is said of a regex for which `nested_repeat` is true."""
REMEDY = "let each turn of the outer one begin or end with what the inner one cannot match: `(/[^/]+)*`"

_parser: Any = re._parser  # type: ignore[attr-defined]  # Python has no public way to the parts of a regex
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_MANY = 16
"""A repeat of so many turns or more is taken for one of any number."""
_CATEGORIES = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}


def nested_repeat(regex: str) -> bool:
    """Whether some texts take a regex for ever: it repeats what can match one text in several ways."""
    return _nested(list(_flat(_parser.parse(regex))), inside=False)


def check_length(regex: str, text: str) -> None:
    """Raises UrlError for a text so long that a match may take more than `MOST_STEPS`."""
    repeats = _open_repeats(regex)
    if len(text) ** repeats // factorial(repeats) > MOST_STEPS:
        raise UrlError(
            f"a text of {len(text):,} characters is too long for the regex `{regex}`, whose {repeats} open repeats may "
            "try more ways to match than can be waited for; write `[^/]*` in place of `.*`, or shorten the text"
        )


def _nested(parts: list[Any], inside: bool) -> bool:
    for number, (name, argument) in enumerate(parts):
        if name in _REPEATS:
            body = list(_flat(argument[2]))
            is_open = argument[1] >= _MANY
            # `(/[^/]+)*` and `([^/]+/)*`: only one way to take turns.
            beside = [*parts[number + 1 : number + 2], *parts[: min(number, 1)]]
            if inside and is_open and not any(_excludes(body, each) for each in beside):
                return True
            if _nested(body, inside or is_open):
                return True
        elif name == "BRANCH":
            branches = [list(_flat(each)) for each in argument[1]]
            if inside and not _told_apart(branches):
                return True
            if any(_nested(each, inside) for each in branches):
                return True
    return False


def _told_apart(branches: list[list[Any]]) -> bool:
    """Whether each alternative begins with a character of its own; `.` stands for all but the newline."""
    if any(not each or each[0][0] not in ("LITERAL", "ANY") for each in branches):
        return False
    first = [each[0][1] for each in branches]
    return len(set(first)) == len(first) and (None not in first or set(first) <= {None, ord("\n")})


@lru_cache(maxsize=256)
def _open_repeats(regex: str) -> int:
    return max(1, _count(list(_flat(_parser.parse(regex)))))


def _count(parts: list[Any]) -> int:
    count = 0
    for number, (name, argument) in enumerate(parts):
        if name in _REPEATS and argument[1] >= _MANY:
            body = list(_flat(argument[2]))
            is_last = number + 1 == len(parts)  # nothing behind it can fail, and have it try again
            count += not (is_last or _excludes(body, parts[number + 1])) + _count(body)
        elif name == "BRANCH":
            count += max(_count(list(_flat(each))) for each in argument[1])
    return count


def _flat(parts: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a regex by name, those of groups in their places."""
    for op, argument in parts:
        name = str(op)
        if name == "SUBPATTERN":
            yield from _flat(argument[-1])
        elif name == "ATOMIC_GROUP":
            yield from _flat(argument)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from _flat(argument[1])
        else:
            yield name, argument


def _excludes(body: list[Any], literal: tuple[str, Any]) -> bool:
    """Whether what is repeated is one character, and never that of the literal beside it."""
    if len(body) != 1 or literal[0] != "LITERAL":
        return False
    (name, argument), code = body[0], literal[1]
    if name == "LITERAL":
        return bool(argument != code)
    if name == "NOT_LITERAL":
        return bool(argument == code)
    if name != "IN":
        return False
    negated = str(argument[0][0]) == "NEGATE"
    return any(_holds(str(op), value, code) for op, value in argument[negated:]) is negated


def _holds(name: str, value: Any, code: int) -> bool:
    if name == "LITERAL":
        return bool(value == code)
    if name == "RANGE":
        return bool(value[0] <= code <= value[1])
    category = str(value).removeprefix("CATEGORY_")
    shorthand = _CATEGORIES[category.removeprefix("NOT_")]
    return (re.match(shorthand, chr(code)) is not None) is not category.startswith("NOT_")
