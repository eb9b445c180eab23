"""Keeps passwords, tokens and signatures out of everything that is printed, logged or saved.

Secrets are recognized by their place, not by their name: whatever comes before the `@` of a URL, every value after its
`?` except those of harmless keys, and in a command every value of an option or a variable. So an unknown name cannot
leak a secret.

The text of a spec is masked as it is written. A quoted text may differ from its value: `\"` within `"…"` is a quote,
`''` within `'…'` another, `\\/` a slash. So secrets are searched for in the value. From the start of the first one, the
rest of the text is hidden, unless text and value are equal.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"

Span = tuple[int, int]

_HARMLESS = re.compile(
    r"(?i)alt|comp|delimiter|download|etl_name|etl_pipeline|expires|format|fragment|generation|latest-ver|limit|"
    r"list-type|max-keys|namespace|offset|page|part|partnumber|prefix|provider|raw|restype|rev|revision|se|"
    r"shard|size|sp|split|spr|sr|st|sv|timeout|uploads|version|versionid|x-amz-algorithm|x-amz-date|"
    r"x-amz-expires|x-amz-signedheaders|x-goog-algorithm|x-goog-date|x-goog-expires|x-goog-signedheaders|x-id"
)
"""Keys of queries whose values say which bytes to read, or until when, and open nothing."""

_SCHEME = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*)://")
_TOKEN = re.compile(r"\S*")
_CLOSING = ",.;:!?)]}>'\"`"
_QUERY = re.compile(r"(?i)\?|%3F")
_QUERY_ALONE = re.compile(r"(?i)(?:\?|%3F)(?=[\w.~%\[\]-]+?(?:=|%3D))")
_NAMED = re.compile(
    r"(?i)(?<![\w.-])[\w.-]*(?:signature|secret|passw|pwd|credential|"
    r"(?<!(?:image|video|audio)_)(?<!(?:mask)_)(?<!(?:eos|bos|pad|sep|cls|unk)_)"
    r"token(?!i[sz]|s\b|_ids\b|_type_ids\b)|api[_-]?key|access[_-]?key|"
    r"account[_-]?key|jwt|authorization|cookie|\bsig)[\w.-]*(?<!_file)(?<!_dir)(?<!error)(?<!exception)"
    r"[\"']?\s?[=:]\s?[\"']?(?:(?:bearer|basic)\s+)?"
    r"(?!anon\b|[~./`…])([^\s&;,\"'<>\]`]{3,})"
)
"""Names used by libraries and servers, for secrets without another mark: the only list of such names."""
_HEADER = re.compile(r"(?i)\b(?:bearer|basic)\s+([\w.~+/=-]{8,})")
_KNOWN_FORMS = re.compile(r"\beyJ[\w-]{8,}\.[\w.-]+|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_PLAIN_VALUE = re.compile(r"(?:@|%40)?[\w.,:/+ -]{0,64}(?:(?:#|%23)[\w.-]{0,64})?")
"""Also a namespace of AIStore, `@remote#name`."""
_PLAIN_NAME = re.compile(r"[\w.~\[\]-]{1,40}")
_COMMAND = re.compile(r"(?i)(?<!\w)pipe:(?=[^\s`])[^\n]*")
_WORD = re.compile(r"(?:'[^']*(?:'|$)|\"(?:\\.|[^\"\\])*(?:\"|$)|\\.|[^\s'\"\\;|&<>()])+|[;|&<>()]+")
_SUBSTITUTION = re.compile(r"\$\(|`")
_WORD_OF_SUBSTITUTION = re.compile(r"[^\s'\"`$()|;&<>=:]{4,}")
"""The output of a shell's substitution repeats some of its words."""
_ASSIGNED = re.compile(r"[^=]+(?==)")
_PLAIN_FLAGS = re.compile(r"-[fsSLvkqcdzxjJrnigE0-9]+|-{1,2}|--[\w-]+|-\w")
_PATH = re.compile(
    r"(?:~|\.{1,2})?(?:/[\w.@+{}*-]{1,40}){2,}/?|\.{1,2}/[\w.@+{}*-]+|[\w.@+-]+\.(?:tar|tgz|json|ya?ml|gz|py|sh)"
)
_NUMBER = re.compile(r"\d{1,6}[kKMGsmh]?|-|pipefail")
_RANDOM = re.compile(
    r"(?=[^\s]*\d)(?=[^\s]*[a-z])(?=[^\s]*[A-Z])[A-Za-z0-9+_%=-]{20,}|[0-9a-f]{32,}|[0-9A-F]{32,}"
)


