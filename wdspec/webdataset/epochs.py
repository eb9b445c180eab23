"""Epochs of pipelines in Python: a continuing stream cut into epochs, and repeated passes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.workers import WorkerCounters
from wdspec.webdataset.splitting import worker_place
from wdspec.webdataset.stage import start_pass


class EpochCut:
    """A stream cut into epochs of a fixed number of items: each iteration continues where the last one stopped.

    The number is that of one iteration of a DataLoader, for all of its workers together or for each one. New worker
    processes find their place again by reading the current pass from its start (an endless pass over resampled shards
    starts again).

    Args:
        source: what to iterate over, pass after pass.
        items: items in an epoch.
        per_worker: whether each worker yields this number; None means False, with a warning if there are several.

    Raises:
        ShardError: while iterating, if a whole pass is empty.
    """

    def __init__(self, source: Any, items: int, per_worker: bool | None = None) -> None:
        if items < 1:
            raise UsageError(f"an epoch has at least one item, not {items}")
        self.source, self.items, self.per_worker = source, items, per_worker
        self._places = WorkerCounters(3)  # for each worker: pass, items read of it, epochs started
        self._stream: Iterator[Any] | None = None
        self._owner = 0
        """The process that opened the stream: a forked process must not read it."""

    def fresh(self) -> EpochCut:
        """Return the same cut, at its start."""
        return EpochCut(self.source, self.items, self.per_worker)

    def __iter__(self) -> Iterator[Any]:
        worker, workers = worker_place()
        share = self.items
        if not self.per_worker:
            share = self.items // workers + (worker < self.items % workers)
        places, at = self._places, self._places.slot()
        epoch = places[at + 2] = places[at + 2] + 1
        if self.per_worker is None and workers > 1 and worker == 0 and epoch == 1:
            warnings.warn(
                f"with_epoch({self.items}) counts the items of all {workers} workers together: this epoch has "
                f"{self.items:,} items, while webdataset's has {self.items:,} of each worker, {workers * self.items:,} "
                f"in total. If you divided the number by the number of workers, use with_epoch({self.items}, "
                "per_worker=True); if it is the number for the whole epoch, use per_worker=False",
                stacklevel=2,
            )
        if self._stream is None or self._owner != os.getpid():
            self._stream, self._owner = self._find_place(at), os.getpid()
        left = share
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
                self._stream = start_pass(self.source, places[at])

    def _find_place(self, at: int) -> Iterator[Any]:
        """Return the stream at the place where the previous process of this worker left it."""
        places = self._places
        if places[at + 1] and getattr(self.source, "endless", False):
            places[at], places[at + 1] = places[at] + 1, 0
        stream = start_pass(self.source, places[at])
        for _ in islice(stream, places[at + 1]):
            pass
        return stream

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    def __repr__(self) -> str:
        return f"EpochCut({self.source!r}, {self.items})"


class Repeated:
    """Several passes in one, each with its own number.

    Args:
        source: what to repeat.
        times: number of passes; None for no end.
        items: number of items after which to stop; None for no limit.

    Raises:
        ShardError: while iterating without end, if a whole pass is empty.
    """

    def __init__(self, source: Any, times: int | None = None, items: int | None = None) -> None:
        self.source, self.times, self.items = source, times, items

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.times is None and self.items is None

    def iterate(self, number: int) -> Iterator[Any]:
        """Yield the items of all passes of one iteration."""
        return islice(self._all(number), self.items)

    def _all(self, number: int) -> Iterator[Any]:
        for turn in range(self.times) if self.times is not None else count():
            empty = True
            for item in start_pass(self.source, number * (self.times or 1) + turn):
                empty = False
                yield item
            if empty and self.times is None:
                raise ShardError("a whole pass of the pipeline was empty, so repeating it yields nothing")

    def __repr__(self) -> str:
        return f"Repeated({self.source!r}, {self.times})"
