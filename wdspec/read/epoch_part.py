"""A pass that is shuffled anew in each epoch: the samples of a slot in an epoch, from any batch on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.planning.epochs import Epoch, Run, ShuffledPass, replace_ended, seek
from wdspec.planning.keys import key64
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.pass_part import PassReading, Placed, release
from wdspec.read.shard import Piece
from wdspec.read.transform import Sample

_AT_ONCE = 4096
"""Draws to compute at a time."""
_A_READ = 256
"""Samples to read at a time if they are not shuffled."""


class EpochReading(PassReading):
    """Reads the epochs of a pass that is shuffled anew in each, for all slots of one process."""

    finite: ShuffledPass

    def of_slot(self, rank: int, worker: int, m: int) -> Iterator[Sample | None]:
        """Yield the samples of slot (c, k) from its m-th batch on, up to the end of the epoch; None for a lost one."""
        finite = self.finite
        number, m = divmod(m, finite.slot_batches)
        epoch, slot = finite.epoch(number), finite.topology.slot(rank, worker)
        draws = epoch.draws(rank, worker)
        with ExitStack() as stack:
            take = [
                stack.enter_context(closing(self._source(epoch, slot, source, at))).__next__
                for source, at in enumerate(draws.given(m))
            ]
            rows = max(1, _AT_ONCE // finite.per_slot)
            while batches := draws.sources(m, rows):
                for batch in batches:
                    for source in batch:
                        yield take[source]()
                m += rows

    def _source(self, epoch: Epoch, slot: int, source: int, at: int) -> Any:
        """Yield the samples of a source from number `at` on, copy after copy."""
        live = replace(self.sources[source], seed=epoch.key)
        process = self._build_process(source, live)
        if not at and epoch.is_first(slot, source):
            self._report_empty_shards(source)
        for copy, runs in enumerate(epoch.runs(slot, source)):
            total = sum(run.stop - run.first for run in runs)
            if at < total:
                key = key64(live.plan.delays.key(slot), "epoch", epoch.number, copy)
                with closing(Runs(self, epoch, source, runs)) as lanes:
                    placed = chain.from_iterable(self._copy(lanes, total, at, key))
                    for raw, position in live.ahead(placed, itemgetter(0), is_chosen=False):
                        yield None if raw is None else process(raw, position)
            at = max(0, at - total)

    def _report_empty_shards(self, source: int) -> None:
        """Report the errors of the shards without a readable sample, which have no positions."""
        live, count = self.sources[source], self.finite.counts[source]
        for place, shard in count.shards.items():
            for error in shard.errors:
                live.budget(error, "shard", url=live.plan.shards[place].text)

    def _copy(self, lanes: Runs, total: int, at: int, key: int) -> Iterator[list[Placed]]:
        """Return the raw samples of a copy from number `at` on, by their delays, some at a time."""
        if lanes.delays.size == 1:
            return iter(partial(lanes.take_from(at), _A_READ), [])
        return release(lanes.delays, key, at, total, lanes.take_from)

    def read_run(
        self, epoch: Epoch, source: int, run: Run, at: int, ahead: Any, coming: Sequence[int]
    ) -> Iterator[Placed]:
        """Yield the samples of a run from number `at` on.

        A shard that is divided into pieces is opened as often. Its errors are those of its first piece.
        """
        count, split = self.finite.counts[source], self.finite.split(source)
        first, stop = (run.first + at) * split + run.residue, (run.stop - 1) * split + run.residue + 1
        length = count.length(run.turn)
        read: Any = self._walk
        budget = self.sources[source].budget.without_log() if run.residue else None
        if run.residue and stop < length and count.has_all(run.turn) and not count.lost(run.turn):
            read = self._leap
        elif not run.residue:
            stop = min(run.stop * split, length)
        with closing(read(source, run.turn, first, stop, ahead, coming, budget, epoch.number)) as raws:
            found = raws if read == self._leap else islice(raws, 0, None, split)
            start = count.start(run.turn)
            placed = zip(found, range(start + first, start + stop, split), strict=False)
            yield from islice(placed, run.stop - run.first - at - 1)
            # Nothing is read after the last one, so what follows it in the walk is read before it is yielded.
            last = next(placed)
            for _ in found:
                pass
            yield last

    def _leap(
        self,
        source: int,
        turn: int,
        first: int,
        stop: int,
        ahead: Any,
        coming: Sequence[int],
        budget: ErrorBudget | None,
        epoch: int,
    ) -> Iterator[Sample | None]:
        """Yield every f-th raw sample of a turn's shard, of which only the headers of the others are read.

        All samples of the shard have positions, and were readable when they were counted.
        """
        split, errors = self.finite.split(source), list[ShardError]()
        index, offset = self.finite.counts[source].mark(turn, first)
        piece = Piece(self._shard(source, turn), split, first % split, offset, index)
        report, opened = self._open(source, piece, ahead, coming, errors, budget)
        at = first
        if opened is not None:
            with closing(opened):
                for raw in self._noted(opened, source, turn, epoch):
                    here = opened.next_index - 1
                    if here < first:
                        continue
                    if here >= stop:
                        break
                    report()
                    yield from [None] * ((here - at) // split)
                    at = here + split
                    yield raw
                    if at >= stop:
                        break
                report()
        yield from [None] * len(range(at, stop, split))


class Runs:
    """Runs of positions of a source, some of them read in turn: in each round, each lane gives a sample."""

    def __init__(self, reading: EpochReading, epoch: Epoch, source: int, runs: Sequence[Run]) -> None:
        live = reading.sources[source]
        self.delays, self._width = live.plan.delays, live.plan.interleave
        self._reading, self._epoch, self._source, self._runs = reading, epoch, source, runs
        self._lengths = [run.stop - run.first for run in runs]
        self._ahead = live.parts.open.ahead()
        self._opened: dict[int, Any] = {}
        self._lanes: list[tuple[int, int]] = []
        self._following = 0
        self._left: list[Placed] = []

    def take_from(self, read: int) -> Callable[[int], list[Placed]]:
        """Start to read after the first samples."""
        self._lanes, self._following, at = seek(self._lengths, self._width, read)
        if at:  # within a round
            self._left = [next(self._open(*lane)) for lane in self._lanes[at:]]
            self._advance(1)
        return self.read

    def read(self, most: int) -> list[Placed]:
        """Return the next samples, fewer than `most` only at the end."""
        found = self._left
        while len(found) < most and self._lanes:
            width = len(self._lanes)
            rounds = min(
                min(self._lengths[run] - taken for run, taken in self._lanes),
                -(-(most - len(found)) // width),
            )
            block: list[Any] = [None] * (rounds * width)
            for place, lane in enumerate(self._lanes):
                block[place::width] = islice(self._open(*lane), rounds)
            found += block
            self._advance(rounds)
        self._left = found[most:]
        return found[:most]

    def close(self) -> None:
        """Close the open shards."""
        for opened in self._opened.values():
            opened.close()
        self._ahead.close()

    def _advance(self, rounds: int) -> None:
        """Note that each lane has given so many samples."""
        lanes = [(run, taken + rounds) for run, taken in self._lanes]
        for run, taken in lanes:
            if taken == self._lengths[run] and run in self._opened:
                self._opened.pop(run).close()
        self._lanes, self._following = replace_ended(lanes, self._lengths, self._following)

    def _open(self, run: int, taken: int) -> Iterator[Placed]:
        """Return the samples of a run, from number `taken` on if it is not open."""
        if run not in self._opened:
            coming = [each.turn for each in self._runs[self._following : self._following + self._width]]
            self._opened[run] = self._reading.read_run(
                self._epoch, self._source, self._runs[run], taken, self._ahead, coming
            )
        opened: Iterator[Placed] = self._opened[run]
        return opened
