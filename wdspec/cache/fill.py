"""Making the copy of one shard: the process that has its lock fetches all of it, at the speed of the store.

It must not depend on the speed of a reader. A worker whose queue is full waits for the training loop, which waits for
another worker. If that one waited for a copy that the first worker makes only as fast as it reads, both would wait
forever. So the
background thread makes the copy, and every reader, also the first, reads from the growing file (`follower.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from wdspec.base.errors import ShardError, find_lack
from wdspec.base.files import LockFile
from wdspec.base.process import PerProcess, process_counts
from wdspec.base.redaction import redact
from wdspec.cache.index import Content, Index, key_of, mark_in_use
from wdspec.cache.names import Copies
from wdspec.formats.blocks import BLOCK
from wdspec.formats.compression import ANY_START, format_of
from wdspec.formats.decompress import IntegrityCheck
from wdspec.formats.tar.headers import ZERO_BLOCK, begins_tar
from wdspec.spec.language.locations import Verify
from wdspec.stores.read_ahead import background_fetcher
from wdspec.stores.resume import PIECE

_KEPT = 64 * 1024
"""Number of bytes to check at each end; a longer last line is not checked."""


class CopyCheck:
    """Checks the bytes of a file as they arrive, and at its end whether it is a complete shard, whose copy is kept.

    Compressed data must be complete and match its checksums; a tar needs a header at its start and its end marker; the
    last line of JSON lines must be complete. CBOR, MessagePack and `ANY_START` cannot be checked before they are read.

    Args:
        format: `tar`, `jsonl`, `cbor` or `msgpack`.
        lenient_end: whether a tar may lack its end marker.
        may_be_empty: whether the file may be empty.
    """

    def __init__(self, format: str, *, lenient_end: bool, may_be_empty: bool) -> None:
        self._format, self._lenient_end = format, lenient_end
        self._may_be_empty = may_be_empty and format != "tar"
        self._content = IntegrityCheck(_KEPT)

    def feed(self, piece: bytes) -> bool:
        """Add bytes. Return whether the file is not damaged so far."""
        try:
            if self._format not in ANY_START:
                self._content.feed(piece)
        except ShardError:
            return False
        return True

    def is_whole(self) -> bool:
        """Whether these were all bytes of a shard."""
        content, format = self._content, self._format
        if format in ANY_START:
            return True
        try:
            content.finish()
        except ShardError:
            return False
        if not content.known or (not content.size and self._may_be_empty):
            return True
        start = content.start[:BLOCK]
        if begins_tar(start):
            ends = not content.size % BLOCK and content.end.endswith(2 * ZERO_BLOCK)
            return self._lenient_end or ends
        if format == "tar" or not start or start.lstrip()[:1] == b"<":
            return False
        if format == "jsonl":
            return _is_last_line_whole(content)
        return format != "parquet" or content.end[-4:] == b"PAR1"


def _is_last_line_whole(content: IntegrityCheck) -> bool:
    last = content.end.rpartition(b"\n")[2]
    if not last.strip() or (len(last) == _KEPT and content.size > _KEPT):
        return True
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return False
    return True


class PositionedStream:
    """A store's stream read by offsets, for readers of a shard without a copy.

    `pending` are bytes already taken from the stream, and `at` is the offset in the shard of the first of them.
    """

    def __init__(self, stream: BinaryIO, at: int = 0, pending: bytes = b"") -> None:
        self._stream, self.at, self._pending = stream, at, pending

    @property
    def seekable(self) -> bool:
        return self._stream.seekable()

    def length(self) -> int:
        """The length of the shard, if the stream can seek."""
        self.at, self._pending = self._stream.seek(0, os.SEEK_END), b""
        return self.at

    def read_at(self, position: int, size: int) -> bytes:
        """At most `size` bytes from a position on; b"" at the end. Raises ShardError."""
        if position != self.at and self.seekable:
            self._stream.seek(position)
            self.at, self._pending = position, b""
        while self.at < position and self._take(min(PIECE, position - self.at)):
            pass
        if self.at > position:
            raise ShardError(
                "this shard cannot be read again from an earlier offset: its store serves no ranges"
            )
        return self._take(size) if self.at == position else b""

    def close(self) -> None:
        self._stream.close()

    def abort(self, error: ShardError) -> None:
        """From another thread: end the current read."""
        abort = getattr(self._stream, "abort", None)
        if abort is not None:
            abort(error)

    def _take(self, size: int) -> bytes:
        if self._pending:
            data, self._pending = self._pending[:size], self._pending[size:]
        else:
            data = self._stream.read(size)
        self.at += len(data)
        return data


log = logging.getLogger("wdspec")
_FIRST_STEP = 1024 * 1024
"""Bytes reserved at first for a shard of unknown length; doubled when they are used up."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True)
class CopyRules:
    """The rules for the copies of one source."""

    limit: int | None = None
    """Maximum number of bytes of wdspec's files in the directory."""
    format: str = "auto"
    """The format of the source's shards; `auto` means tar, unless the name says otherwise."""
    lenient_end: bool = False
    """Whether the shards may lack their end marker."""
    may_be_empty: bool = False
    """Whether the shards may be empty, in formats that allow it."""
    verify: Verify = "changed"
    """When to compare a copy with the checksum of the bytes that were fetched."""
    verbose: bool = False
    """Whether to print a line for each copy that is made."""