def redact(text: str) -> str:
    """A message without the secrets of its URLs, commands and headers."""
    return _without(text, _secrets(text, in_prose=True))


def redacted_urls(text: str) -> str:
    """A text without the secrets of its URLs and commands; for data, where `basic` is an ordinary word."""
    return _without(text, _secrets(text, in_prose=False))


def without_secrets(value: Any) -> Any:
    """Redact all texts in a value. Do this before it is written as JSON or cut, which both hide where a secret ends."""
    if isinstance(value, str):
        return redacted_urls(value)
    if isinstance(value, dict):
        return {name: without_secrets(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(each) for each in value]
    return value


def secrets_in(text: str) -> list[Span]:
    """The secrets of a text as (start, end), in order and without overlaps."""
    return _secrets(text, in_prose=True)


def printable(text: str) -> str:
    """Text to show, without the secrets of URLs, and with control characters and undecodable bytes escaped."""
    return escape_controls(redacted_urls(text))


def escape_controls(text: str, keep: str = "") -> str:
    """Escape control characters and undecodable bytes: a name in a shard must not set the title of a terminal.

    With line breaks escaped, it cannot start a line either, which a CI runner might take for a command of its own.

    Args:
        text: the text.
        keep: characters to keep, such as line breaks.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def escape_json(text: str) -> str:
    """Escape what is not printable in a JSON document, whose texts then have the same values."""
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each).strip('"') for each in text
    )


def redact_answer(said: str, *sent: str) -> str:
    """The text of a server or a program, without the secrets sent to it: they repeat logins and signatures.

    Long words that look random are hidden too: they may be made of a secret.
    """
    for secret in sorted({each for text in sent for each in _forms_of(text)}, key=len, reverse=True):
        said = said.replace(secret, HIDDEN)
    return redact(_RANDOM.sub(HIDDEN, said))


class WithoutSecrets(logging.Filter):
    """Removes secrets from everything that is logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = escape_controls(redact(record.getMessage()), "\n\t"), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = redact("".join(traceback.format_exception(*record.exc_info)).rstrip())
        return True


logging.getLogger("wdspec").addFilter(WithoutSecrets())


def harmless(error: BaseException) -> BaseException:
    """An error of a library to use as the cause of ours: itself, or a copy without secrets.

    Tracebacks show the cause of an error, and libraries put whole URLs into their messages.
    """
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    inner = harmless(before) if before is not None else None
    said = redact(str(error))
    if said == str(error) and inner is before:
        return error
    same: BaseException = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})(
        said
    )
    same.__cause__ = inner
    return same.with_traceback(error.__traceback__)


