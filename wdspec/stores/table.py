"""The store of a location: a store that users have added, or a row of the table of schemes, or one that fsspec knows.

A program adds a store with :func:`opener` or :func:`store`. A package adds one as an entry point: a function that
opens, or a class with more of the methods::

    [project.entry-points."wdspec.stores"]
    vault = "mypackage.vault:VaultStore"

Whatever such a store returns is checked.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any, BinaryIO, TypeVar, cast

from wdspec.base.errors import MissingShardError, ShardError, UsageError, WdspecError
from wdspec.base.files import RawStream
from wdspec.base.process import KeyedValues, PerProcess
from wdspec.base.redaction import harmless
from wdspec.base.user_code import import_function
from wdspec.stores.outputs import OpenedOutput, Output, is_output, name_taken
from wdspec.stores.store import KeyStore, ObjectStat, Store, StoreSettings, unlistable
from wdspec.urls.urls import FSSPEC, ROWS, store_key

GROUPS = ("wdspec.stores", "wdspec.openers")
"""Groups of entry points; the second is the older name."""


@lru_cache(maxsize=1)
def package_offers() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """The stores of installed packages: scheme -> (package, `module:function`) pairs."""
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
class Offered:
    """The stores of packages for a scheme, imported on first use."""

    scheme: str
    offers: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " and ".join(f"`{value}` of {package}" for package, value in self.offers)

    def load(self, url: str) -> Any:
        """The function or store: one per process, since a store may keep connections."""
        return _loaded.value.get(self, lambda: self._import(url))

    def _import(self, url: str) -> Any:
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
                f"the opener {self} cannot be imported: {type(cause).__name__}: {cause}; correct or uninstall that "
                "package",
                location=url,
            ) from harmless(cause)


_loaded: PerProcess[KeyedValues[Offered, Any]] = PerProcess(KeyedValues)


def check_file(file: Any, store: str, url: str) -> BinaryIO:
    """The file that a user's store opened. Raises ShardError unless it is a binary file."""
    if not isinstance(file, io.TextIOBase) and callable(getattr(file, "read", None)):
        return cast(BinaryIO, _CheckedFile(file, store, url))
    seen = "a text file" if isinstance(file, io.TextIOBase) else f"{type(file).__name__!r}, without `read`"
    raise ShardError(
        f"the opener {store} returned {seen}; return a file opened for reading bytes, such as "
        '`open(path, "rb")` or `io.BytesIO(data)`',
        location=url,
    )


class _CheckedFile(RawStream):
    """A user's file whose results are checked."""

    def __init__(self, file: Any, store: str, url: str) -> None:
        self._file, self._store, self._url = file, store, url

    def seekable(self) -> bool:
        return bool(self._call(getattr(self._file, "seekable", bool)))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._call(self._file.seek, offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._call(self._file.tell))

    def read(self, size: int = -1) -> bytes:
        data = self._call(self._file.read, size)
        if type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise ShardError(
            f"the file of the opener {self._store} gave {type(data).__name__!r} instead of bytes; open it in binary "
            "mode, and let `read` wait for data",
            location=self._url,
        )

    def _call(self, verb: Callable[..., Any], *arguments: int) -> Any:
        return _call(self._store, self._url, verb, *arguments)

    def close(self) -> None:
        if not self.closed:
            getattr(self._file, "close", bool)()
        super().close()


