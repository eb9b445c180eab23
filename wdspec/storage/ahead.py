"""Opening shards before they are needed: those that a reader reads next."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from wdspec.storage.environment import Resolution
from wdspec.storage.storage import Storage
from wdspec.stores.read_ahead import FetchesAhead, ReadAhead, background_fetcher, interruptible
from wdspec.urls.urls import ShardUrl, local_path


class Ahead:
    """The shards of one reader: those it reads, and the next ones, opened ahead.

    Args:
        storage: the storage of the shards.
        seeks: whether shards are not read from start to end: their readers then fetch the parts they need themselves.
    """

    reads = 0
    """See `ReadAhead`."""

    def __init__(self, storage: Storage, seeks: Callable[[ShardUrl], bool] = lambda shard: False) -> None:
        self._storage, self._seeks = storage, seeks
        self._reading = Reading()
        self._expected: dict[str, Expected] = {}
        self._announced: dict[str, Resolution] = {}

    def open(self, shard: ShardUrl) -> BinaryIO:
        """The bytes of a shard, fetched ahead unless they are local. Raises as `Storage.open`."""
        resolution = self._storage.resolve(shard)
        expected = self._expected.pop(resolution.location, None)
        if expected is not None:
            stream = expected.take()
        else:
            stream = self._storage.open(resolution)
            stream = stream if self._seeks(shard) else fetching(stream, self.reads)
        if isinstance(stream, FetchesAhead):
            self._reading.add(stream)
        return stream

    def expect(self, following: Callable[[int], Iterable[ShardUrl]], count: int = 1) -> None:
        """Prepare the next `count` shards, each when those before it have all their bytes, or will soon.

        If the spec requests it, further shards are announced to their stores.

        Args:
            following: n → up to n of the shards that are read next.
        """
        coming = {each.location: each for each in self._resolve(following(count))}
        for location in self._expected.keys() - coming.keys():
            self._expected.pop(location).close()
        before: Reading | Expected = self._reading
        for location, resolution in coming.items():
            if location not in self._expected:
                self._expected[location] = Expected(self._storage, resolution, before)
            before = self._expected[location]
        if self._storage.horizon:
            self._announce(following, self._storage.horizon)

    def _resolve(self, shards: Iterable[ShardUrl]) -> Iterator[Resolution]:
        """Yield the locations of shards, and of their partners, that can be opened ahead."""
        for each in map(self._storage.resolve, _with_partners(shards)):
            if local_path(each.location) is None and (each.copies is not None or not self._seeks(each.url)):
                yield each

    def _announce(self, following: Callable[[int], Iterable[ShardUrl]], horizon: int) -> None:
        """Announce the following shards to stores, half of the horizon at a time."""
        coming = {
            each.location: each for each in map(self._storage.resolve, _with_partners(following(horizon)))
        }
        new = [each for location, each in coming.items() if location not in self._announced]
        if new and 2 * len(new) >= min(horizon, len(coming)):
            self._announced = coming
            # Before any read, which would wait for it.
            background_fetcher().call(partial(self._storage.announce, new), buffered=-2)

    def close(self) -> None:
        """Close the shards that were opened ahead."""
        while self._expected:
            self._expected.popitem()[1].close()

    def __del__(self) -> None:
        try:
            for expected in self._expected.values():
                expected.close()
        except (AttributeError, TypeError):  # at exit, names that `close` uses may be None
            pass


def _with_partners(shards: Iterable[ShardUrl]) -> Iterator[ShardUrl]:
    """Yield shards, each before its partners in a join."""
    for shard in shards:
        yield shard
        yield from shard.partners


class Reading:
    """The open streams of one reader."""

    def __init__(self) -> None:
        self.streams: list[Any] = []

    def add(self, stream: Any) -> None:
        # A new list each time: the fetching thread may be reading the old one.
        self.streams = [*(each for each in self.streams if not each.closed), stream]

    @property
    def nearly_fetched(self) -> bool:
        return all(stream.nearly_fetched or stream.closed for stream in self.streams)


class Expected:
    """Opens a shard once its turn is near, and fetches its bytes."""

    def __init__(self, storage: Storage, resolution: Resolution, before: Reading | Expected) -> None:
        self.lock = threading.Lock()
        self._storage, self._resolution, self._before = storage, resolution, before
        self._stream: BinaryIO | None = None
        self._error: Exception | None = None
        self._closed = False
        self._start()

    def _start(self) -> None:
        background_fetcher().add(self)

    @property
    def buffered(self) -> int:
        return -1  # opened first: the bytes of open streams arrive meanwhile in the buffers of the system

    @property
    def done(self) -> bool:
        return self._closed or self._stream is not None or self._error is not None

    @property
    def ready(self) -> bool:
        return self._before.nearly_fetched

    @property
    def nearly_fetched(self) -> bool:
        """Whether it has all its bytes, or will soon."""
        stream = self._stream
        if isinstance(stream, FetchesAhead):
            return stream.nearly_fetched or stream.closed
        return stream is not None or self._error is not None

    def fetch_piece(self) -> None:
        if self.done:
            return
        try:
            self._stream = self._open()
        except Exception as error:
            self._error = error
            return
        if self._closed:
            self._stream.close()

    def _open(self) -> BinaryIO:
        stream = fetching(self._storage.open(self._resolution))
        if isinstance(stream, ReadAhead):
            stream.has_reader = False
            stream.start()
        return stream

    def take(self) -> BinaryIO:
        """The stream for its reader. Raises what opening raised."""
        with interruptible(self.lock):
            self.fetch_piece()
        self._before = Reading()  # or each one would keep all before it alive
        if self._error is not None:
            raise self._error
        if isinstance(self._stream, ReadAhead):
            self._stream.has_reader = True
        return cast(BinaryIO, self._stream)

    def close(self) -> None:
        self._closed = True
        background_fetcher().wake()
        if self._stream is not None:
            self._stream.close()


def fetching(stream: BinaryIO, reads: int = 0) -> BinaryIO:
    """The stream itself if it is a local file or fetches ahead, else one that reads ahead."""
    return stream if fetches_itself(stream) else cast(BinaryIO, ReadAhead(stream, reads))


def fetches_itself(stream: BinaryIO) -> bool:
    """Whether a stream is a local file or fetches ahead."""
    return isinstance(getattr(stream, "stream", stream), (io.FileIO, FetchesAhead))


A = TypeVar("A")
T = TypeVar("T")

SIDES = 16
"""Stores to ask at the same time."""


def side_by_side(ask: Callable[[A], T], asked: Iterable[A], threads: int = SIDES) -> Generator[T]:
    """The results of a function that waits for stores, in order; raises what it raises.

    After closing this, it is not called any more.
    """
    with ThreadPoolExecutor(threads, "wdspec-stat") as pool:
        try:
            yield from pool.map(ask, asked)
        finally:
            pool.shutdown(cancel_futures=True)
