"""What a store is: a kind of place that shards are read from and written to.

Globs and directories in stores that only have keys: names with slashes, in one flat list.

The rules are those of ``wdspec.stores.local`` on disks.
"""

from __future__ import annotations

import fnmatch
import re
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
from wdspec.urls.urls import MAGIC


def shards_among(keys: Iterable[str]) -> list[str]:
    """Of the keys below a directory, the shards that lie directly in it, in code point order."""
    return sorted(key for key in keys if "/" not in key and is_listed(key))


def keys_matching(keys: Iterable[str], pattern: str) -> list[str]:
    """The keys that match a glob, in code point order.

    `*`, `?` and `[a-z]` within a segment, `**` for any number of directories; hidden names need a `.` in the
    pattern. A segment that is there by exactly its own name is taken literally: `a[1].tar` is that key, if there is
    one.
    """
    known = list(dict.fromkeys(key for key in keys if key and not key.endswith("/")))
    return sorted(_below([key.split("/") for key in known], pattern.split("/")))


def _below(keys: list[list[str]], pattern: list[str]) -> set[str]:
    segment, rest = pattern[0], pattern[1:]
    if segment == "**":
        found = {"/".join(key) for key in keys if not rest and not _is_hidden(key)}
        depth = max(map(len, keys), default=0)
        for skipped in range(depth if rest else 0):
            # Only what `**` itself passes over must be open: what follows may name hidden directories.
            open_keys = [key for key in keys if not _is_hidden(key[:skipped])]
            for head, deeper in _grouped(open_keys, skipped).items():
                found |= {head + name for name in _below(deeper, rest)}
        return found
    literal = any(key[0] == segment for key in keys)
    matches = re.compile(fnmatch.translate(segment)).match
    taken = [
        key
        for key in keys
        if (key[0] == segment)
        or (not literal and matches(key[0]) and (segment.startswith(".") or not key[0].startswith(".")))
    ]
    if not rest:
        return {key[0] for key in taken if len(key) == 1}
    return {
        head + name
        for head, deeper in _grouped([key for key in taken if len(key) > 1], 1).items()
        for name in _below(deeper, rest)
    }


def _is_hidden(names: list[str]) -> bool:
    return any(name.startswith(".") for name in names)


def _grouped(keys: list[list[str]], depth: int) -> dict[str, list[list[str]]]:
    """The keys by their first directories, which are taken away."""
    groups: dict[str, list[list[str]]] = {}
    for key in keys:
        if len(key) > depth:
            groups.setdefault("".join(f"{name}/" for name in key[:depth]), []).append(key[depth:])
    return groups


def literal_start(pattern: str) -> str:
    """What all that matches a glob begins with, also a key that is literally the pattern: what to list by."""
    match = MAGIC.search(pattern)
    return pattern if match is None else pattern[: match.start()]


@dataclass(frozen=True)
class StoreSettings:
    """What stores are told, beside the location: all that the spec and the environment say about reaching them."""

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    http: HttpSettings = field(default_factory=HttpSettings)
    ais: AisCluster | None = None
    """What serves the locations marked `ais+…`."""
    login: ObjectLogin | None = None
    """What the spec says of object stores."""


@dataclass(frozen=True)
class ObjectStat:
    """What a store says of an object that is not read."""

    size: int | None = None
    """Bytes; None where the store does not say."""
    validator: str | None = None
    """Changes whenever the object does, as an ETag or the time of the last change; None where there is nothing."""


class Store(ABC):
    """Eight verbs. A location is a URL after rewriting, or the path of a local file.

    Stores are found by scheme (`wdspec.urls.urls.STORES`), made once a process and without state of their own.
    """

    @abstractmethod
    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """The bytes of an object, unbuffered; nothing need be asked before the first `read`.

        Raises:
            MissingShardError: there is no such object.
            ShardError: it cannot be read.
            StoreError: no object of this store could be read, for want of settings.
        """

    def list(self, root: str, pattern: str, settings: StoreSettings) -> list[str]:
        """The names of the files below a root that match a glob, in code point order; without the root.

        Args:
            root: ends with `/`; its characters are literal.
            pattern: relative to it, with `*`, `?`, `[…]` and `**`; "" for the shards directly in it.

        Raises:
            MissingShardError: there is no such directory, in a store that knows.
            ShardError: it cannot be listed.
        """
        raise unlistable(root, self.describe(root, settings))

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        """Opens an object to be written, which appears when it is whole.

        Args:
            overwrite: whether something of this name may be replaced.
            since: see `LocalOutput`; other stores cannot tell.

        Raises:
            UsageError: the name is taken, or nothing can be written there.
            OSError: it cannot be opened.
        """
        raise UsageError("nothing can be written there; name a local file, or a store that can be written to")

    @property
    def writes(self) -> bool:
        """Whether it has an `output` of its own; a user's store that has none leaves that to wdspec's."""
        return True

    @abstractmethod
    def describe(self, location: str, settings: StoreSettings) -> str:
        """What reads a location, in a few words, or why nothing does; opens nothing."""

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        """The size of an object and what changes with it, without its bytes; nothing where that cannot be known.

        Raises:
            MissingShardError: there is no such object, in a store that knows.
            ShardError, StoreError: the store does not say.
        """
        return ObjectStat()

    def announce(self, locations: Iterable[str], settings: StoreSettings) -> None:  # noqa: B027  # may do nothing
        """Says what is going to be read, so that the store may have it at hand; raises nothing, and may do nothing."""

    def exists(self, location: str, settings: StoreSettings) -> bool:
        """Whether an object of this name was written; False where that cannot be known.

        Raises:
            ShardError: the store does not say.
        """
        return False

    def delete(self, location: str, settings: StoreSettings) -> None:
        """Deletes an object that was written.

        Raises:
            UsageError: nothing can be deleted there.
            OSError: it cannot be deleted.
        """
        raise UsageError("what was written there cannot be taken back", location=location)


def unlistable(root: str, why: str) -> ShardError:
    """The error for globs and directories where nothing can be listed."""
    return ShardError(
        f"globs and directories cannot be listed there ({why}); write the shards out with braces such as "
        "`{000000..000123}`, or in an `@file`",
        location=root,
    )


class KeyStore(Store):
    """A store that only has keys: names with slashes, in one flat list."""

    @abstractmethod
    def keys(self, root: str, start: str, settings: StoreSettings, depth: int | None) -> Iterable[str]:
        """The names of the objects below a root, without the root.

        Args:
            root: ends with `/`.
            start: only names that go on with it are wanted.
            depth: names of more segments are not wanted, but may come; None wants all.

        Raises:
            MissingShardError: there is no such directory, in a store that knows.
            ShardError: it cannot be listed.
        """

    def list(self, root: str, pattern: str, settings: StoreSettings) -> list[str]:
        if not pattern:
            return shards_among(self.keys(root, "", settings, 1))
        depth = None if "**" in pattern.split("/") else pattern.count("/") + 1
        return keys_matching(self.keys(root, literal_start(pattern), settings, depth), pattern)
