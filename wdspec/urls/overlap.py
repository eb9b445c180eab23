"""Whether a text or a pattern of shards may name what someone looks for.

Both may be patterns: what is looked for has `*` and `?`, and `shards` has braces and globs. The question is whether one
string matches both. What is looked for becomes a small automaton whose states are the bits of a number, and the other
pattern is read as its input: a letter moves the states that accept it, and `*` reaches all states up to the next `/`.
"""

from __future__ import annotations

import fnmatch
import re

from wdspec.base.errors import UrlError
from wdspec.urls.braces import Braces

_MOST_STRINGS = 4096
"""If braces expand to more strings, they count as anything, numbers as any digits."""
_GROUP = re.compile(r"\{[^{}]*\}")
_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}")
_TOKENS = re.compile(r"\*\*|\\.|\[[^\]/]+\]|.", re.DOTALL)
_ANYTHING, _DIGIT = "\ue000", "[0-9]"
"""What braces with too many strings are replaced by."""
_MAGIC = re.compile(r"[*?]")
_BEFORE, _AFTER = frozenset("/ :@,;(|="), frozenset("/ :@,;)|?#&")
"""What may be next to a text that is looked for: `s3://b` is in `s3://b/a.tar` and not in `s3://b2/a.tar`."""
_ANY = None

Token = str | frozenset[str] | None
"""A letter, one of several letters, or any letter."""


def _widen(numbers: re.Match[str]) -> str:
    """A pattern for the numbers in braces."""
    first, last = numbers.groups()
    return _DIGIT * len(first) if len(first) == len(last) else _ANYTHING


class Wanted:
    """What is looked for: a text that stands alone between marks such as `/` and `:`, or a pattern of the whole.

    Args:
        text: a pattern if it has `*`, for any text, or `?`, for one letter.
        folds_case: whether upper and lower case are the same.
    """

    def __init__(self, text: str, *, folds_case: bool = False) -> None:
        self.text = text
        self._folds = folds_case
        self.is_pattern = _MAGIC.search(text) is not None
        given = text.lower() if folds_case else text
        tokens: list[Token]
        if self.is_pattern:
            tokens = [_ANY if letter in "*?" else letter for letter in given]
            loops = {place for place, letter in enumerate(given) if letter == "*"}
            first, last = {0}, {len(tokens)}
        else:
            after = _ANY if given[-1:] in _AFTER else _AFTER  # after `s3://b/`, anything may follow
            tokens = [_ANY, _BEFORE, *given, after, _ANY]
            loops = {0, len(tokens) - 1}
            first, last = {0, 2}, {len(tokens) - 2, len(tokens)}
        self._tokens, self._loops = tokens, sum(1 << place for place in loops)
        self._first = self._skip(sum(1 << place for place in first))
        self._last = sum(1 << place for place in last)
        guessed = [place for place, token in enumerate(tokens) if not isinstance(token, frozenset)]
        if not self.is_pattern:
            guessed.remove(2)
        self._guessed = sum(1 << place for place in guessed)
        """The states from which a glob continues: not before the first letter, as each `*` may be any name."""
        self._within = sum(1 << place for place in guessed if tokens[place] != "/")
        """Those of them that stay in a segment of a path."""
        self._accepting: dict[str, int] = {}
        self._all = (1 << (len(tokens) + 1)) - 1
        self._known: dict[str, bool] = {}

    def is_in(self, text: str) -> bool:
        """Whether a text that is no pattern, such as a license, is what is looked for."""
        return self._accepts(text, magic=False)

    def may_be(self, pattern: str) -> bool:
        """Whether some string of a pattern of shards is what is looked for, or may be, if braces have very many."""
        if pattern not in self._known:  # specs repeat shards in their splits and environments
            self._known[pattern] = self._try_strings(pattern)
        return self._known[pattern]

    def _try_strings(self, pattern: str) -> bool:
        wider = _GROUP.sub(_ANYTHING, _GROUP.sub(_ANYTHING, _NUMBERS.sub(_widen, pattern)))
        if not self._accepts(wider.replace("\\", ""), magic=True):
            return False
        try:
            strings = Braces(pattern)
        except UrlError:
            return True
        if len(strings) > _MOST_STRINGS:
            return True
        return any(self._accepts(text, magic=True) for text in strings)

    def _accepts(self, text: str, magic: bool) -> bool:
        """Whether some string of a glob ends in a state that is right; or the text, without magic."""
        if magic and "[" in text and "\\" not in text and self._accepts(text.replace("[", "\\["), magic):
            return True  # `a[1].tar` may be the name of a file
        if self._folds:
            text = text.lower()
        if magic:
            text += "**" * text.endswith("/")
        states = self._first
        for token in _TOKENS.findall(text) if magic else text:
            if magic and token == _ANYTHING:
                states = self._all & -(states & -states)  # all from the first one
            elif magic and token in ("*", "**"):
                passed = self._within if token == "*" else self._guessed
                while (more := self._skip(states | ((states & passed) << 1))) != states:
                    states = more
            else:
                token = "[" if token == "\\[" else token
                moved = states & (self._within if magic and token == "?" else self._accept(token))
                states = self._skip((moved << 1) | (moved & self._loops))
            if not states:
                return False
        return bool(states & self._last)

    def _accept(self, letter: str) -> int:
        """The states in which a letter is accepted, or some letter of a class, such as `[a-c]`."""
        if letter not in self._accepting:
            letters = {letter}
            if len(letter) > 1:
                is_in = re.compile(fnmatch.translate(letter)).match
                letters = {each for each in {*self.text, *self.text.lower(), _ANYTHING} if is_in(each)}
            self._accepting[letter] = sum(
                1 << place
                for place, token in enumerate(self._tokens)
                if token is None or (token in letters if isinstance(token, str) else token & letters)
            )
        return self._accepting[letter]

    def _skip(self, states: int) -> int:
        """The states with those that follow them without a letter: `*` may be nothing."""
        while (more := states | ((states & self._loops) << 1)) != states:
            states = more
        return states
