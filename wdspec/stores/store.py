"""The interface of a store, a kind of place that shards are read from and written to, and globs over lists of keys.

Globs follow the same rules as for local files (`wdspec.stores.local`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO

from wdspec.base.errors import ShardError, UsageError
from wdspec.formats.compression import is_listed
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.outputs import Output
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.settings import HttpSettings, ObjectLogin
from wdspec.urls.globs import match_glob
from wdspec.urls.urls import MAGIC


class KeyTree:
    """The directories of a flat list of keys."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._files = {key for key in keys if key and not key.endswith("/")}
        self._names: dict[str, set[str]] = {}
        for key in self._files:
            place = ""
            for name in key.split("/"):
                self._names.setdefault(place, set()).add(name)
                place += f"{name}/"

    def has(self, path: str) -> bool:
        return path in self._files or self.is_directory(path)

    def is_file(self, path: str) -> bool:
        return path in self._files

    def is_directory(self, path: str) -> bool:
        return f"{path}/" in self._names

    def names(self, directory: str) -> Iterable[str]:
        return self._names.get(directory, ())

    def folders(self, directory: str) -> Iterable[str]:
        return [name for name in self.names(directory) if self.is_directory(directory + name)]


def keys_matching(keys: Iterable[str], pattern: str) -> list[str]:
    """The keys that match a glob, in code point order."""
    return match_glob(KeyTree(keys), pattern)


def shards_among(keys: Iterable[str]) -> list[str]:
    """The shards directly in a directory, from the keys below it, in code point order."""
    return sorted(key for key in keys if "/" not in key and is_listed(key))


def literal_start(pattern: str) -> str:
    """The longest start of all keys that match a glob, or equal it: the prefix to list."""
    match = MAGIC.search(pattern)
    return pattern if match is None else pattern[: match.start()]


@dataclass(frozen=True)
class StoreSettings:
    """The settings of the spec and the environment for reaching stores."""

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    http: HttpSettings = field(default_factory=HttpSettings)
    ais: AisCluster | None = None
    """Serves the locations marked `ais+…`."""
    login: ObjectLogin | None = None
    """`storage:` of the spec, for object stores."""


@dataclass(frozen=True)
class ObjectStat:
    """What a store knows about an object without reading it."""

    size: int | None = None
    """Bytes; None if unknown."""
    validator: str | None = None
    """Changes whenever the object does, as an ETag or the time of the last change; None if unknown."""


class Store(ABC):
    """Ten verbs. A location is a URL after rewriting, or the path of a local file.

    Stores are found by scheme (`wdspec.urls.urls.STORES`), made once per process, and have no state.
    """

    @abstractmethod
    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """The bytes of an object, unbuffered; the first request may wait for the first `read`.

        Raises:
            MissingShardError: the object does not exist.
            ShardError: it cannot be read.
            StoreError: no object of this store could be read with these settings.
        """

    def list(self, root: str, pattern: str, settings: StoreSettings) -> list[str]:
        """The names of the files below a root that match a glob, in code point order, relative to the root.

        Args:
            root: ends with `/`; its characters are literal.
            pattern: relative to it, with `*`, `?`, `[…]` and `**`; "" for the shards directly in it.

        Raises:
            MissingShardError: the directory does not exist, in a store that knows.
            ShardError: it cannot be listed.
        """
        raise unlistable(root, self.describe(root, settings))

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        """Open an object for writing; it appears when it is complete.

        Args:
            overwrite: whether an object of this name may be replaced.
            since: see `LocalOutput`; other stores ignore it.

        Raises:
            UsageError: the name is taken, or the store cannot be written.
            OSError: it cannot be opened.
        """
        raise UsageError("nothing can be written there; name a local file, or a store that can be written to")

    @property
    def writes(self) -> bool:
        """Whether it has `output`. If a user's store has none, wdspec's own store writes."""
        return True

    @abstractmethod
    def describe(self, location: str, settings: StoreSettings) -> str:
        """What reads a location, in a few words, or why it cannot be read; opens nothing."""

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        """The size and the validator of an object, without reading it; empty if unknown.

        Raises:
            MissingShardError: the object does not exist, in a store that knows.
            ShardError, StoreError: the store does not answer.
        """
        return ObjectStat()

    def count_requests(self, location: str, size: int) -> int | None:
        """The number of requests by which an object of some bytes is read from its start to its end, without faults;
        None if unknown."""
        return None

    def pin(self, location: str, settings: StoreSettings) -> tuple[str, str] | None:
        """Find the version that a location leads to now, in a store that keeps versions of all its objects.

        Returns:
            The start of the location, up to the name of a branch or tag, and the same at a commit, which never changes;
            None if the location names a commit, or the store has none.

        Raises:
            MissingShardError: there is no such branch.
            ShardError, StoreError: the store does not answer.
        """
        return None

    def announce(self, locations: Iterable[str], settings: StoreSettings) -> None:  # noqa: B027  # may do nothing
        """Prepare for locations that will be read. Raises nothing, and may do nothing."""

    def exists(self, location: str, settings: StoreSettings) -> bool:
        """Whether an object of this name exists; False if unknown. Raises ShardError if the store does not answer."""
        return False

    def delete(self, location: str, settings: StoreSettings) -> None:
        """Delete an object.

        Raises:
            UsageError: the store cannot delete.
            OSError: it cannot be deleted.
        """
        raise UsageError("what was written there cannot be taken back", location=location)


def unlistable(root: str, why: str) -> ShardError:
    """The error for globs and directories in a store that cannot list."""
    return ShardError(
        f"globs and directories cannot be listed there ({why}); write the shards out with braces such as "
        "`{000000..000123}`, or in an `@file`",
        location=root,
    )


class KeyStore(Store):
    """A store with keys only: names with slashes, in one flat list."""

    @abstractmethod
    def keys(self, root: str, start: str, settings: StoreSettings, depth: int | None) -> Iterable[str]:
        """The names of the objects below a root, relative to it.

        Args:
            root: ends with `/`.
            start: only names that start with it.
            depth: maximum number of segments of a name, None for any; deeper names may be included and are ignored.

        Raises:
            MissingShardError: the directory does not exist, in a store that knows.
            ShardError: it cannot be listed.
        """

    def list(self, root: str, pattern: str, settings: StoreSettings) -> list[str]:
        if not pattern:
            return shards_among(self.keys(root, "", settings, 1))
        depth = None if "**" in pattern.split("/") else pattern.count("/") + 1
        return keys_matching(self.keys(root, literal_start(pattern), settings, depth), pattern)
