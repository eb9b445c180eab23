"""Users' own stores by URL scheme, from a decorator or from an installed package.

A package offers one as an entry point, a function that opens or a class with more of the four verbs::

    [project.entry-points."wdspec.stores"]
    vault = "mypackage.vault:VaultStore"

and a program registers one with :func:`opener` or :func:`store`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast

from wdspec.errors import ShardError, UsageError, WdspecError
from wdspec.importing import import_function
from wdspec.outputs.output import OpenedOutput, Output
from wdspec.redaction import harmless
from wdspec.stores.checked_file import checked_file, explained
from wdspec.stores.store import KeyStore, Store, StoreSettings, unlistable

Opener = Callable[[str], BinaryIO]
"""Takes a URL, returns a binary file at its start."""

GROUPS = ("wdspec.stores", "wdspec.openers")
"""Groups of entry points; the second is the older name."""

_F = TypeVar("_F", bound=Opener)
_C = TypeVar("_C", bound=type)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_registered: dict[str, UserStore] = {}


def opener(scheme: str) -> Callable[[_F], _F]:
    """Makes a function the opener of all URLs of a scheme, in place of a built-in one, if there is one.

    The function takes the URL (after rewriting) and returns a binary file: `read(n)` gives at most n bytes, and
    b"" only at the true end; `seek` and `tell`, if `seekable()` says so, let readers skip what they do not want.
    It runs in the worker processes; with `spawn` it must be a function at the top of a module. What it raises is
    shown with the URL; FileNotFoundError says that there is no such shard. What is written to such URLs goes where it
    would without it; `store` makes one that can also list and write.

    Register before the spec is compiled: workers get the openers that are known then.

    Args:
        scheme: as in `vault` for `vault://…`; `pipe`, `http`, `s3` and the like may be replaced, `file` not.

    Raises:
        UsageError: not a scheme, or not a function.

    Example:
        >>> import io, wdspec
        >>> @wdspec.opener("empty")
        ... def open_empty(url):
        ...     return io.BytesIO(bytes(1024))
    """
    _check_scheme(scheme)

    def register(function: _F) -> _F:
        if not callable(function):
            raise UsageError(f"the opener of `{scheme}` is {function!r}, not a function that takes a URL")
        _registered[scheme.lower()] = UserStore(scheme.lower(), function)
        return function

    return register


def store(scheme: str) -> Callable[[_C], _C]:
    """Makes a class the store of all URLs of a scheme; an instance is made at once, without arguments.

    Its methods, of which only the first must be there:

    - ``open(url)``: a binary file, as `opener` has it.
    - ``list(root)``: the names of all objects below a URL that ends in `/`, in any depth and order, without it.
      Then directories, `*` and `**` work.
    - ``output(url, overwrite)``: what is written to: a binary file, which is closed when it is whole, and told to
      ``abort()`` (if it can) when it is not to be kept; or an object with ``write``, ``commit`` and ``abort``.
    - ``describe(url)``: what `wdspec resolve` says of it.

    It goes to worker processes, so it must pickle and hold no connections; make those on first use.

    Raises:
        UsageError: not a scheme, or a class without `open`.

    Example:
        >>> import io, wdspec
        >>> @wdspec.store("attic")
        ... class Attic:
        ...     def open(self, url):
        ...         return io.BytesIO(bytes(1024))
        ...     def list(self, root):
        ...         return ["a.tar", "b.tar"]
    """
    _check_scheme(scheme)

    def register(kind: _C) -> _C:
        if not callable(getattr(kind, "open", None)):
            raise UsageError(f"the store of `{scheme}` is {kind!r}, which has no method `open`")
        _registered[scheme.lower()] = UserStore(scheme.lower(), kind())
        return kind

    return register


def user_stores(secure: bool) -> Mapping[str, Store]:
    """The stores that users have added, by scheme: those of packages, then those of the program.

    Imports none of the packages: each is imported where it is first used.

    Args:
        secure: whether those of packages are forbidden (``WDS_SECURE``).
    """
    offers = {} if secure else package_offers()
    return {
        **{scheme: UserStore(scheme, _Offered(scheme, offers[scheme])) for scheme in offers},
        **_registered,
    }


@lru_cache(maxsize=1)
def package_offers() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """What installed packages offer: scheme -> (package, `module:function`) pairs."""
    from importlib.metadata import entry_points

    found: dict[str, tuple[tuple[str, str], ...]] = {}
    entries = [entry for group in GROUPS for entry in entry_points(group=group)]
    for entry in sorted(entries, key=lambda entry: (entry.name, entry.value)):
        known = found.get(entry.name.lower(), ())
        if all(value != entry.value for _, value in known):
            package = entry.dist.name if entry.dist else "a package"
            found[entry.name.lower()] = (*known, (package, entry.value))
    return found


@dataclass(frozen=True)
class _Offered:
    """What packages offer for a scheme, imported when first used."""

    scheme: str
    offers: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " and ".join(f"`{value}` of {package}" for package, value in self.offers)

    def load(self, url: str) -> Any:
        """The function or store."""
        if len(self.offers) > 1:
            raise ShardError(
                f"several packages open {self.scheme}://: {self}; uninstall all but one, or choose with "
                f'`@wdspec.opener("{self.scheme}")`',
                location=url,
            )
        try:
            found = import_function(self.offers[0][1].partition("[")[0].replace(" ", ""), "opener")
            return found() if isinstance(found, type) else found
        except Exception as error:  # whatever the package's code raises
            cause = error.__cause__ or error
            raise ShardError(
                f"the opener {self} cannot be imported: {type(cause).__name__}: {cause}; mend or uninstall that "
                "package",
                location=url,
            ) from harmless(cause)


@dataclass(frozen=True)
class UserStore(KeyStore):
    """A function or an object of a user's, whose every answer is checked."""

    scheme: str
    given: Any
    """A function that opens, an object with some of the verbs, or what packages offer."""

    def __str__(self) -> str:
        if isinstance(self.given, _Offered):
            return str(self.given)
        own = self.given if hasattr(self.given, "__qualname__") else type(self.given)
        return f"`{getattr(own, '__module__', '?')}:{own.__qualname__}`"

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        own = self._own(location)
        try:
            file = getattr(own, "open", own)(location)
        except Exception as error:  # whatever the user's code raises
            raise explained(error, str(self), location) from harmless(error)
        return checked_file(file, str(self), location)

    def keys(self, root: str, start: str, settings: StoreSettings, depth: int | None) -> Iterable[str]:
        own = self._own(root)
        if not callable(getattr(own, "list", None)):
            raise unlistable(root, self.describe(root, settings))
        try:
            names = list(own.list(root))
        except Exception as error:  # whatever the user's code raises
            raise explained(error, str(self), root) from harmless(error)
        for name in names:
            if not isinstance(name, str) or not name or name.startswith("/"):
                raise ShardError(
                    f"`list` of the store {self} gave {name!r}; it gives the names of objects below the root, without "
                    "it",
                    location=root,
                )
        return [name for name in names if name.startswith(start)]

    def output(self, location: str, *, overwrite: bool = True, since: int | None = None) -> Output:
        try:
            output = self._own(location).output(location, overwrite)
        except (WdspecError, OSError):
            raise
        except Exception as error:  # whatever the user's code raises
            raise explained(error, str(self), location) from harmless(error)
        if callable(getattr(output, "commit", None)) and callable(getattr(output, "abort", None)):
            return cast(Output, output)
        if not callable(getattr(output, "write", None)):
            raise UsageError(
                f"`output` of the store {self} returned {type(output).__name__!r}; return a file opened for writing "
                "bytes, or an object with `write`, `commit` and `abort`"
            )
        return OpenedOutput(output)

    @property
    def writes(self) -> bool:
        return callable(getattr(self._own(self.scheme), "output", None))

    def describe(self, location: str, settings: StoreSettings) -> str:
        if isinstance(self.given, _Offered) or not callable(getattr(self.given, "describe", None)):
            return f"the opener {self}"
        return str(self.given.describe(location))

    def _own(self, url: str) -> Any:
        return self.given.load(url) if isinstance(self.given, _Offered) else self.given


def _check_scheme(scheme: str) -> None:
    if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme) or scheme.lower() == "file":
        raise UsageError(
            f"{scheme!r} is no scheme that an opener can be for; write letters and digits, as `vault` for "
            "`vault://…`; local files are always opened by wdspec itself"
        )