def _call(store: str, url: str, verb: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function. Raises ShardError for whatever it raises."""
    try:
        return verb(*arguments)
    except ShardError as error:
        error.at(location=url)
        raise
    except Exception as error:  # whatever the user's code raises
        kind = MissingShardError if isinstance(error, FileNotFoundError) else ShardError
        message = f"the opener {store} failed: {type(error).__name__}: {error}"
        raise kind(message, location=url) from harmless(error)


Opener = Callable[[str], BinaryIO]
"""Takes a URL and returns a binary file at its start."""

_F = TypeVar("_F", bound=Opener)
_C = TypeVar("_C", bound=type)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_registered: dict[str, UserStore] = {}


def opener(scheme: str) -> Callable[[_F], _F]:
    """Make a function the opener of all URLs of a scheme, instead of a built-in one.

    The function takes the URL (after rewriting) and returns a binary file. `read(n)` returns at most n bytes, and b""
    only at the true end; with `seek` and `tell`, if `seekable()` says so, readers skip what they do not need. It runs
    in the worker processes; with `spawn` it must be a function at the top of a module. Its errors are shown with the
    URL; FileNotFoundError means that the shard does not exist. Writing to such URLs works as without it; use `store`
    for one that can also list and write.

    Register before the spec is compiled: workers get the openers that are known then.

    Args:
        scheme: as in `vault` for `vault://…`; `pipe`, `http`, `s3` and others may be replaced, but not `file`.

    Raises:
        UsageError: an invalid scheme, or not a function.

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
    """Make a class the store of all URLs of a scheme; one instance is made at once, without arguments.

    Only the first of its methods is required:

    - ``open(url)``: a binary file, as for `opener`.
    - ``list(root)``: the names of all objects below a URL that ends in `/`, at any depth and in any order, relative to
      it. Then directories, `*` and `**` work.
    - ``output(url, overwrite)``: an object with ``write``, ``commit`` and ``abort``; or a binary file, which is closed
      when it is complete, and otherwise gets ``discard()`` or ``abort()``, if it has one. A plain file cannot be taken
      back: an incomplete one stays under its name. Raises FileExistsError for a name that may not be overwritten.
    - ``exists(url)``, ``delete(url)``: without ``exists``, `list` is used; without ``delete``, what a failed command
      has written stays there.
    - ``stat(url)``: the size in bytes, and a text that changes whenever the bytes do (an ETag, a time); None for
      unknown values.
    - ``describe(url)``: the text for `wdspec resolve`.

    The store is sent to worker processes, so it must pickle and hold no connections; make those on first use.

    Raises:
        UsageError: an invalid scheme, or a class that has no `open` or needs arguments.

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
        try:
            instance = kind()
        except Exception as error:  # whatever the user's code raises
            raise UsageError(
                f"the store of `{scheme}`, {kind.__qualname__}, cannot be made without arguments: "
                f"{type(error).__name__}: {error}"
            ) from error
        _registered[scheme.lower()] = UserStore(scheme.lower(), instance)
        return kind

    return register


def user_stores(secure: bool) -> Mapping[str, Store]:
    """The stores that users have added, by scheme: those of packages, then those of the program.

    Imports no package; each is imported on first use, and none if `secure` (``WDS_SECURE``).
    """
    offers = {} if secure else package_offers()
    return {
        **{scheme: UserStore(scheme, Offered(scheme, offers[scheme])) for scheme in offers},
        **_registered,
    }


@dataclass(frozen=True)
class UserStore(KeyStore):
    """A user's function or object, whose results are checked."""

    scheme: str
    user_code: Any
    """A function that opens, an object with some of the verbs, or stores of packages."""

    def __str__(self) -> str:
        if isinstance(self.user_code, Offered):
            return str(self.user_code)
        own = self.user_code if hasattr(self.user_code, "__qualname__") else type(self.user_code)
        return f"`{getattr(own, '__module__', '?')}:{own.__qualname__}`"

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        own = self._own(location)
        file = _call(str(self), location, getattr(own, "open", own), location)
        return check_file(file, str(self), location)

    def keys(self, root: str, start: str, settings: StoreSettings, depth: int | None) -> Iterable[str]:
        if self._verb("list", root) is None:
            raise unlistable(root, self.describe(root, settings))
        return [name for name in self._names(root) if name.startswith(start)]

    def _names(self, root: str) -> list[str]:
        names: list[str] = _call(str(self), root, lambda: list(self._own(root).list(root)))
        for name in names:
            if not isinstance(name, str) or not name or name.startswith("/"):
                raise ShardError(
                    f"`list` of the store {self} gave {name!r}; it gives the names of objects below the root, relative "
                    "to it",
                    location=root,
                )
        return names

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        own = self._own(location)
        try:
            output = own.output(location, overwrite)
        except FileExistsError:
            raise name_taken(location=location) from None
        except (WdspecError, OSError):
            raise
        except Exception as error:  # whatever the user's code raises
            message = f"the opener {self} failed: {type(error).__name__}: {error}"
            raise ShardError(message, location=location) from harmless(error)
        if not callable(getattr(output, "write", None)) or isinstance(output, io.TextIOBase):
            raise UsageError(
                f"`output` of the store {self} returned {type(output).__name__!r}; return a file opened for writing "
                "bytes, or an object with `write`, `commit` and `abort`"
            )
        return output if is_output(output) else OpenedOutput(output)

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        verb = self._verb("stat", location)
        if verb is None:
            return ObjectStat()
        said = _call(str(self), location, verb, location)
        match said:
            case (int() | None as size, str() | None as validator) if not isinstance(size, bool):
                return ObjectStat(size, validator)
        raise ShardError(
            f"`stat` of the store {self} gave {said!r}; it gives a pair: the size in bytes and a text that changes "
            "with the object, each of which may be None",
            location=location,
        )

    def exists(self, location: str, settings: StoreSettings) -> bool:
        if (exists := self._verb("exists", location)) is not None:
            return bool(_call(str(self), location, exists, location))
        if self._verb("list", location) is None:
            return False
        folder, slash, name = location.rpartition("/")
        try:
            return name in self._names(folder + slash)
        except MissingShardError:
            return False

    def delete(self, location: str, settings: StoreSettings) -> None:
        delete = self._verb("delete", location)
        if delete is None:
            raise UsageError(f"the store {self} has no `delete`", location=location)
        _call(str(self), location, delete, location)

    @property
    def writes(self) -> bool:
        return self._verb("output", self.scheme) is not None

    def describe(self, location: str, settings: StoreSettings) -> str:
        if isinstance(self.user_code, Offered) or not callable(getattr(self.user_code, "describe", None)):
            return f"the opener {self}"
        return str(_call(str(self), location, self.user_code.describe, location))

    def _verb(self, name: str, location: str) -> Callable[..., Any] | None:
        """A method of the user's object, if it has one."""
        verb = getattr(self._own(location), name, None)
        return verb if callable(verb) else None

    def _own(self, url: str) -> Any:
        return self.user_code.load(url) if isinstance(self.user_code, Offered) else self.user_code


def _check_scheme(scheme: str) -> None:
    if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme) or scheme.lower() == "file":
        raise UsageError(
            f"{scheme!r} cannot be the scheme of an opener; write letters and digits, as `vault` for "
            "`vault://…`; local files are always opened by wdspec itself"
        )


