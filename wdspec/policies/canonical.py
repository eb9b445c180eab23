"""The form in which URLs and patterns are compared: what means the same place is the same text.

A rule would be easy to avoid if `s3a://b/x`, `https://HOST:443/a/../x`, or a revision in a URL of the Hub, hid a place
from it. The large stores also answer at `https://` hosts; there, an object of `s3://b/` has another name.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

from wdspec.base.errors import UrlError
from wdspec.policies.patterns import ANY_CHARACTER, ANY_TEXT, may_match
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
_PORTS = {"http": "80", "https": "443"}
_ON_THE_WEB = re.compile(r"([^\\/?#]*)([^?#]*)(\?[^#]*)?")
"""The host, the path and the query, as urllib3 splits them: `\\` ends a host."""
_UNRESERVED = re.compile(r"%(4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe]|3[0-9]|2[DdEeFf])")
"""Escapes that servers read as the characters themselves, also that of `/`."""
_SLASHES = re.compile(r"/{2,}")
REVISION = re.compile(r"(hf://(?:(?:datasets|spaces)/)?[^/@]+/[^/@]+)@[^/]+")
_REPOSITORY = re.compile(r"hf://((?:(?:datasets|spaces|buckets)/)?[^/@]+/[^/@]+)")
_ACCOUNT = re.compile(r"(az://[^/@]+)@[^/]*")
_AWS = r"(?:[.-][a-z0-9-]+)*\.amazonaws\.com(?:\.cn)?"
_REVISION_OF_HUB = r"refs/(?:convert|pr)/[^/]+|[^/]+"
_WEB_NAMES = (
    (rf"([^/]+)\.s3{_AWS}/(.*)", r"s3://\1/\2"),
    (rf"s3{_AWS}/(.*)", r"s3://\1"),
    (r"([^/]+)\.storage\.googleapis\.com/(.*)", r"gs://\1/\2"),
    (r"(?:storage|www)\.googleapis\.com/(?:download/)?storage/v1/b/([^/]+)/o/(.*)", r"gs://\1/\2"),
    (r"(?:(?:commondata)?storage\.googleapis|storage\.cloud\.google)\.com/(.*)", r"gs://\1"),
    (
        r"([^/.]+)\.(?:blob|dfs)\.core\.windows\.net/([^/]+)/(.*)",
        r"az://\2@\1.dfs.core.windows.net/\3",
        r"az://\2/\3",
    ),
    (
        rf"(?:huggingface|hf)\.co/((?:(?:datasets|spaces)/)?[^/]+/[^/]+)/(?:resolve|raw|blob)/({_REVISION_OF_HUB})/(.*)",
        r"hf://\1@\2/\3",
        r"hf://\1/\3",
    ),
)
"""What URLs of stores on the web look like, after `https://`, and the names of the same objects in the stores."""
_WEB_HOSTS = (
    "*.amazonaws.com*",
    "*.googleapis.com",
    "storage.cloud.google.com",
    "*.windows.net",
    "huggingface.co",
    "hf.co",
)
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
        return f"{scheme}://{_on_the_web(rest, _PORTS[scheme])}"
    return f"{_SAME.get(scheme, scheme)}://{rest}"


def _on_the_web(rest: str, usual_port: str) -> str:
    """What follows `https://`, without a login, and without what servers do not distinguish."""
    found = _ON_THE_WEB.match(rest)
    authority, path, query = ("", "", "") if found is None else found.groups("")
    host, colon, port = unquote(authority).rpartition("@")[2].lower().partition(":")
    if host.startswith("["):  # an address with colons
        address, _, port = (host + colon + port)[1:].partition("]")
        host, colon, port = f"[{address}]", port[:1], port[1:]
    port = port.lstrip("0")
    path = _UNRESERVED.sub(lambda escape: chr(int(escape[1], 16)), path)
    path = _without_dots(_SLASHES.sub("/", f"/{path}" if path else ""))
    return f"{_one_host(host)}{'' if port in ('', usual_port) else f':{port}'}{path}{query}"


def _one_host(host: str) -> str:
    """A host as one text: the name without a dot at its end, an address as four numbers."""
    if host.startswith("[::ffff:") and "." in host:
        host = host[len("[::ffff:") : -1]
    try:
        return socket.inet_ntoa(socket.inet_aton(host)) if host[:1].isdigit() else host.removesuffix(".")
    except OSError:
        return host.removesuffix(".")


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
    if not mark or "*" in scheme:
        return pattern
    scheme = scheme.lower()
    return f"{_SAME.get(scheme, scheme)}://{_on_the_web(rest, _PORTS[scheme]) if scheme in _PORTS else rest}"


@lru_cache(maxsize=65536)
def views_of(subject: str, text: str, base: str, sees_all: bool) -> tuple[str, ...]:
    """What patterns of a subject are compared with: several texts if each of them may be meant.

    Args:
        sees_all: whether the URLs in a command, and other names of the same objects, count, too.
    """
    if text == ANY_TEXT:
        return (ANY_TEXT,)
    if sees_all and is_command(text):
        inside = (each for each in _IN_COMMANDS.findall(text.partition(":")[2]))
        found = views_of(subject, text, base, False)
        return (*found, *(view for each in inside for view in views_of(subject, each, base, True)))
    url = canonical(text, base)
    if subject == "scheme":
        return (scheme_of(url) or "file",)
    urls = (url, *(_other_names(url) if sees_all else ()))
    if subject == "bucket":
        return tuple(dict.fromkeys(map(_bucket_of, urls)))
    return tuple(dict.fromkeys(view for each in urls for view in (each, REVISION.sub(r"\1", each))))


def _bucket_of(url: str) -> str:
    if url == ANY_TEXT:
        return url
    repository = _REPOSITORY.match(url)
    return repository[1] if repository else url.partition("://")[2].partition("/")[0]


def _other_names(url: str) -> Iterator[str]:
    """Names of the same object: in the store that serves a web address, and without the account of Azure."""
    scheme, _, rest = url.partition("://")
    if scheme in _PORTS:
        for regex, *names in _WEB_NAMES:
            if found := re.fullmatch(regex, rest.partition("?")[0], re.DOTALL):
                yield from map(found.expand, names)
                return
        is_known = ANY_TEXT not in rest and ANY_CHARACTER not in rest
        if not is_known and any(may_match(each, rest.partition("/")[0]) for each in _WEB_HOSTS):
            yield ANY_TEXT
    elif _ACCOUNT.match(url):
        yield _ACCOUNT.sub(r"\1", url)


def hides_urls(text: str) -> bool:
    """Whether a text is a command without a URL in it."""
    return is_command(text) and not _IN_COMMANDS.search(text)
