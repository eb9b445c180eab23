"""The fills that this process has under way, and how they end."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from wdspec.cache.cache_names import Copies
from wdspec.cache.entries import key_of
from wdspec.cache.fill import CopyRules, Fill
from wdspec.cache.index import Index
from wdspec.streams.background_fetcher import background_fetcher
from wdspec.system.per_process import PerProcess

GRACE = 1.0
"""Seconds that a process which ends spends on copies that are nearly made, so that none is fetched twice."""


class _RunningFills:
    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.by_path: dict[str, Fill] = {}
        self.end_with_process = False

    def forget(self) -> None:
        """In a forked child: what the parent makes is not ours."""
        for fill in self.by_path.values():
            fill.forget()


_running = PerProcess(_RunningFills, _RunningFills.forget)


def start_fill(copies: Copies, fetch: Callable[[], BinaryIO], rules: CopyRules) -> Fill | None:
    """Begins to make a copy, if no other process does and none exists yet.

    Raises:
        OSError: the directory cannot be written.
    """
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
    """Ends all copies: those that are nearly made are made, the others abandoned."""
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
    # Worker processes leave without the functions of `atexit`.
    from multiprocessing.util import Finalize

    Finalize(None, finish, exitpriority=10)
