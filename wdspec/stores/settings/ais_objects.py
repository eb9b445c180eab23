"""Which bucket and object of an AIStore cluster a URL names."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from wdspec.errors import UrlError
from wdspec.urls.schemes import AIS_PROVIDERS, scheme_of

_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_NAMESPACE = re.compile(r"@[^/@#]+(?:#[^/@#]+)?|#[^/@#]+")
_SLASHES = re.compile(r"/{2,}")


class AisObject(NamedTuple):
    """An object of a bucket, as AIStore names it; `name` is empty for the bucket itself."""

    provider: str
    """The backend that keeps the bucket: `gcp`, `aws`, `azure`, `oci`, or `ais` for the cluster itself."""
    bucket: str
    name: str
    namespace: str | None = None

    @property
    def query(self) -> str:
        """What tells the bucket from those of the same name elsewhere. The provider always: it defaults to `ais`."""
        query = f"provider={self.provider}"
        return query if self.namespace is None else f"{query}&namespace={quote(self.namespace, safe='')}"

    @property
    def quoted_name(self) -> str:
        """The name as it stands in the path of a request."""
        return quote(self.name, safe="/", errors="surrogateescape")


def ais_object(url: str, namespace: str | None = None) -> AisObject:
    """The object of `gs://bucket/a/b.tar`, `ais://@cluster/bucket/b.tar` or `gs://#name/bucket/b.tar`.

    What follows the scheme is a name, letter by letter: `%20` in it is no space, and `?` begins no query. Repeated
    slashes count as one, as in AIStore.

    Args:
        namespace: of a URL that names none.

    Raises:
        UrlError: no bucket, a bucket's name that cannot be, or a segment `.` or `..`.
    """
    first, _, rest = url.partition("://")[2].partition("/")
    if first[:1] in ("@", "#"):
        if not _NAMESPACE.fullmatch(first):
            message = f"`{first}` is no namespace: write `@cluster`, `@cluster#name` or `#name`"
            raise UrlError(message, url=url)
        namespace = first
        first, _, rest = rest.partition("/")
    if not _BUCKET.fullmatch(first):
        seen = f"`{first}` cannot be the name of a bucket" if first else "no bucket"
        raise UrlError(f"{seen}; AIStore's have letters, digits, `.`, `_` and `-`: gs://bucket/name", url=url)
    name = _SLASHES.sub("/", rest).removeprefix("/")
    if any(segment in (".", "..") for segment in name.split("/")):
        raise UrlError("AIStore has no `.` or `..` in the names of objects; write the name out", url=url)
    return AisObject(AIS_PROVIDERS[scheme_of(url)], first, name, namespace)
