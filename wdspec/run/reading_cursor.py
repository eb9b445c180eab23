"""A cursor over what is read in its own process, batch by batch or sample by sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.process import Owner
from wdspec.planning.live_shares import LiveShares
from wdspec.read.batch import as_tuple
from wdspec.read.reader import Reader
from wdspec.run.cursor import FORKED, OLDER, Cursor, Step
from wdspec.run.run import Run
from wdspec.run.state import Checkpoint
from wdspec.run.stats import RunStats, Tally


class ReadingCursor(Cursor):
    """A cursor over what is read in this process.

    Where a step gives one item, the reader always stands where the cursor does, and is asked for its table when
    somebody wants it; else it is ahead of the items given, and the table is noted after each step.
    """

    _reader: Reader | None = None
    _owner: Owner
    """Of the reader."""
    _unfinished: tuple[int, Step] | None = None
    """The number of a step of several items that was read and not given to its end, and what it gave."""

    def __init__(self, run: Run, checkpoint: Checkpoint = Checkpoint(), stride: int = 1) -> None:  # noqa: B008
        super().__init__(run, checkpoint, stride)
        self._count_anew()

    def _count_anew(self) -> None:
        self._tally = Tally(self.run.slots)
        self._counted_from = self.batch

    def stats(self) -> RunStats:
        """What was read so far in this process."""
        if self._reader is not None and self._owner.is_other:
            self._leave_to_parent()
        tally = self._tally
        if self._reader is not None:
            tally.take(0, self._reader.counts())
        given = tally.batches + (self.batch - self._counted_from) // self._stride
        return replace(
            tally.stats([source.name for source in self.run.plan.sources]), batches=given, waited=None
        )

    @property
    def table(self) -> Mapping[int, bytes]:
        """Slot -> packed state before the step that `batch` is the number of."""
        if self._reader is not None and self.run.items_per_step == 1:
            return self._reader.table()
        return self._table

    def read(self) -> Iterator[Any]:
        """The items up to the end of the epoch, or without end."""
        return self.items()

    def items(self, iteration: int | None = None) -> Iterator[Any]:
        """The items of an iteration; its number, as for `iterate`."""
        if not self._own_reader().is_one_by_one or self._skipped.within(self.batch):
            yield from self.iterate(self._steps(), iteration)
            return
        iteration = self._entered(iteration)
        owner, stride, end, entries = Owner(), self._stride, self._end(), self.run.blueprint.spec.to_tuple
        reader, is_outdated = self._own_reader(), False
        try:
            samples: Iterator[Any] = reader.one_by_one(self.batch, stride)
            if entries is not None:
                samples = map(partial(as_tuple, entries=entries), samples)
            if end is not None:
                samples = islice(samples, len(range(self.batch, end, stride)))
            for item in samples:
                self.batch += stride
                yield item
                if iteration != self.iterations:
                    is_outdated = True
                    break
        except GeneratorExit:
            raise
        except BaseException as error:
            reader.fail(error)
            raise
        if is_outdated:
            raise UsageError(FORKED if owner.is_other else OLDER)

    def _end(self) -> int | None:
        """J of the batch that the iteration ends before."""
        return self.run.epoch_end(self.standing)

    def _own_reader(self) -> Reader:
        """The reader, which stands where this does."""
        if self._reader is not None and self._owner.is_other:
            self._leave_to_parent()
        self._tally.begin()
        if self._reader is None:
            self._reader, self._owner = self.run.reader(), Owner()
            self._reader.restore(self._table)
            self._reader.draw_by(self.segments)
        return self._reader

    def _leave_to_parent(self) -> None:
        """In a forked child: what is open in the reader, and what it has counted, is the parent's."""
        self._table, self._reader = dict(self.table), None
        self._count_anew()

    def _steps(self) -> Iterator[Step]:
        run, end, reader = self.run, self._end(), self._own_reader()
        read, assemble = reader.batch, run.assemble
        skipped = self._skipped.within(self.batch) or None
        unnoted: dict[int, bytes] = {}
        if self._unfinished is not None and self._unfinished[0] == self.batch:
            yield self._unfinished[1]
        is_single = run.items_per_step == 1
        while end is None or self.batch < end:
            batch = self.batch
            if skipped is not None and batch in skipped:
                reader.pass_over(batch)
                yield [], unnoted if is_single else reader.states(batch)
                continue
            samples = read(batch)
            try:
                items = assemble(batch, samples)
            except BaseException as error:
                reader.fail(error)
                raise
            if is_single:
                yield items, unnoted
            else:
                self._unfinished = batch, (items, reader.states(batch))
                yield self._unfinished[1]

    def go_to(self, checkpoint: Checkpoint) -> None:
        """Stands there from now on. Slots that stand there already keep what they hold."""
        self._tally.batches += (self.batch - self._counted_from) // self._stride
        super().go_to(checkpoint)
        self._counted_from = self.batch
        self._unfinished = None
        if self._reader is not None:
            self._reader.restore(checkpoint.table)

    def _set_live(self, live: tuple[LiveShares, ...]) -> None:
        super()._set_live(live)
        if self._reader is not None:
            self._reader.draw_by(self.segments)

    def close(self) -> None:
        """Closes open shards; an iteration under way ends, and the next one goes on where this stands."""
        self.iterations += 1
        self._unfinished = None
        if self._reader is None or (self._reader.has_failed and self.run.items_per_step == 1):
            return  # a reader that has failed has closed its shards, and fails until a state is loaded
        self._table = dict(self.table)
        self._tally.take(0, self._reader.counts())
        self._tally.settle()
        self._reader.close()
        self._reader = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy begins where this stands, with shards and counts of its own.
        return {**self.__dict__, "_table": dict(self.table), "_reader": None, "_unfinished": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._count_anew()
