"""Epochs of pipelines in Python: a continuing stream cut into epochs, and repeated passes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, Literal, get_args

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.workers import WorkerCounters
from wdspec.planning.topology import find_seat
from wdspec.webdataset.splitting import worker_place

Pass = Callable[[int], Iterator[Any]]
"""Starts the pass of a number, from 0."""

Over = Literal["worker", "rank", "job"]
"""Whose items an epoch counts: those of each worker, of all workers of a rank, or of all ranks."""


class EpochCut:
    """A stream cut into epochs of a fixed number of items: each iteration continues where the last one stopped.

    New worker processes find their place again by reading the current pass from its start (an endless pass over
    resampled shards starts again).

    Args:
        items: items in an epoch.
        over: whose items: of each DataLoader worker, of all workers of a rank, or of all workers of all ranks.

    Raises:
        ShardError: while iterating, if a whole pass is empty.
    """

    endless = False

    def __init__(self, items: int, over: Over = "worker") -> None:
        if items < 1:
            raise UsageError(f"an epoch has at least one item, not {items}")
        if over not in get_args(Over):
            raise UsageError(f"`over` is {over!r}; use `worker`, `rank` or `job`")
        self.items, self.over = items, over
        self._places = WorkerCounters(3)  # for each worker: pass, items read of it, epochs started
        self._stream: Iterator[Any] | None = None
        self._owner = 0
        """The process that opened the stream: a forked process must not read it."""

    def fresh(self) -> EpochCut:
        """Return the same cut, at its start."""
        return EpochCut(self.items, self.over)

    def count_in_rank(self) -> int | None:
        """Return the items of an epoch on this rank; None if that depends on the number of its workers."""
        if self.over == "job":
            seat = find_seat()
            return _share(self.items, seat.rank, seat.world_size)
        return self.items if self.over == "rank" else None

    def iterate(self, read: Pass, endless: bool) -> Iterator[Any]:
        """Yield the items of one epoch.

        Args:
            read: starts a pass.
            endless: whether a pass has no end.
        """
        left = self.items
        in_rank = self.count_in_rank()
        if in_rank is not None:
            left = _share(in_rank, *worker_place())
        places, at = self._places, self._places.slot()
        epoch = places[at + 2] = places[at + 2] + 1
        if self._stream is None or self._owner != os.getpid():
            if places[at + 1] and endless:
                places[at], places[at + 1] = places[at] + 1, 0
            self._stream, self._owner = read(places[at]), os.getpid()
            for _ in islice(self._stream, places[at + 1]):
                pass
        while left:
            got = 0
            for item in islice(self._stream, left):
                got += 1
                places[at + 1] += 1
                yield item
                if places[at + 2] != epoch:
                    raise UsageError(
                        "a newer iteration of this pipeline has started, so this one cannot continue"
                    )
            left -= got
            if left:
                if places[at + 1] == 0:
                    raise ShardError("a whole pass of the pipeline was empty, so the epoch cannot be filled")
                places[at], places[at + 1] = places[at] + 1, 0
                self._stream = read(places[at])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}


def _share(items: int, part: int, parts: int) -> int:
    return items // parts + (part < items % parts)


class Repeated:
    """Several passes in one, each with its own number.

    Args:
        times: number of passes; None for no end.
        items: number of items after which to stop; None for no limit.

    Raises:
        ShardError: while iterating without end, if a whole pass is empty.
    """

    def __init__(self, times: int | None = None, items: int | None = None) -> None:
        self.times, self.items = times, items

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.times is None and self.items is None

    def iterate(self, read: Pass, number: int) -> Iterator[Any]:
        """Yield the items of all passes of one iteration."""
        return islice(self._all(read, number), self.items)

    def _all(self, read: Pass, number: int) -> Iterator[Any]:
        for turn in range(self.times) if self.times is not None else count():
            empty = True
            for item in read(number * (self.times or 1) + turn):
                empty = False
                yield item
            if empty and self.times is None:
                raise ShardError("a whole pass of the pipeline was empty, so repeating it yields nothing")
