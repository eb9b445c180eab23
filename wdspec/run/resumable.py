"""What a loader and a dataset of a spec have in common: an epoch, a length, a state, shares that can be set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.planning.live_shares import LiveShares, checked_shares
from wdspec.planning.plan import Plan
from wdspec.run.cursor import Cursor
from wdspec.run.ranks import check_shares_agree, check_skips_agree
from wdspec.run.run import Run
from wdspec.run.state import State
from wdspec.spec.language.steps import StepRanges


class Resumable(ABC):
    """What `Loader` and `SpecDataset` have of their cursor."""

    @property
    @abstractmethod
    def cursor(self) -> Cursor:
        """Where the iterations of this process stand."""

    @property
    def run(self) -> Run:
        """What this process reads."""
        return self.cursor.run

    @property
    def plan(self) -> Plan:
        """The plan that this process follows."""
        return self.run.plan

    def _repr_html_(self) -> str:
        """What a notebook shows: the plan, and where this stands."""
        return self.plan.table(type(self).__name__, [("batches read", f"{self.cursor.batch:,}")])

    def __len__(self) -> int:
        """Items of a whole epoch on this rank, the same on every rank: batches with `batch`, else samples.

        Where steps are skipped, those of the epoch of the next batch, without these.

        Raises:
            TypeError: the spec has no `epoch:`.
        """
        length = self.plan.require_epoch()
        skipped = self.cursor.skipped
        if skipped:
            begun = self.epoch * length
            length -= skipped.within(begun, begun + length).count
        return length * self.run.items_per_step

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self.run.epoch_of(self.cursor.standing)

    def set_epoch(self, epoch: int) -> None:
        """Checks that the next iteration gives this epoch, or the rest of it; never seeks.

        So `for epoch in range(loader.epoch, n): loader.set_epoch(epoch); …` also goes on from a state saved in
        mid-epoch.

        Raises:
            UsageError: the stream stands in another epoch.
        """
        self.cursor.check_epoch(epoch)

    @property
    def shares(self) -> dict[str, float]:
        """The share of every source in the next global batch, by name."""
        cursor = self.cursor
        return self.run.shares_at(cursor.next_step, cursor.segments)

    def set_shares(self, shares: Mapping[str, float], *, after: int = 0) -> int:
        """Sets the shares of the top list, as a step of `mix.schedule` does, from the next global batch on.

        It is the next one that the training loop gets, whatever workers have read ahead: that is read again by the new
        shares. States hold what was set, and a run goes on from them exactly, on any topology. A schedule in the spec
        has no say from there on. How many samples of a source are held, and its shards read in turn, stay as planned.

        Args:
            shares: by name, normalised; a source that is not named has none. All ranks set the same after the same
                batch.
            after: how many more global batches come by the shares that hold now; with as many as workers read ahead,
                nothing has to be read again.

        Returns:
            J of the first global batch with these shares, counted as `state_dict()["batch"]` is.

        Raises:
            UsageError: there is no such source, a share is no number, nothing is drawn by shares in this spec, or
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
        run, cursor = self.run, self.cursor
        given = checked_shares(run.blueprint.spec, shares)
        if type(after) is not int or after < 0:
            raise UsageError(f"`after` is a number of global batches from 0 on, not {after!r}")
        start = cursor.next_step + after
        run.segments([LiveShares(start, given)])  # raises what there is to raise, before others are asked
        check_shares_agree(run, start, given)
        cursor.set_shares(given, start)
        return start

    def skip_steps(self, first: int, last: int | None = None) -> None:
        """Leaves out a range of steps to come, as `skip` in the spec does; what comes behind is as it would have been.

        For a loop that goes back to a state from before a spike of the loss, and on without the batches around it. An
        iteration under way ends. States hold what is set, also for the steps to come, on any topology.

        Args:
            first, last: numbers of global batches, as `state_dict()["batch"]` counts them, both included; one step
                without `last`. All ranks leave out the same after the same batch.

        Raises:
            UsageError: no such range, or one that was given already; `epoch: pass`; another rank of torch.distributed
                leaves out other steps.

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
        run, cursor, last = self.run, self.cursor, first if last is None else last
        run.check_skippable()
        if type(first) is not int or type(last) is not int or not 0 <= first <= last:
            raise UsageError(
                f"steps are skipped from one number to another, from 0 on, not {first!r} to {last!r}"
            )
        if first < cursor.next_step:
            raise UsageError(
                f"step {first:,} was given already: the next one is {cursor.next_step:,}; load a state from before it"
            )
        steps = StepRanges(((first, last + 1),))
        check_skips_agree(run, cursor.batch, steps)
        cursor.skip(steps)

    def state_dict(self) -> State:
        """The state after the last item given: JSON values, a few bytes a slot and source; `wdspec state` shows it.

        It holds the canonical ranks of this rank. To go on with another number of ranks, merge the states of
        all of them (`wdspec.merge_states`), or let `torch.distributed.checkpoint` save the loader. Inside a
        worker of a DataLoader that is not wdspec's it is that of the worker alone, for `StatefulDataLoader`.
        """
        return self.cursor.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Goes on behind the last item of the state, also where something was read; an iteration under way ends.

        Args:
            state: what `state_dict` returned, or `wdspec.merge_states` made, perhaps through JSON.
            allow_changed: accept a changed spec. Sources are matched by name; added ones start afresh.

        Raises:
            UsageError: no such state, of other ranks, or of a spec with another order; says what changed.
        """
        self.cursor.load_state_dict(state, allow_changed)
