"""Brace patterns as lazy sequences: they are parsed into a small tree, and counted and indexed by arithmetic.

`shard-{000000..999999}.tar` is a tree of three nodes, however large the numbers are. The n-th string is found with
mixed radix: a concatenation is a number whose digits are its parts (the last one changes fastest), and a comma list is
a digit whose range is the sum of its alternatives.

Patterns expand as in the package ``braceexpand``, with `{abc}` and `${x}` as literal text. But a descending range, or
one with step 0, is an error: in lists of shards it is always a mistake.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, product
from typing import NoReturn, TypeAlias, TypeVar, overload

from wdspec.base.errors import UrlError

T = TypeVar("T", covariant=True)
MAX_STRINGS = 10**9
"""More strings in one pattern are considered a mistake."""
MAX_DEPTH = 50
MAX_DIGITS = 1000
_CEILING = 10**18  # counts stop here, so that a long hostile pattern makes no huge integers

_TOKEN = re.compile(r"\\.|[{},]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)")
_NUMBERS = re.compile(r"^(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?$")
_LETTERS = re.compile(r"^([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?$")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class ComputedSequence(Sequence[T]):
    """A sequence whose items are computed when they are asked for."""

    __slots__ = ()
    kind = "strings"
    """What the items are."""

    @abstractmethod
    def item(self, index: int) -> T:
        """Return the item of a number from 0 on."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self.item(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} {self.kind} in {self!r}")
        return self.item(index % len(self))


class Braces(ComputedSequence[str]):
    """The strings of a brace pattern, in order.

    Patterns have commas (`{a,b}`), numbers (`{000..123}`, `{0..9..2}`), letters (`{a..f}`), nesting, and `\\` before a
    literal character. Length and access take time proportional to the length of the pattern.

    Args:
        pattern: the text; without braces it is the only string.

    Raises:
        UrlError: unbalanced braces, an empty range, or more than a billion strings; ``column`` is the position of the
            wrong brace in the text.
    """

    __slots__ = ("_tree", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._tree = _parse(pattern)
        count = self._tree.count
        if count > MAX_STRINGS:
            raise UrlError(
                f"the braces expand to {count:,} strings{' or more' if count == _CEILING else ''}; the "
                f"limit is {MAX_STRINGS:,}, so split the pattern or correct its ranges",
                url=pattern,
                column=1 + pattern.index("{"),
            )

    def __len__(self) -> int:
        return self._tree.count

    def item(self, index: int) -> str:
        return self._tree.text(index)

    def __iter__(self) -> Iterator[str]:
        return map(self._tree.text, range(self._tree.count))

    def all(self) -> list[str]:
        """All strings; this is several times as fast as one by one."""
        return self._tree.all()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Braces) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"Braces({self.pattern!r})"

    def __reduce__(self) -> tuple[type[Braces], tuple[str]]:
        return Braces, (self.pattern,)


class _Literal:
    __slots__ = ("_text",)
    count = 1

    def __init__(self, text: str) -> None:
        self._text = text

    def text(self, index: int) -> str:
        return self._text

    def all(self) -> list[str]:
        return [self._text]


