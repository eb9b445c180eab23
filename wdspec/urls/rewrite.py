"""Rewrite rules: a regex that matches the start of a URL, and a replacement. Also limits for the time of a regex.

The first rule that changes a URL is used, and its result is not rewritten again. Rules come from the variable
``WDS_REWRITE`` (``regex=replacement;regex=replacement``) and from `rewrite:` in specs.

Python's regex engine tries all ways to match a text, without a limit. A choice inside a repeat, such as the length of
the inner repeat in `(a+)+$`, doubles the time with each character; unless the next character decides the choice. So
inside a repeat, every choice must be decided by the next character: whether to repeat once more, and which alternative
to take. Parts of a regex that are not analyzed count as undecided. Choices outside of repeats multiply, and the time of
repeats grows with a power of the length; both are limited.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import factorial
from typing import Any, NamedTuple

from wdspec.base.errors import UrlError
from wdspec.urls.urls import is_command

MOST_STEPS = 10**8
"""The most steps of the engine for one match: about a second."""
NESTED = "has a repeat inside a repeat, which takes forever on some texts"
"""The message for a regex with `nested_repeat`."""
REMEDY = "end the inner repeat with a character that it cannot match, as in `(/[^/]+)*` and `([^/]+/)*`"

_parser: Any = re._parser  # type: ignore[attr-defined]  # Python has no public way to the parts of a regex
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_MANY = 16
"""A repeat of at least this many times that is not itself repeated counts as unlimited."""
_MOST_FIRST = 64
_CATEGORIES = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
_LIKE = {"k": "\u212a", "s": "\u017f", "i": "\u0130\u0131"}
"""Characters that `(?i)` also matches with these, besides the other case."""


class _First(NamedTuple):
    """First characters of something: a part of a regex that matches one character, and its flags."""

    name: str
    argument: Any
    flags: int


_ANYTHING = _First("ANY", None, re.DOTALL)


class _Follow(NamedTuple):
    """What may follow a part: inside the same repeat, and after all repeats."""

    within: tuple[_First, ...] = ()
    after: tuple[_First, ...] = ()


class _Cost(NamedTuple):
    """The number of ways to match a text."""

    is_endless: bool = False
    repeats: int = 0
    """Number of repeats that may end anywhere."""
    choices: int = 1
    """Number of ways of everything else."""

    def __add__(self, other: Any) -> _Cost:
        return _Cost(
            self.is_endless or other.is_endless, self.repeats + other.repeats, self.choices * other.choices
        )


def nested_repeat(regex: str) -> bool:
    """Whether a regex takes forever on some texts: it repeats something that matches a text in several ways."""
    return _cost_of(regex).is_endless


def check_length(regex: str, text: str) -> None:
    """Raise UrlError if a text is so long that a match may take more than `MOST_STEPS`."""
    cost = _cost_of(regex)
    repeats = max(1, cost.repeats)
    if len(text) ** repeats // factorial(repeats) * cost.choices > MOST_STEPS:
        ways = f" and {cost.choices:,} other choices" if cost.choices > 1 else ""
        raise UrlError(
            f"a text of {len(text):,} characters is too long for the regex `{regex}`: its {repeats} open repeats{ways} "
            "have too many ways to match; write `[^/]*` instead of `.*`, or shorten the text"
        )


@lru_cache(maxsize=256)
def _cost_of(regex: str) -> _Cost:
    parsed = _parser.parse(regex)
    return _cost(parsed, _Follow(), False, parsed.state.flags)


def _cost(parts: Any, follow: _Follow, is_repeated: bool, flags: int) -> _Cost:
    """The cost of a sequence."""
    total = _Cost()
    for op, argument in reversed(list(parts)):
        total = _cost_of_part(str(op), argument, follow, is_repeated, flags) + total
        first, may_be_empty = _first_of_part(str(op), argument, flags)
        within = first if is_repeated else ()
        after = () if is_repeated else first
        if may_be_empty:
            within, after = within + follow.within, after + follow.after
        follow = _Follow(_limit(within), _limit(after))
    return total


def _cost_of_part(name: str, argument: Any, follow: _Follow, is_repeated: bool, flags: int) -> _Cost:
    if name == "SUBPATTERN":
        return _cost(argument[3], follow, is_repeated, (flags | argument[1]) & ~argument[2])
    if name in ("ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):  # matched once, never tried again
        alone = argument if name == "ATOMIC_GROUP" else argument[1]
        cost = _cost(alone, _Follow(after=(_ANYTHING,)), False, flags)
        return cost + _Cost(repeats=1) if is_repeated and cost != _Cost() else cost
    if name in _REPEATS:
        return _cost_of_repeat(argument, name == "POSSESSIVE_REPEAT", follow, is_repeated, flags)
    if name in ("BRANCH", "GROUPREF_EXISTS"):
        branches = argument[1] if name == "BRANCH" else [argument[1], argument[2] or []]
        return _cost_of_branches(branches, follow, is_repeated, flags)
    return _Cost()


def _cost_of_repeat(
    argument: tuple[int, int, Any], is_kept: bool, follow: _Follow, is_repeated: bool, flags: int
) -> _Cost:
    """The cost of a repeat; a possessive one (`is_kept`) is never tried with fewer turns."""
    least, most, body = argument
    first, may_be_empty = _first(body, flags)
    again = most > 1
    inner = follow
    if again:
        within = first + follow.within
        inner = _Follow(_limit(within + follow.after if may_be_empty else within), follow.after)
    cost = _cost(body, inner, is_repeated or again, flags)
    if least == most or is_kept:
        return cost
    if is_repeated and not _are_apart(first, follow.within):
        return _Cost(is_endless=True)
    if _are_apart(first, follow.after):
        return cost
    return cost + (_Cost(repeats=1) if most >= _MANY else _Cost(choices=int(most) - int(least) + 1))


def _cost_of_branches(branches: list[Any], follow: _Follow, is_repeated: bool, flags: int) -> _Cost:
    total, firsts = _Cost(), []
    for each in branches:
        total += _cost(each, follow, is_repeated, flags)
        first, may_be_empty = _first(each, flags)
        if may_be_empty:
            first = (_ANYTHING,) if is_repeated else (*first, *follow.after)
        firsts.append(first)
    if all(_are_apart(one, other) for one, other in combinations(firsts[:_MOST_FIRST], 2)) and (
        len(firsts) <= _MOST_FIRST
    ):
        return total
    return _Cost(is_endless=True) if is_repeated else total + _Cost(choices=len(branches))


def _first(parts: Any, flags: int) -> tuple[tuple[_First, ...], bool]:
    """The first characters of a sequence, and whether it may be empty."""
    found: tuple[_First, ...] = ()
    for op, argument in parts:
        first, may_be_empty = _first_of_part(str(op), argument, flags)
        found = _limit(found + first)
        if not may_be_empty:
            return found, False
    return found, True


def _first_of_part(name: str, argument: Any, flags: int) -> tuple[tuple[_First, ...], bool]:
    if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        return (_First(name, argument, flags),), False
    if name == "SUBPATTERN":
        return _first(argument[3], (flags | argument[1]) & ~argument[2])
    if name == "ATOMIC_GROUP":
        return _first(argument, flags)
    if name in _REPEATS:
        found, may_be_empty = _first(argument[2], flags)
        return found, may_be_empty or argument[0] == 0
    if name == "BRANCH":
        each = [_first(branch, flags) for branch in argument[1]]
        return _limit(tuple(one for found, _ in each for one in found)), any(empty for _, empty in each)
    return (_ANYTHING,), True  # positions between characters, and parts that are not analyzed


def _limit(firsts: tuple[_First, ...]) -> tuple[_First, ...]:
    return firsts if len(firsts) <= _MOST_FIRST else (_ANYTHING,)


def _are_apart(some: tuple[_First, ...], others: tuple[_First, ...]) -> bool:
    """Whether they have no character in common; False if unknown."""
    return all(_is_apart(one, other) for one in some for other in others)


def _is_apart(one: _First, other: _First) -> bool:
    for listed, tested in ((_codes(one), other), (_codes(other), one)):
        if listed is not None:
            return not any(_takes(tested, code) for code in listed)
    return False


def _codes(first: _First) -> list[int] | None:
    """The characters, with those that are equal to them; None if there are many."""
    if first.name == "LITERAL":
        found = [first.argument]
    elif first.name == "IN" and all(str(op) in ("LITERAL", "RANGE") for op, _ in first.argument):
        ranges = [(value, value) if str(op) == "LITERAL" else value for op, value in first.argument]
        if sum(high - low + 1 for low, high in ranges) > 256:
            return None
        found = [code for low, high in ranges for code in range(low, high + 1)]
    else:
        return None
    if first.flags & re.IGNORECASE and max(found) > 127:
        return None
    return sorted({each for code in found for each in _same(code, first.flags)})


def _same(code: int, flags: int) -> set[int]:
    """The characters that are equal to this one."""
    if not flags & re.IGNORECASE:
        return {code}
    letter = chr(code)
    forms = {letter, letter.lower(), letter.upper(), *_LIKE.get(letter.lower(), "")}
    return {ord(each) for each in forms if len(each) == 1}


def _takes(first: _First, code: int) -> bool:
    """Whether a part may match a character; True if unknown."""
    if first.name == "ANY":
        return bool(first.flags & re.DOTALL) or code != ord("\n")
    if first.flags & re.IGNORECASE and first.name == "LITERAL" and first.argument <= 127:
        return code in _same(first.argument, first.flags)
    if first.flags & re.IGNORECASE and code > 127:
        return True
    same = _same(code, first.flags)
    if first.name == "LITERAL":
        return first.argument in same
    if first.name == "NOT_LITERAL":
        return first.argument not in same
    negated = str(first.argument[0][0]) == "NEGATE"
    return (
        any(_holds(str(op), value, each) for op, value in first.argument[negated:] for each in same)
        is not negated
    )


def _holds(name: str, value: Any, code: int) -> bool:
    if name == "LITERAL":
        return bool(value == code)
    if name == "RANGE":
        return bool(value[0] <= code <= value[1])
    category = str(value).removeprefix("CATEGORY_")
    shorthand = _CATEGORIES[category.removeprefix("NOT_")]
    return (re.match(shorthand, chr(code)) is not None) is not category.startswith("NOT_")


_RULE_TOKEN = re.compile(r"\\[;=\\]|[;=]")
_TEMPLATE_TOKEN = re.compile(r"(\\g<[^>]*>|\\[1-9][0-9]?)|\\0[0-7]{0,2}|\\.|[^\\]+", re.DOTALL)
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(['"])""", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\(|`")


@dataclass(frozen=True)
class Rule:
    """A regex and its replacement.

    Args:
        pattern: a regex, matched at the start of a URL.
        replacement: a template like that of :func:`re.sub`: ``\\1``, ``\\g<name>``.
        origin: where the rule was written, for messages: ``spec.yaml:12``, ``WDS_REWRITE rule 2``.
        base: absolute directory where a relative result starts; None for the directory of the URL.

    Raises:
        UrlError: the regex or the replacement is wrong; ``column`` is the position in the regex.
    """

    pattern: str
    replacement: str
    origin: str
    base: str | None = None
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            regex = re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            at = getattr(error, "pos", None)
            raise UrlError(
                f"the regex `{self.pattern}` of {self.origin} is wrong: {error}; a literal character such as `(` "
                "needs a `\\` before it",
                column=None if at is None else at + 1,
            ) from None
        if nested_repeat(self.pattern):
            raise UrlError(f"the regex `{self.pattern}` of {self.origin} {NESTED}; {REMEDY}")
        try:
            regex.sub(self.replacement, "")  # checks the template even if nothing matches
        except (re.error, IndexError) as error:
            raise UrlError(
                f"the replacement `{self.replacement}` of {self.origin} is wrong: {error}; the regex "
                f"`{self.pattern}` has {regex.groups} groups; for a literal `\\` write `\\\\`"
            ) from None
        object.__setattr__(self, "regex", regex)

    def __str__(self) -> str:
        return f"{self.origin}: {self.pattern} -> {self.replacement}"

    def apply(self, url: str) -> str:
        """Apply the rule; returns the URL unchanged if the regex does not match its start.

        If the result is a `pipe:` command, the parts of the URL in it are quoted for the shell once. (A program that
        passes its arguments to another shell, such as ssh, splits them again.)
        """
        check_length(self.pattern, url)
        match = self.regex.match(url)
        if match is None:
            return url
        # It matches at the start. `expand` would parse the replacement each time.
        result = self.regex.sub(self.replacement, url, 1)
        if is_command(result) and not is_command(url):
            return "".join(self._command(match))
        return result

    def may_match(self, head: str) -> bool:
        """Whether the regex may match some text that starts with `head`."""
        start = start_of(self.pattern).text
        return start.startswith(head) or head.startswith(start)

    def depends_on_rest(self, head: str) -> bool:
        """Whether the regex may match some texts that start with `head`, and not others."""
        start, rest = start_of(self.pattern)
        return self.may_match(head) and (rest > 0 or not head.startswith(start))

    def _command(self, match: re.Match[str]) -> Iterator[str]:
        """The pieces of a shell command; those from the URL are quoted according to the text before them."""
        before = ""
        for token in _TEMPLATE_TOKEN.finditer(self.replacement):
            text = match.expand(token.group())
            piece = self._quoted(text, before, match.string) if token.group(1) else text
            yield piece
            before += piece
        yield self._quoted(match.string[match.end() :], before, match.string)

    def _quoted(self, text: str, before: str, url: str) -> str:
        if not text or shlex.quote(text) == text:
            return text
        quote = _open_quote(before)
        if quote != "'" and _SUBSTITUTION.search(before):
            raise UrlError(
                f"`{text}` has characters that are special to the shell, and {self.origin} puts it after a `$(` or a "
                "backtick, where it cannot be quoted safely; write the command without them",
                url=url,
            )
        if quote == '"':
            return re.sub(r'([$`"\\])', r"\\\1", text)
        if quote == "'":
            return text.replace("'", "'\"'\"'")
        return shlex.quote(text)


class _Start(NamedTuple):
    """How a regex begins."""

    text: str
    """Everything that it matches starts with this text; empty if none is known."""
    rest: int
    """The number of parts after it."""


@lru_cache(maxsize=1024)
def start_of(regex: str) -> _Start:
    """The literal text at the start of a regex."""
    parts = list(_parser.parse(regex))
    if re.compile(regex).flags & (re.IGNORECASE | re.VERBOSE):
        return _Start("", len(parts) + 1)
    literals = [chr(code) for _, code in itertools.takewhile(lambda part: str(part[0]) == "LITERAL", parts)]
    return _Start("".join(literals), len(parts) - len(literals))


def parse_rules(text: str, variable: str = "WDS_REWRITE", base: str | None = None) -> tuple[Rule, ...]:
    """Parse the rules of an environment variable.

    `;` ends a rule and the first `=` ends its regex. ``\\;``, ``\\=`` and ``\\\\`` are `;`, `=` and one backslash; any
    other backslash is literal. Nothing is stripped; empty rules are ignored.

    Args:
        text: the value of the variable.
        variable: its name, for messages.
        base: absolute directory where relative results start.

    Raises:
        UrlError: a rule has no `=` or no regex, or a wrong one; names the rule and its column.
    """
    rules = []
    for number, (start, parts) in enumerate(_split(text), 1):
        origin = f"{variable} rule {number}"
        rule = "=".join(parts)
        if not rule.strip():
            continue
        if len(parts) == 1:
            raise UrlError(
                f"{origin}, `{rule}`, has no `=`; write `regex=replacement`, with `\\;` for a literal `;`",
                column=1 + start,
            )
        if not parts[0]:
            raise UrlError(
                f"{origin}, `{rule}`, has no regex before its `=`; write `^=…` to add a prefix to every URL, or `\\=` "
                "for a `=` in the regex",
                column=1 + start,
            )
        rules.append(Rule(parts[0], "=".join(parts[1:]), origin, base))
    return tuple(rules)


def rewrite(url: str, rules: Iterable[Rule]) -> tuple[str, Rule | None]:
    """Apply the first rule that changes a URL; returns the result and the rule, or the URL and None."""
    for rule in rules:
        changed = rule.apply(url)
        if changed != url:
            return changed, rule
    return url, None


def _split(text: str) -> Iterator[tuple[int, list[str]]]:
    """The start and the unescaped parts of each rule, split at its first `=`."""
    start, seen, parts = 0, 0, [""]
    for token in _RULE_TOKEN.finditer(text):
        mark = token.group()
        parts[-1] += text[seen : token.start()]
        seen = token.end()
        if mark == ";":
            yield start, parts
            start, parts = seen, [""]
        elif mark == "=" and len(parts) == 1:
            parts.append("")
        else:
            parts[-1] += mark[-1]
    parts[-1] += text[seen:]
    yield start, parts


def _open_quote(command: str) -> str:
    """The quote that is open at the end of an incomplete shell command: `'`, `"` or none."""
    return next((mark.group(1) for mark in _QUOTED.finditer(command) if mark.group(1)), "")
