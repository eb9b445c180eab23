"""What the environment says about HTTP: proxies, certificates and the file of passwords."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HttpSettings:
    """Read once, in the parent, and sent to the workers with everything else; hashable."""

    proxies: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """(scheme of the URL, or `all`; URL of the proxy)."""
    no_proxy: tuple[str, ...] = ()
    """Hosts that are asked directly: `*`, names with what ends in them, addresses, networks, each perhaps with a
    port."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's."""
    ca_directory: str | None = None
    netrc: str | None = None
    """Path of a netrc file."""

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> HttpSettings:
        """Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR` (or
        `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`) and `NETRC`; the proxies also in small letters, which win.
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
            ca_file=value("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
            ca_directory=value("SSL_CERT_DIR"),
            netrc=value("NETRC") or os.path.expanduser("~/.netrc"),
        )

    def proxy_for(self, scheme: str, host: str, port: int) -> str | None:
        """The URL of the proxy through which a host is asked; None: none."""
        proxies = dict(self.proxies)
        proxy = proxies.get(scheme) or proxies.get("all")
        if proxy is None or any(_covers(entry, host.lower(), port) for entry in self.no_proxy):
            return None
        return proxy


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY stands for a host."""
    if entry == "*":
        return True
    name, colon, digits = entry.lower().rpartition(":")
    if colon and digits.isdigit() and not name.endswith(":"):
        if int(digits) != port:
            return False
        entry = name
    entry = entry.lower().removeprefix("*").strip("[]")
    try:
        return ipaddress.ip_address(host.strip("[]")) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        bare = entry.lstrip(".")
        return bool(bare) and (host == bare or host.endswith("." + bare))
