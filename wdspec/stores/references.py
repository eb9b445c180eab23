"""Objects that data name: opened like shards, but only what the spec allows (docs/references.md)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import BinaryIO, cast

import urllib3
from urllib3.util import Url

from wdspec.base.errors import MissingShardError, ShardError, UnusableStoreError
from wdspec.stores.addresses import RefusedAddressError
from wdspec.stores.http import HttpObject, ask_server, origin_of, parse_location
from wdspec.stores.local import translate_error
from wdspec.stores.resume import ResumingStream
from wdspec.stores.settings import HttpSettings
from wdspec.stores.store import ObjectStat, StoreSettings
from wdspec.urls.references import Allowed

_NAME_ADDRESS = "if it is right, add the address or its network to `hosts`"
_NAME_HOST = "if it may be trusted, add that host to `hosts`"


def open_web(location: str, settings: StoreSettings, allowed: Allowed, stop: int | None = None) -> BinaryIO:
    """Open a URL of http or https that data chose, as `HttpStore.open` does.

    Args:
        location: the URL.
        settings: how to reach stores.
        allowed: what redirects and connections may lead to.
        stop: the byte after the last one that will be read, if that is known.
    """
    found = _ReferencedObject(location, settings, allowed, stop)
    return cast(BinaryIO, ResumingStream(found, location, settings.retry_policy))


def stat_web(location: str, settings: StoreSettings, allowed: Allowed) -> ObjectStat:
    """The size and the validator of an object at a URL of http or https that data chose; see `open_web`."""
    return ask_server(_ReferencedObject(location, settings, allowed, None), location, settings)


class _ReferencedObject(HttpObject):
    """Requests an object that data chose."""

    of_redirect = ""

    def __init__(self, location: str, settings: StoreSettings, allowed: Allowed, stop: int | None) -> None:
        url = parse_location(location)
        self._allowed, self._stop = allowed, stop
        self._own = origin_of(url) if allowed.origin is None else allowed.origin
        """The scheme, host and port of the root, to which the client certificate belongs."""
        self._full, self._bare = _checked_settings(settings.http, allowed)
        super().__init__(url, self._full, settings.retry_policy)

    def _has_any_login(self, url: Url, redirected: bool) -> bool:
        return self._is_of_root(url)

    def _is_of_root(self, url: Url) -> bool:
        return self._allowed.root is not None and origin_of(url) == self._own

    def _range(self, offset: int, stop: int | None) -> str | None:
        return super()._range(offset, self._stop if stop is None else stop)

    def _send(
        self, url: Url, headers: dict[str, str], method: str, redirected: bool
    ) -> urllib3.BaseHTTPResponse:
        scheme, host, port = origin_of(url)
        if redirected:
            if url.auth is not None and url.auth != self._url.auth:
                raise ShardError("a redirect to a URL with a user name or password, which is refused")
            is_same = origin_of(url) == origin_of(self._url)
            if not is_same and not self._allowed.may_redirect(scheme or "", host or "", port):
                raise ShardError(
                    f"a redirect to {scheme}://{url.netloc}, which the spec does not name; {_NAME_HOST}"
                )
        self._settings = self._full if self._is_of_root(url) else self._bare
        try:
            return super()._send(url, headers, method, redirected)
        except RefusedAddressError as error:
            raise ShardError(
                f"{host} has the address {error}, which is not public, and the spec does not name it; {_NAME_ADDRESS}"
            ) from None


@lru_cache
def _checked_settings(http: HttpSettings, allowed: Allowed) -> tuple[HttpSettings, HttpSettings]:
    """Return how to reach hosts that data choose: with the client certificate, and without it."""
    full = replace(http, allowed=allowed)
    return full, replace(full, client_cert=None, client_key=None)


def open_local(path: str, root: str) -> BinaryIO:
    """Open a regular file in a local root, from which no symbolic link leads out.

    Raises:
        MissingShardError: it does not exist.
        UnusableStoreError: the root does not exist, so no object does.
        ShardError: it is no regular file, or outside of the root.
    """
    try:
        # Not the check before the opening: the link could change in between.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.isdir(root):
            message = "the `root` of `fetch` is not a directory here; correct it, or mount it"
            raise UnusableStoreError(message, location=root) from None
        raise MissingShardError(f"no such file: {error.strerror}", location=path) from None
    except (OSError, ValueError) as error:
        raise translate_error(error, path) from None
    with _closing_on_error(descriptor):
        opened, real = os.fstat(descriptor), os.path.realpath(path)
        base = os.path.realpath(root)
        is_inside = real.startswith(base.rstrip("/") + "/")
        if not is_inside or not os.path.samestat(opened, os.stat(real)):
            raise ShardError("a symbolic link leads out of the `root`, which is refused", location=path)
        if not stat.S_ISREG(opened.st_mode):
            raise ShardError("is not a regular file", location=path)
        return cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0))


@contextlib.contextmanager
def _closing_on_error(descriptor: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise
