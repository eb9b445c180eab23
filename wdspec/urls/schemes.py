"""URL schemes: the table of what is known of each, and what a text says about its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from wdspec.errors import UrlError

AIS_PREFIX = "ais+"
"""Marks a location that is read through an AIStore cluster: `ais+gs://bucket/object`."""

FSSPEC = "wdspec.stores.fsspec.fsspec_store:FsspecStore"
"""The store of all schemes that have none of their own."""


class StoreRow(NamedTuple):
    """What is known of some URL schemes, as data: nothing is imported before a store is used."""

    schemes: tuple[str, ...]
    store: str = FSSPEC
    """`module:class` of the `Store`."""
    globs: bool = True
    """Whether `*`, `?` and `[` make a glob; not where `?` begins a query or a shell expands them."""
    uploads_whole: bool = False
    """Whether an object appears only when its upload is complete; elsewhere a temporary name is moved."""
    install: str | None = None
    """What `pip install` brings the reader."""
    advice: str | None = None
    """What to do where the store refuses to answer."""
    settings: Mapping[str, tuple[str, Any]] = {}
    """The keys of `storage:` that it takes → the argument of its file system (`a.b`: the entry `b` of the map `a`), and
    its value where that is not what the key says."""


STORES = (
    StoreRow(("file", ""), "wdspec.stores.local.local_store:LocalStore"),
    StoreRow(("http", "https"), "wdspec.stores.http.http_store:HttpStore", globs=False),
    StoreRow(("pipe",), "wdspec.stores.pipe:PipeStore", globs=False),
    StoreRow(("-",), "wdspec.stores.standard_streams:StandardStreams"),
    StoreRow(("ais",), "wdspec.stores.ais.ais_store:AisStore"),
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
a cluster serves. fsspec may know more, and users add theirs (`wdspec.stores.store_table`)."""

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


def has_globs(scheme: str) -> bool:
    """Whether `*`, `?` and `[` in a URL of this scheme make a glob."""
    return scheme not in ROWS or ROWS[scheme].globs


def is_relative(url: str) -> bool:
    """Whether the text is a path that starts at some directory: not at the root, not at home, not `-`."""
    return not url.startswith(("/", "~")) and url != "-" and not scheme_of(url)


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
