"""The cache of one source: copies of remote shards in a local directory, made while they are read.

An object that changes after its copy was made is noticed in the background and reported as a warning.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, cast

from wdspec.base.errors import MissingShardError, WdspecError, log_fields
from wdspec.base.handles import FEW, ReleasableFile, ReplacedFileError
from wdspec.base.process import PerProcess, process_counts
from wdspec.base.redaction import printable, redact
from wdspec.cache.fill import MOST_FILLS, CopyRules, count_fills
from wdspec.cache.follower import Follower, open_same_object
from wdspec.cache.index import Content, Index, crc_of, key_of, open_marked
from wdspec.cache.names import CacheNames, Copies
from wdspec.spec.language.locations import Verify
from wdspec.stores.read_ahead import background_fetcher
from wdspec.stores.store import ObjectStat

log = logging.getLogger("wdspec")


class CopyFile(io.FileIO):
    """A finished copy of a shard, made by wdspec or by a user."""

    @property
    def copy_file(self) -> CopyFile:
        """This file; streams around it have the same attribute."""
        return self

    def discard(self) -> None:
        """Close a damaged copy; if it is wdspec's, delete it unless it is being read."""
        self.close()


class Copy(CopyFile):
    """A finished copy that wdspec made; it is not deleted while it is open."""

    def __init__(self, descriptor: int, copies: Copies) -> None:
        super().__init__(descriptor, "rb")
        self._note(copies)

    def _note(self, copies: Copies) -> None:
        self.name: str = copies.path
        self._copies, self._size = copies, os.fstat(self.fileno()).st_size
        self._touch()

    @property
    def made_of(self) -> tuple[int, str]:
        """Its length in bytes, and the validator of the object; see `Content.made_of`."""
        content = self._content
        return self._size, "" if content is None else content.made_of

    @property
    def _content(self) -> Content | None:
        key, entries = key_of(self._copies.own), Index(self._copies.directory).entries
        return entries.content(key, entries.path(key, self._size))

    def is_intact(self, verify: Verify) -> bool:
        """Whether it has the bytes that were fetched, as far as `verify` asks for it and their checksum is known.

        `changed` trusts the time of the file, which costs nothing. Computing the checksum takes as long as reading raw
        samples.
        """
        if verify == "never":
            return True
        stat, known = os.fstat(self.fileno()), _intact.value
        if verify != "always" and known.get(self.name) == stat.st_mtime_ns:
            return True
        content = self._content
        fetched = None if content is None else content.read_check
        if fetched is not None and (verify != "changed" or fetched[1] != stat.st_mtime_ns):
            if crc_of(self.fileno()) != fetched[0]:
                return False
            if fetched[1] != stat.st_mtime_ns:  # it was copied, or restored from a backup
                entries, key = Index(self._copies.directory).entries, key_of(self._copies.own)
                entries.note_check(key, stat.st_size, fetched[0], stat.st_mtime_ns)
        known[self.name] = stat.st_mtime_ns
        return True

    def close(self) -> None:
        if not self.closed:
            self._touch()
            if self.name in _condemned.value:
                _condemned.value.discard(self.name)
                super().close()
                self._delete()
        super().close()

    def __del__(self) -> None:
        try:  # noqa: SIM105  # at exit, `contextlib` may be None
            self.close()
        except (AttributeError, TypeError):  # at exit, names that `close` uses may be None
            pass

    def discard(self) -> None:
        super().discard()
        self._delete()

    def _delete(self) -> None:
        index, key = Index(self._copies.directory), key_of(self._copies.own)
        with contextlib.suppress(OSError):  # read-only, or another user's
            for entry in index.entries.by_use():  # its length may have changed
                if entry.key == key:
                    index.delete(entry)

    def _touch(self) -> None:
        Index(self._copies.directory).entries.touch(key_of(self._copies.own), self._size)


class ReleasableCopyFile(ReleasableFile, CopyFile):
    """A finished copy that a user made, whose descriptor may be closed between two reads."""


class ReleasableCopy(ReleasableFile, Copy):
    """A finished copy that wdspec made, whose descriptor may be closed between two reads.

    It may be deleted while its descriptor is closed. Then the rest is read from the store, if that has the same object.

    Args:
        descriptor: of the open file.
        copies: where it is.
        fetch: opens the object.
    """

    def __init__(self, descriptor: int, copies: Copies, fetch: Callable[[], BinaryIO]) -> None:
        ReleasableFile.__init__(self, descriptor, copies.path, partial(open_marked, copies.path))
        self._note(copies)
        self._fetch, self._validator = fetch, self.made_of[1]
        self._instead: BinaryIO | None = None

    def reopen(self) -> Any:
        """See `ReleasableFile`; returns the stream of the store if the copy was deleted."""
        if self._instead is None:
            try:
                return super().reopen()
            except ReplacedFileError as error:
                self._instead = open_same_object(self._fetch, self._at or 0, self._validator, error)
                process_counts.value.cache_bypasses += 1
        return self._instead

    def close(self) -> None:
        if self._instead is not None:
            self._instead.close()
        super().close()


_intact: PerProcess[dict[str, int]] = PerProcess(dict)
"""Paths of copies that this process has verified, and the times of the files."""
_condemned: PerProcess[set[str]] = PerProcess(set)


def condemn(path: str) -> None:
    """Delete a damaged copy of wdspec when this process closes it."""
    _condemned.value.add(path)


