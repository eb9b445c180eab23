"""What kind of URL a text is: its scheme, whether it is relative, and what `file:` stands for."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from wdspec.errors import UrlError

WELL_KNOWN = (
    *("file", "pipe", "http", "https", "ais", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf"),
    *(
        "ftp",
        "sftp",
        "ssh",
        "smb",
        "hdfs",
        "webhdfs",
        "memory",
        "github",
        "gdrive",
        "dbfs",
        "oci",
        "oss",
        "r2",
        "tos",
    ),
)
"""Schemes that most shards have, for telling slips of the pen; there may be others."""

_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(?!/)")
_SCHEME = re.compile(r"((?i:pipe|file)):|([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(url: str) -> str:
    """`gs` for `gs://…`, `pipe` and `file` for `pipe:…` and `file:…`, and "" for a path.

    A path may hold any characters: `a:b.tar` and `c#1?.tar` are files.
    """
    match = _SCHEME.match(url)
    return (match.group(1) or match.group(2)).lower() if match else ""


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
    return unquote(rest, errors="surrogateescape")


def quoted_for(scheme: str, path: str) -> str:
    """A path as it is spelt in a URL of this scheme: `file:` URLs escape what others write as it is."""
    return quote(path, errors="surrogateescape") if scheme == "file" else path


def slip_in(url: str) -> str | None:
    """What is probably wrong with the scheme of a URL and what may be meant; None where nothing is."""
    scheme = scheme_of(url)
    if scheme and scheme not in WELL_KNOWN:
        import difflib  # most specs have no use for it

        meant = difflib.get_close_matches(scheme, WELL_KNOWN, 1, 0.8)
        return f"`{scheme}://` is no scheme that is known; did you mean `{meant[0]}://`?" if meant else None
    slash = _ONE_SLASH.match(url)
    if slash and not scheme and slash.group(1).lower() in WELL_KNOWN:
        return f"this is a path to a folder `{slash.group(1)}:`; for a URL write two slashes, `{slash.group(1)}://`"
    return None
