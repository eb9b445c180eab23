"""References in data: which object one names, if the spec allows it.

Data may be hostile, so this is strict where URLs are otherwise read leniently: what a URL means to a server, a store or
a file system must not depend on who decodes it once more. A reference that looks dangerous in any reading is refused.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from urllib.parse import quote, unquote

from wdspec.base.errors import UrlError
from wdspec.urls.urls import scheme_of

MOST_BYTES = 4096
"""The longest reference, in UTF-8."""
_SHOWN = 120
_MOST_DECODED = 16
"""More layers of percent escapes than anyone needs; a text with more is refused."""
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)(.*)", re.DOTALL)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_WEB = {"http": 80, "https": 443}
_IN_PATHS = "/%:@!$&'()*+,;=~-._"
"""What stays as it is in the path of a URL; `%` since references are escaped already."""
_NEVER = frozenset({"", "-", "file", "pipe", "data", "ais"})
"""Schemes that `hosts` cannot have."""


class Place(NamedTuple):
    """An entry of `hosts`."""

    scheme: str
    """Empty for a network."""
    host: str
    """In lower case; or a bucket, as it is written; or a network."""
    port: int | None
    """None for schemes other than http and https."""

    def has(self, scheme: str, host: str, port: int | None) -> bool:
        """Whether it allows URLs of a place."""
        if scheme != self.scheme or port != self.port:
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


@dataclass(frozen=True)
class Allowed:
    """What references may name.

    Args:
        root: the URL or absolute path of a directory, which ends with `/`; None for none.
        hosts: the entries of `hosts`.
    """

    root: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The entries of `hosts`, parsed."""
        return tuple(map(parse_place, self.hosts))

    @cached_property
    def origin(self) -> tuple[str, str, int] | None:
        """The scheme, host and port of the root, if it is a URL of http or https."""
        if self.root is None or scheme_of(self.root) not in _WEB:
            return None
        scheme, _, rest = self.root.partition("://")
        netloc = rest.partition("/")[0].rpartition("@")[2]
        found = split_web(f"{scheme}://{netloc}")
        return None if found is None else found[:3]

    def locate(self, reference: str) -> str:
        """Return the URL, or the absolute path, that a reference names.

        Raises:
            UrlError: the reference names something else, or may do so in another reading.
        """
        check_text(reference)
        if self.root is None:
            return self._locate_url(reference)
        path = reference
        if path.startswith(self.root):
            path = path[len(self.root) :]
        elif _SCHEME.match(path):
            raise refuse(reference, "names a place of its own, but references are relative to `root`")
        if _SCHEME.match(path) or _SCHEME.match(_decode(path)):
            raise refuse(reference, "has a scheme", "write `./` before a file name with a colon")
        is_web = scheme_of(self.root) in _WEB
        _check_path(reference, path.partition("?")[0] if is_web else path)
        while path.startswith("./"):
            path = path[2:]
        if not path:
            raise refuse(reference, "names the root itself, not an object in it")
        return self.root + (_escape(reference, path) if is_web else path)

    def _locate_url(self, reference: str) -> str:
        match = _URL.match(reference)
        if match is None:
            raise refuse(
                reference, "is not a URL", "name the directory where references start: `root: s3://bucket/a/`"
            )
        scheme, netloc, rest = match[1].lower(), match[2], match[3]
        if "@" in unquote(netloc):
            raise refuse(reference, "has a user name or password")
        try:
            web = split_web(reference)
        except UrlError as error:
            raise refuse(reference, error.message, "write a name in other letters as `xn--…`") from None
        if web is None:
            place: tuple[str, str, int | None] = scheme, netloc, None
        else:
            place = web[:3]
        if scheme in _NEVER or not any(each.has(*place) for each in self.places):
            raise refuse(
                reference,
                f"names {_show(*place)}, which `hosts` does not have",
                f"add `{_entry(*place)}` to `hosts` if this data may choose what is read there",
            )
        if web is None:
            _check_path(reference, rest.removeprefix("/"))
            if not rest.strip("/"):
                raise refuse(reference, "names no object")
            return f"{scheme}://{netloc}{rest}"
        _check_path(reference, rest.partition("?")[0].removeprefix("/"))
        _, host, port = place
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}" + ("" if port == _WEB[scheme] else f":{port}") + _escape(reference, rest)

    def may_redirect(self, scheme: str, host: str, port: int | None) -> bool:
        """Whether a server may redirect a request to another place of http or https."""
        return any(each.has(scheme, host.lower(), port) for each in self.places)

    def may_connect(self, address: str, name: str) -> bool:
        """Whether a connection to an address is allowed.

        Args:
            address: the address, IPv4 or IPv6.
            name: the host in the URL, which the address was found for.
        """
        found = ipaddress.ip_address(address.partition("%")[0])
        found = getattr(found, "ipv4_mapped", None) or found
        if is_public(found):
            return True
        bare = name.strip("[]").lower().rstrip(".")
        if found.is_loopback and (bare == "localhost" or bare.endswith(".localhost")):
            return True
        named = [bare, *(each.host for each in self.places)]
        return any(found in network for network in map(_network, named) if network is not None)


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address belongs to the public Internet, also if it wraps an IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if any(each is not None and not is_public(each) for each in inner):
            return False
        if address in _NAT64:
            return True
    return address.is_global and not address.is_multicast


