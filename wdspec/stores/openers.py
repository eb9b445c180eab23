"""Which opener reads which scheme: one table, which users extend."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from wdspec.errors import ShardError, StoreError
from wdspec.storage.resolver import AIS_PREFIX
from wdspec.stores.fsspec.filesystems import described, known_schemes
from wdspec.stores.local.local_files import local_path
from wdspec.stores.user_stores import checked, name_of, offers_of_packages
from wdspec.urls.schemes import scheme_of

if TYPE_CHECKING:
    from wdspec.storage.access import Access

BUILT_IN: dict[str, str] = {
    "http": "wdspec.stores.http.http_store:open_http",
    "https": "wdspec.stores.http.http_store:open_http",
    "-": "wdspec.stores.standard_input:open_standard_input",
    "pipe": "wdspec.stores.pipe:open_pipe",
    "ais": "wdspec.stores.ais.ais_store:open_ais",
}
"""Scheme -> `module:function` with the signature (location, access) -> stream; imported when first used. `-` and
`ais` (locations marked so) count as schemes here."""

FILESYSTEMS = "wdspec.stores.fsspec.fsspec_store:open_object"
"""What opens all other schemes that fsspec knows."""

HOW = {
    "-": "standard input",
    "pipe": "the output of this command",
    "http": "HTTP, in ranges where the server gives them",
    "https": "HTTPS, in ranges where the server gives them",
    "ais": "AIStore",
}
"""What `resolve` says of the built-in openers."""

NO_CLUSTER = "nothing says where AIStore is; set AIS_ENDPOINT, or `aistore: {endpoint: …}` in the spec"


def scheme_to_open(location: str) -> str:
    """The key in the table for a location that is no local file."""
    if location == "-":
        return "-"
    return "ais" if location.startswith(AIS_PREFIX) else scheme_of(location)


def opener_of(location: str, access: Access) -> Callable[[str], BinaryIO]:
    """What opens a location.

    Raises:
        ShardError: nothing does.
        StoreError: nothing says where AIStore is.
    """
    scheme = scheme_to_open(location)
    own = access.openers.get(scheme)
    if own is not None:
        return lambda url: checked(own, url)
    if scheme == "ais" and access.ais is None:
        raise StoreError(NO_CLUSTER, location=location)
    named = BUILT_IN.get(scheme) or (FILESYSTEMS if read_by_fsspec(scheme, access) else None)
    if named is None:
        raise ShardError(_why_not(scheme, access), location=location)
    module, _, function = named.partition(":")
    built_in = getattr(importlib.import_module(module), function)
    return lambda url: built_in(url, access)


def how_opened(location: str, access: Access) -> str:
    """What opens a location, or why nothing does; opens and imports nothing of it."""
    if local_path(location) is not None:
        return "local file"
    scheme = scheme_to_open(location)
    own = access.openers.get(scheme)
    if own is not None:
        return f"the opener {name_of(own)}"
    if scheme == "ais" and access.ais is None:
        return NO_CLUSTER
    if scheme in BUILT_IN:
        return HOW.get(scheme, "built in")
    return described(scheme) if read_by_fsspec(scheme, access) else _why_not(scheme, access)


def read_by_fsspec(scheme: str, access: Access) -> bool:
    """Whether fsspec knows a scheme that nothing else opens. Openers of packages come first, also forbidden ones."""
    others = {"", "file", *BUILT_IN, *access.openers, *offers_of_packages()}
    return scheme not in others and scheme in known_schemes()


def _why_not(scheme: str, access: Access) -> str:
    """What to say of a scheme that nothing opens: what is missing, and what to do."""
    if scheme in offers_of_packages():
        offers = " and ".join(f"`{value}` of {package}" for package, value in offers_of_packages()[scheme])
        return (
            f"{scheme}:// would be opened by {offers}, but WDS_SECURE forbids the openers of packages; unset it "
            "if you trust them, or rewrite the URL with WDS_REWRITE or `rewrite:`"
        )
    known = sorted({*BUILT_IN, *access.openers, *known_schemes(), "file"} - {"-"})
    close = difflib.get_close_matches(scheme, known, 1)
    hint = f"did you mean `{close[0]}`? " if close else ""
    return (
        f'no opener for {scheme}://; {hint}register one with `@wdspec.opener("{scheme}")`, install a package that '
        "brings one, or rewrite the URL with WDS_REWRITE or `rewrite:`"
    )
