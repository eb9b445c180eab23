"""How stores are reached: HTTP proxies, certificates and passwords from the environment, and `storage:` of a spec."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wdspec.base.errors import StoreError
from wdspec.spec.language.locations import ObjectStoreOptions
from wdspec.spec.spec import Source, Spec
from wdspec.urls.references import Allowed
from wdspec.urls.urls import FSSPEC, ROWS, store_key

_PROXIES = frozenset(
    name for scheme in ("http", "https", "all") for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper())
)
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_OF_CLIENTS = ("WDS_CLIENT_CERT", "WDS_CLIENT_KEY")
HTTP_VARIABLES = _PROXIES | {"no_proxy", "NO_PROXY", *_CERTIFICATES, "SSL_CERT_DIR", "NETRC", *_OF_CLIENTS}
"""The environment variables that `HttpSettings.read` reads."""


@dataclass(frozen=True)
class HttpSettings:
    """The environment's settings of HTTP. Read once, in the parent, and sent to the workers; hashable."""

    proxies: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """(scheme of the URL or `all`, URL of the proxy) pairs."""
    no_proxy: tuple[str, ...] = ()
    """Hosts reached without a proxy: `*`, names (with all names that end in them), addresses, networks, each with an
    optional port."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's."""
    ca_directory: str | None = None
    netrc: str | None = None
    """Path of a netrc file."""
    client_cert: str | None = None
    """Path of the certificate that shows servers who the client is (mutual TLS)."""
    client_key: str | None = None
    """Path of its key, if it is in another file."""
    allowed: Allowed | None = field(default=None, repr=False)
    """The places and addresses that data may choose; None if only the spec chooses what is read."""

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> HttpSettings:
        """Read `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR` (or
        `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`), `NETRC`, `WDS_CLIENT_CERT` and `WDS_CLIENT_KEY`. The lowercase names of
        the proxies take precedence.
        """
        variables = os.environ if environ is None else environ

        def value(*names: str) -> str | None:
            return next((variables[name] for name in names if variables.get(name)), None)

        proxies = []
        for scheme in ("http", "https", "all"):
            names = [f"{scheme}_proxy", f"{scheme}_proxy".upper()]
            if scheme == "http" and "REQUEST_METHOD" in variables:
                names.pop()  # under CGI a header named Proxy sets HTTP_PROXY
            proxy = value(*names)
            if proxy:
                proxies.append((scheme, proxy if "://" in proxy else f"http://{proxy}"))
        no_proxy = (value("no_proxy", "NO_PROXY") or "").replace(",", " ").split()
        return cls(
            proxies=tuple(proxies),
            no_proxy=tuple(no_proxy),
            ca_file=value(*_CERTIFICATES),
            ca_directory=value("SSL_CERT_DIR"),
            netrc=value("NETRC") or os.path.expanduser("~/.netrc"),
            client_cert=value("WDS_CLIENT_CERT"),
            client_key=value("WDS_CLIENT_KEY"),
        )

    def proxy_for(self, scheme: str, host: str, port: int) -> str | None:
        """The URL of the proxy for a host, if it has one."""
        proxies = dict(self.proxies)
        proxy = proxies.get(scheme) or proxies.get("all")
        if proxy is None or any(_covers(entry, host.lower(), port) for entry in self.no_proxy):
            return None
        return proxy


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY covers a host."""
    if entry == "*":
        return True
    name, colon, digits = entry.lower().rpartition(":")
    if colon and digits.isascii() and digits.isdigit() and not name.endswith(":"):
        if digits.lstrip("0") != str(port):
            return False
        entry = name
    entry = entry.lower().removeprefix("*").strip("[]")
    try:
        return ipaddress.ip_address(host.strip("[]")) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        bare = entry.lstrip(".")
        return bool(bare) and (host == bare or host.endswith("." + bare))


_LONGEST = 64 * 1024
"""Maximum number of characters of a file with a secret."""


@dataclass(frozen=True)
class ObjectLogin:
    """The options under `storage:`. Pickles without secrets, which are read when a file system is made."""

    said: ObjectStoreOptions
    home: str
    """The home directory, for `~`."""

    @classmethod
    def of(cls, home: str, spec: Spec | None = None, source: Source | None = None) -> ObjectLogin | None:
        """The login of a source, else of the top level; never mixed, so that no login goes to another server."""
        for holder in (source, spec):
            if holder is not None and "storage" in holder.model_fields_set:
                return None if holder.storage is None else cls(holder.storage, home)
        return None

    @property
    def variant(self) -> str:
        """Return the settings by which one URL can mean different objects."""
        said = self.said.model_dump(exclude_defaults=True, exclude={"anonymous", "requester_pays"})
        return json.dumps(said, sort_keys=True, default=str) if said else ""

    def arguments(self, scheme: str) -> dict[str, Any]:
        """The arguments for a scheme's file system. Raises StoreError for an unknown setting or a missing secret."""
        found: dict[str, Any] = {}
        known = ROWS[scheme].settings if scheme in ROWS else {}
        for name in ("endpoint", "profile", "region", "anonymous", "requester_pays"):
            value = getattr(self.said, name)
            if value in (None, False):
                continue
            if name not in known:
                takes = ", ".join(f"`{each}`" for each in known) or "none of these settings"
                raise StoreError(
                    f"`storage.{name}` has no meaning for {scheme}://, which takes {takes}; give the arguments of its "
                    "file system under `storage.options`, or write `storage:` at the sources that it is for"
                )
            argument, fixed = known[name]
            outer, _, inner = argument.partition(".")
            value = value if fixed is None else fixed
            _set(found, outer, {inner: value} if inner else value)
        for name, value in self.said.options.items():
            _set(found, name, value)
        for name, variable in self.said.env.items():
            _set(found, name, _of_variable(name, variable))
        for name, path in self.said.files.items():
            _set(found, name, self._of_file(name, path))
        return found

    def _of_file(self, name: str, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LONGEST).strip()
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or type(error).__name__
            raise StoreError(
                f"the file that holds `{name}` (`storage.files`) cannot be read: {said}; name one that each worker can "
                "read",
                location=path,
            ) from None
        if not text:
            raise StoreError(f"the file that should hold `{name}` (`storage.files`) is empty", location=path)
        return text


def uses_login(location: str) -> bool:
    """Whether `storage:` applies to the store of a location."""
    row = ROWS.get(store_key(location))
    return row is None or row.store == FSSPEC


def _of_variable(name: str, variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise StoreError(
            f"the variable {variable}, which should hold `{name}` (`storage.env`), is not set; set it, in every worker "
            "too"
        )
    return value


def _set(found: dict[str, Any], name: str, value: Any) -> None:
    """Set an argument; maps are merged."""
    before = found.get(name)
    if isinstance(before, dict) and isinstance(value, dict) and not before.keys() & value.keys():
        value = {**before, **value}
    elif name in found:
        raise StoreError(f"`storage:` gives the argument `{name}` twice; leave it in one place")
    found[name] = value
