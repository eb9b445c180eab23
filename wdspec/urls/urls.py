"""URLs: the table of schemes and their stores, and lists of shards as lazy sequences.

`a-{000000..999999}.tar::b.tar` is a sequence of two runs, which are never expanded as a whole. Globs, directories and
`@file` are recognized here, and listed by ``wdspec.shards.listing``.
"""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from wdspec.base.errors import UrlError
from wdspec.base.redaction import redacted_urls
from wdspec.urls.braces import MAX_STRINGS, Braces, ComputedSequence

AIS_PREFIX = "ais+"
"""Marks a location that is read through an AIStore cluster: `ais+gs://bucket/object`."""

FSSPEC = "wdspec.stores.objects:FsspecStore"
"""The store of all schemes without another one."""


class StoreRow(NamedTuple):
    """The store of some URL schemes, as data: stores are imported when they are first used."""

    schemes: tuple[str, ...]
    store: str = FSSPEC
    """`module:class` of the `Store`."""
    has_queries: bool = False
    """Whether `?` begins a query in its URLs."""
    is_command: bool = False
    """Whether its URLs are commands, which a shell runs: not names, and forbidden by WDS_SECURE."""
    uploads_whole: bool = False
    """Whether an object appears only when its upload is complete; otherwise a temporary file is renamed."""
    install: str | None = None
    """The package of its reader, for `pip install`."""
    advice: str | None = None
    """What to do if the store denies access."""
    settings: Mapping[str, tuple[str, Any]] = {}
    """The keys of `storage:` that it accepts: for each the argument of its file system (`a.b` is the entry `b` of the
    map `a`), and the value of the argument if it is not that of the key."""

    @property
    def globs(self) -> bool:
        """Whether `*`, `?` and `[` make a glob; not where `?` begins a query or a shell expands them."""
        return not (self.has_queries or self.is_command)


STORES = (
    StoreRow(("file", ""), "wdspec.stores.local:LocalStore"),
    StoreRow(("http", "https"), "wdspec.stores.http:HttpStore", has_queries=True),
    StoreRow(("pipe",), "wdspec.stores.pipe:PipeStore", is_command=True),
    StoreRow(("-",), "wdspec.stores.local:StandardStreams"),
    StoreRow(("ais",), "wdspec.stores.ais:AisStore"),
    StoreRow((".lance",), "wdspec.stores.lance:LanceStore"),
    StoreRow(
        ("s3", "s3a"),
        uploads_whole=True,
        install="wdspec[s3]",
        advice="give credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or `storage:` in the "
        "spec), or set FSSPEC_S3_ANON=true for a public bucket",
        settings={
            "endpoint": ("endpoint_url", None),
            "profile": ("profile", None),
            "region": ("client_kwargs.region_name", None),
            "anonymous": ("anon", True),
            "requester_pays": ("requester_pays", True),
        },
    ),
    StoreRow(
        ("gs", "gcs"),
        uploads_whole=True,
        install="wdspec[gcs]",
        advice="give credentials (`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS), or set "
        "FSSPEC_GCS_TOKEN=anon for a public bucket",
        settings={
            "endpoint": ("endpoint_url", None),
            "anonymous": ("token", "anon"),
            "requester_pays": ("requester_pays", True),
        },
    ),
    StoreRow(
        ("az", "abfs", "abfss"),
        uploads_whole=True,
        install="wdspec[azure]",
        advice="set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or "
        "AZURE_STORAGE_SAS_TOKEN; FSSPEC_ABFS_ANON=true for a public container",
        settings={"anonymous": ("anon", True)},
    ),
    StoreRow(
        ("hf",),
        uploads_whole=True,
        install="wdspec[hf]",
        advice="log in with `hf auth login`, or set HF_TOKEN",
        settings={"endpoint": ("endpoint", None), "anonymous": ("token", False)},
    ),
    StoreRow(
        ("sftp", "ssh"),
        install="paramiko",
        advice="give the user and the key that the host wants (`sftp://user@host/path`)",
    ),
    StoreRow(("smb",), install="smbprotocol"),
    StoreRow(("webdav",), install="wdspec[webdav]", settings={"endpoint": ("base_url", None)}),
    StoreRow(("adl", "oci", "oss", "obs", "r2", "memory"), uploads_whole=True),
    StoreRow(("ftp", "hdfs", "webhdfs", "github", "gdrive", "dbfs", "tos")),
)
"""All schemes that wdspec knows, one row per store. `""` is a path, `-` is standard input, `ais` is everything that a
cluster serves, and `.lance` is a Lance data set anywhere. fsspec may know more schemes, and users can add others
(`wdspec.stores.table`)."""

