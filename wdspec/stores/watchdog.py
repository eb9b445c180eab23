"""Ends reads that last too long: of a store, a pipe or a mount that delivers nothing, and raises nothing either.

A read notes when it begins and when it ends; that is all it costs. A thread looks now and then at those under way. One
that is overdue is ended in up to three steps, each some seconds after the other: the stream is asked to `abort`;
an exception is put into the thread that reads, for streams that wait in Python; and if the system itself does not
come back (a dead mount), `stuck` is called: a worker hands the error over and ends.
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
"""Seconds that a read may take where the spec sets no `timeout`."""
STEP = 2.0
"""Seconds that a step may take to end a read before the next one."""
_LONGEST_NAP = 5.0


class _Interrupted(ShardError):  # noqa: N818  # it is an error only where nobody changes it for the real one
    """Put into a thread from outside; whoever is interrupted raises its own error instead."""

    def __init__(self, *message: str, **place: Any) -> None:
        super().__init__(*(message or ("nothing came for too long",)), **place)


class Watch:
    """What is read of one shard at a time, in one thread.

    Args:
        seconds: that one read may take.
        source, url: for the error.
    """

    def __init__(self, seconds: float, source: str, url: str) -> None:
        self.seconds, self.source, self.url = seconds, source, url
        self.stream: Any = None
        """What is asked to `abort(error)`, if it can."""
        self.error: ShardError | None = None
        self._since = 0.0
        self._thread = 0
        self._steps = 0
        self._interrupted = False
        self._lock = threading.Lock()
        _watchdog.value.add(self)

    def run(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function that may hang.

        Raises:
            ShardError: it took too long.
        """
        self._thread = threading.get_ident()
        self._since = time.monotonic()
        try:
            return read(*arguments)
        except BaseException as error:
            if self.error is not None and error is not self.error:
                raise self.error from error
            raise
        finally:
            self._since = 0.0
            if self.error is not None:
                self._settle()

    def look(self, now: float) -> None:
        """Takes the next step if the read under way is overdue; called by the watchdog."""
        since = self._since
        if not since or now - since < self.seconds + self._steps * STEP:
            return
        with self._lock:
            if self._since != since:
                return
            self._steps += 1
            if self.error is None:
                self.error = ShardError(
                    f"nothing came for {self.seconds:g} s (`errors: {{timeout: …}}`), so it is given up; see "
                    "whether its store, network or mount hangs",
                    source=self.source or None,
                    url=self.url,
                )
            abort = getattr(self.stream, "abort", None)
            if self._steps == 1 and abort is not None:
                abort(self.error)
            elif self._steps == 2 or (self._steps == 1 and abort is None):
                self._interrupted = True
                thread, what = ctypes.c_ulong(self._thread), ctypes.py_object(_Interrupted)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, what)
            elif self._steps == 3:
                log.error("a read cannot be ended from here: %s", self.error)
                stuck(self.error)

    def _settle(self) -> None:
        """Lets an exception come that comes too late: here it harms nobody.

        Taking it back would leave CPython (up to 3.12) looking for it at every call from then on, and for ever where
        a profiler is set.
        """
        with self._lock:
            interrupted, self._interrupted = self._interrupted, False
        if interrupted:
            with contextlib.suppress(_Interrupted):
                for _ in range(10):
                    time.sleep(0)


def _nothing(error: ShardError) -> None:
    pass


stuck: Callable[[ShardError], object] = _nothing
"""Called with the error of a read that nothing ends; a worker process puts its own end here."""


class WatchedStream:
    """A stream of which no read lasts longer than its watch allows."""

    def __init__(self, inner: BinaryIO, watch: Watch) -> None:
        self._inner, self._watch = inner, watch
        self._read = inner.read

    def read(self, size: int = -1) -> bytes:
        """As the stream's own, but an error after too long."""
        return cast(bytes, self._watch.run(self._read, size))

    def readinto(self, buffer: Any) -> int:
        """As `read`."""
        return cast(int, self._watch.run(self._inner.readinto, buffer))  # type: ignore[attr-defined]  # not in BinaryIO

    def seekable(self) -> bool:
        """Whether it can seek; a store may have to be asked."""
        return bool(self._watch.run(self._inner.seekable))

    def seek(self, offset: int, whence: int = 0) -> int:
        """As the stream's own."""
        return cast(int, self._watch.run(self._inner.seek, offset, whence))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def open_watched(open_stream: Callable[[], BinaryIO], seconds: float, source: str, url: str) -> BinaryIO:
    """Opens a stream, and watches that and all its reads.

    Raises:
        ShardError: opening took too long.
        Whatever `open_stream` raises.
    """
    watch = Watch(seconds, source, url)
    stream = cast(BinaryIO, watch.run(open_stream))
    watch.stream = stream
    return cast(BinaryIO, WatchedStream(stream, watch))


class _Watchdog:
    """The thread that looks; it ends when no watch is left."""

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
        """Ends the thread now if no watch is left."""
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
    """Ends the thread of this process that looks at reads, if there is none to look at."""
    _watchdog.value.rest()
