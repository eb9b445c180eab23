"""Shards over http and https, read in ranges that resume after a cut."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import BinaryIO, cast

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import Timeout, Url, parse_url

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.process import PerProcess
from wdspec.base.redaction import harmless, redact_answer
from wdspec.stores import http_requests
from wdspec.stores.http_answers import Extent, check_has_end, decode_transfer, extent_of, raise_for_status
from wdspec.stores.outputs import Output
from wdspec.stores.resume import RangeResponse, ResponseBody, ResumingStream
from wdspec.stores.retry import RetryPolicy, TransientError, with_retries
from wdspec.stores.settings import HttpSettings
from wdspec.stores.store import ObjectStat, Store, StoreSettings
from wdspec.urls.urls import scheme_of

MAX_REDIRECTS = 10
_XML_WORDS = re.compile(rb"<(?:Code|Message)>([^<]*)<")

_answered: PerProcess[set[tuple[str, int]]] = PerProcess(set)
"""(host, connection pool) pairs that have answered this process."""


class HttpStore(Store):
    """Objects at http and https URLs."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """A stream; sends no request before the first `read`. Raises ShardError for an invalid URL."""
        return cast(BinaryIO, ResumingStream(_object(location, settings), location, settings.retry_policy))

    def count_requests(self, location: str, size: int) -> int | None:
        return 1

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        return ask_server(_object(location, settings), location, settings)

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        raise UsageError(
            "there is no agreed way to write to an HTTP server; name a program that does, such as "
            "`pipe:curl -fsS -T - URL`, or write a local shard"
        )

    def describe(self, location: str, settings: StoreSettings) -> str:
        return f"{scheme_of(location).upper()}, in ranges where the server gives them"


def _object(location: str, settings: StoreSettings) -> HttpObject:
    return HttpObject(parse_location(location), settings.http, settings.retry_policy)


def ask_server(found: HttpObject, location: str, settings: StoreSettings) -> ObjectStat:
    """The size and the validator of an object at a location; see `Store.stat`."""
    try:
        return with_retries(settings.retry_policy, location, found.stat)
    except ShardError as error:
        error.at(location=location)
        raise


def parse_location(location: str) -> Url:
    """Parse a URL with a host. Raises ShardError for an invalid one."""
    try:
        url = parse_url(location)
    except HTTPError as error:
        raise ShardError(f"not a valid URL: {error}", location=location) from None
    if not url.host:
        raise ShardError("this URL names no host", location=location)
    return url


class HttpObject:
    """Requests one object, from any offset on: the `fetch` of a `ResumingStream`.

    Redirects are followed each time: their targets may be signed, and expire.
    """

    of_redirect = "; name that URL itself if it may be trusted"
    """What to do about a redirect that is refused."""

    def __init__(self, url: Url, settings: HttpSettings, retry_policy: RetryPolicy) -> None:
        self._url, self._settings, self._retry_policy = url, settings, retry_policy
        self._timeout = Timeout(connect=retry_policy.connect_timeout, read=retry_policy.read_timeout)
        self._known: Extent | None = None
        self._login = ""
        """Where the login of the last request was found; "" without one."""
        self._is_encoded: bool | None = None
        """Whether the server compresses the object for the transfer, if it says so and was asked for its start."""

    def __call__(self, offset: int, stop: int | None = None) -> RangeResponse:
        """The response with the bytes from an offset on. Raises as a `Fetch`."""
        response, url = self._request(offset, stop=stop)
        try:
            excerpt = "" if response.status in (200, 206, 416) else _excerpt(response, self._url, url)
            has_certificate = url.scheme != "https" or self._settings.client_cert is not None
            raise_for_status(response.status, response.headers, excerpt, self._login, has_certificate)
            is_range = self._range(offset, stop) is not None
            extent = extent_of(response.status, response.headers, offset, is_range=is_range)
            if response.status == 200:
                check_has_end(response.headers, self._url.path or "")
            explain = partial(
                http_requests.translate_error, host=url.netloc or "", retry_policy=self._retry_policy
            )
            if stop is not None and not offset and extent.encoding and response.status == 206:
                response.close()
                return self(offset)  # how the object is encoded is decided by more than a part of it
            answer = self._answer(http_requests.WireBody(response, explain), extent)
        except BaseException:
            response.close()
            raise
        if stop is not None and extent.length is not None and response.status != 200:
            answer = replace(answer, stop=extent.start + extent.length)
        if not offset or self._known is None:  # the newest answer with the start of the object
            self._known = extent
        return answer

    def stat(self) -> ObjectStat:
        """The size and the validator of the object; raises as a call does.

        If the server does not answer a HEAD properly, as for URLs that are signed for GET alone, this sends a GET and
        closes it unread.
        """
        response, _ = self._request(0, "HEAD")
        response.close()
        if response.status == 200 and not response.headers.get("content-encoding"):
            said = extent_of(200, response.headers, 0)
            return ObjectStat(said.total, said.validator)
        answer = self(0)
        answer.body.close()
        return ObjectStat(answer.total, answer.validator)

    def _answer(self, body: ResponseBody, extent: Extent) -> RangeResponse:
        total = extent.total
        if total is None and extent.start and self._known is not None:
            total = self._known.total  # `bytes 5-9/*`
        if extent.encoding and extent.start:
            if self._is_encoded is None:  # only the start of the object shows that
                self(0).body.close()
            if self._is_encoded:
                raise TransientError("the server compressed a range of bytes for the transfer")
        elif extent.encoding:
            body, self._is_encoded = decode_transfer(body, extent.encoding, self._url.path or "")
            if self._is_encoded:
                return RangeResponse(body, validator=extent.validator, ranges=False)
        return RangeResponse(body, extent.start, total, extent.validator, extent.ranges)

    def _request(
        self, offset: int, method: str = "GET", stop: int | None = None
    ) -> tuple[urllib3.BaseHTTPResponse, Url]:
        """The final answer, and its URL."""
        headers = dict(http_requests.HEADERS)
        if (wanted := self._range(offset, stop)) is not None:
            headers["range"] = wanted
            if offset and self._known is not None and self._known.validator:
                headers["if-range"] = self._known.validator
        url = self._url

        def send(target: str) -> urllib3.BaseHTTPResponse:
            nonlocal url
            url = _resolve_redirect(url, target)
            return self._send(url, headers, method, redirected=True)

        response = self._send(url, headers, method, redirected=False)
        try:
            response, _, _ = http_requests.follow_redirects(response, url.url, send, MAX_REDIRECTS)
        except http_requests.RedirectError as error:
            raise ShardError(f"{error}{self.of_redirect if error.is_unsafe else ''}") from None
        return response, url

    def _range(self, offset: int, stop: int | None) -> str | None:
        """Return the range to request from an offset on; None for the whole object."""
        if stop is not None:
            return f"bytes={offset}-{stop - 1}"
        return f"bytes={offset}-" if offset else None

    def _has_any_login(self, url: Url, redirected: bool) -> bool:
        """Whether a login for any host applies: to hosts that the spec names, not to those of redirects."""
        return not redirected or origin_of(url) == origin_of(self._url)

    def _send(
        self, url: Url, headers: dict[str, str], method: str, redirected: bool
    ) -> urllib3.BaseHTTPResponse:
        anywhere = self._has_any_login(url, redirected)
        login = http_requests.authorization(url, self._settings, anywhere=anywhere)
        host = url.netloc or ""
        manager = http_requests.manager_for(url, self._settings)
        plain = headers
        if login:
            headers = {**headers, "authorization": login}
        try:
            response = http_requests.get(
                manager, url._replace(auth=None, fragment=None).url, headers, self._timeout, method=method
            )
        except (HTTPError, OSError) as error:
            raise http_requests.translate_error(
                error,
                host,
                self._retry_policy,
                answers=(host, id(manager)) in _answered.value,
                proxy=http_requests.proxy_of(url, self._settings),
            ) from harmless(error)
        _answered.value.add((host, id(manager)))
        if response.status in (401, 403) and url.auth is None:
            http_requests.reread_logins()
            if http_requests.authorization(url, self._settings, anywhere=anywhere) != login:
                http_requests.drain(response)
                return self._send(url, plain, method, redirected)
        self._login = "" if login is None else "user:password@" if url.auth else str(self._settings.netrc)
        return response


def _resolve_redirect(url: Url, target: str) -> Url:
    """Where a redirect leads. A login is kept for the same origin only. Raises ShardError for an invalid URL."""
    try:
        parsed = parse_url(target)
    except HTTPError as error:
        raise ShardError(f"a redirect to {target}, which is not a valid URL: {error}") from None
    if not parsed.host:
        raise ShardError(f"a redirect to {target}, which names no host")
    return (
        parsed._replace(auth=url.auth)
        if parsed.auth is None and origin_of(parsed) == origin_of(url)
        else parsed
    )


def origin_of(url: Url) -> tuple[str | None, str | None, int]:
    """Return the scheme, the host and the port of a URL."""
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def _excerpt(response: urllib3.BaseHTTPResponse, *sent: Url) -> str:
    """The start of the server's message, without what was sent in the request."""
    kind = response.headers.get("content-type", "").lower()
    encoded = bool(response.headers.get("content-encoding"))
    data = http_requests.drain(response)
    if encoded or not any(each in kind for each in ("plain", "xml", "json")):
        return ""
    if "xml" in kind or data.lstrip().startswith(b"<?xml"):  # an object store repeats the whole request
        data = b": ".join(_XML_WORDS.findall(data))
    return http_requests.one_line(
        redact_answer(data.decode("utf-8", "replace"), *(url.url for url in sent)).encode(), 200
    )