AIS_PROVIDERS = {
    "ais": "ais",
    "gs": "gcp",
    "gcs": "gcp",
    "gcp": "gcp",
    "s3": "aws",
    "aws": "aws",
    "az": "azure",
    "azure": "azure",
    "oc": "oci",
    "oci": "oci",
}
"""Schemes that a cluster can serve, and AIStore's names for their backends."""

ROWS = {scheme: row for row in STORES for scheme in row.schemes}
_OTHER = StoreRow(())
WELL_KNOWN = tuple(scheme for scheme in {**ROWS, **AIS_PROVIDERS} if scheme.isalnum())
"""Well-known schemes, to detect misspelled ones; there may be others."""

_NO_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+-]*)(:/?|//|\.)(?!/)(?=[^/\s])(.*)", re.DOTALL)
"""Texts that look like a URL with a wrong `://`, a Windows drive, or a host without a scheme."""
_SCHEME = re.compile(r"((?i:pipe|file)):|([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(url: str) -> str:
    """The scheme of a URL: `gs` for `gs://…`, `pipe` and `file` for `pipe:…` and `file:…`, and "" for a path.

    A path may have any characters: `a:b.tar` and `c#1?.tar` are files.
    """
    match = _SCHEME.match(url)
    return (match.group(1) or match.group(2)).lower() if match else ""


class LanceUrl(NamedTuple):
    """A Lance data set, or a fragment of it."""

    folder: str
    """The URL or path of the data set, without `/` at its end."""
    version: str | None
    """The number of the version, or a tag; None for the latest one."""
    fragment: int | None
    """The number of the fragment; None for the data set."""


_LANCE = re.compile(r"(.*\.lance)/?(?:\?version=([^?&=/]+)(?:&fragment=(\d{1,10}))?)?", re.DOTALL)


def lance_url(text: str) -> LanceUrl | None:
    """Return the Lance data set, or the fragment of one, that a URL or path names by `.lance`; None if it does not."""
    found = _LANCE.fullmatch(text) if ".lance" in text and not is_command(text) else None
    return found and LanceUrl(found[1], found[2], None if found[3] is None else int(found[3]))


def store_key(location: str) -> str:
    """The scheme that selects the store of a location: `ais` if a cluster serves it, `-` for standard input."""
    if location == "-":
        return "-"
    if lance_url(location) is not None:
        return ".lance"
    return "ais" if location.startswith(AIS_PREFIX) else scheme_of(location)


def local_path(location: str) -> str | None:
    """The path of a local file or directory; None if a location is not local."""
    scheme = store_key(location)
    if scheme == "file":
        return path_of_file_url(location)
    return None if scheme else location


def row_of(url: str) -> StoreRow:
    """The row of the store of a URL or path."""
    return ROWS.get(scheme_of(url), _OTHER)


def is_command(url: str) -> bool:
    """Whether a URL is a command, `pipe:…`."""
    return row_of(url).is_command


def names_command(text: str) -> bool:
    """Whether a text of one or more URLs may contain a command."""
    lowered = text.lower()
    return any(f"{scheme}:" in lowered for scheme, row in ROWS.items() if row.is_command)


def is_relative(url: str) -> bool:
    """Whether a text is a relative path: not absolute, not in a home directory, not `-`."""
    return not url.startswith(("/", "~")) and url != "-" and not scheme_of(url)


def tidy_path(path: str) -> str:
    """A path without empty and `.` segments."""
    return _EMPTY_SEGMENTS.sub("/", path)


def path_of_file_url(url: str) -> str:
    """The path of a `file:` URL: escapes such as `%20` are decoded, `?` and `#` are part of the path.

    Raises:
        UrlError: the URL names another host.
    """
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise UrlError(
                f"a `file:` URL names the host `{host}`, but it can only be a file of this machine; "
                f"write `file:///{host}{slash}{path}` if it is a directory",
                url=url,
            )
        rest = slash + path
    path = unquote(rest, errors="surrogateescape")
    if "\0" in path:
        raise UrlError("a `%00` in a `file:` URL; remove it, since paths cannot have one", url=url)
    return path


def quoted_for(scheme: str, path: str) -> str:
    """A path as it is written in a URL of a scheme: only `file:` URLs escape characters."""
    return quote(path, errors="surrogateescape") if scheme == "file" else path


_QUOTES = "\u2018\u2019\u201c\u201d\u201e\u201a\u00ab\u00bb"


class Slip(NamedTuple):
    """A probable mistake in a URL."""

    message: str
    hint: str


def slip_in(url: str) -> Slip | None:
    """Find a probable mistake in a URL; None if there is none."""
    if url and (url[0] in _QUOTES or url[-1] in _QUOTES):
        message = "the curly quotes are part of this name, since YAML only recognizes straight quotes"
        return Slip(message, f'write `"{url.strip(_QUOTES)}"`')
    if "\u00a0" in url:
        return Slip(
            "this name has a non-breaking space (U+00A0)", "replace it with a normal space, or remove it"
        )
    scheme = scheme_of(url)
    if scheme and scheme not in WELL_KNOWN:
        import difflib  # most specs do not need it

        meant = difflib.get_close_matches(scheme, WELL_KNOWN, 1, 0.8)
        unknown = f"`{scheme}://` is not a known scheme"
        return Slip(unknown, f"did you mean `{meant[0]}://`?") if meant else None
    path = None if scheme else _NO_PATH.match(url)
    if path is None:
        return None
    name, between, rest = path.groups()
    if len(name) == 1 and name.isupper() and between == ":/":
        drive = f"`{name}:` is a Windows drive, but here it is the name of a directory"
        return Slip(
            drive, f"use the path where the drive is mounted: `/mnt/{name.lower()}{between[1:]}{rest}`"
        )
    if name.lower() == "www":
        return (
            Slip("this is a path in a directory", f"for a website write its URL: `https://{url}`")
            if "/" in rest
            else None
        )
    if name.lower() in WELL_KNOWN and between != ".":
        return Slip(
            f"this is a path in a directory `{name}{':' * (':' in between)}`",
            f"for a URL write `{name}://{rest}`",
        )
    return None


Kind = Literal["url", "list", "glob", "directory", "data set"]

_CUT = re.compile(r"\\.|//\[[^\]/]*\]|(::)", re.DOTALL)
_EMPTY_SEGMENTS = re.compile(r"/(?:\.?/)+")
_SPECIAL = re.compile(r"[\\{}*?\[]|::")
"""What has a meaning in a pattern."""
_ESCAPED = re.compile(r"\\.", re.DOTALL)
MAGIC = re.compile(r"[*?[]")
"""Characters that make a text a glob."""
_ENDS_IN_SLASH = re.compile(r"/[,}]")


class ShardUrl(NamedTuple):
    """A shard as it is written in the spec, and the absolute directory where a relative path starts."""

    text: str
    base: str
    partners: tuple[ShardUrl, ...] = ()
    """The shards of `join` that belong to it: one of each list."""
    tables: tuple[Any, ...] = ()
    """The tables of `lookup` (`wdspec.shards.lookup_tables.Table`)."""


class ShardRun(NamedTuple):
    """Shards with the same prefix and base. ``texts`` is lazy (braces) or a tuple."""

    texts: Braces | tuple[str, ...]
    prefix: str
    base: str


class UrlSequence(ComputedSequence[ShardUrl]):
    """The shards of a source, in order. Access takes the logarithm of the number of runs; pickles are small.

    Args:
        parts: the runs, in order; empty ones are removed.

    Raises:
        UrlError: there are more than a billion shards.
    """

    __slots__ = ("_ends", "parts")
    kind = "shards"
    joins: tuple[UrlSequence, ...] = ()
    """The lists of `join`; see `JoinedUrls`."""

    def __init__(self, parts: Iterable[ShardRun]) -> None:
        sized = [(run, size) for run in parts if (size := len(run.texts))]
        self.parts = tuple(run for run, _ in sized)
        self._ends = tuple(accumulate(size for _, size in sized))
        if len(self) > MAX_STRINGS:
            raise UrlError(f"{len(self):,} shards in one source; the limit is {MAX_STRINGS:,}")

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def item(self, index: int) -> ShardUrl:
        which = bisect_right(self._ends, index)
        run = self.parts[which]
        return ShardUrl(run.prefix + run.texts[index - self._ends[which] + len(run.texts)], run.base)

    def __iter__(self) -> Iterator[ShardUrl]:
        return (ShardUrl(run.prefix + text, run.base) for run in self.parts for text in run.texts)

    def texts(self) -> list[str]:
        """The texts of all shards; this is several times as fast as one by one."""
        return [run.prefix + text for run in self.parts for text in _all(run.texts)]

    @property
    def digests(self) -> dict[str, str]:
        """Key of the spec -> a hash of what it names, besides the shards; see `JoinedUrls`."""
        return {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UrlSequence) or len(self) != len(other):
            return False
        return self.parts == other.parts or all(map(ShardUrl.__eq__, self, other))

    def __hash__(self) -> int:
        return hash((len(self), *self[:1], *self[-1:]))

    def __repr__(self) -> str:
        ends = " … ".join(self[i].text for i in sorted({0, len(self) - 1})) if self else "nothing"
        return redacted_urls(f"<UrlSequence of {len(self)}: {ends}>")

    def __reduce__(self) -> tuple[type[UrlSequence], tuple[Any, ...]]:
        return UrlSequence, (self.parts,)


class JoinedUrls(UrlSequence):
    """The shards of a source with `join` or `lookup`: the n-th shard of each list is a partner of the n-th shard.

    Args:
        parts: see `UrlSequence`.
        joins: the lists, each with as many shards as the parts.
        tables: the tables (`wdspec.shards.lookup_tables.Table`).
    """

    def __init__(
        self, parts: Iterable[ShardRun], joins: Iterable[UrlSequence], tables: Iterable[Any] = ()
    ) -> None:
        super().__init__(parts)
        self.joins, self.tables = tuple(joins), tuple(tables)

    @property
    def digests(self) -> dict[str, str]:
        """Key of the spec -> a hash of the URLs of the partners as written, or of the rows of the tables."""
        named = {
            "join": ["\n".join(each.texts()) for each in self.joins],
            "lookup": [table.digest for table in self.tables],
        }
        return {
            key: hashlib.blake2b(
                "\n\n".join(texts).encode("utf-8", "surrogatepass"), digest_size=16
            ).hexdigest()
            for key, texts in named.items()
            if texts
        }

    def item(self, index: int) -> ShardUrl:
        partners = tuple(each[index] for each in self.joins)
        return super().item(index)._replace(partners=partners, tables=self.tables)

    def __iter__(self) -> Iterator[ShardUrl]:
        return map(self.item, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JoinedUrls) and self.digests == other.digests and super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def __reduce__(self) -> tuple[type[UrlSequence], tuple[Any, ...]]:
        return JoinedUrls, (self.parts, self.joins, self.tables)


def spread(count: int, most: int | None) -> Sequence[int]:
    """At most `most` indexes of a list, from the first to the last; all for None."""
    if most is None or count <= most:
        return range(count)
    return [0] if most == 1 else [each * (count - 1) // (most - 1) for each in range(most)]


def has_lance(shards: Sequence[ShardUrl]) -> bool:
    """Whether a fragment of a Lance data set is among shards; those of a pattern are looked at only if it may be."""
    if not isinstance(shards, UrlSequence):
        return any(lance_url(each.text) is not None for each in shards)
    return any(map(has_lance, shards.joins)) or any(
        lance_url(run.prefix + text) is not None
        for run in shards.parts
        if not isinstance(run.texts, Braces)
        or "lance" in run.texts.pattern
        or "fragment" in run.texts.pattern
        for text in _all(run.texts)
        if ".lance" in text
    )


def _all(texts: Braces | tuple[str, ...]) -> Sequence[str]:
    return texts.all() if isinstance(texts, Braces) else texts


@dataclass(frozen=True)
class Part:
    """A text between two `::`, before it is listed."""

    braces: Braces
    base: str
    listed: bool

    @property
    def text(self) -> str:
        """The pattern as written."""
        return self.braces.pattern


def parse_shards(texts: Sequence[str], base: str) -> list[Part]:
    r"""Split `shards` into parts at each `::`, before braces are parsed.

    A part is ``listed`` if any of its strings may be a glob, a directory or an `@file`. `\` makes the next character
    literal, as in braces.

    Args:
        texts: as written in the spec.
        base: absolute directory where relative paths start.

    Raises:
        UrlError: no text, an empty part, wrong braces; ``column`` is the position in the text.
    """
    if not texts:
        raise UrlError("an empty list of shards; name at least one shard")
    return [part for text in texts for part in _parts(text, base)]


def count_shards(texts: Sequence[str], base: str) -> int | None:
    """Count the shards of texts; None if they must be listed, or are wrong. `base` as for `parse_shards`."""
    try:
        parts = parse_shards(texts, base)
    except UrlError:
        return None
    return None if any(part.listed for part in parts) else sum(len(part.braces) for part in parts)


def pattern_of_path(path: os.PathLike[str]) -> str:
    """Write a `Path` as a pattern of this one file: a path has no braces, globs or `::`.

    Raises:
        UrlError: it looks like a pattern, and there is no such file.
    """
    text = os.fspath(path)
    if _SPECIAL.search(text) and not os.path.exists(text):
        message = f"`{type(path).__name__}({text!r})` names one file, and there is no such file"
        raise UrlError(f"{message}; pass a text, `str(path)`, if it is a pattern", url=text)
    is_plain = text[:1] in ("/", "~") or (is_relative(text) and text[:1] != "@")
    return ("" if is_plain else "./") + _SPECIAL.sub(r"\\\g<0>", text)


def kind_of(text: str) -> Kind:
    """The kind of an expanded string of a listed part: an `@file`, a directory, a glob, a Lance data set or a URL.

    URLs of web servers and commands are never globs: `?` starts a query, and the shell expands globs itself.
    """
    if text.startswith("@"):
        return "list"
    row = row_of(text)
    if row.is_command:
        return "url"
    if (lance := lance_url(text)) is not None and not MAGIC.search(lance.folder):
        return "data set" if lance.fragment is None else "url"
    if text.endswith("/"):
        return "directory"
    return "glob" if row.globs and MAGIC.search(text) else "url"


def magic_start(text: str) -> int:
    """Index of the first path segment of a glob with `*`, `?` or `[`."""
    match = MAGIC.search(text)
    return len(text) if match is None else text.rfind("/", 0, match.start()) + 1


def _parts(text: str, base: str) -> Iterator[Part]:
    for start, piece in _pieces(text):
        if "\0" in piece:
            raise UrlError(
                "a NUL character in the name of a shard; remove it, since files and URLs cannot have one",
                url=text,
                column=1 + start + piece.index("\0"),
            )
        if not piece:
            seen = "nothing next to a `::`; remove it" if "::" in text else "an empty text"
            raise UrlError(f"{seen}, or write a URL or a path there", url=text, column=1 + start)
        try:
            braces = Braces(piece)
        except UrlError as error:
            raise UrlError(error.message, url=text, column=1 + start + (error.column or 0)) from None
        yield Part(braces, base, _may_need_listing(piece))


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for token in _CUT.finditer(text):
        if token.group(1):
            yield start, text[start : token.start()]
            start = token.end()
    yield start, text[start:]


def _may_need_listing(piece: str) -> bool:
    """Whether any string of a pattern may be something else than a plain URL. It may be True for plain URLs."""
    literal = _ESCAPED.sub("x", piece)
    row = row_of(literal)
    if row.is_command:
        return False
    if literal.endswith("/") or (literal.endswith("}") and _ENDS_IN_SLASH.search(literal)):
        return True
    if literal.startswith("@") or (literal.startswith("{") and "@" in literal):
        return True
    return ".lance" in literal or (row.globs and MAGIC.search(literal) is not None)
