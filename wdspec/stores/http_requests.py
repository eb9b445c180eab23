"""HTTP requests over kept-alive connections, for HTTP servers and AIStore clusters.

Connections are made on first use and never shared with a forked child. Redirects are followed by hand and never kept:
their targets may be signed, and expire.
"""

from __future__ import annotations

import contextlib
import netrc
import os
import queue
import re
import ssl
import weakref
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

import urllib3
from urllib3 import exceptions
from urllib3.exceptions import HTTPError
from urllib3.util import Timeout, Url

from wdspec.base.errors import ShardError, UnusableStoreError, find_lack
from wdspec.base.handles import idle_closers
from wdspec.base.process import KeyedValues, PerProcess
from wdspec.base.redaction import harmless
from wdspec.stores.retry import RetryPolicy, TransientError, log
from wdspec.stores.settings import HttpSettings

HEADERS = {"accept-encoding": "identity", "user-agent": "wdspec"}
CONNECTIONS = 20
"""Idle connections kept per host."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SMALL = 64 * 1024
_LARGEST_CHUNK = 1 << 50
"""No object has that many bytes: what follows in the connection would be taken for data."""

Explain = Callable[[Exception], Exception]
"""Turns an error of urllib3 into one of ours."""


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


class RedirectError(Exception):
    """A redirect that cannot be followed.

    Args:
        url: where the redirect was seen.
        is_unsafe: whether it leads away from https, which the caller may want to explain.
    """

    def __init__(self, message: str, url: str, *, is_unsafe: bool = False) -> None:
        super().__init__(message)
        self.url, self.is_unsafe = url, is_unsafe


def follow_redirects(
    response: urllib3.BaseHTTPResponse,
    url: str,
    send: Callable[[str], urllib3.BaseHTTPResponse],
    most: int,
) -> tuple[urllib3.BaseHTTPResponse, str, int]:
    """Follow redirects to http and https, but from https only to https.

    Args:
        response: the first answer; like all later ones, it is closed if this raises.
        url: of the first answer.
        send: requests a URL.
        most: redirects to follow.

    Returns:
        The first answer that is not a redirect, its URL, and the number of redirects before it.

    Raises:
        RedirectError: a redirect to an invalid URL, away from https, or one too many. Also what `send` raises.
    """
    hops = 0
    try:
        while (location := response.headers.get("location")) is not None and response.status in _REDIRECTS:
            if hops == most:
                raise RedirectError(f"more than {most} redirects, the last one to {url}", url)
            with contextlib.suppress(UnicodeError):
                location = location.encode("latin-1").decode("utf-8")  # headers are decoded as Latin-1
            try:
                target = urljoin(url, location)
            except ValueError as error:
                message = f"a redirect to {location}, which is not a valid URL: {error}"
                raise RedirectError(message, url) from None
            before, after = urlsplit(url).scheme.lower(), urlsplit(target).scheme.lower()
            if after != "https" and (after, before) != ("http", "http"):
                raise RedirectError(
                    f"a redirect from {before} to {target}, which is refused", url, is_unsafe=True
                )
            drain(response)
            url, hops = target, hops + 1
            response = send(url)
    except BaseException:
        response.close()
        raise
    return response, url, hops


def drain(response: urllib3.BaseHTTPResponse) -> bytes:
    """Read a small body to its end, so that its connection can be reused; close the connection of a large one."""
    try:
        data = response.read(_SMALL, decode_content=False)
        if len(data) < _SMALL:
            response.release_conn()
            return data
    except (HTTPError, OSError, ValueError):
        data = b""
    response.close()
    return data


def one_line(data: bytes, most: int) -> str:
    """The start of a server's message, on one line of at most `most` characters."""
    text = data[: 4 * most].decode("utf-8", "replace")
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line[:most] + ("…" if len(line) > most else "")


