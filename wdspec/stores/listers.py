"""Which stores can be listed, and by what: the table beside that of the openers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from wdspec.errors import ShardError
from wdspec.storage.access import Access
from wdspec.stores.openers import how_opened, read_by_fsspec, scheme_to_open

Lister = Callable[[str, str, Access], Iterable[str]]
"""(root, start, access) -> the names of all files below the root that go on with `start`, in any depth and order,
without the root. The root is a location that ends with `/`."""

LISTERS: dict[str, str] = {
    "ais": "wdspec.stores.ais.object_listing:names_in_ais",
}
"""Scheme -> `module:function` of a `Lister`; imported when first used. What fsspec reads needs no entry."""


def names_below(root: str, start: str, access: Access, depth: int | None = None) -> Iterable[str]:
    """The names of the files below a root in a store, as a `Lister` gives them.

    Args:
        root, start, access: see `Lister`.
        depth: names of more segments are not wanted (but may come).

    Raises:
        MissingShardError: there is no such directory, in a store that knows.
        ShardError: the store cannot be listed.
    """
    scheme = scheme_to_open(root)
    if read_by_fsspec(scheme, access):
        from wdspec.stores.fsspec.fsspec_store import list_objects

        return list_objects(root, start, access, depth)
    named = None if scheme in access.openers else LISTERS.get(scheme)
    if named is None:
        raise ShardError(
            f"globs and directories cannot be listed there ({how_opened(root, access)}); write the shards out with "
            "braces such as `{000000..000123}`, or in an `@file`",
            location=root,
        )
    module, _, function = named.partition(":")
    lister: Lister = getattr(importlib.import_module(module), function)
    return lister(root, start, access)
