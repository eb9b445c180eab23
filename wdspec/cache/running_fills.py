"""The copies that this process makes."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from wdspec.cache.cache_names import Copies
from wdspec.cache.fill import Fill, Rules
from wdspec.cache.index import Index, key_of
from wdspec.streams.background import mover

GRACE = 1.0
"""Seconds that a process which ends spends on copies that are nearly made, so that none is fetched twice."""

_fills: dict[str, Fill] = {}
_guard = threading.Lock()


def start_fill(copies: Copies, fetch: Callable[[], BinaryIO], rules: Rules) -> Fill | None:
    """Begins to make a copy, if nobody does and there is none yet.

    Raises:
        OSError: the directory cannot be written.
    """
    with _guard:
        for path in [path for path, fill in _fills.items() if fill.done]:
            del _fills[path]
        fill = _fills.get(copies.path)
        if fill is not None:
            return fill
        index = Index(copies.directory)
        if not index.is_marked:
            index.make()
        filling = index.filling(key_of(copies.own))
        if not filling.try_acquire():
            return None
        if os.path.lexists(copies.path):
            filling.release()
            return None
        fill = _fills[copies.path] = Fill(copies, fetch, rules, filling)
    _end_with_process()
    mover().add(fill)
    return fill


def finish() -> None:
    """Ends all copies: those that are nearly made are made, the others given up."""
    deadline = time.monotonic() + GRACE
    with _guard:
        fills = [fill for fill in _fills.values() if not fill.done]
        _fills.clear()
    for fill in fills:
        while not fill.done and time.monotonic() < deadline:
            fill.watch(max(0.0, deadline - time.monotonic()))
    for fill in fills:
        with contextlib.suppress(OSError):
            fill.abandon()


_ending: set[int] = set()


def _end_with_process() -> None:
    if os.getpid() in _ending:
        return
    _ending.clear()
    _ending.add(os.getpid())
    atexit.register(finish)
    # Worker processes leave without the functions of `atexit`.
    from multiprocessing.util import Finalize

    Finalize(None, finish, exitpriority=10)


def _forget() -> None:
    """In a forked child: what the parent makes is not ours."""
    global _guard
    _guard = threading.Lock()
    for fill in _fills.values():
        fill.forget()
    _fills.clear()


os.register_at_fork(after_in_child=_forget)
