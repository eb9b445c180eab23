"""Hides the secrets of a spec's text where it is shown as it is written: escapes, folded lines and all.

What a quoted text means is not what stands in the file: `\\"` within `"…"` is a quote, `''` within `'…'` another, `\\/`
a slash. So what it means is asked for secrets; where one begins, all to the end of the text is hidden, unless both are
the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wdspec.redaction import Span, secrets_in, secrets_of_command

_SCHEME = r"(?i:pipe:|[a-z][a-z0-9+.-]*:\\?/\\?/)"
_START = re.compile(_SCHEME)
_OPENING = re.compile(rf"[\"'](?=@?{_SCHEME})")
_BODY = {
    '"': re.compile(r"(?:\\.|[^\"\\])*", re.DOTALL),
    "'": re.compile(r"(?:''|[^'])*"),
}
_ESCAPED = re.compile(r"\\(?:\r?\n[ \t]*|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_FOLD = re.compile(r"\s*\n\s*")
_PLAIN_COMMAND = re.compile(r"(?i)(?<![\w\"'])@?pipe:")
_PLACE = re.compile(r"[ \t]*(?:-[ \t]+)*")
_BEFORE = 100
"""Lines in which the beginning of a text is looked for that is written on several."""


def masked(text: str) -> str:
    """Lines of a spec with a `*` for each character of a secret, so that all else stays in its column."""
    characters = list(text)
    for start, end in [*secrets_in(text), *_quoted(text), *_plain(text)]:
        characters[start:end] = [each if each.isspace() else "*" for each in text[start:end]]
    return "".join(characters)


def masked_line(lines: Sequence[str], number: int) -> str:
    """One line of a spec, counted from 0, without what is secret in the text that it belongs to."""
    for first in range(number - 1, max(-1, number - 1 - _BEFORE), -1):
        if not _START.search(lines[first]):
            continue
        text = "\n".join(lines[first : number + 1])
        if any(end > len(text) - len(lines[number]) for _, end in _texts(text, len(lines[first]))):
            return masked(text)[len(text) - len(lines[number]) :]
        break
    return masked(lines[number])


def _texts(text: str, limit: int) -> Iterator[Span]:
    """From where to where the texts with URLs and commands go that begin before a place."""
    for opening in _OPENING.finditer(text, 0, limit):
        yield opening.end(), _end_of_quoted(text, opening)
    for match in _PLAIN_COMMAND.finditer(text, 0, limit):
        yield match.end(), _end_of_plain(text, match.start())


def _quoted(text: str) -> Iterator[Span]:
    for opening in _OPENING.finditer(text):
        start, end = opening.end(), _end_of_quoted(text, opening)
        body = text[start:end]
        meant = body.replace("''", "'") if opening[0] == "'" else _ESCAPED.sub(_meant, body)
        meant = _FOLD.sub(" ", meant)
        found = secrets_in(meant)
        if found:
            alike = next((i for i, (a, b) in enumerate(zip(body, meant, strict=False)) if a != b), len(meant))
            if alike == len(body):
                yield from ((start + first, start + last) for first, last in found)
            else:
                yield start + min(alike, found[0][0]), end


def _plain(text: str) -> Iterator[Span]:
    for match in _PLAIN_COMMAND.finditer(text):
        yield from secrets_of_command(text, match.end(), _end_of_plain(text, match.start()))


def _end_of_quoted(text: str, opening: re.Match[str]) -> int:
    body = _BODY[opening[0]].match(text, opening.end())
    assert body is not None
    return body.end()


def _end_of_plain(text: str, start: int) -> int:
    """Where a text without quotes ends: before the first line that is not indented more than what it belongs to."""
    line = text.rfind("\n", 0, start) + 1
    place = _PLACE.match(text, line)
    assert place is not None
    indent = place.end() - line
    if place.end() == start:  # an item, or the first line of a block
        dash = place.group().rfind("-")
        indent = dash if dash >= 0 else indent - 1
    end = text.find("\n", start)
    while end >= 0:
        after = text.find("\n", end + 1)
        following = text[end + 1 : after if after >= 0 else len(text)]
        if following.strip() and len(following) - len(following.lstrip()) <= indent:
            return end
        end = after
    return len(text)


def _meant(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(int(code, 16)) if int(code, 16) < 0x110000 else "?"
    return {None: "", "n": "\n", "t": "\t"}.get(escape[4], escape[4])
