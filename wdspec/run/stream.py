"""The stream of a run: the one object that moves a position, item by item, or to where a state was saved.

Iterations of a run follow one another. Each resumes where the previous one stopped, even between the items of one step.
So an iteration cannot continue once a newer one has started or a state was loaded:

    for item in loader: …; break        # reads a, b
    for item in loader: …               # reads c, d to the end of the epoch
    loader.load_state_dict(after_a)
    for item in loader: …               # reads b, c, d to the end of the epoch

With `epoch: pass` each iteration is a whole pass, the same each time. Only an iteration after `load_state_dict` reads
the rest of a pass:

    for item in loader: …; break        # reads a, b
    for item in loader: …               # reads a, b, c, d
    loader.load_state_dict(after_a)
    for item in loader: …               # reads b, c, d

`Loader` and `SpecDataset` each hold a stream; the methods they share are in `Resumable`.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from wdspec.base.errors import UsageError, warn_user
from wdspec.base.process import PerProcess
from wdspec.cache.index import Index
from wdspec.planning.past import Changes
from wdspec.planning.plan import Plan
from wdspec.planning.shares import LiveShares, checked_shares, current_shares
from wdspec.planning.topology import initialised_distributed
from wdspec.read.counts import Amount
from wdspec.run.position import Position
from wdspec.run.ranks import check_shares_agree, check_skips_agree
from wdspec.run.received import Receipts, Received, add_up
from wdspec.run.run import Run
from wdspec.run.state import State
from wdspec.run.stats import RunStats, Tally, describe_ranks, warn_if_nothing_is_left
from wdspec.run.steps import Steps, Work
from wdspec.spec.language.display import Tabular
from wdspec.spec.language.steps import StepRanges

EARLY = (
    "this was built before torch.distributed was initialised, so each rank would read all of the data; build it "
    "afterwards, with Lightning by `trainer.fit(model, datamodule=wdspec.integrations.lightning.SpecData(spec))`; or "
    "pass rank=0 and world_size=1 if each rank shall read everything"
)
FORKED = "another process started this iteration before a fork; start an iteration in each process"
OLDER = (
    "this iteration cannot continue: a newer iteration has started, a state was loaded, steps were skipped, or the "
    "loader or pipeline was closed; iterate again"
)


def _end_iterations(inherited: weakref.WeakSet[Stream]) -> None:
    """In a forked child, end the iterations of the parent, so that items need not check which process this is."""
    for stream in list(inherited):
        stream.iterations += 1


_started: PerProcess[weakref.WeakSet[Stream]] = PerProcess(weakref.WeakSet, _end_iterations)
"""Streams whose iterations this process has started."""


class Stream:
    """Yields the items of a run, one iteration after the other, and keeps the position.

    No attribute is a `cached_property`: once `__dict__` is used, Python looks up all attributes of an object more
    slowly, which took 5 % of the time of a pass.

    Args:
        run: what to read.
        steps: how to read it.
        position: where to start.
        stride: distance from one step to the next; more than 1 where several processes take turns.
    """

    _has_ended = False
    """Whether an iteration has been read to its end."""

    def __init__(self, run: Run, steps: Steps, position: Position = Position(), stride: int = 1) -> None:  # noqa: B008
        self.run, self.steps, self._stride = run, steps, stride
        self.iterations = 0
        """Number of the newest iteration; loading a state counts too."""
        self.on_step: dict[str, Callable[[Stream], object]] = {}
        """Functions that get this stream at each step of the training loop, by what they are for."""
        self._counted: int | None = None
        """J of the first sample that is not in the tally yet, while samples are yielded one by one."""
        self._is_restored = False
        """Whether a state was loaded, and no iteration has started since."""
        self._is_outdated = False
        """Whether steps were requested by other shares, and have to be read again from here."""
        self._set_position(position)
        self._count_from(position.received)

    # Where it is

    @property
    def position(self) -> Position:
        """The position after the last item yielded."""
        skipped = self.skipped
        if skipped.ranges:  # of later steps only those that the training loop, not the spec, has set
            skipped = skipped.within(0, self.step) | self._to_skip.within(self.step)
        shares, timeline = self.live_shares, self.timeline
        return Position(
            self.step, self.items_given, self.slot_states, shares, skipped, self._past, timeline=timeline
        )

    @property
    def slot_states(self) -> Mapping[int, bytes]:
        """Slot -> packed state before the next step."""
        self._slot_states.update(self._newest_states)
        return self.steps.slot_states(self._slot_states)

    @property
    def live_shares(self) -> tuple[LiveShares, ...]:
        """The shares set at run time: the current ones, and later ones."""
        return current_shares(self._live, self.step) if self._live else ()

    @property
    def next_step(self) -> int:
        """J of the first global batch of which no item was yielded."""
        return self.step + bool(self.items_given)

    @property
    def first_step(self) -> int:
        """J of the step that the next iteration starts with."""
        return self.step if self.timeline.start else self.timeline.iteration(self.step, self.skipped)[0]

    def _set_position(self, position: Position) -> None:
        self.step, self.items_given = position.step, position.items_given
        # The latter are those after the last step, which are perhaps not among the former yet.
        self._slot_states, self._newest_states = dict(position.slot_states), position.slot_states
        self._past, self.timeline = position.past, position.timeline or self.run.plan.timeline
        self._set_live(position.shares)
        skipped, spec = position.skipped, self.run.spec
        self._to_skip = skipped.within(position.step) if skipped.ranges else skipped
        """The steps from the position on that the training loop has set to be skipped."""
        self.skipped = skipped | spec.skipped_steps.within(self.step) if spec.skip else skipped
        """All steps that were skipped, and that will be."""

    def _set_live(self, live: tuple[LiveShares, ...]) -> None:
        self._live = live
        self.changes = Changes(self.run.segments(live) if live else (), self._past)
        """The shares set at run time, and earlier specs."""

    def _count_from(self, received: Received | None) -> None:
        """Count what is received from here on, by the shares of now; None if what was before follows from here."""
        self._counted_from = self.step, self.items_given, received
        self._counted_since: Receipts | None = None

    @property
    def _receipts(self) -> Receipts:
        """What was received; built when it is first needed, which in plain mixes is when someone asks for it."""
        if self._counted_since is None:
            self._counted_since = Receipts(self.run, *self._counted_from, self.changes.segments)
        return self._counted_since

    @property
    def received(self) -> Received:
        """What was received of each canonical rank of this rank."""
        return self._receipts.upto(self.step, self.items_given, self.skipped)

    def to_state(self) -> State:
        """Return the state after the last item yielded."""
        follows = self._counted_from[-1] is None and not self.run.counts_steps
        return replace(self.position, received=None if follows else self.received).to_state(self.run)

    def move_to(self, position: Position) -> None:
        """Move to a position. Slots that are there already keep their open shards."""
        self.steps.forget()
        self._set_position(position)

    # Iterations

    def start_iteration(self) -> int:
        """Start an iteration, which ends all older ones; return its number."""
        self._end_older_iterations()
        _started.value.add(self)
        return self.iterations

    def _end_older_iterations(self) -> None:
        """End those in progress."""
        self._count_samples()
        self._counted = None
        self.iterations += 1

    def items(self, iteration: int | None = None) -> Iterator[Any]:
        """Yield the items of an iteration: the rest of the epoch, or an endless stream.

        Args:
            iteration: its number; if None, the iteration starts when its first item is requested.

        Raises:
            UsageError: a newer iteration has started, or another process started this one before a fork.
        """
        iteration = self.enter_iteration(iteration)
        if self.timeline.is_pass or self.timeline.start is not None:
            self._start_pass()
        yield from self.read(iteration, self.timeline.iteration(self.step, self.skipped)[1])
        self._end_iteration()

    def _end_iteration(self) -> None:
        """After the first whole iteration with `epoch: pass`, warn about sources of which nothing is left."""
        if self.timeline.is_pass and not self._has_ended:
            self._has_ended = True
            own, plan = self.run.canonical_ranks, self.run.plan
            sources = [each for each in self.run.spec.sources_by_name if each.name not in plan.off]
            ranks = "" if len(own) == plan.topology.ranks else describe_ranks(own, plan.topology.ranks)
            warn_if_nothing_is_left(self.tally(), sources, ranks)

    def _start_pass(self) -> None:
        if not self.timeline.is_pass:
            self.find_epoch(self.step)
            return
        if self._is_restored:
            self._is_restored = False
            return
        start = self.timeline.next(self.step)
        if (start, 0) == (self.step, self.items_given):
            self.move_to(Position(start))
        else:  # the last pass was left early, so what was received does not follow from here
            received = self.received
            self.move_to(Position(start))
            self._count_from(received)

    def find_epoch(self, step: int) -> None:
        """Find the epoch of a step, so that what reads it need not."""
        self.changes = self.changes._replace(epoch=self.timeline.span(step))

    def enter_iteration(self, iteration: int | None) -> int:
        """Return the number of an iteration whose first item is requested; None starts a new one.

        Raises:
            UsageError: a newer iteration has started, or the ranks were not known when this was built.
        """
        if self.run.seat.is_assumed and (job := initialised_distributed()) and job.get_world_size() > 1:
            raise UsageError(EARLY)
        if iteration is None:
            return self.start_iteration()
        if iteration != self.iterations:
            raise UsageError(OLDER)
        return iteration

    def read(self, iteration: int, end: int | None) -> Iterator[Any]:
        """Yield the items of the steps from here to `end`, and move along with them."""
        process, stride = os.getpid(), self._stride
        while True:
            self._is_outdated = False
            skipped = self.skipped.within(self.step) if self.skipped.ranges else self.skipped
            work = Work(self.step, end, stride, lambda: self.slot_states, self.changes, skipped)
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
                if iteration == self.iterations:  # otherwise they were counted when it ended
                    self._count_samples()
                    self._counted = None
            self._check_newest(iteration, process)
            return

    def _move_by_steps(self, work: Work, iteration: int, process: int) -> Iterator[Any]:
        tally = self.steps.tally
        for items, states, counts in self.steps.read(work):
            for call in self.on_step.values():
                call(self)
            for item in items[self.items_given : -1]:
                if counts is not None:
                    self._receipts.add(self.step, counts, self.items_given, self.items_given + 1)
                self.items_given += 1
                yield item
                self._check_newest(iteration, process)
            self._slot_states.update(self._newest_states)
            if counts is not None:
                self._receipts.add(self.step, counts, self.items_given)
            # No calls up to `yield`: at one, a signal may raise an error, and the next iteration reads the step again.
            self._newest_states, self.step, self.items_given = states, self.step + self._stride, 0
            if items:
                tally.batches += 1
                yield items[-1]
                # Check before taking more: persistent workers serve a newer iteration through the same iterator.
                if iteration != self.iterations:
                    self._check_newest(iteration, process)
            if self._is_outdated:
                return

    def _check_newest(self, iteration: int, process: int) -> None:
        """Raise a UsageError unless the iteration is the newest one."""
        if iteration != self.iterations:
            raise UsageError(FORKED if os.getpid() != process else OLDER)

    def _count_samples(self) -> None:
        """Add the samples that were yielded one by one to the tally; counting each of them would take too long."""
        if self._counted is not None:
            self.steps.tally.batches += (self.step - self._counted) // self._stride
            self._counted = self.step

    def stats(self) -> RunStats:
        """Return the counts so far."""
        self._count_samples()
        ahead = max(0, self.steps.requested - self.next_step)
        plan, received = self.run.plan, self.received
        names = [source.name for source in plan.sources]
        stats = self.tally().stats(names, ahead, self.run.mean_costs, plan.companion_names)
        total, unknown = add_up(list(received.values())), Amount(None, None, None)
        sources = {
            name: replace(source, received=amount.samples, received_cost=amount.cost, tokens=amount.tokens)
            for name, source in stats.sources.items()
            for amount in [unknown if total is None else total.get(name, unknown)]
        }
        ranks, topology = self.run.canonical_ranks, plan.topology
        storages = self.run.shards.storages.values()
        caches = {each.cache.names.directory for each in storages if each.cache is not None}
        return replace(
            stats,
            sources=sources,
            of_ranks=describe_ranks(ranks, topology.ranks),
            cache_used=sum(Index(directory).used for directory in caches) if caches else None,
        )

    def tally(self) -> Tally:
        """Return the tally, up to date."""
        self.steps.count()
        return self.steps.tally

    # What the training loop sets

    def skip(self, steps: StepRanges) -> None:
        """Skip these later steps; an iteration in progress ends."""
        self._to_skip |= steps
        self.skipped |= steps
        self._end_older_iterations()

    def set_shares(self, shares: Mapping[str, float], start: int) -> None:
        """Draw global batches from J = `start` on by these shares, replacing what was set for them."""
        received = self.received
        before = (each for each in self.live_shares if each.start < start)
        self._set_live((*before, LiveShares(start, shares)))
        self._count_from(received)
        self.steps.draw_by(self.changes)
        self._is_outdated |= start < self.steps.requested

    def restore(self, position: Position) -> None:
        """Move to the position of a loaded state; an iteration in progress ends."""
        self._end_older_iterations()
        self.move_to(position)
        self._count_from(position.received)
        self._is_restored = True

    def close(self) -> None:
        """End workers and close open shards; an iteration in progress ends, and the next one resumes here."""
        self._end_older_iterations()
        self.steps.close()

    def __getstate__(self) -> dict[str, Any]:
        # A copy starts here, with its own open shards and counts.
        return {**self.__dict__, "_slot_states": dict(self.slot_states), "on_step": {}}


class Resumable(Tabular, ABC):
    """The methods of both `Loader` and `SpecDataset`: epoch, length, state, and setting shares and skipped steps."""

    @property
    @abstractmethod
    def stream(self) -> Stream:
        """The stream of this process."""

    @property
    def run(self) -> Run:
        """The run that this process reads."""
        return self.stream.run

    @property
    def plan(self) -> Plan:
        """The plan that this process follows."""
        return self.run.plan

    def __len__(self) -> int:
        """Return the number of items of a whole epoch on this rank: batches with `batch`, else samples.

        It is the same on every rank. Skipped steps of the current epoch (that of the next batch) do not count.

        Raises:
            TypeError: the spec has no `epoch:`.
        """
        stream = self.stream
        return stream.timeline.length(stream.first_step, stream.skipped) * self.run.items_per_step

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self.stream.timeline.epoch(self.stream.first_step)

    def set_epoch(self, epoch: int) -> None:
        """Check that the next iteration reads this epoch, or the rest of it. This never seeks.

        So `for epoch in range(loader.epoch, n): loader.set_epoch(epoch); …` also resumes from a state saved in the
        middle of an epoch. With `epoch: pass`, any epoch is fine, since all passes are the same; after `on_exhausted:
        stop`, any later one, since all are empty.

        Raises:
            UsageError: the next iteration is in another epoch, or the stream is endless.
        """
        timeline, start = self.stream.timeline, self.stream.first_step
        current = timeline.epoch(start)
        if timeline.is_pass or current == epoch or (timeline.is_over(start) and epoch > current):
            return
        if timeline.epoch_steps is None:
            raise UsageError("this stream is endless and has no epochs; set `epoch:` in the spec")
        inside = start - timeline.begin(start)
        is_inside = inside or self.stream.items_given
        raise UsageError(
            f"set_epoch({epoch}) checks the epoch and does not seek: the stream is at batch {inside} of epoch "
            f"{current}; "
            + ("read that epoch to its end first" if is_inside else f"the next iteration is epoch {current}")
        )

    @property
    def shares(self) -> dict[str, float]:
        """The share of every source in the next global batch, by name; by cost, in the window that it is from."""
        return self.run.shares_at(self.stream.next_step, self.stream.changes, self.stream.slot_states)

    def set_shares(self, shares: Mapping[str, float], *, after: int = 0) -> int:
        """Set the shares of the top-level sources from the next global batch on, like a step of `mix.schedule`.

        The next global batch is the next one that the training loop receives: batches that workers have read ahead are
        read again with the new shares. If batches are planned from windows, or with a `stage`, each slot finishes its
        open window or the input of the stage first. From then on, a schedule in the spec has no effect. States include
        the new shares, and a run resumes from them exactly, on any topology. The shuffle buffer and the interleave of a
        source stay as planned.

        Args:
            shares: source name -> share; wdspec normalizes them, and sources without an entry get a share of zero.
                All ranks must set the same shares after the same batch.
            after: the number of global batches to draw with the current shares first. If workers are not further
                ahead than that, no batch has to be read again.

        Returns:
            J of the first global batch with these shares, counted like `state_dict()["batch"]`; with windows or a
            `stage`, of the first step at which a slot that starts a window or a section uses them.

        Raises:
            UsageError: a source is unknown, a share is not a number, the spec does not draw by shares, or another rank
                of torch.distributed has set other shares.

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
            raise UsageError(f"`after` is a number of global batches, at least 0, not {after!r}")
        start = stream.next_step + after
        run.segments([LiveShares(start, checked)])  # raises before ranks are compared
        check_shares_agree(run, start, checked)
        if run.spec.batch is not None and run.spec.batch.group_by is not None:
            warn_user(
                f"each slot first finishes its section of {run.spec.batch.group_wait:,} samples (`group_wait`), and "
                "uses the new shares from the next one on"
            )
        stream.set_shares(checked, start)
        return start

    def skip_steps(self, first: int, last: int | None = None) -> None:
        """Skip a range of later steps, as `skip` in the spec does; the steps after it stay the same.

        Use it after a loss spike: load a state from before it, and skip the batches around it. An iteration in
        progress ends. States include all skipped steps, even later ones, and a run resumes from them on any topology.

        Args:
            first, last: the first and last global batch to skip, counted like `state_dict()["batch"]`; without `last`,
                only `first`. All ranks must skip the same steps after the same batch.

        Raises:
            UsageError: the steps are not a range, or were read already; the spec has `epoch: pass`; another rank of
                torch.distributed skips other steps.

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
        if run.plan.finite is not None:
            raise UsageError("steps cannot be skipped with `epoch: pass`, which gives every sample once")
        if type(first) is not int or type(last) is not int or not 0 <= first <= last:
            raise UsageError(
                f"the steps to skip are a range of numbers, from 0 on, not {first!r} to {last!r}"
            )
        if first < stream.next_step:
            raise UsageError(
                f"step {first:,} was read already, the next one is {stream.next_step:,}; load a state from before it"
            )
        steps = StepRanges(((first, last + 1),))
        check_skips_agree(run, stream.step, steps)
        stream.skip(steps)

    def state_dict(self) -> State:
        """Return the state after the last item yielded: a dict of JSON values, a few bytes per slot and source.

        The state covers the canonical ranks of this rank. To resume with another number of ranks, merge the states of
        all ranks (`wdspec.merge_states`), or let `torch.distributed.checkpoint` save the loader. In a worker of
        torchdata's `StatefulDataLoader`, it is the state of that worker alone. `wdspec state` shows a saved state.
        """
        return self.stream.to_state()

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Resume after the last item of a state, whatever was read before. An iteration in progress ends.

        Args:
            state: what `state_dict` or `wdspec.merge_states` returned, perhaps loaded from JSON.
            allow_changed: accept a changed spec. Sources are matched by name, and added ones start at their beginning.

        Raises:
            UsageError: not a state, damaged, of other ranks, or of a spec with another order; the message lists the
                changes.
        """
        self.stream.restore(Position.from_state(state, self.run, allow_changed))

    def close(self) -> None:
        """End the workers and close open shards. An iteration in progress ends, and the next one resumes here."""
        self.stream.close()
