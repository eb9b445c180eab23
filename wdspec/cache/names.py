"""The names of copies of remote shards in a cache directory.

wdspec writes `<dir>/<scheme>/<host or bucket>/<path>`. Copies that users put there may have two more names:
`<dir>/<bucket>/<path>` and `<dir>/<file name>`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from wdspec.base.redaction import HIDDEN, redacted_urls
from wdspec.urls.urls import ShardUrl, is_command, path_of_file_url, row_of, scheme_of

OWN_FOLDER = ".wdspec"
"""The folder of a cache directory with wdspec's index."""
TAG = "CACHEDIR.TAG"
"""The file that marks a directory as a cache, for backup programs and for wdspec."""

_LONGEST_PART = 200
_LONGEST_NAME = 1000
_ODD = re.compile(r"[^A-Za-z0-9._+=@,-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_QUERY = re.compile(r"[?#]")


class Copies(NamedTuple):
    """The possible places of copies of one shard, as paths relative to the cache directory."""

    directory: str
    own: str
    """The one that wdspec writes."""
    filled: tuple[str, ...]
    """Those that a user may have written; the first that exists is used."""
    url: str
    """The URL from which the name was made."""
    written: str
    """The URL as the spec writes it; its end shows the format."""

    @property
    def path(self) -> str:
        """The absolute path of wdspec's own copy."""
        return os.path.join(self.directory, self.own)


@dataclass(frozen=True)
class CacheNames:
    """Names the copies in one cache directory. Pure; pickles.

    ``ambiguous`` are the file names in the directory that two URLs of the plan share. None means that the directory
    has no files directly in it, so that none is looked for.
    """

    directory: str
    folds_case: bool = False
    """Whether `A.tar` and `a.tar` are the same file there."""
    ambiguous: frozenset[str] | None = None
    user_name: Callable[[str], str] | None = None
    """A user function: URL as written → the first name to look for, among copies that users have put there."""

    def __call__(self, url: ShardUrl, rewritten: str, variant: str = "") -> Copies:
        """The possible places of the copies of a shard.

        Args:
            url: as written in the spec.
            rewritten: the URL after rewriting and before AIS, from which the name is made; but a URL that is
                rewritten to a command keeps the name of the written URL.
            variant: what else decides the bytes, such as an ETL; then copies of the plain object are not used.
        """
        key = rewritten
        if is_command(rewritten) and not is_command(url.text):
            key = url.text if scheme_of(url.text) else os.path.join(url.base, url.text)
        filled = () if variant else tuple(self._list_filled(url.text))
        return Copies(self.directory, own_name(key, variant, self.folds_case), filled, key, url.text)

    def _list_filled(self, written: str) -> Iterable[str]:
        if self.user_name is not None:
            yield self.user_name(written)
        row = row_of(written)
        if not (row.is_command or "file" in row.schemes):
            path = written.partition("://")[2]
            parts = path.split("/")
            known = len(path) <= _LONGEST_NAME and not (row.has_queries and _QUERY.search(path))
            if known and len(parts) > 1 and all(map(_is_plain, parts)) and parts[0] != OWN_FOLDER:
                yield path
        name = file_name(written)
        if name is not None and self.ambiguous is not None and name not in self.ambiguous:
            yield name

    def survey(self, urls: Iterable[ShardUrl]) -> CacheNames:
        """These names for the shards of a plan and the files in the directory; creates nothing.

        Files that users put directly into the directory are used only if no two shards of the plan have that name. If
        there are any, this goes through all URLs of the plan, which takes about a second for a million.
        """
        flat: set[str] = set()
        with contextlib.suppress(OSError), os.scandir(self.directory) as listed:
            flat = {each.name for each in listed if each.name != TAG and not each.is_dir()}
        return replace(
            self,
            folds_case=_folds_case(self.directory),
            ambiguous=find_shared_names(urls, flat) if flat else None,
        )


def own_name(url: str, variant: str = "", folds_case: bool = False) -> str:
    """The relative path of wdspec's copy of a URL; different for different URLs.

    It has no `..`, starts with the scheme, and spells the URL if that is a good file name. Otherwise (a query, an empty
    segment, control characters, too long, capitals where case does not matter) it also has a hash of the whole URL.
    """
    scheme = scheme_of(url)
    shown = redacted_urls(url)
    row = row_of(url)
    if row.is_command:
        return f"{scheme}/{_clean(shown[len(scheme) + 1 :])[-60:].lstrip('.-_')}-{_digest(url, variant)}"
    rest = path_of_file_url(url) if scheme == "file" else shown.partition("://")[2] if scheme else url
    hashed = bool(variant) or (scheme not in ("", "file") and shown != url)
    rest = rest.replace(f"{HIDDEN}@", "").replace(HIDDEN, "_")
    if row.has_queries:
        bare = _QUERY.split(rest, maxsplit=1)[0]
        host, slash, path = bare.partition("/")
        bare = f"{host.rpartition('@')[2].lower()}{slash}{path}"
        hashed, rest = hashed or "?" in rest or "#" in rest or "@" in host, bare
    parts = rest.split("/")[1 if rest.startswith("/") and scheme in ("", "file") else 0 :]
    if not all(map(_is_plain, parts)):
        hashed, parts = True, [clean for part in parts if (clean := _clean(part).strip("."))] or ["shard"]
    if len("/".join(parts)) > _LONGEST_NAME:
        hashed, parts = True, [parts[0], parts[-1]]
    name = "/".join(parts)
    if hashed or (folds_case and (name != name.lower() or not name.isascii())):
        stem, dot, suffix = parts[-1].partition(".")
        parts[-1] = f"{stem}-{_digest(url, variant)}{dot}{suffix}"
    return "/".join((scheme or "file", *parts))


def file_name(written: str) -> str | None:
    """The name under which a user may have put a shard directly into a directory, if it has one."""
    row = row_of(written)
    if row.is_command or written == "-":
        return None
    path = written.partition("://")[2] if scheme_of(written) else written
    if row.has_queries:
        path = _QUERY.split(path, maxsplit=1)[0]
    name = path.rpartition("/")[2]
    return name if _is_plain(name) and name not in (OWN_FOLDER, TAG) else None


def find_shared_names(urls: Iterable[ShardUrl], among: Container[str]) -> frozenset[str]:
    """Those of the names ``among`` that two different URLs share."""
    owners: dict[str, ShardUrl] = {}
    shared: set[str] = set()
    for url in urls:
        name = url.text[url.text.rfind("/") + 1 :]
        if name not in among:
            name = file_name(url.text) or ""
        if name in among and owners.setdefault(name, url) != url:
            shared.add(name)
    return frozenset(shared)


def _is_plain(part: str) -> bool:
    """Whether a segment of a URL can be the name of a file without changes."""
    return (
        part not in ("", ".", "..") and not _UNPRINTABLE.search(part) and len(part.encode()) <= _LONGEST_PART
    )


def _clean(part: str) -> str:
    return _ODD.sub("_", part)[:80]


def _digest(url: str, variant: str) -> str:
    text = f"{url}\0{variant}" if variant else url
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _folds_case(directory: str) -> bool:
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    other = directory.swapcase()
    with contextlib.suppress(OSError):
        return other != directory and os.path.samefile(directory, other)
    return False
