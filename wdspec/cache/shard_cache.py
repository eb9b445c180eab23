"""The cache of one source: copies of remote shards in a local directory, made while they are read.

What the parent looks up about cache directories before anything is read, so that all workers name copies alike.

Finished copies: plain local files that note when they were used.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, cast

from wdspec.base.errors import MissingShardError, WdspecError
from wdspec.base.process import PerProcess
from wdspec.base.redaction import redacted
from wdspec.cache.fill import CopyRules
from wdspec.cache.follower import Follower
from wdspec.cache.index import Index, key_of, open_marked
from wdspec.cache.names import CacheNames, Copies
from wdspec.stores.read_ahead import background_fetcher
from wdspec.stores.store import ObjectStat

log = logging.getLogger("wdspec")


class CopyFile(io.FileIO):
    """A finished copy of a shard, ours or one that somebody put there. Reads are the file's own."""

    @property
    def copy_file(self) -> CopyFile:
        """Itself; also through what is laid around it."""
        return self

    def discard(self) -> None:
        """Closes it, and deletes it if it is ours and nobody else reads it: it is damaged."""
        self.close()


class Copy(CopyFile):
    """A finished copy of ours; it is not deleted while it is open."""

    def __init__(self, descriptor: int, copies: Copies) -> None:
        super().__init__(descriptor, "rb")
        self.name: str = copies.path
        self._copies = copies
        self._touch()

    @property
    def made_of(self) -> tuple[int, str]:
        """Its length in bytes, and what the store said of the object that it was made of; see `Content.made_of`."""
        size, entries = os.fstat(self.fileno()).st_size, Index(self._copies.directory).entries
        key = key_of(self._copies.own)
        content = entries.content(key, entries.path(key, size))
        return size, "" if content is None else content.made_of

    def close(self) -> None:
        if not self.closed:
            self._touch()
            if self.name in _condemned.value:
                _condemned.value.discard(self.name)
                super().close()
                self._delete()
        super().close()

    def discard(self) -> None:
        super().discard()
        self._delete()

    def _delete(self) -> None:
        index, key = Index(self._copies.directory), key_of(self._copies.own)
        with contextlib.suppress(OSError):  # read-only, or another user's
            for entry in index.entries.by_use():  # its length may not be what it was
                if entry.key == key:
                    index.delete(entry)

    def _touch(self) -> None:
        Index(self._copies.directory).entries.touch(key_of(self._copies.own), os.fstat(self.fileno()).st_size)


_condemned: PerProcess[set[str]] = PerProcess(set)


def condemn(path: str) -> None:
    """Has a copy of ours deleted when this process is done with it: it is damaged."""
    _condemned.value.add(path)


def find_copy(copies: Copies) -> CopyFile | None:
    """The finished copy of a shard, ours or one that somebody put there; None if none can be read."""
    with contextlib.suppress(OSError):
        return Copy(open_marked(copies.path), copies)
    for path in _filled(copies):
        with contextlib.suppress(OSError):
            return CopyFile(path, "rb")
    return None


def path_of_copy(copies: Copies) -> str | None:
    """Where `find_copy` would find it; opens nothing."""
    return copies.path if os.path.isfile(copies.path) else next(_filled(copies), None)


def _filled(copies: Copies) -> Iterator[str]:
    for name in copies.filled:
        path = os.path.join(copies.directory, name)
        if os.path.isfile(path):
            yield path


@dataclass(frozen=True)
class ShardCache:
    """Describes only, and pickles. With a limit of 0 copies are used but none is made."""

    names: CacheNames
    rules: CopyRules = field(default_factory=CopyRules)

    def open(self, copies: Copies, fetch: Callable[[], BinaryIO]) -> BinaryIO:
        """The bytes of a shard: of its copy, or of the store while a copy is made.

        Args:
            copies: where it may stand.
            fetch: opens the shard at its store.

        Raises:
            ShardError, MissingShardError: here or on `read`, as `fetch` and its stream.
        """
        found = find_copy(copies)
        if found is not None:
            return cast(BinaryIO, found)
        limit = self.rules.limit
        if limit == 0:
            return fetch()
        if limit is not None:
            _keep_to(limit, copies.directory)
        return cast(BinaryIO, Follower(copies, fetch, self.rules))