class Fill:
    """One copy being made by this process, which holds its lock; a task of the background fetcher."""

    def __init__(
        self, copies: Copies, fetch: Callable[[], BinaryIO], rules: CopyRules, filling: LockFile
    ) -> None:
        self.lock = threading.Lock()
        """Held while a piece is fetched, by the background thread or a reader."""
        self.advanced = threading.Condition()
        """Notified after each piece."""
        self.done = False
        self.error: Exception | None = None
        """Why there is no copy: an error of the store."""
        self.total: int | None = None
        """Size of the shard in bytes, if the store gives it."""
        self.seekable = False
        """Whether the store serves ranges of the shard."""
        self.uncached = False
        """Whether no copy is kept, because there is no room or no permission, or the shard is damaged."""
        self.is_damaged = False
        """Whether no copy is kept, because the shard is damaged or incomplete."""
        self.started = False
        """Whether the growing file exists, for readers to open."""
        self.made_of = ""
        """The validator of the object, without secrets; "" if it is not known (yet)."""
        self.written = 0
        self._crc = 0
        self.reached = 0
        """The position of the furthest reader in this process."""
        self._copies, self._fetch, self._rules, self._filling = copies, fetch, rules, filling
        self._check = CopyCheck(
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
        self._pending: bytes | memoryview = b""  # what is not written yet of the last piece

    @property
    def buffered(self) -> int:
        return max(0, self.written - self.reached)

    @property
    def ready(self) -> bool:
        return not self._abandoned

    def fetch_piece(self) -> None:
        """Fetch one piece; the caller holds the lock."""
        if self.done:
            return
        try:
            piece = self._pull()
        except Exception as error:
            self._fail(error)
        except BaseException:  # the bytes that were on their way are lost
            self._fail(ShardError("fetching this shard was interrupted", url=self._copies.url))
            raise
        else:
            try:
                self.is_damaged = not self._put(piece)
                if self.is_damaged:  # readers get the samples before the damage, and the error at its place
                    self._stop_caching()
            except ShardError as error:
                self._fail(error)
            except OSError as error:
                warn_once(self._copies.directory, error)
                self._stop_caching()
        finally:
            with self.advanced:
                self.advanced.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until a piece has arrived, or fetch one if no other thread does."""
        if self.lock.acquire(blocking=False):
            try:
                self.fetch_piece()
            finally:
                self.lock.release()
            background_fetcher().wake()  # it skipped this fill while it was locked
        else:
            self.watch(seconds)

    def abort(self, error: ShardError) -> None:
        """From another thread: end the fetch of the current piece, so that there is no copy."""
        abort = getattr(self._stream, "abort", None)
        if abort is not None:
            abort(error)

    def watch(self, seconds: float) -> None:
        """Wait until a piece has arrived, and fetch nothing."""
        with self.advanced:
            if not self.done:
                self.advanced.wait(seconds)

    def open(self) -> int:
        """A descriptor of the growing file, for a reader; -1 if it no longer exists."""
        with self.advanced:
            return os.dup(self._part) if self._part >= 0 else -1

    def take_direct(self) -> tuple[PositionedStream, int] | None:
        """For a shard that is not kept, return the store's stream at its position to the first reader that calls this.

        Also returns a descriptor of the file with the bytes before, or -1 if there are none.
        """
        with self.lock:
            if self._direct is None:
                return None
            with self.advanced:
                taken = self._direct, self._part
                self._direct, self._part = None, -1
        return taken

    def __del__(self) -> None:
        try:
            if self._direct is not None:
                self._direct.close()
                if self._part >= 0:
                    os.close(self._part)
        except (AttributeError, TypeError):  # at exit, names that `close` uses may be None
            pass

    def abandon(self) -> None:
        """Abandon the copy because the process ends; if the fetch hangs, another process will take over."""
        self._abandoned = True  # or the background thread would take the lock again at once
        if self.lock.acquire(timeout=0.1):
            try:
                if not self.done:
                    self._end()
            finally:
                self.lock.release()

    def forget(self) -> None:
        """In a forked child, leave the copy to the parent."""
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

    def _put(self, piece: bytes) -> bool:
        """Write a piece, or finish the copy at an empty one; return whether the shard is not damaged.

        Raises:
            OSError: of the cache's file system.
            ShardError: the store ended too early.
        """
        self._pending = piece
        if self._part < 0:
            self._start(len(piece))
        if not piece:
            return self._finish()
        assert self._reserved is not None
        if not self._check.feed(piece):
            return False
        self._crc = zlib.crc32(piece, self._crc)
        if self.written + len(piece) > self._reserved:
            needed = self.written + len(piece)
            self._reserve(max(2 * self._reserved, needed), needed)
        while self._pending:
            count = os.write(self._part, self._pending)
            self.written += count
            self._pending = memoryview(self._pending)[count:]
        return True

    def _start(self, size: int) -> None:
        index = self._index
        index.drop(self._key, None)  # left by a killed process
        if self.total is None:
            self._reserve(max(size, _FIRST_STEP), size)
        else:
            self._reserve(self.total, self.total)
        self._part = index.permissions.open(index.part(self._key), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        mark_in_use(self._part)
        self.started = True

    def _reserve(self, wanted: int, needed: int) -> None:
        self.made_of = redact(getattr(self._stream, "validator", None) or "")
        content = Content(self._copies.own, redact(self._copies.url), self.made_of)
        for size in dict.fromkeys((wanted, needed)):
            if self._index.reserve(self._key, content, size, self._reserved, self._rules.limit):
                self._reserved = size
                return
        raise OSError(errno.EDQUOT, f"no room for {needed:,} bytes within the limit of {self._rules.limit:,}")

    def _finish(self) -> bool:
        assert self._reserved is not None
        if self.total is not None and self.written != self.total:
            message = f"{self.written} bytes arrived, but {self.total} were announced"
            raise ShardError(message, code="D107", url=self._copies.url)
        if not self._check.is_whole():
            return False
        os.fsync(self._part)
        self._index.commit(self._key, self._copies.own, self.written, self._reserved, self._crc)
        self._reserved = None
        self._end()
        return True

    def _fail(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _stop_caching(self) -> None:
        """Let the readers continue with the stream at its position."""
        assert self._stream is not None
        self._direct = PositionedStream(self._stream, self.written, bytes(self._pending))
        self._stream, self.uncached = None, True
        process_counts.value.cache_bypasses += 1
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
    """Log once per process why shards are read without being kept."""
    if (directory, error.errno) in _warned:
        return
    _warned.add((directory, error.errno))
    if error.errno in _FULL:
        hint = "free some, raise `size`, or make it smaller with `wdspec cache prune`"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR) and os.path.isdir(directory):
        hint = (
            "the URL of one shard is the start of another's, and only one of them can have a copy: rename one"
        )
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        hint = "there is a file of this name: give a directory in `cache:` or WDS_CACHE"
    elif error.errno == errno.ENOENT:
        hint = "the directory cannot be made: choose another in `cache:` or WDS_CACHE"
    elif (lack := find_lack(error)) is not None:
        hint = lack
    else:
        hint = "give the user write permission, choose another `cache:`, or switch it off: `cache: false`"
    log.warning(
        "shards are read without being kept in the cache %s: %s; %s",
        directory,
        error.strerror or error,
        hint,
    )


GRACE = 1.0
"""Seconds that an ending process spends on copies that are nearly complete, so that none is fetched twice."""


class _RunningFills:
    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.by_path: dict[str, Fill] = {}
        self.end_with_process = False

    def forget(self) -> None:
        """In a forked child, leave the copies to the parent."""
        for fill in self.by_path.values():
            fill.forget()


_running = PerProcess(_RunningFills, _RunningFills.forget)


MOST_FILLS = 32
"""The most copies that a process makes at a time. Each takes three descriptors, and a mix may have thousands of
sources: their other shards are read from the stores."""


def count_fills() -> int:
    """Return how many copies this process is making."""
    running = _running.value
    if len(running.by_path) < MOST_FILLS:  # some may be done
        return len(running.by_path)
    with running.guard:
        return sum(not fill.done for fill in running.by_path.values())


def start_fill(copies: Copies, fetch: Callable[[], BinaryIO], rules: CopyRules) -> Fill | None:
    """Start to make a copy, unless another process does or it exists. Raises OSError if the directory is read-only."""
    running = _running.value
    with running.guard:
        for path in [path for path, fill in running.by_path.items() if fill.done]:
            del running.by_path[path]
        fill = running.by_path.get(copies.path)
        if fill is not None:
            return fill
        index = Index(copies.directory)
        index.ready()
        filling = index.filling(key_of(copies.own))
        if not filling.try_acquire():
            return None
        if os.path.lexists(copies.path):
            filling.release()
            return None
        fill = running.by_path[copies.path] = Fill(copies, fetch, rules, filling)
    if not running.end_with_process:
        running.end_with_process = True
        _finish_with_process()
    background_fetcher().add(fill)
    return fill


def finish() -> None:
    """End all copies: complete those that are nearly complete, and abandon the others."""
    deadline = time.monotonic() + GRACE
    running = _running.value
    with running.guard:
        fills = [fill for fill in running.by_path.values() if not fill.done]
        running.by_path.clear()
    for fill in fills:
        while not fill.done and time.monotonic() < deadline:
            fill.watch(max(0.0, deadline - time.monotonic()))
    for fill in fills:
        with contextlib.suppress(OSError):
            fill.abandon()


def _finish_with_process() -> None:
    atexit.register(finish)
    # Worker processes end without the functions of `atexit`.
    from multiprocessing.util import Finalize

    Finalize(None, finish, exitpriority=10)
