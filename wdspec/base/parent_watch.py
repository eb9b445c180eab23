"""Ends a process that multiprocessing started once the process that started it is gone, however that ended.

Nothing else ends it for sure: a queue's feeder may sit in the write to a pipe whose reading end it has inherited too,
and then neither the closed pipe nor the wait for its threads lets a worker go.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import wait

from wdspec.base.process import PerProcess

PERIOD = 1.0
"""Seconds between two looks, where the system tells no better."""

_PR_SET_PDEATHSIG = 1


class ParentWatch:
    """The process that started this one, watched by what each system and start method has.

    The sentinel of multiprocessing alone does not do: under fork, siblings hold its other end. Nor does the number of
    the parent: under forkserver that is the server's.
    """

    def __init__(self) -> None:
        self._pid = 0
        """Of the parent; 0 as long as nobody watches it."""
        self._handles: list[int] = []
        """Ready to be read when it has ended."""
        self._is_child = False

    @property
    def is_gone(self) -> bool:
        """Whether the parent has ended. False as long as it is not watched."""
        return bool(self._pid) and self._is_gone(0)

    def start(self, tied: bool = False) -> None:
        """Ends this process within seconds of its parent from now on. Only the first call counts, and only in a
        process that multiprocessing has started.

        Args:
            tied: have the system kill this process together with the thread that started it, where it can: at once,
                and whatever this process is doing. Only for what the parent's main thread has started.
        """
        parent = multiprocessing.parent_process()
        if self._pid or parent is None or parent.pid is None:
            return
        self._pid = pid = parent.pid
        self._handles.append(parent.sentinel)
        try:
            self._handles.append(os.pidfd_open(pid))
        except ProcessLookupError:
            _leave()
        except (AttributeError, OSError):
            pass  # not Linux, or forbidden in this container
        self._is_child = os.getppid() == pid
        if tied and self._is_child and sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        threading.Thread(target=self._watch, name="wdspec-parent-watch", daemon=True).start()

    def _watch(self) -> None:
        while not self._is_gone(PERIOD):
            pass
        _leave()

    def _is_gone(self, seconds: float) -> bool:
        return bool(wait(self._handles, seconds)) or (self._is_child and os.getppid() != self._pid)


_watch: PerProcess[ParentWatch] = PerProcess(ParentWatch)


def parent_watch() -> ParentWatch:
    """The watch of this process."""
    return _watch.value


def end_with_parent() -> None:
    """Ends this process within seconds of the one that started it; an initializer for pools of processes."""
    parent_watch().start()


def _leave() -> None:
    """Ends this process at once: nobody is left to take what it has, and to wait for its threads may be for ever."""
    os._exit(1)
