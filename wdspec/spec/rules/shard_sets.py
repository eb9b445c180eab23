"""Which shards texts have in common, found without expanding long ranges."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from wdspec.urls.urls import Part, scheme_of

MOST_EXPANDED = 200
"""Patterns with one range are compared as ranges; those with other braces as their strings, or beyond this as texts."""

_ONE_RANGE = re.compile(r"([^{}\\]*)\{(\d{1,18})\.\.(\d{1,18})\}([^{}\\]*)")
_DIGITS = re.compile(r"\d{1,18}")
Owner = TypeVar("Owner", bound=Hashable)


class _Range(NamedTuple, Generic[Owner]):
    low: int
    high: int
    width: int
    """Digits that each number has at least."""
    owner: Owner

    def shared_with(self, low: int, high: int, width: int) -> int | None:
        """The first number that both ranges have, and spell alike; None where there is none."""
        first = max(self.low, low)
        if width != self.width:
            first = max(first, 10 ** (max(width, self.width) - 1))
        return first if first <= min(self.high, high) else None


class ShardSets(Generic[Owner]):
    """Remembers which shards were seen, and whose they are."""

    def __init__(self) -> None:
        self._texts: dict[str, Owner] = {}
        self._ranges: dict[tuple[str, str], list[_Range[Owner]]] = {}

    def add(self, part: Part, owner: Owner) -> tuple[str, Owner] | None:
        """A shard of the part that another owner had before, and whose it was; None where there is none."""
        match = _ONE_RANGE.fullmatch(part.text)
        if match is not None and not part.listed:
            before, low, high, after = match.groups()
            padded = any(end.startswith("0") and len(end) > 1 for end in (low, high))
            width = max(len(low), len(high)) if padded else 1
            key = (_absolute(part.prefix + before, part.base), after)
            return self._add_range(key, _Range(int(low), int(high), width, owner))
        found = None
        for text in _few(part):
            key_text = _absolute(text, part.base)
            other = self._in_a_range(key_text)
            other = self._texts.setdefault(key_text, owner) if other is None else other
            if other != owner and found is None:
                found = (text, other)
        return found

    def _add_range(self, key: tuple[str, str], added: _Range[Owner]) -> tuple[str, Owner] | None:
        before, after = key
        known = self._ranges.setdefault(key, [])
        low, high, width, owner = added
        for other in known:
            number = other.shared_with(low, high, width)
            if number is not None and other.owner != owner:
                return f"{before}{number:0{width}d}{after}", other.owner
        known.append(added)
        for text, other_owner in self._texts.items():
            if other_owner != owner and self._in_a_range(text, (added, key)) is not None:
                return text, other_owner
        return None

    def _in_a_range(
        self, text: str, only: tuple[_Range[Owner], tuple[str, str]] | None = None
    ) -> Owner | None:
        """Whose range a text belongs to."""
        for digits in _DIGITS.finditer(text) if self._ranges else ():
            key = (text[: digits.start()], text[digits.end() :])
            ranges = self._ranges.get(key, ()) if only is None else [only[0]] if only[1] == key else ()
            number = int(digits[0])
            for each in ranges:
                if each.low <= number <= each.high and f"{number:0{each.width}d}" == digits[0]:
                    return each.owner
        return None


def _few(part: Part) -> Iterator[str]:
    """The strings of a part that are not too many; of a glob or a file its text."""
    if part.listed or len(part.braces) > MOST_EXPANDED:
        yield part.prefix + part.text
    else:
        yield from (part.prefix + text for text in part.braces)


def _absolute(text: str, base: str) -> str:
    """The text by which the same shard is known again."""
    listed = text.startswith("@")
    path = text.removeprefix("@")
    return (
        text if scheme_of(path) or path == "-" else "@" * listed + os.path.normpath(os.path.join(base, path))
    )
