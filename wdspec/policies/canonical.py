"""The form in which URLs and patterns are compared: what means the same place is the same text.

A rule would be easy to avoid if `s3a://b/x`, `https://HOST:443/a/../x`, or a revision in a URL of the Hub, hid a place
from it.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from urllib.parse import urlsplit, urlunsplit

from wdspec.base.errors import UrlError
from wdspec.policies.patterns import ANY_TEXT
from wdspec.urls.urls import is_command, is_relative, path_of_file_url, scheme_of

_SAME = {
    "s3a": "s3",
    "aws": "s3",
    "gcs": "gs",
    "gcp": "gs",
    "abfs": "az",
    "abfss": "az",
    "azure": "az",
    "ssh": "sftp",
}
"""Schemes that mean the same store as another one."""
_PORTS = {"http": ":80", "https": ":443"}
_UNRESERVED = re.compile(r"%(4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe]|3[0-9]|2[DdEe])")
REVISION = re.compile(r"(hf://(?:(?:datasets|spaces)/)?[^/@]+/[^/@]+)@[^/]+")
_IN_COMMANDS = re.compile(r"(?<![^\s'\"=<(|;&])(?:[A-Za-z][A-Za-z0-9+.-]*://|/)[^\s'\"|;<>()&]+")


def canonical(text: str, base: str = "") -> str:
    """A URL in the form in which URLs are compared; texts may be outlines."""
    scheme = scheme_of(text)
    if scheme in ("", "file"):
        if text == "-":
            return text
        try:
            path = path_of_file_url(text) if scheme else text
        except UrlError:
            return text
        path = os.path.join(base, path) if is_relative(path) else os.path.expanduser(path)
        return os.path.normpath(path) + "/" * (path.endswith("/") and len(path) > 1)
    if is_command(text):
        return text
    rest = text.partition("://")[2]
    if scheme in _PORTS:
        try:
            url = urlsplit(f"{scheme}://{rest}")
        except ValueError:
            return text
        path = _UNRESERVED.sub(lambda escape: chr(int(escape[1], 16)), url.path)
        host = url.netloc.rpartition("@")[2].lower().removesuffix(_PORTS[scheme])
        return urlunsplit((scheme, host, _without_dots(path), url.query, ""))
    if _SAME.get(scheme) == "az" or scheme == "az":
        container, slash, path = rest.partition("/")
        rest = container.partition("@")[0] + slash + path
    return f"{_SAME.get(scheme, scheme)}://{rest}"


def _without_dots(path: str) -> str:
    """A path as servers see it: without `.` and `..`."""
    if "/." not in path:
        return path
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del kept[max(1, len(kept) - 1) :]
        elif part != ".":
            kept.append(part)
    return "/".join(kept)


@lru_cache(maxsize=4096)
def fold(subject: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Patterns in the form in which they are compared."""
    if subject == "scheme":
        return tuple(_SAME.get(each.lower(), each.lower()) for each in patterns)
    return tuple(map(_canonical_pattern, patterns)) if subject == "shards" else patterns


def _canonical_pattern(pattern: str) -> str:
    scheme, mark, rest = pattern.partition("://")
    if pattern.startswith("~"):
        return os.path.expanduser(pattern)
    return f"{_SAME.get(scheme.lower(), scheme.lower())}://{rest}" if mark and "*" not in scheme else pattern


@lru_cache(maxsize=65536)
def views_of(subject: str, text: str, base: str, sees_commands: bool) -> tuple[str, ...]:
    """What patterns of a subject are compared with: several texts if each of them may be meant."""
    if text == ANY_TEXT:
        return (ANY_TEXT,)
    if sees_commands and is_command(text):
        inside = (each for each in _IN_COMMANDS.findall(text.partition(":")[2]))
        found = views_of(subject, text, base, False)
        return (*found, *(view for each in inside for view in views_of(subject, each, base, False)))
    url = canonical(text, base)
    if subject == "scheme":
        return (scheme_of(url) or "file",)
    if subject == "bucket":
        return (url.partition("://")[2].partition("/")[0] if "://" in url else "",)
    plain = REVISION.sub(r"\1", url)
    return (url,) if plain == url else (url, plain)


def hides_urls(text: str) -> bool:
    """Whether a text is a command without a URL in it."""
    return is_command(text) and not _IN_COMMANDS.search(text)
