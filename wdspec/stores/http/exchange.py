"""One request and its answer over kept-alive connections: what HTTP servers and AIStore clusters have in common.

Redirects are followed by hand and taken as they come, never kept: what they point to may be signed, and expire.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import IO
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import Timeout

from wdspec.redaction import harmless

HEADERS = {"accept-encoding": "identity", "user-agent": "wdspec"}
CONNECTIONS = 16
"""Idle connections kept for each host."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SMALL = 64 * 1024

Explain = Callable[[Exception], Exception]
"""Makes our error of one of urllib3's."""


def get(
    manager: urllib3.PoolManager,
    url: str,
    headers: Mapping[str, str],
    timeout: Timeout,
    body: bytes | IO[bytes] | None = None,
    method: str = "GET",
) -> urllib3.BaseHTTPResponse:
    """The answer to one request, whatever its status, with its body unread. Raises what urllib3 raises."""
    return manager.request(
        method,
        url,
        headers=dict(headers),
        body=body,
        preload_content=False,
        decode_content=False,
        redirect=False,
        retries=False,
        timeout=timeout,
    )


def redirect_of(response: urllib3.BaseHTTPResponse, url: str) -> str | None:
    """The absolute URL that an answer redirects to; None where it does not.

    Args:
        url: that gave the answer.

    Raises:
        ValueError: it redirects to what is no URL; the message says so.
    """
    location = response.headers.get("location")
    if response.status not in _REDIRECTS or location is None:
        return None
    with contextlib.suppress(UnicodeError):
        location = location.encode("latin-1").decode("utf-8")  # headers come as if they were Latin-1
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise ValueError(
            f"a redirect to {location}, which is no URL that can be asked for: {error}"
        ) from None


def is_safe_redirect(url: str, target: str) -> bool:
    """Whether a redirect may be followed: to http or https, and from https to https alone."""
    before, after = urlsplit(url).scheme.lower(), urlsplit(target).scheme.lower()
    return after == "https" or (after == "http" and before == "http")


def drain(response: urllib3.BaseHTTPResponse) -> bytes:
    """Reads a small body to its end, so that its connection can be used again; closes that of a large one."""
    try:
        data = response.read(_SMALL, decode_content=False)
        if len(data) < _SMALL:
            response.release_conn()
            return data
    except (HTTPError, OSError):
        data = b""
    response.close()
    return data


def one_line(data: bytes, most: int) -> str:
    """The beginning of what a server says in words, on one line of at most so many characters."""
    text = data[: 4 * most].decode("utf-8", "replace")
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line[:most] + ("…" if len(line) > most else "")


class WireBody:
    """The bytes of one answer, as they come over the wire.

    Args:
        explain: makes the error to raise.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, explain: Explain) -> None:
        self._response, self._explain = response, explain

    def read(self, size: int) -> bytes:
        try:
            return self._response.read(size, decode_content=False)
        except (HTTPError, OSError) as error:
            raise self._explain(error) from harmless(error)

    def close(self) -> None:
        self._response.close()

    def abort(self) -> None:
        """Ends a `read` under way in another thread."""
        with contextlib.suppress(RuntimeError, ValueError, OSError):  # nothing is being read
            self._response.shutdown()
