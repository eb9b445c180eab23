"""URL schemes: the table of what is known of each, and what a text says about its own.

Shard lists as lazy sequences: a run of texts after the other, each braces or a frozen list.

`a-{000000..999999}.tar::b.tar` is two runs; nothing is materialised. What the store must be asked for (globs,
directories, `@file`) is recognised here and listed by ``wdspec.shards.listing``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple, overload
from urllib.parse import quote, unquote

from wdspec.base.errors import UrlError
from wdspec.base.redaction import redacted_urls
from wdspec.urls.braces import MAX_STRINGS, Braces

AIS_PREFIX = "ais+"
"""Marks a location that is read through an AIStore cluster: `ais+gs://bucket/object`."""

FSSPEC = "wdspec.stores.objects:FsspecStore"
"""The store of all schemes that have none of their own."""


class StoreRow(NamedTuple):
    """What is known of some URL schemes, as data: nothing is imported before a store is used."""

    schemes: tuple[str, ...]
    store: str = FSSPEC
    """`module:class` of the `Store`."""
    has_queries: bool = False
    """Whether `?` begins a query in its URLs."""
    is_command: bool = False
    """Whether its URLs are commands, which a shell runs: not names, and forbidden by WDS_SECURE."""
    uploads_whole: bool = False
    """Whether an object appears only when its upload is complete; elsewhere a temporary name is moved."""
    install: str | None = None
    """What `pip install` brings the reader."""
    advice: str | None = None
    """What to do where the store refuses to answer."""
    settings: Mapping[str, tuple[str, Any]] = {}
    """The keys of `storage:` that it takes → the argument of its file system (`a.b`: the entry `b` of the map `a`), and
    its value where that is not what the key says."""

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
"""Every scheme that wdspec knows, one row for each store; `""` is a path, `-` standard input, and `ais` stands for what
a cluster serves. fsspec may know more, and users add theirs (`wdspec.stores.table`)."""

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
"""Scheme → what AIStore calls the backend that keeps the bucket: what a cluster can serve."""

ROWS = {scheme: row for row in STORES for scheme in row.schemes}
_OTHER = StoreRow(())
WELL_KNOWN = tuple(scheme for scheme in {**ROWS, **AIS_PROVIDERS} if scheme.isalnum())
"""Schemes that most shards have, for telling slips of the pen; there may be others."""

_NO_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+-]*)(:/?|//|\.)(?!/)(?=[^/\s])(.*)", re.DOTALL)
"""What looks like a URL whose `://` is wrong, a drive of Windows, or a host without its scheme."""
_SCHEME = re.compile(r"((?i:pipe|file)):|([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(url: str) -> str:
    """`gs` for `gs://…`, `pipe` and `file` for `pipe:…` and `file:…`, and "" for a path.

    A path may hold any characters: `a:b.tar` and `c#1?.tar` are files.
    """
    match = _SCHEME.match(url)
    return (match.group(1) or match.group(2)).lower() if match else ""


def store_key(location: str) -> str:
    """The scheme by which a location finds its store: `ais` for what a cluster serves, `-` for standard input."""
    if location == "-":
        return "-"
    return "ais" if location.startswith(AIS_PREFIX) else scheme_of(location)


def local_path(location: str) -> str | None:
    """The path of a local file or directory; None for what is not local."""
    scheme = store_key(location)
    if scheme == "file":
        return path_of_file_url(location)
    return None if scheme else location


def row_of(url: str) -> StoreRow:
    """What is known of the store of a URL or path."""
    return ROWS.get(scheme_of(url), _OTHER)


def is_command(url: str) -> bool:
    """Whether a URL is a command, `pipe:…`."""
    return row_of(url).is_command


def names_command(text: str) -> bool:
    """Whether a command may be in a text of one or more URLs, wherever it begins."""
    lowered = text.lower()
    return any(f"{scheme}:" in lowered for scheme, row in ROWS.items() if row.is_command)


def is_relative(url: str) -> bool:
    """Whether the text is a path that starts at some directory: not at the root, not at home, not `-`."""
    return not url.startswith(("/", "~")) and url != "-" and not scheme_of(url)


def tidy_path(path: str) -> str:
    """A path without empty and `.` segments."""
    return _EMPTY_SEGMENTS.sub("/", path)


def path_of_file_url(url: str) -> str:
    """The path that a `file:` URL stands for: `%20` and the like are decoded, `?` and `#` belong to it.

    Raises:
        UrlError: the URL names a host other than this one.
    """
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise UrlError(
                f"a `file:` URL names the host `{host}`, but only files of this machine can be opened so; "
                f"write `file:///{host}{slash}{path}` if it is a directory",
                url=url,
            )
        rest = slash + path
    path = unquote(rest, errors="surrogateescape")
    if "\0" in path:
        raise UrlError("a `%00` in a `file:` URL, which no path can have; remove it", url=url)
    return path


def quoted_for(scheme: str, path: str) -> str:
    """A path as it is spelt in a URL of this scheme: `file:` URLs escape what others write as it is."""
    return quote(path, errors="surrogateescape") if scheme == "file" else path


class Slip(NamedTuple):
    """What is probably wrong with the scheme of a URL, and what may be meant."""

    message: str
    hint: str


def slip_in(url: str) -> Slip | None:
    """What is probably wrong with the scheme of a URL; None where nothing is."""
    scheme = scheme_of(url)
    if scheme and scheme not in WELL_KNOWN:
        import difflib  # most specs have no use for it

        meant = difflib.get_close_matches(scheme, WELL_KNOWN, 1, 0.8)
        known = f"`{scheme}://` is no scheme that is known"
        return Slip(known, f"did you mean `{meant[0]}://`?") if meant else None
    path = None if scheme else _NO_PATH.match(url)
    if path is None:
        return None
    name, between, rest = path.groups()
    if len(name) == 1 and name.isupper() and between == ":/":
        drive = f"`{name}:` is a drive of Windows, and here the name of a folder"
        return Slip(
            drive, f"below Linux the drive is mounted somewhere: `/mnt/{name.lower()}{between[1:]}{rest}`"
        )
    if name.lower() == "www":
        return (
            Slip("this is a path to a folder", f"for a web site write its URL: `https://{url}`")
            if "/" in rest
            else None
        )
    if name.lower() in WELL_KNOWN and between != ".":
        return Slip(
            f"this is a path to a folder `{name}{':' * (':' in between)}`",
            f"for a URL write `{name}://{rest}`",
        )
    return None


Kind = Literal["url", "list", "glob", "directory"]

_CUT = re.compile(r"\\.|//\[[^\]/]*\]|(::)", re.DOTALL)
_EMPTY_SEGMENTS = re.compile(r"/(?:\.?/)+")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
MAGIC = re.compile(r"[*?[]")
"""What makes a text a glob."""
_ENDS_IN_SLASH = re.compile(r"/[,}]")


class ShardUrl(NamedTuple):
    """A shard as the spec spells it, and the absolute directory that a relative path starts at."""

    text: str
    base: str


class ShardRun(NamedTuple):
    """Shards that share a prefix and a base: ``texts`` is lazy (braces) or frozen (a tuple)."""

    texts: Braces | tuple[str, ...]
    prefix: str
    base: str


class UrlSequence(Sequence[ShardUrl]):
    """The shards of a source, in order: random access in the logarithm of the number of runs; pickles small.

    Args:
        parts: the runs, in order; empty ones are dropped.

    Raises:
        UrlError: more than a thousand million shards.
    """

    __slots__ = ("_ends", "parts")

    def __init__(self, parts: Iterable[ShardRun]) -> None:
        self.parts = tuple(run for run in parts if len(run.texts))
        self._ends = tuple(accumulate(len(run.texts) for run in self.parts))
        if len(self) > MAX_STRINGS:
            raise UrlError(f"{len(self):,} shards in one source; the limit is {MAX_STRINGS:,}")

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> ShardUrl: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ShardUrl]: ...
    def __getitem__(self, index: int | slice) -> ShardUrl | Sequence[ShardUrl]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} shards")
        index %= len(self)
        which = bisect_right(self._ends, index)
        run = self.parts[which]
        return ShardUrl(run.prefix + run.texts[index - self._ends[which] + len(run.texts)], run.base)

    def __iter__(self) -> Iterator[ShardUrl]:
        return (ShardUrl(run.prefix + text, run.base) for run in self.parts for text in run.texts)

    def texts(self) -> list[str]:
        """The texts of all shards, made at once, which is several times as fast as one by one."""
        return [run.prefix + text for run in self.parts for text in _all(run.texts)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UrlSequence) or len(self) != len(other):
            return False
        return self.parts == other.parts or all(map(ShardUrl.__eq__, self, other))

    def __hash__(self) -> int:
        return hash((len(self), *self[:1], *self[-1:]))

    def __repr__(self) -> str:
        ends = " … ".join(self[i].text for i in sorted({0, len(self) - 1})) if self else "nothing"
        return redacted_urls(f"<UrlSequence of {len(self)}: {ends}>")

    def __reduce__(self) -> tuple[type[UrlSequence], tuple[tuple[ShardRun, ...]]]:
        return UrlSequence, (self.parts,)


def _all(texts: Braces | tuple[str, ...]) -> Sequence[str]:
    return texts.all() if isinstance(texts, Braces) else texts


@dataclass(frozen=True)
class Part:
    """What stands between two `::`, not yet listed.

    ``prefix`` stands literally before each of its strings: the directory of the `@file` it was found in.
    """

    braces: Braces
    base: str
    listed: bool
    prefix: str = ""

    @property
    def text(self) -> str:
        """The pattern as written."""
        return self.braces.pattern

    @property
    def run(self) -> ShardRun:
        """The part as a lazy run, for one that nothing must be listed for."""
        return ShardRun(self.braces, self.prefix, self.base)


def parse_shards(texts: Sequence[str], base: str) -> list[Part]:
    r"""The parts of a source's `shards`, cut at `::` before braces are looked at.

    A part is ``listed`` if any of its strings may be a glob, a directory or an `@file`. `\` before a
    character makes it literal, here as in braces.

    Args:
        texts: as written in the spec.
        base: absolute directory that relative paths start at.

    Raises:
        UrlError: no text, an empty part, wrong braces; ``column`` is the index in the text.
    """
    if not texts:
        raise UrlError("an empty list of shards; name at least one shard")
    return [part for text in texts for part in _parts(text, base)]


def kind_of(text: str) -> Kind:
    """What an expanded string of a listed part is: an `@file`, a directory, a glob or a plain URL.

    URLs of web servers and commands are never globs: there `?` begins a query, and the shell expands its own.
    """
    if text.startswith("@"):
        return "list"
    row = row_of(text)
    if row.is_command:
        return "url"
    if text.endswith("/"):
        return "directory"
    return "glob" if row.globs and MAGIC.search(text) else "url"


def magic_start(text: str) -> int:
    """Index of the first path segment of a glob that holds `*`, `?` or `[`."""
    match = MAGIC.search(text)
    return len(text) if match is None else text.rfind("/", 0, match.start()) + 1


def _parts(text: str, base: str) -> Iterator[Part]:
    for start, piece in _pieces(text):
        if "\0" in piece:
            raise UrlError(
                "a NUL character in the name of a shard, which no file or URL can have; remove it",
                url=text,
                column=1 + start + piece.index("\0"),
            )
        if not piece:
            seen = "nothing beside a `::`; remove it" if "::" in text else "an empty text"
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
    """Whether any string of the pattern may be more than a plain URL; errs on the side of looking."""
    literal = _ESCAPED.sub("x", piece)
    row = row_of(literal)
    if row.is_command:
        return False
    if literal.endswith("/") or (literal.endswith("}") and _ENDS_IN_SLASH.search(literal)):
        return True
    if literal.startswith("@") or (literal.startswith("{") and "@" in literal):
        return True
    return row.globs and MAGIC.search(literal) is not None
