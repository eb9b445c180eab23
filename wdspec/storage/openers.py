"""Which opener reads which scheme: one table, which users extend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from wdspec.spec.errors import ShardError
from wdspec.storage.opening import why_not_opened
from wdspec.urls.resolve import AIS_PREFIX
from wdspec.urls.schemes import scheme_of

if TYPE_CHECKING:
    from wdspec.storage.access import Access

BUILT_IN: dict[str, str] = {
    "http": "wdspec.storage.http:open_http",
    "https": "wdspec.storage.http:open_http",
}
"""Scheme -> `module:function` with the signature (location, access) -> stream; imported when first used. `-` and
`ais` (locations marked so) count as schemes here."""


def scheme_to_open(location: str) -> str:
    """The key in the table for a location that is no local file."""
    if location == "-":
        return "-"
    return "ais" if location.startswith(AIS_PREFIX) else scheme_of(location)


def opener_of(location: str, access: Access) -> Callable[[str], BinaryIO]:
    """What opens a location.

    Raises:
        ShardError: nothing does.
    """
    scheme = scheme_to_open(location)
    own = access.openers.get(scheme)
    if own is not None:
        return own
    named = BUILT_IN.get(scheme)
    if named is None:
        raise ShardError(why_not_opened(location), location=location)
    module, _, function = named.partition(":")
    built_in = getattr(importlib.import_module(module), function)
    return lambda url: built_in(url, access)