_kept_to: PerProcess[set[tuple[str, int]]] = PerProcess(set)


def _keep_to(limit: int, directory: str) -> None:
    """Once in a process: the limit may be lower than it was when the directory was filled."""
    if (directory, limit) not in _kept_to.value:
        _kept_to.value.add((directory, limit))
        index = Index(directory)
        if index.is_marked:
            with contextlib.suppress(OSError):
                index.make_room(limit)


AGAIN = 600.0
"""Seconds in which a store is asked of one copy no second time by the same process, nor after it was fetched."""
_NAMED = re.compile(r"(ais-[a-z-]+|etag) ([^\s,]+)")
GONE = "there is no such object any more"


def change_since(made_of: str, size: int, now: ObjectStat) -> str | None:
    """What shows that an object is not the one that a copy was made of; None where nothing does.

    Args:
        made_of: what the store said of it when it was fetched; "" where it said nothing.
        size: bytes of the copy.
        now: what the store says of it now.
    """
    if now.size is not None and now.size != size:
        return f"it has {now.size:,} bytes there and {size:,} in the copy"
    if not made_of or now.validator is None:
        return None
    before, after = dict(_NAMED.findall(made_of)), dict(_NAMED.findall(now.validator))
    if before and after:  # a store may say more of an object that it has had for a while
        same = all(before[name] == after[name] for name in before.keys() & after.keys())
    else:
        same = made_of == now.validator
    return None if same else f"it is {redacted(now.validator)} there, and was {made_of} when it was fetched"


def look_for_change(copy: Copy, location: str, url: str, stat: Callable[[], ObjectStat]) -> None:
    """Has the store asked, in the background, whether its object is still what a copy was made of.

    Warns where it is not. A store that does not answer is not asked again by this process: a cache is also for those
    who cannot reach their store.

    Args:
        copy: just opened.
        location: of the object.
        url: as the spec spells it, for warnings.
        stat: asks the store, once.
    """
    asked, now = _asked.value, time.monotonic()
    if _host(location) in asked.silent or now < asked.again.get(copy.name, 0.0):
        return
    asked.again[copy.name] = now + AGAIN
    if 0 <= time.time() - os.fstat(copy.fileno()).st_mtime < AGAIN:
        return
    background_fetcher().call(partial(_look, copy.name, *copy.made_of, location, url, stat))


class _Asked:
    """What this process has asked of stores."""

    def __init__(self) -> None:
        self.again: dict[str, float] = {}
        """By the path of a copy: when its store may be asked again."""
        self.silent: set[str] = set()
        """Hosts that did not answer."""
        self.changed: set[str] = set()
        """Copies of which it was told that their objects have changed."""


_asked = PerProcess(_Asked)


def _look(
    path: str, size: int, made_of: str, location: str, url: str, stat: Callable[[], ObjectStat]
) -> None:
    """Asks a store of one object."""
    asked = _asked.value
    if _host(location) in asked.silent:
        return
    try:
        change = change_since(made_of, size, stat())
    except MissingShardError:
        change = GONE
    except (WdspecError, OSError) as error:
        asked.silent.add(_host(location))
        log.debug("objects of %s are not compared with their copies: %s", _host(location), error)
        return
    if change is not None and path not in asked.changed:
        asked.changed.add(path)
        count = len(asked.changed)
        if count <= 3 or not count & (count - 1):
            log.warning(
                "an object has changed since its copy was made (no. %d): %s: %s; the copy %s goes on being read. "
                "Give new data new names, or delete the copy and begin a new run",
                count,
                redacted(url),
                change,
                path,
            )


def _host(location: str) -> str:
    """Scheme and host or bucket: what answers for all objects in it, or for none."""
    return redacted("/".join(location.split("/", 3)[:3]))