_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def parse_place(entry: str) -> Place:
    """Parse an entry of `hosts`.

    Raises:
        UrlError: it names no place, or every place.
    """
    text = entry.strip()
    network = _network(text)
    if network is not None:
        if network.prefixlen == 0:
            raise UrlError("allows every address", url=entry)
        if network.prefixlen < network.max_prefixlen:
            return Place("", text, None)
    match = _URL.match(text if "://" in text else f"https://{text}")
    if match is None or match[3].strip("/") or not match[2]:
        raise UrlError("is not a host, a bucket or a network", url=entry)
    scheme, netloc = match[1].lower(), match[2]
    if scheme in _NEVER:
        raise UrlError(f"has the scheme `{scheme}:`, which data may not choose", url=entry)
    if "@" in netloc:
        raise UrlError("has a user name or password", url=entry)
    if scheme not in _WEB:
        if "*" in netloc:
            raise UrlError("is a pattern, but only hosts can be patterns", url=entry)
        return Place(scheme, netloc, None)
    pattern = netloc.startswith("*.")
    if "*" in netloc.removeprefix("*.") or (pattern and netloc.rstrip(".").count(".") < 2):
        raise UrlError("is a pattern for too many hosts; one such as `*.example.org` is allowed", url=entry)
    found = split_web(f"{scheme}://{netloc.removeprefix('*.')}")
    assert found is not None, "it has a scheme of the web"
    return Place(scheme, f"*.{found[1]}" if pattern else found[1], found[2])


def split_web(url: str) -> tuple[str, str, int, str] | None:
    """Return the scheme, host, port and rest of a URL of http or https; None for others.

    Raises:
        UrlError: the host or the port cannot be read in one way only. It does not say of what.
    """
    match = _URL.match(url)
    if match is None or match[1].lower() not in _WEB:
        return None
    scheme, netloc, rest = match[1].lower(), match[2].lower(), match[3]
    if netloc.startswith("["):
        host, bracket, after = netloc[1:].partition("]")
        is_right = bool(bracket) and isinstance(_address(host), ipaddress.IPv6Address)
        colon, digits = after[:1], after[1:]
        is_right = is_right and colon in ("", ":")
        host = str(_address(host)) if is_right else host
    else:
        host, colon, digits = netloc.partition(":")
        host = host.removesuffix(".")
        is_right = bool(_NAME.fullmatch(host)) and len(host) < 254
        if is_right and host.rpartition(".")[2].isdigit():  # `127.1` and `2130706433` are addresses to some
            is_right = _address(host) is not None
        if is_right and re.fullmatch(r"0x[0-9a-f]*", host.rpartition(".")[2]):
            is_right = False
    if colon and (not re.fullmatch("[0-9]{1,5}", digits) or int(digits) > 65535):
        is_right = False
    if not is_right or rest[:1] == "\\":
        raise UrlError("has a host or port that cannot be read in one way only")
    return scheme, host, int(digits) if colon else _WEB[scheme], rest


def check_text(reference: str) -> None:
    """Raise UrlError for a text that is no reference, wherever it would lead."""
    try:
        size = len(reference.encode())
    except UnicodeEncodeError:
        raise refuse(reference, "is not valid Unicode") from None
    if reference[:5].lower() == "data:":
        raise refuse(reference, "is a `data:` URL", "store its bytes in a column")
    if size > MOST_BYTES:
        raise refuse(reference, f"has {size:,} bytes, but references have at most {MOST_BYTES:,}")
    if _has_control(reference) or ("%" in reference and _has_control(_decode(reference))):
        raise refuse(reference, "has a control character")


def refuse(reference: str, why: str, hint: str = "") -> UrlError:
    """Return the error for a reference that is not allowed."""
    shown = reference.encode("unicode_escape").decode()
    shown = shown[:_SHOWN] + ("…" if len(shown) > _SHOWN else "")
    return UrlError(f"the reference `{shown}` {why}" + (f"; {hint}" if hint else ""))


def _check_path(reference: str, path: str) -> None:
    """Raise UrlError for a path that may lead out of where it starts, however it is decoded."""
    for reading in {path, _decode(path), unicodedata.normalize("NFKC", _decode(path))}:
        plain = reading.replace("\\", "/")
        for segment in plain.split("/"):
            bare = segment.partition(";")[0].strip()
            if bare == ".." or (bare.startswith("..") and not bare.strip(". ")):
                raise refuse(reference, "leads out of where it starts, by `..`")
        if "::" in plain:
            raise refuse(reference, "has `::`, which chains stores")
    if _decode(path).replace("\\", "/").startswith(("/", "~")):
        raise refuse(reference, "is an absolute path", "remove what is before its first name")


def _decode(text: str) -> str:
    """Decode percent escapes until none is left. Raises UrlError for too many layers."""
    for _ in range(_MOST_DECODED):
        decoded = unquote(text, errors="replace")
        if decoded == text:
            return text
        text = decoded
    raise refuse(text, "has too many layers of percent escapes")


def _has_control(text: str) -> bool:
    return not (text.isascii() and text.isprintable()) and any(map(_is_control, text))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") or character in _DIRECTIONS


_DIRECTIONS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def _escape(reference: str, path: str) -> str:
    """Escape what the path and the query of a URL cannot have."""
    if "#" in path:
        raise refuse(reference, "has a `#`", "write `%23`")
    if "\\" in path:
        raise refuse(reference, "has a backslash", "write `/`, or `%5C`")
    path, mark, query = path.partition("?")
    if re.search(r"%(?![0-9A-Fa-f]{2})", path + query):
        raise refuse(reference, "has a `%` that starts no escape", "write `%25`")
    return quote(path, safe=_IN_PATHS) + mark + quote(query, safe=f"{_IN_PATHS}?")


def _show(scheme: str, host: str, port: int | None) -> str:
    return f"`{scheme}://{host}`" if port in (None, _WEB.get(scheme)) else f"`{scheme}://{host}:{port}`"


def _entry(scheme: str, host: str, port: int | None) -> str:
    return _show(scheme, host, port).strip("`").removeprefix("https://")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        return None
