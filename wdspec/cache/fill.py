"""Fills the cache with one shard: the process that has its lock fetches all of it, at the pace of the store.

Never at the pace of a reader. A worker that has filled its queue waits for the training loop, and the loop for
another worker; if that one waited for a copy which the first only makes as fast as it reads, none would go on. So the
background thread makes it, and every reader, the first too, reads behind it from the growing file.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from wdspec.cache.cache_names import Copies
from wdspec.cache.copy_check import CopyCheck
from wdspec.cache.entries import Content, key_of
from wdspec.cache.in_use import mark_in_use
from wdspec.cache.index import Index
from wdspec.cache.positioned_stream import PositionedStream
from wdspec.errors import ShardError
from wdspec.formats.suffixes import format_of
from wdspec.redaction import redacted
from wdspec.streams.background_fetcher import background_fetcher
from wdspec.streams.resuming_stream import PIECE
from wdspec.system.file_locks import LockFile

log = logging.getLogger("wdspec")
_FIRST_STEP = 1024 * 1024
"""Bytes set aside at first for a shard of unknown length; doubled when they are used up."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True)
class CopyRules:
    """What holds for the copies of one source."""

    limit: int | None = None
    """Bytes that all of ours in the directory may take."""
    format: str = "auto"
    """Of its shards; `auto` is a tar, unless the name says otherwise."""
    lenient_end: bool = False
    """Whether they may lack the end marker."""
    may_be_empty: bool = False
    """Whether they may have no bytes, where their format has such shards."""


