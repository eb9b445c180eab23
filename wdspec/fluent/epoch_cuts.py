"""Epochs of pipelines in Python: cuts of a stream that goes on, and passes that are repeated."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.workers import WorkerCounters
from wdspec.fluent.stage_chain import begin
from wdspec.fluent.stages.splitting import worker_place


class EpochCut:
    """A stream in epochs of so many items: each iteration goes on where the one before it stopped.

    The items are those of one iteration of a DataLoader, all of its workers together, or of each one. Fresh worker
    processes find the place again: they read the current pass anew up to it (an endless one of resampled shards begins
    anew).

    Args:
        source: what is iterated, pass after pass.
        items: items of an epoch.
        per_worker: whether each worker gives so many; None is False, and several workers warn of it once.

    Raises:
        ShardError: while iterating, when a whole pass gives nothing.
    """

    def __init__(self, source: Any, items: int, per_worker: bool | None = None) -> None:
        if items < 1:
            raise UsageError(f"an epoch has at least one item, not {items}")
        self.source, self.items, self.per_worker = source, items, per_worker
        self._places = WorkerCounters(3)  # for each worker: pass, items taken of it, epochs begun
        self._stream: Iterator[Any] | None = None
        self._owner = 0
        """The process that may go on with the stream: what a fork inherits it must not read."""

    def fresh(self) -> EpochCut:
        """The same cut, standing at the beginning."""
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
                f"{self.items:,}, where webdataset's has {self.items:,} of each worker, {workers * self.items:,}. If "
                f"the number was divided by the number of workers, write with_epoch({self.items}, per_worker=True); if "
                "it is that of the whole epoch, per_worker=False",
                stacklevel=2,
            )
        if self._stream is None or self._owner != os.getpid():
            self._stream, self._owner = self._resumed(at), os.getpid()
        left = share
        while left:
            got = 0
            for item in islice(self._stream, left):
                got += 1
                places[at + 1] += 1
                yield item
                if places[at + 2] != epoch:
                    raise UsageError("a newer iteration of this pipeline has begun; this one cannot go on")
            left -= got
            if left:
                if places[at + 1] == 0:
                    raise ShardError(
                        "the pipeline gave nothing in a whole pass, so its epoch cannot be filled"
                    )
                places[at], places[at + 1] = places[at] + 1, 0
                self._stream = begin(self.source, places[at])

    def _resumed(self, at: int) -> Iterator[Any]:
        """The stream where this worker's predecessor left it."""
        places = self._places
        if places[at + 1] and getattr(self.source, "endless", False):
            places[at], places[at + 1] = places[at] + 1, 0
        stream = begin(self.source, places[at])
        for _ in islice(stream, places[at + 1]):
            pass
        return stream

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    def __repr__(self) -> str:
        return f"EpochCut({self.source!r}, {self.items})"


class Repeated:
    """Passes one after the other, each with a number of its own.

    Args:
        source: what is repeated.
        times: passes; None for no end.
        items: ends the whole after so many items; None for no such end.

    Raises:
        ShardError: while iterating without end, when a whole pass gives nothing.
    """

    def __init__(self, source: Any, times: int | None = None, items: int | None = None) -> None:
        self.source, self.times, self.items = source, times, items

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.times is None and self.items is None

    def iterate(self, number: int) -> Iterator[Any]:
        """The passes of the number-th iteration."""
        return islice(self._all(number), self.items)

    def _all(self, number: int) -> Iterator[Any]:
        for turn in range(self.times) if self.times is not None else count():
            empty = True
            for item in begin(self.source, number * (self.times or 1) + turn):
                empty = False
                yield item
            if empty and self.times is None:
                raise ShardError(
                    "the pipeline gave nothing in a whole pass, so repeating it gives nothing either"
                )

    def __repr__(self) -> str:
        return f"Repeated({self.source!r}, {self.times})"
