"""Reading a copy while this process or another makes it."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from wdspec.base.errors import ShardError, WdspecError
from wdspec.base.files import SeekableStream
from wdspec.base.handles import FEW, Identity, ReplacedFileError, handles, identity_of
from wdspec.base.process import process_counts
from wdspec.base.redaction import redact
from wdspec.cache.fill import CopyRules, Fill, PositionedStream, start_fill, warn_once
from wdspec.cache.index import Index, key_of, open_marked
from wdspec.cache.names import Copies
from wdspec.stores.read_ahead import SOON
from wdspec.stores.resume import PIECE

POLL = 0.01
"""Seconds between two checks of a file that another process writes."""
TAKE_OVER = 0.1
"""Seconds between two checks whether that process is still alive."""
STALLED = 300.0
"""Seconds to wait for a process that is alive and writes nothing; longer than all timeouts."""
_MOST = 16 * PIECE
DELETED = "the copy was deleted or replaced while it was read"


class Follower(SeekableStream):
    """The bytes of a shard while its copy is made by another reader or process, or by this one if no other does.

    `read` returns b"" only after the copy is complete and checked. If its maker dies, gets no room, or fills the file
    system, reading continues from a new copy or from the store. The bytes read before are then compared with the new
    ones.

    `read` and `seek` raise what the store raises, and ShardError if the shard is not complete.
    """

    def __init__(self, copies: Copies, fetch: Callable[[], BinaryIO], rules: CopyRules) -> None:
        self._copies, self._fetch, self._rules = copies, fetch, rules
        self._key = key_of(copies.own)
        self._part = Index(copies.directory).part(self._key)
        self._pid = os.getpid()
        self._fill: Fill | None = None
        self._file = -1  # the growing file, or the copy
        self._complete = False
        self._before = -1  # the file of a maker that did not finish, until it is compared
        # If no copy is made; the file then has the bytes before `_direct_from`.
        self._direct: PositionedStream | None = None
        self._direct_from = 0
        self._position = self._reached = 0
        self._looked = 0.0
        self._refusal: ShardError | None = None
        self._grown = (0, time.monotonic())
        self._using = threading.RLock()
        self._released: tuple[Identity, str] | None = None
        """The copy whose descriptor is closed, and the validator of its object."""
        if not self._become_maker():
            self._attach()

    @property
    def name(self) -> str:
        """The path of the copy, which may not exist yet."""
        return self._copies.path

    @property
    def nearly_fetched(self) -> bool:
        """Whether this process has nothing, or little, left to fetch."""
        fill = self._fill
        if self._direct is not None or fill is None or fill.done:
            return self._direct is None
        return fill.total is not None and fill.total - fill.written <= SOON

    @property
    def is_damaged(self) -> bool:
        """Whether this process keeps no copy, as the shard is damaged or incomplete."""
        return self._fill is not None and self._fill.is_damaged

    def seekable(self) -> bool:
        while self._file < 0 and self._direct is None and self._released is None:
            self._step()
        if self._direct is not None:
            return self._direct.seekable
        return self._fill is None or self._complete or self._fill.seekable

    def _read(self, size: int) -> bytes:
        if not size:
            return b""
        with self._using:
            while (data := self._available(min(size, _MOST))) is None:
                self._step()
        self._position += len(data)
        self._reached = max(self._reached, self._position)
        if self._fill is not None:
            self._fill.reached = max(self._fill.reached, self._position)
        return data

    @property
    def made_of(self) -> str:
        """The validator of the object, without secrets; "" if it is not known (yet)."""
        with self._using:
            if self._released is not None:
                return self._released[1]
            return (self._fill.made_of if self._fill is not None else "") or self._find_made_of()

    def _find_made_of(self) -> str:
        """The validator that the index has for the open copy; "" without one."""
        if self._file < 0:
            return ""
        entries = Index(self._copies.directory).entries
        content = entries.content(self._key, entries.path(self._key, os.fstat(self._file).st_size))
        return "" if content is None else content.made_of

    def release(self) -> bool:
        """See `Handle`. Only a finished copy that has no other bytes to be compared with can be opened again."""
        if not self._using.acquire(blocking=False):
            return False
        try:
            if self._released is None and self._file >= 0:
                if self._before >= 0 or self._direct is not None or not self._is_complete():
                    return False
                self._released = identity_of(self._file), self._find_made_of()
                os.close(self._file)
                self._file = -1
            return True
        finally:
            self._using.release()

    def _reopen(self, about: Identity, validator: str) -> None:
        """Open the released copy again, or the same object if the copy was deleted meanwhile."""
        handles().add(self)
        try:
            self._file = open_marked(self._copies.path)
            if identity_of(self._file) != about:
                os.close(self._file)
                self._file = -1
                raise FileNotFoundError(self._copies.path)
        except FileNotFoundError:
            handles().drop(self)
            error = ReplacedFileError(DELETED, location=self._copies.path)
            stream = open_same_object(self._fetch, self._position, validator, error)
            self._direct, self._direct_from = PositionedStream(stream, self._position), 0
            self._fill, self._complete = None, False
            process_counts.value.cache_bypasses += 1
        self._released = None

    def abort(self, error: ShardError) -> None:
        """From another thread: the current `read`, and every later one that has to wait, raises the error."""
        self._refusal = error
        fetching = self._direct or self._fill
        if fetching is not None:
            fetching.abort(error)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        handles().drop(self)
        if self._direct is not None:
            self._direct.close()
        if self._complete and self._file >= 0:
            Index(self._copies.directory).entries.touch(self._key, os.fstat(self._file).st_size)
        for descriptor in (self._file, self._before):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._before = -1

    def _available(self, size: int) -> bytes | None:
        """Bytes at the position; b"" at the end of the shard, None if they have not arrived yet."""
        if self._released is not None:
            self._reopen(*self._released)
        else:
            handles().use(self)
        direct = self._direct
        if direct is not None and self._position >= self._direct_from:
            return direct.read_at(self._position, size)
        if self._file < 0:
            return None
        # Checked first: bytes may arrive before the copy is complete.
        complete = direct is None and self._is_complete()
        if self._before >= 0 and not self._matches_before(complete):
            return None
        if direct is not None:
            size = min(size, self._direct_from - self._position)
        data = os.pread(self._file, size, self._position)
        return data if data or complete else None

    def _length(self) -> int:
        with self._using:
            if self._released is not None:
                self._reopen(*self._released)
            return self._find_length()

    def _find_length(self) -> int:
        while True:
            if self._direct is not None:
                return self._direct.length()
            if self._fill is not None and self._fill.total is not None:
                return self._fill.total
            if self._file >= 0 and self._is_complete():
                return os.fstat(self._file).st_size
            self._step()

    def _is_complete(self) -> bool:
        """Whether the open file is the finished copy."""
        if not self._complete:
            with contextlib.suppress(OSError):
                self._complete = os.path.samestat(os.stat(self._copies.path), os.fstat(self._file))
        return self._complete

    def _step(self) -> None:
        """Fetch more bytes, or wait a moment for the process that does. Raises the error that prevents a copy."""
        if self._refusal is not None:
            raise self._refusal
        if self._pid != os.getpid():  # a fill belongs to the process that started it
            self._pid, self._fill = os.getpid(), None
        fill = self._fill
        if fill is None:
            self._follow_others()
        elif fill.done:
            self._continue_after(fill)
        else:
            fill.wait(0.1)
            if self._file < 0 and fill.started:
                self._file = fill.open()
                if self._file >= FEW:
                    handles().add(self)

    def _follow_others(self) -> None:
        if self._file < 0 and self._attach():
            return
        now = time.monotonic()
        if self._file < 0 or now - self._looked > TAKE_OVER:
            self._looked = now
            if self._become_maker():
                return
        size = 0 if self._file < 0 else os.fstat(self._file).st_size
        if size != self._grown[0]:
            self._grown = (size, now)
        elif now - self._grown[1] > STALLED:
            self._read_from_store(
                OSError(errno.ETIMEDOUT, "another process fetches one and makes no progress")
            )
            return
        time.sleep(POLL)

    def _become_maker(self) -> bool:
        """Make the copy if no process does; return whether anything has changed."""
        try:
            self._fill = start_fill(self._copies, self._fetch, self._rules)
        except OSError as error:
            self._read_from_store(error)
            return True
        if self._fill is not None:
            self._leave_file()
        elif os.path.lexists(self._copies.path) and not (self._file >= 0 and self._is_complete()):
            self._leave_file()
            if not self._attach() and os.path.lexists(self._copies.path):
                self._read_from_store(PermissionError(errno.EACCES, f"{self._copies.path} cannot be read"))
        else:
            return False
        return True

    def _continue_after(self, fill: Fill) -> None:
        """Continue after a fill of this process that made no copy, or one that is gone."""
        if fill.error is not None:
            raise _rebuild(fill.error)
        taken = fill.take_direct()
        if taken is not None:
            self._direct, written = taken
            self._direct_from = self._direct.at
            if self._file < 0:
                self._file = written
            elif written >= 0:
                os.close(written)
            self._compare_direct()
            return
        if fill.uncached:
            self._read_from_store(None)
            return
        self._fill = None
        self._leave_file()
        self._attach()

    def _read_from_store(self, why: OSError | None) -> None:
        if why is not None:
            warn_once(self._copies.directory, why)
        process_counts.value.cache_bypasses += 1
        self._leave_file()
        self._direct, self._direct_from, self._fill = PositionedStream(self._fetch()), 0, None
        self._compare_direct()

    def _attach(self) -> bool:
        """Open the finished copy, or the growing file."""
        for path in (self._part, self._copies.path):
            try:
                self._file = open_marked(path)
            except OSError:
                continue
            self._grown = (0, time.monotonic())
            if self._file >= FEW:
                handles().add(self)
            return True
        return False

    def _leave_file(self) -> None:
        """Leave the open file; bytes read from it are kept for comparison."""
        if self._file >= 0:
            if self._before < 0 and self._reached:
                self._before = self._file
            else:
                os.close(self._file)
        self._file, self._complete = -1, False

    def _matches_before(self, complete: bool) -> bool:
        """Whether the file has all bytes that were read before. Raises ShardError if they differ."""
        if os.fstat(self._file).st_size < self._reached and not complete:
            return False
        for at in range(0, self._reached, PIECE):
            size = min(PIECE, self._reached - at)
            if os.pread(self._file, size, at) != os.pread(self._before, size, at):
                raise self._change_error(at)
        os.close(self._before)
        self._before = -1
        return True

    def _compare_direct(self) -> None:
        """Compare the bytes of the store with those read before, which the old file then serves."""
        if self._before < 0 or self._direct is None:
            return
        if self._file >= 0:  # this file has the bytes of the same stream up to `_direct_from`
            self._matches_before(complete=True)
            return
        while self._direct.at < self._reached:
            at = self._direct.at
            piece = self._direct.read_at(at, min(PIECE, self._reached - at))
            if not piece or piece != os.pread(self._before, len(piece), at):
                raise self._change_error(at)
        self._file, self._before, self._direct_from = self._before, -1, self._reached

    def _change_error(self, at: int) -> ShardError:
        return ShardError(
            f"the object changed while it was read: other bytes within {PIECE} of byte {at}; start again from a saved "
            "state",
            url=self._copies.url,
        )


def open_same_object(
    fetch: Callable[[], BinaryIO], at: int, validator: str, error: ReplacedFileError
) -> BinaryIO:
    """Return the bytes in the store, from an offset on, in place of those of a copy that was deleted while it was read.

    Args:
        fetch: opens the object.
        at: the offset.
        validator: of the object of which the copy was made, as its index has it; "" if it is not known.
        error: raised if the store does not show that it has the same object.
    """
    stream = fetch()
    try:
        stream.seek(at)
        stream.read(1)  # then its validator is known
        stream.seek(at)
        found = redact(getattr(stream, "validator", None) or "")
        if found and found == validator:
            return stream
    except BaseException:
        stream.close()
        raise
    stream.close()
    error.message = (
        f"{DELETED}, and the store does not show that it has the same object: it is {found or 'unknown'} there, and "
        f"the copy was made of {validator or 'an unknown one'}; give the cache more room (`size`), and resume from a "
        "saved state"
    )
    raise error


def _rebuild(error: Exception) -> Exception:
    """Return the same error for another reader: the raised one has the stack frames of the first reader."""
    if isinstance(error, WdspecError):
        rebuild, arguments = error.__reduce__()[:2]
        again: Exception = rebuild(*arguments)
        return again
    return error