class _Numbers:
    __slots__ = ("_first", "_step", "_width", "count")
    count: int

    def __init__(self, first: int, last: int, step: int, width: int) -> None:
        self._first, self._step, self._width = first, step, width
        self.count = min((last - first) // step + 1, _CEILING)

    def text(self, index: int) -> str:
        return f"{self._first + index * self._step:0{self._width}d}"

    def all(self) -> list[str]:
        end = self._first + self.count * self._step
        return [*map(f"%0{self._width}d".__mod__, range(self._first, end, self._step))]


class _Choice:
    """One of several alternatives; `ends[i]` is the number of strings of the alternatives 0..i together."""

    __slots__ = ("_alternatives", "_ends", "count")
    count: int

    def __init__(self, alternatives: Sequence[_Node]) -> None:
        self._alternatives = tuple(alternatives)
        self._ends = tuple(accumulate(node.count for node in alternatives))
        self.count = min(self._ends[-1], _CEILING)

    def text(self, index: int) -> str:
        which = bisect_right(self._ends, index)
        return self._alternatives[which].text(index - (self._ends[which - 1] if which else 0))

    def all(self) -> list[str]:
        return [text for alternative in self._alternatives for text in alternative.all()]


class _Concatenation:
    """Consecutive parts; `strides[i]` is the number of strings of the parts after i together."""

    __slots__ = ("_parts", "_strides", "count")
    count: int

    def __init__(self, parts: Sequence[_Node]) -> None:
        strides, count = [], 1
        for part in reversed(parts):
            strides.append(count)
            count = min(count * part.count, _CEILING)
        self._parts, self._strides, self.count = tuple(parts), tuple(reversed(strides)), count

    def text(self, index: int) -> str:
        return "".join(
            part.text(index // stride % part.count)
            for part, stride in zip(self._parts, self._strides, strict=True)
        )

    def all(self) -> list[str]:
        return [*map("".join, product(*(part.all() for part in self._parts)))]


_Node: TypeAlias = _Literal | _Numbers | _Choice | _Concatenation


class _Group:
    """An open brace: its finished alternatives, and the one that is being read."""

    __slots__ = ("alternatives", "nodes", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.alternatives: list[_Node] = []
        self.nodes: list[_Node] = []

    def next_alternative(self) -> None:
        self.alternatives.append(_join(self.nodes))
        self.nodes = []


@lru_cache(maxsize=4096)
def _parse(pattern: str) -> _Node:
    """Parse a pattern in one pass with a stack of open braces.

    As in braceexpand, a `}` that closes nothing is literal if a later `{` is not closed: hence `debt`.
    """
    stack = [_Group(-1)]
    debt: list[int] = []
    seen = 0
    for token in _TOKEN.finditer(pattern):
        mark, at = token.group(), token.start()
        if len(mark) == 2 or (mark == "," and len(stack) == 1):
            continue
        if mark == "{" and debt:
            debt.pop()
            continue
        if mark == "}" and len(stack) == 1:
            debt.append(at)
            continue
        _add_literal(stack[-1].nodes, pattern[seen:at])
        seen = at + 1
        if mark == "{":
            if len(stack) > MAX_DEPTH:
                _fail(f"braces are nested more than {MAX_DEPTH} deep; write the list out", pattern, at)
            stack.append(_Group(at))
        elif mark == ",":
            stack[-1].next_alternative()
        else:
            group = stack.pop()
            stack[-1].nodes.extend(_find_close(group, pattern, at))
    if len(stack) > 1:
        _fail(
            "this `{` is never closed; add the `}`, or write `\\{` for a literal brace",
            pattern,
            stack[1].start,
        )
    if debt:
        _fail(
            "this `}` closes nothing; add the missing `{` before it, or write `\\}` for a literal brace",
            pattern,
            debt[0],
        )
    _add_literal(stack[0].nodes, pattern[seen:])
    return _join(stack[0].nodes)


def _find_close(group: _Group, pattern: str, end: int) -> list[_Node]:
    text = pattern[group.start + 1 : end]
    if match := _NUMBERS.match(text):
        return [_numbers(match, pattern, group.start)]
    if match := _LETTERS.match(text):
        return [_letters(match, pattern, group.start)]
    if group.alternatives:
        group.next_alternative()
        return [_Choice(group.alternatives)]
    return [_Literal("{"), *group.nodes, _Literal("}")]


def _numbers(match: re.Match[str], pattern: str, at: int) -> _Node:
    first, last, step = match.groups()
    if max(map(len, match.groups(default=""))) > MAX_DIGITS:
        _fail(f"a number of more than {MAX_DIGITS} digits in a brace range", pattern, at)
    if int(first) > int(last):
        _fail_empty(first, last, step, f"{int(first)} > {int(last)}", pattern, at)
    _check_step(step, pattern, at)
    padded = any(text.startswith(("0", "-0")) and text not in ("0", "-0") for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return _Numbers(int(first), int(last), int(step or 1), width)


def _letters(match: re.Match[str], pattern: str, at: int) -> _Node:
    first, last, step = match.groups()
    if len(step or "") > MAX_DIGITS:
        _fail(f"a number of more than {MAX_DIGITS} digits in a brace range", pattern, at)
    _check_step(step, pattern, at)
    start, stop = _ALPHABET.index(first), _ALPHABET.index(last)
    if start > stop:
        _fail_empty(first, last, step, f"{first} > {last}", pattern, at)
    return _Choice([_Literal(letter) for letter in _ALPHABET[start : stop + 1 : int(step or 1)]])


def _check_step(step: str | None, pattern: str, at: int) -> None:
    if step is not None and not int(step):
        _fail("a brace range with a step of 0; remove the step, or use at least 1", pattern, at)


def _add_literal(nodes: list[_Node], text: str) -> None:
    if text:
        nodes.append(_Literal(_ESCAPE.sub(r"\1", text)))


def _join(nodes: list[_Node]) -> _Node:
    return nodes[0] if len(nodes) == 1 else _Concatenation(nodes)


def _fail_empty(first: str, last: str, step: str | None, seen: str, pattern: str, at: int) -> NoReturn:
    turned = f"{{{last}..{first}{f'..{step}' if step else ''}}}"
    _fail(f"empty brace range: {seen}; did you mean {turned}?", pattern, at)


def _fail(message: str, pattern: str, at: int) -> NoReturn:
    raise UrlError(message, url=pattern, column=1 + at)
