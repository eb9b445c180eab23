"""Sources of a mix of many: each reads no further than to its next draw, so that they hold little memory together.

    a few sources    a block is read, then the samples that are due are yielded
    many             the next sample that is due is read, and those before it, and is yielded: the same order

Between two draws of a source, others are drawn hundreds of times, so what it has read ahead lies around for long. Where
few samples are held, as here, reading a block at a time would double them. The state says a little later than usual
that a pass has ended; both kinds of streams resume from the states of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wdspec.formats.blocks import narrow_windows
from wdspec.planning.order import ReleaseOrder
from wdspec.read.rows import RowStream
from wdspec.read.source import RestartPoint, SourceStream, StreamState
from wdspec.read.transform import LiveSource

MANY = 64
"""A mix of more sources is read in this way."""


class LeanStream(SourceStream):
    """A `SourceStream` that reads each sample when it is due."""

    def __init__(self, source: LiveSource, slot: int, state: StreamState) -> None:
        super().__init__(source, slot, state)
        self._counted = source.plan.interleave
        narrow_windows(self._counted)

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
            for ordinals in self._read_due(releases, self._read):
                yield ordinals, False
            rest = releases.sort(list(self._buffer))
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
                    ended = self._read_upto(ordinals[at] + 1, start, releases.out)
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
            self._buffer.update(zip(range(first, self._read), map(_take_over, raws), strict=True))
            raws.clear()
            if out:
                self._forget(out, first, ended)
            if not self._watch.has_sample:
                self._watch.check(next(iter(self._buffer), self._read))
            if ended:
                return True
            if (
                self._read % self._block == 0
            ):  # at once: later states must not depend on when reading continues
                self._find_restart()
                self._restarts.append(RestartPoint(self._read, *self._lanes.position))
        return False


class LeanRowStream(LeanStream, RowStream):
    """A `RowStream` that reads each sample when it is due."""


STREAMS: dict[tuple[bool, bool], type[SourceStream]] = {
    (False, False): SourceStream,
    (False, True): RowStream,
    (True, False): LeanStream,
    (True, True): LeanRowStream,
}
"""Whether there are many sources, and whether rows of tables are kept -> the streams of a mix."""


def _take_over(raw: Any) -> Any:
    """Return a raw sample that the reader of its shard, which stops after it, does not keep alive."""
    if type(raw) is not dict:
        return raw
    taken = raw.copy()
    raw.clear()
    return taken