class WireBody:
    """The bytes of one answer, as sent; `explain` turns an error into the one to raise."""

    def __init__(self, response: urllib3.BaseHTTPResponse, explain: Explain) -> None:
        self._response, self._explain = response, explain
        headers = response.headers
        self._may_be_cut = not ("content-length" in headers or "transfer-encoding" in headers)

    def read(self, size: int) -> bytes:
        try:
            data = self._response.read(size, decode_content=False)
        except (HTTPError, OSError, ValueError) as error:  # ValueError: the size of a chunk is no size
            raise self._explain(error) from harmless(error)
        left = getattr(getattr(self._response, "_fp", None), "chunk_left", None)
        if isinstance(left, int) and left > _LARGEST_CHUNK:
            raise TransientError("the size of a chunk is damaged, so its end is not known")
        if self._may_be_cut and not data:
            raise TransientError(
                "the connection was closed before a byte arrived, and the headers do not include the length of the "
                "object: they may have been cut",
                brief=True,
            )
        self._may_be_cut = False
        return data

    def close(self) -> None:
        self._response.close()

    def abort(self) -> None:
        """End a `read` in another thread."""
        with contextlib.suppress(RuntimeError, ValueError, OSError):  # nothing is being read
            self._response.shutdown()


_managers: PerProcess[KeyedValues[tuple[HttpSettings, str | None, bool], urllib3.PoolManager]] = PerProcess(
    KeyedValues
)


_contexts: PerProcess[KeyedValues[tuple[str | None, ...], ssl.SSLContext]] = PerProcess(KeyedValues)
"""By the files that they are from: reading a hundred certificates, and freeing them in a child, takes milliseconds."""


_all_managers: PerProcess[weakref.WeakSet[urllib3.PoolManager]] = PerProcess(weakref.WeakSet)


