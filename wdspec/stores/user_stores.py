"""Users' own openers: a function per URL scheme, from a decorator or from an installed package.

A package offers one as an entry point::

    [project.entry-points."wdspec.openers"]
    vault = "mypackage.vault:open_vault"

and a program registers one with :func:`opener`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast

from wdspec.errors import MissingShardError, ShardError, SpecError, UsageError
from wdspec.importing import import_function
from wdspec.system.raw_stream import RawStream

Opener = Callable[[str], BinaryIO]
"""Takes a URL, returns a binary file at its start."""

GROUP = "wdspec.openers"

_F = TypeVar("_F", bound=Opener)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_registered: dict[str, Opener] = {}


def opener(scheme: str) -> Callable[[_F], _F]:
    """Makes a function the opener of all URLs of a scheme, in place of a built-in one, if there is one.

    The function takes the URL (after rewriting) and returns a binary file: `read(n)` gives at most n bytes, and
    b"" only at the true end; `seek` and `tell`, if `seekable()` says so, let readers skip what they do not want.
    It runs in the worker processes; with `spawn` it must be a function at the top of a module. What it raises is
    shown with the URL; FileNotFoundError says that there is no such shard.

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
    if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme) or scheme.lower() == "file":
        raise UsageError(
            f"{scheme!r} is no scheme that an opener can be for; write letters and digits, as `vault` for "
            "`vault://…`; local files are always opened by wdspec itself"
        )

    def register(function: _F) -> _F:
        if not callable(function):
            raise UsageError(f"the opener of `{scheme}` is {function!r}, not a function that takes a URL")
        _registered[scheme.lower()] = function
        return function

    return register


def user_openers(secure: bool) -> Mapping[str, Opener]:
    """The openers that users have added, by scheme: those of packages, then those of the program.

    Imports none of the packages: each is imported where its opener is first used.

    Args:
        secure: whether those of packages are forbidden (``WDS_SECURE``).
    """
    offered = {} if secure else {scheme: PackageOpener(scheme, found) for scheme, found in _offers().items()}
    return {**offered, **_registered}


def offers_of_packages() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """What installed packages offer: scheme -> (package, `module:function`) pairs."""
    return _offers()


@lru_cache(maxsize=1)
def _offers() -> Mapping[str, tuple[tuple[str, str], ...]]:
    from importlib.metadata import entry_points

    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        package = entry.dist.name if entry.dist else "a package"
        offer = (package, entry.value)
        known = found.get(entry.name.lower(), ())
        if all(value != entry.value for _, value in known):
            found[entry.name.lower()] = (*known, offer)
    return found


@dataclass(frozen=True)
class PackageOpener:
    """An opener that a package offers, imported when first used."""

    scheme: str
    offers: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " and ".join(f"`{value}` of {package}" for package, value in self.offers)

    def __call__(self, url: str) -> BinaryIO:
        if len(self.offers) > 1:
            raise ShardError(
                f"several packages open {self.scheme}://: {self}; uninstall all but one, or choose with "
                f'`@wdspec.opener("{self.scheme}")`',
                location=url,
            )
        _, value = self.offers[0]
        try:
            function = import_function(value.partition("[")[0].replace(" ", ""), "opener")
        except SpecError as error:
            cause = error.__cause__
            raise ShardError(
                f"the opener {self} cannot be imported: {type(cause).__name__}: {cause}; mend or uninstall that "
                "package",
                location=url,
            ) from cause
        return cast(Opener, function)(url)


def name_of(opener: Opener) -> str:
    """How messages call a user's opener."""
    if isinstance(opener, PackageOpener):
        return str(opener)
    name = getattr(opener, "__qualname__", None) or type(opener).__qualname__
    return f"`{getattr(opener, '__module__', '?')}:{name}`"


def checked(own: Opener, url: str) -> BinaryIO:
    """Calls a user's opener, and checks what it returns and what that gives.

    Raises:
        MissingShardError: it raised FileNotFoundError.
        ShardError: it raised something else, or returned no binary file.
    """
    try:
        file = own(url)
    except Exception as error:  # whatever the user's code raises
        raise _explained(error, own, url) from error
    if isinstance(file, io.TextIOBase) or not callable(getattr(file, "read", None)):
        seen = (
            "a text file" if isinstance(file, io.TextIOBase) else f"{type(file).__name__!r}, without `read`"
        )
        raise ShardError(
            f"the opener {name_of(own)} returned {seen}; return a file opened for reading bytes, such as "
            '`open(path, "rb")` or `io.BytesIO(data)`',
            location=url,
        )
    return cast(BinaryIO, _Checked(file, own, url))


class _Checked(RawStream):
    """A user's file whose every answer is looked at."""

    def __init__(self, file: Any, own: Opener, url: str) -> None:
        self._file, self._own, self._url = file, own, url

    def seekable(self) -> bool:
        return bool(getattr(self._file, "seekable", bool)())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return int(self._file.tell())

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except Exception as error:  # whatever the user's code raises
            raise _explained(error, self._own, self._url) from error
        if type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise ShardError(
            f"the file of the opener {name_of(self._own)} gave {type(data).__name__!r} where bytes were wanted; open "
            "it in binary mode, and let `read` wait for data",
            location=self._url,
        )

    def close(self) -> None:
        if not self.closed:
            getattr(self._file, "close", bool)()
        super().close()


def _explained(error: Exception, own: Opener, url: str) -> ShardError:
    if isinstance(error, ShardError):
        error.at(location=url)
        return error
    kind = MissingShardError if isinstance(error, FileNotFoundError) else ShardError
    return kind(f"the opener {name_of(own)} failed: {type(error).__name__}: {error}", location=url)
