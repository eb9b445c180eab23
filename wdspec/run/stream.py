"""The stream of a run: the one object that moves a position, from item to item and from state to state.

Iterations of a run follow one another. Each resumes where the one before it stopped, wherever that was, even between
the items of one step; so an older iteration cannot continue once a newer one has started, or a state was loaded:

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

`Loader` and `SpecDataset` hold a stream each; what they have in common for their users is in `Resumable`.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.process import PerProcess
from wdspec.planning.plan import Plan
from wdspec.planning.shares import LiveShares, checked_shares, current_shares
from wdspec.run.position import Position
from wdspec.run.ranks import check_shares_agree, check_skips_agree
from wdspec.run.run import Run
from wdspec.run.state import State
from wdspec.run.stats import RunStats
from wdspec.run.steps import Steps, Work
from wdspec.spec.language.steps import StepRanges

FORKED = "this iteration was begun by another process, before a fork; let each process begin one of its own"
OLDER = (
    "this iteration cannot go on: a newer iteration has begun, or a state was loaded, or other steps are skipped now, "
    "or what it reads was closed; iterate again"
)


def _end_iterations(inherited: weakref.WeakSet[Stream]) -> None:
    """In a forked child: end the iterations of the parent, so that no item has to ask which process this is."""
    for stream in list(inherited):
        stream.iterations += 1


_started: PerProcess[weakref.WeakSet[Stream]] = PerProcess(weakref.WeakSet, _end_iterations)
"""Streams whose iterations this process has started."""


class Stream:
    """The items of a run, one iteration after the other, and the position between them.

    Args:
        run: what is read.
        steps: what reads it.
        position: where to start.
        stride: distance from one step to the next; more than 1 where several processes take turns.
    """

    def __init__(self, run: Run, steps: Steps, position: Position = Position(), stride: int = 1) -> None:  # noqa: B008
        self.run, self.steps = run, steps
        self.iterations = 0
        """Iterations started, and states loaded: the newest iteration has this number."""
        self.on_step: Callable[[], object] | None = None
        """Called with each step of the training loop."""
        self._stride = stride
        self._counted: int | None = None
        """Where the samples being yielded are counted up to, if they are yielded one by one."""
        self._is_restored = False
        """Whether a state was loaded and no iteration started since."""
        self._is_outdated = False
        """Whether the steps under way have to be read again from here, by other shares."""
        self._set_position(position)

    # Where it is

    @property
    def position(self) -> Position:
        """Where this is, after the last item given."""
        return Position(self.step, self.given, self.slots, self.live_shares, self._noted_steps)

    @property
    def slots(self) -> Mapping[int, bytes]:
        """Slot -> packed state before the step that comes next."""
        return self.steps.slots(self._slots)

    @property
    def live_shares(self) -> tuple[LiveShares, ...]:
        """The shares that were set: those in effect, and later ones."""
        return current_shares(self._live, self.step) if self._live else ()

    @property
    def next_step(self) -> int:
        """J of the first global batch of which nothing was given."""
        return self.step + bool(self.given)

    @property
    def start(self) -> int:
        """J of the step that an iteration resumes with: after its epoch, if the rest of that is skipped."""
        return self.start_from(self.step)

    def start_from(self, step: int) -> int:
        """The step itself, or that after its epoch, if the rest of that is skipped."""
        length, end = self.run.plan.epoch_batches, self.run.epoch_end(step)
        is_over = length and end and step % length and self.skipped.following(step) >= end
        return end if end and is_over else step

    @property
    def _noted_steps(self) -> StepRanges:
        """The steps that were skipped up to here, and later ones that the loop, not the spec, has set to be."""
        if not self.skipped.ranges:
            return self.skipped
        return self.skipped.within(0, self.step) | self._to_skip.within(self.step)

    def _set_position(self, position: Position) -> None:
        self.step, self.given = position.step, position.given
        self._slots = dict(position.slots)
        self._set_live(position.shares)
        # The position knows what was skipped before it; from there on, the ranges of the spec count.
        self._to_skip = (
            position.skipped.within(position.step) if position.skipped.ranges else position.skipped
        )
        self.skipped = position.all_skipped(self.run)
        """The steps that were skipped up to here, and all later ones that will be."""

    def _set_live(self, live: tuple[LiveShares, ...]) -> None:
        self._live = live
        self.segments = self.run.segments(live) if live else ()
        """The segments of the shares that were set."""

    def go_to(self, position: Position) -> None:
        """Move there. Slots that are there already keep what they hold."""
        self.steps.forget()
        self._set_position(position)

    # Iterations

    def begin(self) -> int:
        """Start an iteration, which ends all older ones, and return its number."""
        self.iterations += 1
        _started.value.add(self)
        return self.iterations

    def items(self, iteration: int | None = None) -> Iterator[Any]:
        """Yield the items of an iteration: the rest of the epoch, or without end.

        Args:
            iteration: its number; without one, it starts when its first item is asked for.

        Raises:
            UsageError: a newer iteration has started, or this process was forked from the one that started it.
        """
        iteration, is_restored = self.enter(iteration), self._is_restored
        self._is_restored = False
        if self.run.plan.finite is not None and not is_restored:
            self.go_to(Position(self.run.plan.pass_start(self.step)))
        yield from self.read(iteration, self.run.epoch_end(self.start))

    def enter(self, iteration: int | None) -> int:
        """The number of an iteration, perhaps a new one, whose first item is asked for.

        Raises:
            UsageError: a newer iteration has started.
        """
        if iteration is None:
            return self.begin()
        if iteration != self.iterations:
            raise UsageError(OLDER)
        return iteration

    def read(self, iteration: int, end: int | None) -> Iterator[Any]:
        """Yield the items of the steps from here to `end`, and move with each of them."""
        process, stride = os.getpid(), self._stride
        while True:
            self._is_outdated = False
            skipped = self.skipped.within(self.step) if self.skipped.ranges else self.skipped
            work = Work(self.step, end, stride, lambda: self.slots, self.segments, skipped)
            samples = self.steps.samples(work)
            if samples is None:
                yield from self._move_by_steps(work, iteration, process)
                if self._is_outdated:
                    continue
                return
            self._counted = self.step
            try:
                for sample in samples:
                    self.step += stride
                    yield sample
                    if iteration != self.iterations:
                        break
            except GeneratorExit:
                raise
            except BaseException as error:
                self.steps.fail(error)
                raise
            finally:
                self._count_samples()
                self._counted = None
            self._check_newest(iteration, process)
            return

    def _move_by_steps(self, work: Work, iteration: int, process: int) -> Iterator[Any]:
        tally = self.steps.tally
        for items, states in self.steps.begin(work):
            if self.on_step is not None:
                self.on_step()
            for item in items[self.given : -1]:
                self.given += 1
                yield item
                self._check_newest(iteration, process)
            self._slots.update(states)
            self.step += self._stride
            self.given = 0
            if items:
                tally.batches += 1
                yield items[-1]
                # Before more is taken: persistent workers serve a newer iteration through the same iterator.
                self._check_newest(iteration, process)
            if self._is_outdated:
                return

    def _check_newest(self, iteration: int, process: int) -> None:
        """Raise a UsageError unless the iteration is the newest one."""
        if iteration != self.iterations:
            raise UsageError(FORKED if os.getpid() != process else OLDER)

    def _count_samples(self) -> None:
        """Count the samples that were yielded one by one: to count each would take too long."""
        if self._counted is not None:
            self.steps.tally.batches += (self.step - self._counted) // self._stride
            self._counted = self.step

    def stats(self) -> RunStats:
        """What was read so far."""
        self._count_samples()
        self.steps.count()
        return self.steps.tally.stats([source.name for source in self.run.plan.sources])

    # What the training loop sets

    def skip(self, steps: StepRanges) -> None:
        """Skip these steps, none of which was given; an iteration in progress ends."""
        self._to_skip |= steps
        self.skipped |= steps
        self.iterations += 1

    def set_shares(self, shares: Mapping[str, float], start: int) -> None:
        """Draw global batches from J = `start` on by these shares, whatever was set for later ones before."""
        before = (each for each in self.live_shares if each.start < start)
        self._set_live((*before, LiveShares(start, shares)))
        self.steps.draw_by(self.segments)
        self._is_outdated |= start < self.steps.requested

    def state_dict(self) -> State:
        """The state after the last item given."""
        return self.position.to_state(self.run)

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: bool = False) -> None:
        """Move to where the state is; an iteration in progress ends."""
        self.restore(Position.from_state(state, self.run, allow_changed))

    def restore(self, position: Position) -> None:
        """Move there, as a state says; an iteration in progress ends."""
        self.go_to(position)
        self.iterations += 1
        self._is_restored = True

    def check_epoch(self, epoch: int) -> None:
        """Raise a UsageError unless the next batch is in this epoch; all passes are the same."""
        length = self.run.plan.epoch_batches
        if self.run.plan.finite is not None or self.run.epoch_of(self.start) == epoch:
            return
        if length is None:
            raise UsageError("this stream is endless and has no epochs; give `epoch:` in the spec")
        at, inside = divmod(self.start, length)
        middle = inside or self.given
        raise UsageError(
            f"set_epoch({epoch}) checks, it does not seek: the stream stands at batch {inside} of epoch {at}; "
            + ("read that epoch to its end first" if middle else f"the next iteration is epoch {at}")
        )

    def close(self) -> None:
        """End what reads; an iteration in progress ends, and the next one resumes here."""
        self.iterations += 1
        self.steps.close()

    def __getstate__(self) -> dict[str, Any]:
        # A copy starts where this is, with shards and counts of its own.
        return {**self.__dict__, "_slots": dict(self.slots), "on_step": None}


class Resumable(ABC):
    """What a `Loader` and a `SpecDataset` offer in common: an epoch, a length, a state, shares and steps to set."""

    @property
    @abstractmethod
    def stream(self) -> Stream:
        """The stream of this process."""

    @property
    def run(self) -> Run:
        """What this process reads."""
        return self.stream.run

    @property
    def plan(self) -> Plan:
        """The plan that this process follows."""
        return self.run.plan

    def _repr_html_(self) -> str:
        """What a notebook shows: the plan, and where this is."""
        return self.plan.to_html(type(self).__name__, [("batches read", f"{self.stream.step:,}")])

    def __len__(self) -> int:
        """Items of a whole epoch on this rank, the same on every rank: batches with `batch`, else samples.

        Where steps are skipped, those of the epoch of the next batch, without these.

        Raises:
            TypeError: the spec has no `epoch:`.
        """
        length = self.plan.require_epoch()
        skipped = self.stream.skipped
        if skipped:
            first = self.epoch * length
            length -= skipped.within(first, first + length).count
        return length * self.run.items_per_step

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self.run.epoch_of(self.stream.start)

    def set_epoch(self, epoch: int) -> None:
        """Check that the next iteration gives this epoch, or the rest of it; never seek.

        So `for epoch in range(loader.epoch, n): loader.set_epoch(epoch); …` also resumes from a state saved in
        mid-epoch.

        Raises:
            UsageError: the stream is in another epoch.
        """
        self.stream.check_epoch(epoch)

    @property
    def shares(self) -> dict[str, float]:
        """The share of every source in the next global batch, by name."""
        return self.run.shares_at(self.stream.next_step, self.stream.segments)

    def set_shares(self, shares: Mapping[str, float], *, after: int = 0) -> int:
        """Set the shares of the top list, as a step of `mix.schedule` does, from the next global batch on.

        It is the next one that the training loop gets, whatever workers have read ahead: that is read again by the new
        shares. States hold what was set, and a run resumes from them exactly, on any topology. A schedule in the spec
        has no effect from there on. The samples held of a source, and its shards read in turn, stay as planned.

        Args:
            shares: by name, normalised; a source that is not named has none. All ranks set the same after the same
                batch.
            after: how many more global batches come by the current shares; with as many as workers read ahead,
                nothing has to be read again.

        Returns:
            J of the first global batch with these shares, counted as `state_dict()["batch"]` is.

        Raises:
            UsageError: a source is unknown, a share is not a number, nothing is drawn by shares in this spec, or
                another rank of torch.distributed has set other ones.

        Example:
            >>> import wdspec
            >>> with wdspec.loader("examples/specs/digits.yaml", split="train", num_workers=0) as loader:
            ...     for batch in loader:
            ...         break
            ...     at = loader.set_shares({"digits-a": 1, "rendered": 3})
            ...     next(iter(loader))["__source__"].count("rendered"), loader.shares["rendered"]
            (48, 0.75)
        """
        run, stream = self.run, self.stream
        checked = checked_shares(run.spec, shares)
        if type(after) is not int or after < 0:
            raise UsageError(f"`after` is a number of global batches from 0 on, not {after!r}")
        start = stream.next_step + after
        run.segments([LiveShares(start, checked)])  # raises before other ranks are asked
        check_shares_agree(run, start, checked)
        stream.set_shares(checked, start)
        return start

    def skip_steps(self, first: int, last: int | None = None) -> None:
        """Skip a range of later steps, as `skip` in the spec does; the steps after it are as they would have been.

        For a loop that goes back to a state from before a spike of the loss, and trains without the batches around it.
        An iteration in progress ends. States hold what is set, also for later steps, on any topology.

        Args:
            first, last: numbers of global batches, as `state_dict()["batch"]` counts them, both included; one step
                without `last`. All ranks skip the same after the same batch.

        Raises:
            UsageError: not a range, or one that was given already; `epoch: pass`; another rank of torch.distributed
                skips other steps.

        Example:
            >>> import wdspec
            >>> with wdspec.loader("examples/specs/digits.yaml", split="train", num_workers=0) as loader:
            ...     state = loader.state_dict()
            ...     keys = [batch["__key__"] for batch in loader]
            ...     loader.load_state_dict(state)
            ...     loader.skip_steps(3, 5)
            ...     [batch["__key__"] for batch in loader] == keys[:3] + keys[6:]
            True
        """
        run, stream, last = self.run, self.stream, first if last is None else last
        run.check_skippable()
        if type(first) is not int or type(last) is not int or not 0 <= first <= last:
            raise UsageError(
                f"steps are skipped from one number to another, from 0 on, not {first!r} to {last!r}"
            )
        if first < stream.next_step:
            raise UsageError(
                f"step {first:,} was given already: the next one is {stream.next_step:,}; load a state from before it"
            )
        steps = StepRanges(((first, last + 1),))
        check_skips_agree(run, stream.step, steps)
        stream.skip(steps)

    def state_dict(self) -> State:
        """The state after the last item given: JSON values, a few bytes a slot and source; `wdspec state` shows it.

        It holds the canonical ranks of this rank. To resume with another number of ranks, merge the states of
        all of them (`wdspec.merge_states`), or let `torch.distributed.checkpoint` save the loader. Inside a
        worker of a DataLoader that is not wdspec's it is that of the worker alone, for `StatefulDataLoader`.
        """
        return self.stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Resume after the last item of the state, no matter what was read before; an iteration in progress ends.

        Args:
            state: what `state_dict` or `wdspec.merge_states` returned, perhaps through JSON.
            allow_changed: accept a changed spec. Sources are matched by name; added ones start afresh.

        Raises:
            UsageError: not a state, of other ranks, or of a spec with another order; says what changed.
        """
        self.stream.load_state_dict(state, allow_changed)