def store_of(location: str, users: Mapping[str, Store], *, to_write: bool = False) -> Store:
    """The store of a location.

    Args:
        users: stores that users have added, by scheme; they take precedence.
        to_write: whether to write to it; then wdspec's own store is used if a user's cannot write.

    Raises ShardError if there is none, with what is missing and what to do.
    """
    scheme = store_key(location)
    own = users.get(scheme)
    if own is not None and (not to_write or own.writes):
        return own
    row = ROWS.get(scheme)
    if row is not None and row.store != FSSPEC:
        return _make_store(row.store)
    if own is None and scheme in package_offers() and not to_write:
        offers = Offered(scheme, package_offers()[scheme])
        raise ShardError(
            f"{scheme}:// would be opened by {offers}, but WDS_SECURE forbids the openers of packages; unset it "
            "if you trust them, or rewrite the URL with WDS_REWRITE or, in a spec, `rewrite:`",
            location=location,
        )
    from wdspec.stores.filesystems import known_schemes

    if scheme in known_schemes():
        return _make_store(FSSPEC)
    if own is not None:
        raise ShardError(
            f"the opener {own} only opens, and nothing else writes to {scheme}://; register a store with a method "
            "`output` with `@wdspec.store`",
            location=location,
        )
    known = sorted({*ROWS, *users, *known_schemes()} - {"-", ""})
    close = difflib.get_close_matches(scheme, known, 1)
    hint = f"did you mean `{close[0]}`? " if close else ""
    raise ShardError(
        f'no opener for {scheme}://; {hint}register one with `@wdspec.opener("{scheme}")`, install a package that '
        "has one, or rewrite the URL with WDS_REWRITE or, in a spec, `rewrite:`",
        location=location,
    )


@lru_cache
def _make_store(name: str) -> Store:
    store: Store = resolve_name(name)()
    return store
