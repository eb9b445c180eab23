"""Which store a location belongs to: users' own, then the table of schemes, then whatever else fsspec knows."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from pkgutil import resolve_name

from wdspec.base.errors import ShardError
from wdspec.stores.store import Store
from wdspec.stores.users import package_offers
from wdspec.urls.urls import FSSPEC, ROWS, store_key


def store_of(location: str, users: Mapping[str, Store], *, to_write: bool = False) -> Store:
    """The store of a location.

    Args:
        users: stores that users have added, by scheme; they come before all others.
        to_write: whether it is to be written to, which users' stores may leave to wdspec's.

    Raises:
        ShardError: there is none; says what is missing, and what to do.
    """
    scheme = store_key(location)
    own = users.get(scheme)
    if own is not None and (not to_write or own.writes):
        return own
    row = ROWS.get(scheme)
    if row is not None and row.store != FSSPEC:
        return _made(row.store)
    if own is None and scheme in package_offers() and not to_write:
        offers = " and ".join(f"`{value}` of {package}" for package, value in package_offers()[scheme])
        raise ShardError(
            f"{scheme}:// would be opened by {offers}, but WDS_SECURE forbids the openers of packages; unset it "
            "if you trust them, or rewrite the URL with WDS_REWRITE or `rewrite:`",
            location=location,
        )
    from wdspec.stores.filesystems import known_schemes

    if scheme in known_schemes():
        return _made(FSSPEC)
    if own is not None:
        raise ShardError(
            f"the opener {own} only opens, and nothing else writes to {scheme}://; give a store with a method `output` "
            "by `@wdspec.store`",
            location=location,
        )
    known = sorted({*ROWS, *users, *known_schemes()} - {"-", ""})
    close = difflib.get_close_matches(scheme, known, 1)
    hint = f"did you mean `{close[0]}`? " if close else ""
    raise ShardError(
        f'no opener for {scheme}://; {hint}register one with `@wdspec.opener("{scheme}")`, install a package that '
        "brings one, or rewrite the URL with WDS_REWRITE or `rewrite:`",
        location=location,
    )


@lru_cache
def _made(name: str) -> Store:
    store: Store = resolve_name(name)()
    return store
