"""Shards of a mix of many sources: opened, and their bytes fetched, when the next draws need them.

    draws:   … a │ b c d … x y │ z …        b to y are drawn soon. Openers start side by side what these need:
                 └─── AHEAD ───┘            shards that are not open, and the next bytes of others

Each of many sources is drawn rarely. If all of them read ahead all the time, as those of a small mix do, they would
hold much memory and many connections, and the thread that fetches for them would hardly get to those that are needed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import BinaryIO

from wdspec.base.errors import WdspecError
from wdspec.storage.ahead import Ahead, Expected, Reading, fetching
from wdspec.storage.environment import Resolution
from wdspec.storage.storage import Storage
from wdspec.stores.read_ahead import ReadAhead, interruptible, openers
from wdspec.urls.urls import ShardUrl

AHEAD = 64
"""How many draws are prepared before they are needed."""


def draws_ahead(share: float) -> int:
    """How many of the next draws choose a source with this share, at most, as a rule."""
    return max(1, math.ceil(2 * AHEAD * share))


class DueShards(Ahead):
    """The shards of one reader that is one of many.

    Args:
        storage, seeks: as for `Ahead`.
        share: the part of the draws that choose this reader.
    """

    def __init__(self, storage: Storage, seeks: Callable[[ShardUrl], bool], share: float) -> None:
        super().__init__(storage, seeks)
        self.reads = draws_ahead(share)
        self._following: Callable[[int], Iterable[ShardUrl]] = lambda count: ()

    def expect(self, following: Callable[[int], Iterable[ShardUrl]], count: int = 1) -> None:
        """Note the shards that are read next: they are opened when `prepare` finds that they are due."""
        self._following = following
        if self._storage.horizon:
            self._announce(following, self._storage.horizon)

    def prepare(self, opening: Iterable[ShardUrl], lanes: int) -> None:
        """Have what the next sample needs started.

        Args:
            opening: shards that are read now, and are not open.
            lanes: how many shards are read in turn.
        """
        for shard in opening:
            self._expect(shard)
        ending = sum(isinstance(each, ReadAhead) and each.prepare() for each in self._reading.streams)
        if ending > len(self._expected):
            for shard in self._following(min(ending, lanes)):
                self._expect(shard)

    def _expect(self, shard: ShardUrl) -> None:
        with contextlib.suppress(WdspecError):  # opening it will raise this
            for resolution in self._resolve([shard]):
                if resolution.location not in self._expected:
                    self._expected[resolution.location] = _Due(self._storage, resolution, self.reads)


class _Due(Expected):
    """Opens a shard, and fetches its first bytes, in an opener."""

    def __init__(self, storage: Storage, resolution: Resolution, reads: int) -> None:
        self._reads = reads
        super().__init__(storage, resolution, Reading())

    def _start(self) -> None:
        openers().add(self._fetch)

    def _fetch(self) -> None:
        with interruptible(self.lock):
            self.fetch_piece()

    def _open(self) -> BinaryIO:
        stream = fetching(self._storage.open(self._resolution), self._reads)
        if isinstance(stream, ReadAhead):
            with stream.lock:
                stream.fetch_piece()
        return stream