def _without(text: str, spans: list[Span]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + HIDDEN + text[end:]
    return text


def _forms_of(sent: str) -> Iterator[str]:
    """The secrets of a request, in the forms in which they may be repeated."""
    found = [sent[start:end] for start, end in _secrets(sent, in_prose=True)]
    if not found and re.fullmatch(r"[^\s:]+", sent):
        found = [sent]  # a token
    found += [
        word
        for secret in found
        if _SUBSTITUTION.search(secret)
        for word in _WORD_OF_SUBSTITUTION.findall(secret)
    ]
    for secret in found:
        _, colon, password = secret.partition(":")
        for part in (secret, password) if colon else (secret,):
            for each in {part, unquote(part), quote(unquote(part), safe=""), part.strip("'\"")}:
                if len(each) >= 4:
                    yield each
        yield b64encode(unquote(secret).encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _secrets(text: str, in_prose: bool) -> list[Span]:
    """The secrets of a text, in order and without overlaps."""
    if "=" not in text and ":" not in text and not in_prose:
        return []
    found = list(_in_urls(text))
    for match in _COMMAND.finditer(text):
        found += secrets_of_command(text, match.start() + len("pipe:"), match.end())
    for match in _QUERY_ALONE.finditer(text):
        found += _in_query(text, match.end(), _end_of_token(text, match.end()))
    if in_prose:
        for pattern in (_NAMED, _HEADER):
            found += [match.span(1) for match in pattern.finditer(text)]
        found += [match.span() for match in _KNOWN_FORMS.finditer(text)]
    return join_spans(span for span in found if not _is_hidden(text, *span))


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, without overlaps."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _is_hidden(text: str, start: int, end: int) -> bool:
    return end <= start or text.startswith(HIDDEN, start)


def _end_of_token(text: str, start: int) -> int:
    """The end of a word without blanks, not counting the punctuation of the sentence around it."""
    match = _TOKEN.match(text, start)
    assert match is not None
    return start + len(match.group().rstrip(_CLOSING))


def _in_urls(text: str) -> Iterator[Span]:
    for match in _SCHEME.finditer(text):
        scheme, start, end = match[1].lower(), match.end(), _end_of_token(text, match.end())
        web = scheme in ("http", "https")
        user_end = _end_of_login(text[start:end])
        if user_end > 0 and (web or re.search(r"(?i):|%3A", text[start : start + user_end])):
            yield start, start + user_end
            start += user_end
        query = _QUERY.search(text, start, end)
        # In other URLs a `?` without `=` is a glob, or part of a name.
        if query is not None and (web or re.search(r"(?i)=|%3D", text[query.end() : end])):
            yield from _in_query(text, query.end(), end)
        elif web and (fragment := text.find("#", start, end)) >= 0:
            yield from _in_query(text, fragment + 1, end)


def _end_of_login(rest: str) -> int:
    """The length of `user:password@` after `://`, without the `@`; -1 if there is none.

    A password that should have been escaped may contain `/`, `?` and `#`; then the text before these is not a port.
    """
    authority = re.match(r"[^/?#]*", rest)
    assert authority is not None
    at = authority.group().rfind("@")
    if at < 0 and re.search(r":(?!\d*$)[^\]]*$", authority.group()):
        at = rest.rfind("@")
    return at


def _in_query(text: str, start: int, end: int) -> Iterator[Span]:
    for part in re.finditer(r"[^&;?#]+", text[start:end]):
        first, last = start + part.start(), start + part.end()
        if text.startswith(HIDDEN, first):
            continue
        name, equals, value = part.group().partition("=")
        bare = value.rstrip(_CLOSING) if last == end else value
        if _HARMLESS.fullmatch(name) and _PLAIN_VALUE.fullmatch(bare):
            continue
        named = equals and bare.strip("=") and _PLAIN_NAME.fullmatch(name)
        yield (first + len(name) + 1 if named else first), last


def secrets_of_command(text: str, start: int, end: int) -> Iterator[Span]:
    """The values of options and variables, and words that look like a login or random."""
    option = ""
    for match in _WORD.finditer(text, start, end):
        word, at = match.group(), match.start()
        plain = word.strip("'\"")
        assigned = _ASSIGNED.match(word.lstrip("'\""))
        if word.startswith("-") and not assigned:
            flags = _PLAIN_FLAGS.fullmatch(word)
            if flags is None:
                yield at + 2, match.end()
            option = "" if word in ("-", "--") else word
            continue
        if word[0] in "'\"" and " " in plain and option in ("", "-c"):
            yield from secrets_of_command(text, at + 1, match.end())  # of another shell
        elif "://" in word or word[0] in ";|&<>()":
            pass  # see `_in_urls`
        elif assigned:
            skipped = len(word) - len(word.lstrip("'\"")) + assigned.end() + 1
            if not _is_plain(word[skipped:].strip("'\"")):
                yield at + skipped, match.end()
        elif option and not _is_plain(plain):
            yield at, match.end()
        elif re.search(r":[^@]*@", plain):
            yield at, at + word.rfind("@")
        elif _RANDOM.fullmatch(plain) and not _PATH.fullmatch(plain):
            yield at, match.end()
        option = ""


def _is_plain(value: str) -> bool:
    """Whether a value in a command is a path or a number, which reveal nothing."""
    return bool(_NUMBER.fullmatch(value) or (_PATH.fullmatch(value) and not _RANDOM.search(value)))


_SPELLED_SCHEME = r"(?i:pipe:|[a-z][a-z0-9+.-]*:\\?/\\?/)"
_START = re.compile(_SPELLED_SCHEME.replace("*", "{0,30}"))
"""The same, or the end of a longer one; a search through a long word would otherwise take hours."""
_OPENING = re.compile(rf"[\"'](?=@?{_SPELLED_SCHEME})")
_BODY = {
    '"': re.compile(r"(?:\\.|[^\"\\])*", re.DOTALL),
    "'": re.compile(r"(?:''|[^'])*"),
}
_ESCAPED = re.compile(r"\\(?:\r?\n[ \t]*|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_FOLD = re.compile(r"\s*\n\s*")
_PLAIN_COMMAND = re.compile(r"(?i)(?<![\w\"'])@?pipe:")
_PLACE = re.compile(r"[ \t]*(?:-[ \t]+)*")
_BEFORE = 100
"""How many lines before a line to search for the start of a text on several lines."""


@lru_cache(maxsize=16)  # a long line can have hundreds of problems
def mask(text: str) -> str:
    """Lines of a spec with a `*` for each character of a secret, so that everything else keeps its column."""
    characters = list(text)
    for start, end in [*secrets_in(text), *_quoted(text), *_plain(text), *_in_variables(text)]:
        characters[start:end] = [each if each.isspace() else "*" for each in text[start:end]]
    return "".join(characters)


_VARIABLES = re.compile(r"(?mi)(?:^([ \t]*(?:\?[ \t]+)?)|(?<=[{,\s]))[\"']?var(?:s|iables)?[\"']?[ \t]*:")
"""The key `vars`, also with a typical mistake."""
# Also a text whose quotes are never closed.
_QUOTED = re.compile(r"(?m)((?:^|[-:\[{,?])[ \t]*)(\"(?:\\.|[^\"\\])*\"?|'(?:''|[^'])*'?)", re.DOTALL)
_VALUE = re.compile(r"(?m)(?:(?<=[:\[{,])|(?<=-)|^)[ \t]*([^\s:{}\[\],#][^\n{}\[\],]*?)[ \t]*(?=[,}\]\n]|$)")
_NAME = re.compile(r"(?:\"+[ \t]*:|[\w.-]+[ \t]*:(?=[\s\"]|$))[ \t]*")


def _in_variables(text: str) -> Iterator[Span]:
    """The values of `vars`, which may be passwords whatever their names are, as (start, end)."""
    flat = ""
    for opening in _VARIABLES.finditer(text):
        flat = flat or _QUOTED.sub(lambda match: match[1] + '"' * len(match[2]), text)
        for match in _VALUE.finditer(flat, opening.end(), _end_of_map(flat, opening)):
            named = _NAME.match(match[1])
            start = match.start(1) + (named.end() if named else 0)
            value = text[start : match.end(1)]
            if value and not _is_plain(value.strip("'\"")) and "://" not in value:
                yield start, match.end(1)


def _end_of_map(flat: str, opening: re.Match[str]) -> int:
    """Where the map after a key ends: at its bracket, or at the first line that is not indented more than the key.

    Args:
        flat: the text, without what is in quotes.
        opening: the key.
    """
    rest = re.compile(r"\s*").match(flat, opening.end())
    at = rest.end() if rest else opening.end()
    if flat[at : at + 1] in ("{", "["):
        depth = accumulate((each in "{[") - (each in "}]") for each in flat[at:])
        return at + next((i for i, left in enumerate(depth) if not left), len(flat) - at)
    if opening[1] is None or "\n" not in flat[opening.end() : at]:
        return flat.find("\n", at) if "\n" in flat[at:] else len(flat)
    indent = len(opening[1])
    outer = re.compile(rf"(?m)^(?![ \t]{{{indent + 1}}}|[ \t]{{{indent}}}-\s|[ \t]*(?:#|$))").search(flat, at)
    return outer.start() if outer else len(flat)


@lru_cache(maxsize=4)
def _mask_with_variables(lines: tuple[str, ...]) -> list[str] | None:
    """The lines of a spec without secrets; None if it has no variables, so that each line can be masked alone."""
    text = "\n".join(lines)
    return mask(text).split("\n") if _VARIABLES.search(text) else None


@lru_cache(maxsize=4)
def _find_starts(lines: tuple[str, ...]) -> list[int]:
    """Return the lines in which a URL or a command starts, counted from 0."""
    return [number for number, line in enumerate(lines) if _START.search(line)]


def masked_line(lines: tuple[str, ...], number: int) -> str:
    """One line of a spec, counted from 0, without the secrets of the text that it belongs to."""
    if (masked := _mask_with_variables(lines)) is not None:
        return masked[number]
    starts = _find_starts(lines)
    first = starts[max(0, bisect_left(starts, number) - 1)] if starts else number
    if number - _BEFORE <= first < number:
        text = "\n".join(lines[first : number + 1])
        if any(end > len(text) - len(lines[number]) for _, end in _texts(text, len(lines[first]))):
            return mask(text)[len(text) - len(lines[number]) :]
    return mask(lines[number])


def _texts(text: str, limit: int) -> Iterator[Span]:
    """The texts with URLs and commands that start before a place, as (start, end)."""
    for opening in _OPENING.finditer(text, 0, limit):
        yield opening.end(), _end_of_quoted(text, opening)
    for match in _PLAIN_COMMAND.finditer(text, 0, limit):
        yield match.end(), _end_of_plain(text, match.start())


def _quoted(text: str) -> Iterator[Span]:
    for opening in _OPENING.finditer(text):
        start, end = opening.end(), _end_of_quoted(text, opening)
        body = text[start:end]
        value = body.replace("''", "'") if opening[0] == "'" else _ESCAPED.sub(_unescape, body)
        value = _FOLD.sub(" ", value)
        found = secrets_in(value)
        if found:
            same = next((i for i, (a, b) in enumerate(zip(body, value, strict=False)) if a != b), len(value))
            if same == len(body):
                yield from ((start + first, start + last) for first, last in found)
            else:
                yield start + min(same, found[0][0]), end


def _plain(text: str) -> Iterator[Span]:
    for match in _PLAIN_COMMAND.finditer(text):
        yield from secrets_of_command(text, match.end(), _end_of_plain(text, match.start()))


def _end_of_quoted(text: str, opening: re.Match[str]) -> int:
    body = _BODY[opening[0]].match(text, opening.end())
    assert body is not None
    return body.end()


def _end_of_plain(text: str, start: int) -> int:
    """The end of a text without quotes: before the first line that is not indented more than its owner."""
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


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(int(code, 16)) if int(code, 16) < 0x110000 else "?"
    return {None: "", "n": "\n", "t": "\t"}.get(escape[4], escape[4])
