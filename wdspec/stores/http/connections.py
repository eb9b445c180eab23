"""The connections of a process: made on first use, kept alive, and never shared with a forked child."""

from __future__ import annotations

import netrc
import ssl
from base64 import b64encode
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import urllib3
from urllib3.util import Url

from wdspec.errors import ShardError
from wdspec.stores.http.exchange import CONNECTIONS
from wdspec.stores.settings.http_settings import HttpSettings
from wdspec.streams.retrying import log
from wdspec.system.per_process import KeyedValues, PerProcess

_managers: PerProcess[KeyedValues[tuple[HttpSettings, str | None], urllib3.PoolManager]] = PerProcess(
    KeyedValues
)


def manager_for(url: Url, settings: HttpSettings) -> urllib3.PoolManager:
    """The connections through which a URL is asked for: direct ones, or those to its proxy.

    Raises:
        ShardError: a proxy or a file of certificates that cannot be used.
    """
    scheme = url.scheme or "http"
    proxy = settings.proxy_for(scheme, url.host or "", url.port or (443 if scheme == "https" else 80))
    return _managers.value.get((settings, proxy), lambda: _made(settings, proxy))


def authorization(url: Url, settings: HttpSettings, *, anywhere: bool = True) -> str | None:
    """The Authorization header for a URL: of its own `user:password@`, else from the netrc file.

    Args:
        anywhere: whether the file's `default`, a login for every host, may be used.
    """
    if url.auth is not None:
        user, _, password = url.auth.partition(":")
        return _basic(unquote(user), unquote(password))
    found = _netrc(settings.netrc)
    host = (url.host or "").strip("[]")
    entry = found.authenticators(host) if found and (anywhere or host in found.hosts) else None
    return _basic(entry[0], entry[2] or "") if entry else None


def _made(settings: HttpSettings, proxy: str | None) -> urllib3.PoolManager:
    arguments: dict[str, Any] = {"maxsize": CONNECTIONS, "ssl_context": _trust(settings)}
    if proxy is None:
        return urllib3.PoolManager(**arguments)
    parsed = urllib3.util.parse_url(proxy)
    if parsed.scheme not in ("http", "https"):
        raise ShardError(
            f"the environment asks for the proxy {proxy} (HTTP_PROXY, HTTPS_PROXY or ALL_PROXY), but only http and "
            "https proxies are known; unset it, or name the host in NO_PROXY"
        )
    if parsed.auth:
        user, _, password = parsed.auth.partition(":")
        arguments["proxy_headers"] = {"proxy-authorization": _basic(unquote(user), unquote(password))}
    return urllib3.ProxyManager(parsed._replace(auth=None).url, **arguments)


def _trust(settings: HttpSettings) -> ssl.SSLContext:
    """Whose certificates are trusted: those named in the environment, else the system's and certifi's."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file, capath=settings.ca_directory)
    except (OSError, ssl.SSLError) as error:
        raise ShardError(
            f"the certificates in `{settings.ca_file}` cannot be read ({error}); correct SSL_CERT_FILE",
        ) from None
    if settings.ca_file is None and settings.ca_directory is None:
        try:
            import certifi
        except ImportError:
            pass
        else:
            context.load_verify_locations(certifi.where())
    return context


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
