"""Where the iterations over a run stand, and the state that says so.

Iterations of a run follow one another. Each goes on where the one before it stopped, wherever that was, even between
the items of one step; so an older iteration cannot go on once a newer one has begun, or a state was loaded:

    for item in loader: …; break        # reads a, b
    for item in loader: …               # reads c, d to the end of the epoch
    loader.load_state_dict(after_a)
    for item in loader: …               # reads b, c, d to the end of the epoch

With `epoch: pass` each iteration is a whole pass, the same each time. Only the one after `load_state_dict` reads the
rest of a pass:

    for item in loader: …; break        # reads a, b
    for item in loader: …               # reads a, b, c, d
    loader.load_state_dict(after_a)
    for item in loader: …               # reads b, c, d
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.process import Owner, PerProcess
from wdspec.planning.live_shares import LiveShares, still_said
from wdspec.planning.shares import ScheduleSegment
from wdspec.run.run import Run
from wdspec.run.state import Checkpoint, State, make_state, read_state
from wdspec.spec.language.steps import StepRanges

Step = tuple[list[Any], Mapping[int, bytes]]
"""The items of one global batch, none if it is skipped, and the states after it of the slots that it was taken from."""

FORKED = "this iteration was begun by another process, before a fork; let each process begin one of its own"
OLDER = (
    "this iteration cannot go on: a newer iteration has begun, or a state was loaded, or other steps are skipped now, "
    "or what it reads was closed; iterate again"
)


def _end_iterations(inherited: weakref.WeakSet[Cursor]) -> None:
    """In a forked child: ends what the parent had begun; no item has to ask which process this is."""
    for cursor in list(inherited):
        cursor.iterations += 1


_begun: PerProcess[weakref.WeakSet[Cursor]] = PerProcess(weakref.WeakSet, _end_iterations)
"""Cursors whose iterations this process has begun."""


class Cursor:
    """Where the iterations over a run stand.

    Args:
        run: what is read.
        checkpoint: where to begin.
        stride: distance from one batch to the next; more than 1 where several processes take turns.
    """

    def __init__(self, run: Run, checkpoint: Checkpoint = Checkpoint(), stride: int = 1) -> None:  # noqa: B008
        self.run = run
        self.batch, self.given = checkpoint.batch, checkpoint.given
        self.iterations = 0
        """Iterations begun, and states loaded: the newest iteration has this number."""
        self._table = dict(checkpoint.table)
        self._set_live(checkpoint.shares)
        self._set_skipped(checkpoint)
        self._stride = stride
        self._loaded = False
        """Whether a state was loaded and no iteration begun since."""

    @property
    def table(self) -> Mapping[int, bytes]:
        """Slot -> packed state before the step that `batch` is the number of."""
        return self._table

    @property
    def checkpoint(self) -> Checkpoint:
        """Where this stands, after the last item given."""
        return Checkpoint(self.batch, self.table, self.given, self.live, self.noted_steps)

    @property
    def live(self) -> tuple[LiveShares, ...]:
        """What was set of shares: those that hold, and those that will."""
        return still_said(self._live, self.batch)

    @property
    def segments(self) -> tuple[ScheduleSegment, ...]:
        """The segments of the shares that were set; another tuple only where others were."""
        return self._segments

    @property
    def noted_steps(self) -> StepRanges:
        """The steps that were skipped up to here, and those that are to be because the loop says so, not the spec."""
        if not self._skipped:
            return self._skipped
        return self._skipped.within(0, self.batch) | self._to_skip.within(self.batch)

    @property
    def skipped(self) -> StepRanges:
        """The steps that were skipped up to here, and all that will be."""
        return self._skipped

    @property
    def next_step(self) -> int:
        """J of the first global batch of which nothing was given."""
        return self.batch + bool(self.given)

    @property
    def standing(self) -> int:
        """J of the step that an iteration goes on with: behind its epoch, if what is left of that is skipped."""
        return self._standing(self.batch)

    def _standing(self, batch: int) -> int:
        length, end = self.run.plan.epoch_batches, self.run.epoch_end(batch)
        is_over = length and end and batch % length and self._skipped.following(batch) >= end
        return end if end and is_over else batch

    def begin(self) -> int:
        """The number of a new iteration, which ends all older ones."""
        self.iterations += 1
        _begun.value.add(self)
        return self.iterations

    def iterate(self, steps: Iterable[Step], iteration: int | None = None) -> Iterator[Any]:
        """The items of steps, noting after each item where the run stands.

        Args:
            steps: the steps from `batch` on; asked for the first one when the cursor stands where it begins.
            iteration: its number; without one, it begins when its first item is asked for.

        Raises:
            UsageError: a newer iteration has begun, or this process was forked from the one that began it.
        """
        iteration = self._entered(iteration)
        owner = Owner()
        for items, states in steps:
            if len(items) > 1:
                for item in items[self.given : -1]:
                    self.given += 1
                    yield item
                    if iteration != self.iterations:
                        raise UsageError(FORKED if owner.is_other else OLDER)
            if states:
                self._table.update(states)
            self.batch += self._stride
            self.given = 0
            if not items:
                continue
            yield items[-1]
            # Before more is taken: persistent workers serve a newer iteration through the same iterator.
            if iteration != self.iterations:
                raise UsageError(FORKED if owner.is_other else OLDER)

    def _entered(self, iteration: int | None) -> int:
        """The number of an iteration, perhaps a new one, that is at its beginning; this stands there."""
        if iteration is None:
            iteration = self.begin()
        if iteration != self.iterations:
            raise UsageError(OLDER)
        self._enter()
        return iteration

    def _enter(self) -> None:
        """Goes to where the next iteration begins."""
        begin = None if self._loaded else self.run.plan.begin(self.batch)
        if begin is not None:
            self.go_to(Checkpoint(begin))
        self._loaded = False

    def go_to(self, checkpoint: Checkpoint) -> None:
        """Stands there from now on."""
        self.batch, self.given = checkpoint.batch, checkpoint.given
        self._table = dict(checkpoint.table)
        self._set_live(checkpoint.shares)
        self._set_skipped(checkpoint)

    def skip(self, steps: StepRanges) -> None:
        """Leaves out these steps, none of which was given; an iteration under way ends."""
        self._to_skip |= steps
        self._skipped |= steps
        self.iterations += 1

    def set_shares(self, shares: Mapping[str, float], start: int) -> None:
        """Has global batches from J = `start` on drawn by these shares, whatever was set for later ones before."""
        before = (each for each in self.live if each.start < start)
        self._set_live((*before, LiveShares(start, shares)))

    def _set_live(self, live: tuple[LiveShares, ...]) -> None:
        self._segments = self.run.segments(live)
        self._live = live

    def _set_skipped(self, checkpoint: Checkpoint) -> None:
        """Of the spec's ranges those have a say that are not behind: what was skipped there the checkpoint knows."""
        self._to_skip = checkpoint.skipped.within(checkpoint.batch)
        self._skipped = checkpoint.skipped | self.run.skipped.within(checkpoint.batch)

    def state_dict(self) -> State:
        """The state after the last item given."""
        return make_state(self.run, self.checkpoint)

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: bool = False) -> None:
        """Goes to where the state stands; an iteration under way ends."""
        self._load(read_state(state, self.run, allow_changed))

    def _load(self, checkpoint: Checkpoint) -> None:
        self.go_to(checkpoint)
        self.iterations += 1
        self._loaded = True

    def check_epoch(self, epoch: int) -> None:
        """Raises a UsageError unless the next batch is of this epoch; one pass is like another."""
        length = self.run.plan.epoch_batches
        if self.run.plan.finite is not None or self.run.epoch_of(self.standing) == epoch:
            return
        if length is None:
            raise UsageError("this stream is endless and has no epochs; give `epoch:` in the spec")
        at, inside = divmod(self.standing, length)
        middle = inside or self.given
        raise UsageError(
            f"set_epoch({epoch}) checks, it does not seek: the stream stands at batch {inside} of epoch {at}; "
            + ("read that epoch to its end first" if middle else f"the next iteration is epoch {at}")
        )