def find_copy(copies: Copies, fetch: Callable[[], BinaryIO] | None = None) -> CopyFile | None:
    """The finished copy of a shard, made by wdspec or by a user; None if none can be read.

    Args:
        copies: where copies are.
        fetch: opens the object; None if the copy is used at once.
    """
    with contextlib.suppress(OSError):
        descriptor = open_marked(copies.path)
        if fetch is None or descriptor < FEW:
            return Copy(descriptor, copies)
        return ReleasableCopy(descriptor, copies, fetch)
    for path in _filled(copies):
        with contextlib.suppress(OSError):
            if (file := CopyFile(path, "rb")).fileno() < FEW:
                return file
            with file:
                again = partial(os.open, path, os.O_RDONLY)
                return ReleasableCopyFile(os.dup(file.fileno()), path, again)
    return None


def path_of_copy(copies: Copies) -> str | None:
    """The path that `find_copy` would open, if any."""
    return copies.path if os.path.isfile(copies.path) else next(_filled(copies), None)


def _filled(copies: Copies) -> Iterator[str]:
    for name in copies.filled:
        path = os.path.join(copies.directory, name)
        if os.path.isfile(path):
            yield path


@dataclass(frozen=True)
class ShardCache:
    """A description only; pickles. With a limit of 0, copies are used but none is made."""

    names: CacheNames
    rules: CopyRules = field(default_factory=CopyRules)

    def open(self, copies: Copies, fetch: Callable[[], BinaryIO]) -> BinaryIO:
        """The bytes of a shard, from its copy, or from the store while a copy is made.

        This and the stream raise what `fetch` and its stream raise.
        """
        found = find_copy(copies, fetch)
        if isinstance(found, Copy) and not found.is_intact(self.rules.verify):
            log.warning(
                "the copy %s has other bytes than those fetched from %s: it is deleted, and the shard is fetched again",
                found.name,
                redact(copies.url),
                extra=log_fields(url=copies.url),
            )
            found.discard()
            found = None
        if found is not None:
            return cast(BinaryIO, found)
        limit = self.rules.limit
        if limit == 0 or count_fills() >= MOST_FILLS:
            process_counts.value.cache_bypasses += 1
            return fetch()
        if limit is not None:
            _keep_to(limit, copies.directory)
        if self.rules.verbose:
            print(f"# downloading {printable(redact(copies.url))} to {copies.path}", file=sys.stderr)
        return cast(BinaryIO, Follower(copies, fetch, self.rules))


_kept_to: PerProcess[set[tuple[str, int]]] = PerProcess(set)


def _keep_to(limit: int, directory: str) -> None:
    """Once per process: the limit may be lower than when the directory was filled."""
    if (directory, limit) not in _kept_to.value:
        _kept_to.value.add((directory, limit))
        index = Index(directory)
        if index.is_marked:
            with contextlib.suppress(OSError):
                index.make_room(limit)


AGAIN = 600.0
"""Seconds in which a process does not ask the store about one copy again, also after it was fetched."""
_NAMED = re.compile(r"(ais-[a-z-]+|etag) ([^\s,]+)")
GONE = "the object no longer exists"


def change_since(made_of: str, size: int, now: ObjectStat) -> str | None:
    """Why an object cannot be the one that a copy was made of; None if nothing shows a change.

    `made_of` is the validator of the object when it was fetched, "" if unknown, and `size` that of the copy.
    """
    if now.size is not None and now.size != size:
        return f"it has {now.size:,} bytes there and {size:,} in the copy"
    if not made_of or now.validator is None:
        return None
    before, after = dict(_NAMED.findall(made_of)), dict(_NAMED.findall(now.validator))
    if before and after:  # a store may add properties to an object after a while
        same = all(before[name] == after[name] for name in before.keys() & after.keys())
    else:
        same = made_of == now.validator
    return None if same else f"it is {redact(now.validator)} there, and was {made_of} when it was fetched"


def look_for_change(copy: Copy, location: str, url: str, stat: Callable[[], ObjectStat]) -> None:
    """Ask the store in the background whether its object has changed since the copy was made, and warn if it has.

    A store that does not answer is not asked again by this process: a cache is also for machines that cannot reach
    their store.

    Args:
        url: as the spec writes it, for warnings.
        stat: asks the store, once.
    """
    requests, now = _requests.value, time.monotonic()
    if _host(location) in requests.silent or now < requests.again.get(copy.name, 0.0):
        return
    requests.again[copy.name] = now + AGAIN
    if 0 <= time.time() - os.fstat(copy.fileno()).st_mtime < AGAIN:
        return
    background_fetcher().call(partial(_look, copy.name, *copy.made_of, location, url, stat))


class _Requests:
    """Questions of this process to stores."""

    def __init__(self) -> None:
        self.again: dict[str, float] = {}
        """Path of a copy → when its store may be asked again."""
        self.silent: set[str] = set()
        """Hosts that did not answer."""
        self.changed: set[str] = set()
        """Copies whose objects were reported as changed."""


_requests = PerProcess(_Requests)


def _look(
    path: str, size: int, made_of: str, location: str, url: str, stat: Callable[[], ObjectStat]
) -> None:
    requests = _requests.value
    if _host(location) in requests.silent:
        return
    try:
        change = change_since(made_of, size, stat())
    except MissingShardError:
        change = GONE
    except (WdspecError, OSError) as error:
        requests.silent.add(_host(location))
        log.debug("objects of %s are not compared with their copies: %s", _host(location), error)
        return
    if change is not None and path not in requests.changed:
        requests.changed.add(path)
        count = len(requests.changed)
        if count <= 3 or not count & (count - 1):
            log.warning(
                "an object has changed since its copy was made (no. %d): %s: %s; the copy %s is still used. Give new "
                "data new names, or delete the copy and start a new run",
                count,
                redact(url),
                change,
                path,
                extra=log_fields(url=url),
            )


def _host(location: str) -> str:
    """Scheme and host or bucket, which answers for all its objects or for none."""
    return redact("/".join(location.split("/", 3)[:3]))
