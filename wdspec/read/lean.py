"""Sources of a mix of many: each reads no further than to its next draw, so that they hold little memory together.

    a few sources    a block is read, then the samples that are due are yielded
    many             the next sample that is due is read, and those before it, and is yielded: the same order

Between two draws of a source, others are drawn hundreds of times, so what it has read ahead lies around for long. Where
few samples are held, as here, reading a block at a time would double them. Samples that are small are read as many at a
time as fill a window together: what a source needs is then in the caches of the processor for all of them. The state
says a little later than usual that a pass has ended; both kinds of streams resume from the states of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from sys import getsizeof
from typing import Any, TypeVar, cast

from wdspec.formats.blocks import narrow_windows, window_bytes
from wdspec.planning.order import ReleaseOrder
from wdspec.read.rows import RowStream
from wdspec.read.slot import Mixture
from wdspec.read.source import RestartPoint, SourceStream, StreamState
from wdspec.read.transform import LiveSource
from wdspec.storage.due import AHEAD

T = TypeVar("T", covariant=True)
MANY = 64
"""A mix of more sources is read in this way."""
WEIGHED = 4
"""How many samples are measured, the last ones that were read, to see how many fill a window."""


class LeanStream(SourceStream):
    """A `SourceStream` that reads each sample when it is due, and small ones with it."""

    def __init__(self, source: LiveSource, slot: int, state: StreamState) -> None:
        super().__init__(source, slot, state)
        self._shards_due = source.parts.open.when_due(float(source.plan.share))
        if self._shards_due is not None:
            self._lanes.ahead = self._shards_due  # which opens them when they are due
        self._lot = 1
        """How many samples to read at a time: as many as fill a window together, but at most a block. It grows from 1,
        and no state depends on it."""
        self._counted = source.plan.interleave
        narrow_windows(self._counted)

    @property
    def requests_ahead(self) -> bool:
        """Whether there is anything to prepare."""
        return self._shards_due is not None

    def prepare(self) -> None:
        """Have what the next sample needs requested from its store."""
        if self._shards_due is not None:
            self._lanes.prepare(self._shards_due)

    def close(self) -> None:
        self._widen()
        super().close()

    def _widen(self) -> None:
        narrow_windows(-self._counted)
        self._counted = 0

    def __del__(self) -> None:
        try:  # noqa: SIM105  # at exit, `contextlib` may be None
            self._widen()
        except (AttributeError, TypeError):  # at exit, names that `_widen` uses may be None
            pass

    def _read_runs(self) -> Iterator[tuple[list[int], bool]]:
        while not self._is_ordered:
            releases = ReleaseOrder(self._delays, self._key, self._read, self._last, self._stretches)
            start, given = self._read, -1
            # As far as it was read when the state was saved, or later states would depend on that.
            before = self._end + 1 if self._end else max(releases.out, default=-1) + 1
            ended = self._read_upto(before, start, releases.out)
            if not ended:
                for ordinals in self._read_due(releases, start):
                    yield ordinals, False
                    given = ordinals[-1] if ordinals else given
            rest = releases.sort(list(self._buffer))
            if given in self._buffer:  # with those before it, it waits for its objects
                rest = rest[rest.index(given) + 1 :]
            self._end = self._read if rest else 0
            yield rest, True
            self._finish_pass()

    def _read_due(self, releases: ReleaseOrder, start: int) -> Iterator[list[int]]:
        """Yield the samples of a pass that are due, in order, up to the first one that is after the end of the pass."""
        ended = False
        for ordinals in releases.runs():
            at = 0
            while at < len(ordinals):
                if ordinals[at] >= self._read:
                    # Only now, so that states do not depend on where reading started.
                    if ended:
                        return
                    upto = max(ordinals[at] + 1, self._read + self._lot)
                    ended = self._read_upto(upto, start, releases.out)
                stop = at
                while stop < len(ordinals) and ordinals[stop] < self._read:
                    stop += 1
                yield ordinals[at:stop]
                at = stop

    def _read_upto(self, upto: int, start: int, out: set[int]) -> bool:
        """Read the samples before an ordinal. Return whether the pass ends before it."""
        while self._read < upto:
            wanted = min(self._plan_read(self._read - start), upto - self._read)
            raws = self._lanes.read(wanted)
            first, self._read = self._read, self._read + len(raws)
            ended = len(raws) < wanted
            if raws:
                weighed = raws[-WEIGHED:]
                fitting = len(weighed) * window_bytes() // sum(map(_size_of, weighed))
                self._lot = max(1, min(2 * self._lot, self._block, fitting))
            self._buffer.update(zip(range(first, self._read), map(_take_over, raws), strict=True))
            raws.clear()
            if out or self._end:
                self._forget(out, first, ended)
            if not self._watch.has_sample:
                self._watch.check(next(iter(self._buffer), self._read))
            if ended:
                return True
            # At once: later states must not depend on when reading continues
            if self._read % self._block == 0:
                self._find_restart()
                self._restarts.append(RestartPoint(self._read, *self._lanes.position))
        return False


class LeanRowStream(LeanStream, RowStream):
    """A `RowStream` that reads each sample when it is due."""


class PreparingMixture(Mixture[T]):
    """A `Mixture` that has what its next draws need requested from stores."""

    _prepared: tuple[list[int], int] = [], 0
    """The draws that were looked at, and how many of them are prepared."""

    @cached_property
    def _requests_ahead(self) -> bool:
        return any(each.requests_ahead for each in cast(list[LeanStream], self._streams))

    def _look_ahead(self, m: int) -> int:
        start = super()._look_ahead(m)
        if not self._requests_ahead:
            return start
        ahead, upto = self._prepared
        stop = min(start + self._per_slot + AHEAD, len(self._ahead))
        streams = cast(list[LeanStream], self._streams)  # there are many sources
        for source in self._ahead[upto if ahead is self._ahead else start : stop]:
            streams[source].prepare()
        self._prepared = self._ahead, stop
        return start

    def _draw_one_by_one(self, m: int) -> Iterator[T]:
        if not self._requests_ahead:
            yield from super()._draw_one_by_one(m)
            return
        while True:
            [sample] = self.take(m)
            m += 1
            yield sample


def _size_of(raw: Any) -> int:
    """Return the bytes of a raw sample, at least 1."""
    return 1 + sum(map(getsizeof, raw.values() if type(raw) is dict else raw))


def _take_over(raw: Any) -> Any:
    """Return a raw sample that the reader of its shard, which stops after it, does not keep alive."""
    if type(raw) is not dict:
        return raw
    taken = raw.copy()
    raw.clear()
    return taken