def note_manager(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """Note connections that may be closed when they are idle; returns them."""
    _all_managers.value.add(manager)
    return manager


def close_idle_connections() -> bool:
    """Close the connections of this process that are kept for later requests. Return whether there were any."""
    idle = []
    for manager in list(_all_managers.value):
        for key in manager.pools.keys():  # noqa: SIM118  # it cannot be iterated over
            kept: Any = getattr(manager.pools.get(key), "pool", None)
            places = 0
            with contextlib.suppress(queue.Empty, AttributeError):  # it may be closed
                while True:
                    idle.append(kept.get(block=False))
                    places += 1
            with contextlib.suppress(queue.Full, AttributeError):
                for _ in range(places):
                    kept.put(None, block=False)
    connections = [each for each in idle if each is not None]
    for each in connections:
        each.close()
    return bool(connections)


idle_closers.append(close_idle_connections)


def proxy_of(url: Url, settings: HttpSettings) -> str | None:
    """The URL of the proxy for a URL, if it has one."""
    scheme = url.scheme or "http"
    return settings.proxy_for(scheme, url.host or "", url.port or (443 if scheme == "https" else 80))


def manager_for(url: Url, settings: HttpSettings) -> urllib3.PoolManager:
    """The connections for a URL or its proxy. Raises ShardError for an unusable proxy or certificate file."""
    proxy = proxy_of(url, settings)
    is_plain = url.scheme == "http" and proxy is None  # to read certificates takes longer than many requests
    key = settings, proxy, is_plain
    return _managers.value.get(key, lambda: note_manager(_make_manager(settings, proxy, is_plain)))


def authorization(url: Url, settings: HttpSettings, *, anywhere: bool = True) -> str | None:
    """The Authorization header for a URL: its own `user:password@`, else from the netrc file.

    `anywhere` allows the file's `default` entry, a login for every host.
    """
    if url.auth is not None:
        user, _, password = url.auth.partition(":")
        return _basic(unquote(user), unquote(password))
    found = _netrc(settings.netrc)
    host = (url.host or "").strip("[]")
    entry = found.authenticators(host) if found and (anywhere or host in found.hosts) else None
    return _basic(entry[0], entry[2] or "") if entry else None


def _make_manager(settings: HttpSettings, proxy: str | None, is_plain: bool) -> urllib3.PoolManager:
    """Return the connections of some settings; those that are plain have no certificates."""
    arguments: dict[str, Any] = {"maxsize": CONNECTIONS}
    if not is_plain:
        arguments["ssl_context"] = _trust(settings)
    if proxy is None and settings.allowed is not None:
        from wdspec.stores.addresses import checked_manager  # most programs need none of it

        return checked_manager(settings.allowed, **arguments)
    if proxy is None:
        return urllib3.PoolManager(**arguments)
    parsed = urllib3.util.parse_url(proxy)
    if parsed.scheme not in ("http", "https"):
        raise UnusableStoreError(
            f"the environment sets the proxy {proxy} (HTTP_PROXY, HTTPS_PROXY or ALL_PROXY), but only http and https "
            "proxies are supported; unset it, or name the host in NO_PROXY"
        )
    if parsed.auth:
        user, _, password = parsed.auth.partition(":")
        arguments["proxy_headers"] = {"proxy-authorization": _basic(unquote(user), unquote(password))}
    return urllib3.ProxyManager(parsed._replace(auth=None).url, **arguments)


def _trust(settings: HttpSettings) -> ssl.SSLContext:
    """The trusted certificates: those named in the environment, else the system's and certifi's."""
    files = settings.ca_file, settings.ca_directory, settings.client_cert, settings.client_key
    return _contexts.value.get(files, lambda: _read_certificates(settings))


def _read_certificates(settings: HttpSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file, capath=settings.ca_directory)
    except (OSError, ssl.SSLError) as error:
        if (lack := find_lack(error)) is not None:
            raise UnusableStoreError(f"the certificates cannot be read; {lack}") from error
        raise UnusableStoreError(
            f"the certificates in `{settings.ca_file}` cannot be read ({error}); correct SSL_CERT_FILE",
        ) from None
    if settings.ca_file is None and settings.ca_directory is None:
        try:
            import certifi
        except ImportError:
            pass
        else:
            context.load_verify_locations(certifi.where())
    if settings.client_cert is not None:
        try:
            context.load_cert_chain(settings.client_cert, settings.client_key, password=_no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if (lack := find_lack(error)) is not None:
                raise UnusableStoreError(f"the client certificate cannot be read; {lack}") from error
            raise UnusableStoreError(
                f"the client certificate `{settings.client_cert}` cannot be used ({error}); WDS_CLIENT_CERT must name "
                "a file in PEM format with a certificate and its key, or WDS_CLIENT_KEY the file with the key"
            ) from None
    return context


def _no_password() -> str:
    """Without this, OpenSSL would ask for it on the terminal."""
    raise ValueError("its key has a password; write it without one: `openssl pkey`")


def reread_logins() -> None:
    """Read the netrc file again when it is next used, as it may have a new password."""
    _netrc.cache_clear()


@lru_cache
def _netrc(path: str | None) -> netrc.netrc | None:
    try:
        return netrc.netrc(path) if path else None
    except FileNotFoundError:
        return None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError) as error:
        log.warning("the passwords in `%s` are not used: %s", path, error)
        return None


def _basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


_REMEDY = "if your own authority issued it, name that authority's file in SSL_CERT_FILE"
_REMEDIES = {
    9: "it will be valid later: is the clock of this machine right?",
    10: "the owner of the server has to renew it, if the clock of this machine is right",
    62: "name the host as the certificate does",
    64: "name the host as the certificate does, not its address",
}
"""Remedies by OpenSSL's number of the fault of a certificate."""
_NAME_CERTIFICATE = (
    "if it asks who the client is, name a client certificate in WDS_CLIENT_CERT, "
    "and its key in WDS_CLIENT_KEY"
)
_E = TypeVar("_E", bound=BaseException)
_OBJECT = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>:? ?|\w+\(host='[^']*', port=[^)]*\): ?")


def translate_error(
    error: Exception, host: str, retry_policy: RetryPolicy, answers: bool = True, proxy: str | None = None
) -> Exception:
    """Our error for an error of urllib3: a TransientError, or a ShardError if it will not pass by itself.

    `answers` says whether this host has ever answered this process; `proxy` is the URL of its proxy.
    """
    if (lack := find_lack(error)) is not None:
        return UnusableStoreError(f"no connection to {host}; {lack}")
    certificate = _cause(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        said = certificate.verify_message or str(certificate)
        remedy = _REMEDIES.get(certificate.verify_code, _REMEDY)
        return UnusableStoreError(f"the certificate of {host} is not trusted: {said}; {remedy}")
    secure = _cause(error, ssl.SSLError)
    if secure is not None and secure.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return ShardError(f"{host} does not speak TLS; is it `http:` instead of `https:`?")
    if secure is not None and "ALERT" in (secure.reason or ""):
        return UnusableStoreError(f"{host} refuses the TLS connection: {secure.reason}; {_NAME_CERTIFICATE}")
    if isinstance(secure, ssl.SSLEOFError) and not answers:  # its alert came too late to be read
        return TransientError(
            f"{host} ends the TLS connection before it answers; {_NAME_CERTIFICATE}", brief=True
        )
    if isinstance(error, exceptions.ProxyError):
        return TransientError(
            f"the proxy for {host} failed: {_words(error.original_error)}; {_proxy_remedy(proxy)}",
            brief=not answers,
        )
    if _cause(error, exceptions.NameResolutionError) is not None:
        return TransientError(
            f"there is no host {host} ({_words(error)}); correct its name, or see whether this machine has a network "
            "and whether a proxy is needed (HTTP_PROXY, HTTPS_PROXY)",
            brief=not answers,
        )
    if _cause(error, exceptions.ConnectTimeoutError) is not None and not isinstance(
        error, exceptions.NewConnectionError
    ):
        return TransientError(
            f"no connection to {host} in {retry_policy.connect_timeout:g} s", brief=not answers
        )
    if _cause(error, ConnectionRefusedError) is not None:
        return TransientError(f"{host} refuses the connection: is a server running there?", brief=not answers)
    if isinstance(error, exceptions.NewConnectionError):
        return TransientError(f"no connection to {host}: {_words(error)}", brief=not answers)
    if isinstance(error, exceptions.ReadTimeoutError):
        return TransientError(f"{host} sent nothing for {retry_policy.read_timeout:g} s")
    if isinstance(error, exceptions.LocationValueError):
        return ShardError(f"not a valid URL: {_words(error)}")
    cut = _cause(error, exceptions.IncompleteRead)
    if cut is not None and cut.expected is not None:
        return TransientError(
            f"the connection to {host} broke after {cut.partial:,} bytes of an answer; {cut.expected:,} are missing"
        )
    return TransientError(f"the connection to {host} broke: {_words(error)}")


def _proxy_remedy(proxy: str | None) -> str:
    """What to do about a proxy that fails: it names the proxy and the variables that set it."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    found = [
        name
        for name, value in os.environ.items()
        if name.lower() in names and value and value in (proxy or "")
    ]
    by = f" ({', '.join(found)})" if found else ""
    return f"start the proxy {proxy or ''}{by}, or correct it, or name the host in NO_PROXY"


def _cause(error: BaseException | None, kind: type[_E]) -> _E | None:
    """The first error of a kind in a chain of causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        inner = next((each for each in error.args if isinstance(each, BaseException)), None)
        error = inner or error.__cause__ or error.__context__
    return None


def _words(error: object) -> str:
    """The text of an error, without the names of Python objects."""
    return _OBJECT.sub("", str(error)).strip() or type(error).__name__
