"""What kind of URL a text is: its scheme, whether it is relative, and what `file:` stands for."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from wdspec.spec.errors import UrlError

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
