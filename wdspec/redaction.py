"""Keeps passwords, tokens and signatures out of everything that is printed."""

from __future__ import annotations

import re

HIDDEN = "***"

_USER_AND_PASSWORD = re.compile(r"(?<=://)[^\s/?#@:'\"`]*:[^\s/?#@'\"`]*(?=@)")
_USER_OF_HTTP = re.compile(r"(?i)(\bhttps?://)[^\s/?#@'\"`]+(?=@)")
_QUERY_VALUE = re.compile(
    r"(?i)([?&;](?:[\w.-]*(?:signature|token|secret|passw|credential|auth)[\w.-]*|sig|key|api-?_?key|pwd|policy)=)"
    r"[^\s&;#'\"`\]]+"
)
_HEADER_VALUE = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_SIGNS = ("@", "=", "earer", "asic", "EARER", "ASIC")


def redacted(text: str) -> str:
    """A text without the secrets of the URLs and headers in it.

    Hidden are `user:password@`, whatever stands before the `@` of an http URL, the values of query parameters
    whose names speak of a signature, token, key or password, and what follows `Bearer` and `Basic`.
    """
    if not any(sign in text for sign in _SIGNS):
        return text
    return _HEADER_VALUE.sub(rf"\1 {HIDDEN}", redacted_urls(text))


def redacted_urls(text: str) -> str:
    """A text without the secrets of the URLs in it; for data, in which `basic` is a word like any other."""
    if "=" not in text and "@" not in text:
        return text
    text = _USER_AND_PASSWORD.sub(HIDDEN, text)
    text = _USER_OF_HTTP.sub(rf"\1{HIDDEN}", text)
    return _QUERY_VALUE.sub(rf"\1{HIDDEN}", text)


def masked(line: str) -> str:
    """A line of a spec with a `*` for each character of a secret, so that its columns stay where they are."""

    def stars(match: re.Match[str]) -> str:
        kept = match.group(1) if match.lastindex else ""
        return kept + "*" * (len(match.group()) - len(kept))

    for pattern in (_USER_AND_PASSWORD, _USER_OF_HTTP, _QUERY_VALUE):
        line = pattern.sub(stars, line)
    return line


def printable(text: str) -> str:
    """Text to show: without the secrets of URLs, and with control characters and undecodable bytes escaped."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in redacted_urls(text)
    )
