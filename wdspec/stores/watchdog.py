"""End reads that take too long: of a store, a pipe or a mount that sends nothing, and raises nothing either.

A read notes its start and its end, and costs nothing else. A thread checks the running reads now and then. It ends an
overdue one in up to three steps, some seconds apart: the stream is asked to `abort`; an exception is raised in the
reading thread, for streams that wait in Python; and if a system call itself does not return (a dead mount), `stuck` is
called, by which a worker process hands over the error and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from wdspec.base.errors import ShardError
from wdspec.base.process import PerProcess

log = logging.getLogger("wdspec")

NO_PROGRESS = 600.0
"""Seconds that a read may take if the spec sets no `timeout`."""
STEP = 2.0
"""Seconds between two steps to end a read."""
_LONGEST_NAP = 5.0


class _Interrupted(BaseException):
    """Raised in a thread from outside; the interrupted read then raises its real error.

    It is no Exception, so no library takes it for a broken connection, which would be retried.
    """


class Watch:
    """A stream whose reads end within some seconds; one read at a time, in one thread."""

    def __init__(self, seconds: float, source: str, url: str) -> None:
        self.seconds, self._source, self._url = seconds, source, url
        self.stream: Any = None
        """The stream itself, once it is open; asked to `abort(error)`, if it can."""
        self._error: ShardError | None = None
        self._since = 0.0
        self._thread = 0
        self._steps = 0
        self._interrupted = False
        self._lock = threading.Lock()
        _watchdog.value.add(self)

    def run(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that may hang. Raises ShardError if it takes too long."""
        try:
            try:
                self._thread = threading.get_ident()
                self._since = time.monotonic()
                return read(*arguments)
            finally:
                with self._lock:  # `look` does nothing from now on
                    self._since = 0.0
                if self._interrupted:
                    self._settle()
        except BaseException as error:
            self._settle()  # it may have arrived while the read ended
            ours = isinstance(error, (Exception, _Interrupted)) and self._error
            if ours and error is not ours:
                raise ours from error
            raise

    def read(self, size: int = -1) -> bytes:
        """Like the stream's own, but raises an error after too long."""
        return cast(bytes, self.run(self.stream.read, size))

    def readinto(self, buffer: Any) -> int:
        """As `read`."""
        return cast(int, self.run(self.stream.readinto, buffer))

    def seekable(self) -> bool:
        """Whether it can seek, which may need a request."""
        return bool(self.run(self.stream.seekable))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Like the stream's own."""
        return cast(int, self.run(self.stream.seek, offset, whence))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def look(self, now: float) -> None:
        """Take the next step if the running read is overdue; called by the watchdog."""
        since = self._since
        if not since or now - since < self.seconds + self._steps * STEP:
            return
        with self._lock:
            if self._since != since:
                return
            self._steps += 1
            if self._error is None:
                self._error = ShardError(
                    f"a read took more than {self.seconds:g} s (`errors: {{timeout: …}}`) and was ended; check whether "
                    "its store, network or mount hangs",
                    source=self._source or None,
                    url=self._url,
                )
            abort = getattr(self.stream, "abort", None)
            if self._steps == 1 and abort is not None:
                abort(self._error)
            elif self._steps == 2 or (self._steps == 1 and abort is None):
                self._interrupted = True
                thread, what = ctypes.c_ulong(self._thread), ctypes.py_object(_Interrupted)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, what)
            elif self._steps == 3:
                log.error("a read cannot be ended: %s", self._error)
                stuck(self._error)

    def _settle(self) -> None:
        """Receive an exception that comes too late, here where `run` catches it.

        Withdrawing it would make CPython (up to 3.12) look for it at every later call, and forever if a profiler is
        set.
        """
        with self._lock:
            self._since = 0.0
            interrupted, self._interrupted = self._interrupted, False
        if interrupted:
            with contextlib.suppress(_Interrupted):
                for _ in range(10):
                    time.sleep(0)


def _nothing(error: ShardError) -> None:
    pass


stuck: Callable[[ShardError], object] = _nothing
"""Called with the error of a read that nothing ends; a worker process replaces it by a function that ends it."""


def open_watched(open_stream: Callable[[], BinaryIO], seconds: float, source: str, url: str) -> BinaryIO:
    """Open a stream, and watch that and all its reads: each raises ShardError after too long."""
    watch = Watch(seconds, source, url)
    watch.stream = watch.run(open_stream)
    return cast(BinaryIO, watch)


class _Watchdog:
    """The thread that checks watches; it ends when none is left."""

    def __init__(self) -> None:
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._running = False
        self._nap = _LONGEST_NAP
        self._hurry = threading.Event()
        self._thread: threading.Thread

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.add(watch)
            if watch.seconds / 10 < self._nap:
                self._hurry.set()
            if not self._running:
                self._running = True
                self._thread = threading.Thread(target=self._serve, name="wdspec-watchdog", daemon=True)
                self._thread.start()

    def rest(self) -> None:
        """End the thread now if no watch is left."""
        with self._lock:
            if self._watches or not self._running:
                return
            self._hurry.set()
        self._thread.join(1)

    def _serve(self) -> None:
        while True:
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._running = False
                    return
                self._nap = min(_LONGEST_NAP, *(watch.seconds / 10 for watch in watches))
                self._hurry.clear()
            now = time.monotonic()
            while watches:
                watches.pop().look(now)
            self._hurry.wait(self._nap)


_watchdog = PerProcess(_Watchdog)


def end_idle_watchdog() -> None:
    """End the watchdog's thread in this process if nothing is watched."""
    _watchdog.value.rest()