class Fill:
    """One copy being made by this process; a task of the background fetcher.

    Args:
        copies: where it goes.
        fetch: opens the shard at its store.
        rules: of the source.
        filling: the copy's lock, held.
    """

    def __init__(
        self, copies: Copies, fetch: Callable[[], BinaryIO], rules: CopyRules, filling: LockFile
    ) -> None:
        self.lock = threading.Lock()
        """Held by whoever fetches: the background thread, or a reader."""
        self.advanced = threading.Condition()
        """Notified after each piece."""
        self.done = False
        self.error: Exception | None = None
        """Why there is no copy: the store's error, or that of the check."""
        self.total: int | None = None
        """Bytes of the shard, once known from the store."""
        self.seekable = False
        """Whether the store serves any part of the shard."""
        self.uncached = False
        """Whether it is not kept, for want of room or of permission."""
        self.started = False
        """Whether the growing file exists, for readers to open."""
        self.written = 0
        self.reached = 0
        """How far the furthest reader in this process is."""
        self._copies, self._fetch, self._rules, self._filling = copies, fetch, rules, filling
        self._check = CopyCheck(
            copies.url,
            format_of(copies.written, rules.format),
            lenient_end=rules.lenient_end,
            may_be_empty=rules.may_be_empty,
        )
        self._index = Index(copies.directory)
        self._key = key_of(copies.own)
        self._stream: BinaryIO | None = None
        self._direct: PositionedStream | None = None
        self._reserved: int | None = None
        self._part = -1
        self._abandoned = False
        self._pending: bytes | memoryview = b""  # what came last and is not written yet

    @property
    def buffered(self) -> int:
        return max(0, self.written - self.reached)

    @property
    def ready(self) -> bool:
        return not self._abandoned

    def fetch_piece(self) -> None:
        """Fetches one piece; whoever calls holds the lock."""
        if self.done:
            return
        try:
            piece = self._pull()
        except Exception as error:
            self._fail(error)
        else:
            try:
                self._put(piece)
            except ShardError as error:
                self._fail(error.at(url=self._copies.url))
            except OSError as error:
                self._stop_caching(error)
        with self.advanced:
            self.advanced.notify_all()

    def wait(self, seconds: float) -> None:
        """Waits until a piece has come, or fetches one where nobody else does."""
        if self.lock.acquire(blocking=False):
            try:
                self.fetch_piece()
            finally:
                self.lock.release()
            background_fetcher().wake()  # it passed this fill by while it was locked
        else:
            self.watch(seconds)

    def watch(self, seconds: float) -> None:
        """Waits until a piece has come, and fetches nothing."""
        with self.advanced:
            if not self.done:
                self.advanced.wait(seconds)

    def open(self) -> int:
        """A descriptor of the growing file, for a reader; -1 where it does not exist any more."""
        with self.advanced:
            return os.dup(self._part) if self._part >= 0 else -1

    def take_direct(self) -> tuple[PositionedStream, int] | None:
        """For a shard that is not kept: the store's stream at its position, for the first reader that asks.

        With it comes a descriptor of the file that has what went before, or -1 if that is nothing.
        """
        with self.lock:
            if self._direct is None:
                return None
            with self.advanced:
                taken = self._direct, self._part
                self._direct, self._part = None, -1
        return taken

    def __del__(self) -> None:
        if self._direct is not None:
            self._direct.close()
            if self._part >= 0:
                os.close(self._part)

    def abandon(self) -> None:
        """Gives the copy up because the process ends; leaves one that is stuck to whoever comes next."""
        self._abandoned = True  # or the background thread would take the lock again at once
        if self.lock.acquire(timeout=0.1):
            try:
                if not self.done:
                    self._end()
            finally:
                self.lock.release()

    def forget(self) -> None:
        """In a forked child: the copy is its parent's."""
        self.done, self._stream, self._direct = True, None, None
        if self._part >= 0:
            os.close(self._part)
            self._part = -1

    def _pull(self) -> bytes:
        """The next piece; opens the stream first. Raises what the store raises."""
        if self._stream is None:
            self._stream = self._fetch()
            self.seekable = self._stream.seekable()
            if self.seekable:
                self.total = self._stream.seek(0, os.SEEK_END)
                self._stream.seek(0)
        return self._stream.read(PIECE)

    def _put(self, piece: bytes) -> None:
        """Writes a piece, or ends the copy at the empty one. Raises OSError of the cache's file system."""
        self._pending = piece
        if self._part < 0:
            self._begin(len(piece))
        if not piece:
            self._finish()
            return
        assert self._reserved is not None
        self._check.feed(piece)
        if self.written + len(piece) > self._reserved:
            needed = self.written + len(piece)
            self._reserve(max(2 * self._reserved, needed), needed)
        while self._pending:
            count = os.write(self._part, self._pending)
            self.written += count
            self._pending = memoryview(self._pending)[count:]

    def _begin(self, size: int) -> None:
        index = self._index
        index.drop(self._key, None)  # what a killed process left
        if self.total is None:
            self._reserve(max(size, _FIRST_STEP), size)
        else:
            self._reserve(self.total, self.total)
        self._part = index.permissions.open(index.part(self._key), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        mark_in_use(self._part)
        self.started = True

    def _reserve(self, wanted: int, needed: int) -> None:
        made_of = getattr(self._stream, "validator", None) or ""
        content = Content(self._copies.own, redacted(self._copies.url), redacted(made_of))
        for size in dict.fromkeys((wanted, needed)):
            if self._index.reserve(self._key, content, size, self._reserved, self._rules.limit):
                self._reserved = size
                return
        raise OSError(errno.EDQUOT, f"no room for {needed:,} bytes within the limit of {self._rules.limit:,}")

    def _finish(self) -> None:
        assert self._reserved is not None
        self._check.finish(self.total)
        os.fsync(self._part)
        self._index.commit(self._key, self._copies.own, self.written, self._reserved)
        self._reserved = None
        self._end()

    def _fail(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _stop_caching(self, error: OSError) -> None:
        """Lets the readers go on with the stream where it stands."""
        warn_once(self._copies.directory, error)
        assert self._stream is not None
        self._direct = PositionedStream(self._stream, self.written, bytes(self._pending))
        self._stream, self.uncached = None, True
        self._end()

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        with self.advanced:
            if self._part >= 0 and self._direct is None:
                os.close(self._part)
                self._part = -1
        with contextlib.suppress(OSError):
            self._index.drop(self._key, self._reserved)
        self.done = True
        self._filling.release()


_warned: set[tuple[str, int | None]] = set()


def warn_once(directory: str, error: OSError) -> None:
    """Says, once in a process, why shards are read without being kept."""
    if (directory, error.errno) in _warned:
        return
    _warned.add((directory, error.errno))
    if error.errno in _FULL:
        hint = "free some, raise `size`, or make it smaller with `wdspec cache prune`"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        hint = "a file stands there: give a directory in `cache:` or WDS_CACHE"
    elif error.errno == errno.ENOENT:
        hint = "no directory can be made there: choose another in `cache:` or WDS_CACHE"
    else:
        hint = "give the user write permission, choose another `cache:`, or switch it off: `cache: false`"
    log.warning(
        "shards are read without being kept in the cache %s: %s; %s",
        directory,
        error.strerror or error,
        hint,
    )
