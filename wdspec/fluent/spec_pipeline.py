"""The plan at work as a torch dataset: iterate it as it is, or hand it to a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import get_worker_info

from wdspec.errors import UsageError
from wdspec.fluent.datapipeline import DataPipeline
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Seat
from wdspec.running.blueprint import Blueprint
from wdspec.running.cursor import Walk
from wdspec.running.foreign_loader import WorkerPart
from wdspec.running.run_state import Position, RunDescription, make_state, read_state

_MOST_WORKERS = 4096


class SpecPipeline(DataPipeline):
    """A spec as a pipeline: a mixed, shuffled, endless stream of samples or batches, cut into epochs of exact length.

    Each ``iter()`` gives the rest of the current epoch (all of it, unless the last iteration was left early),
    and the next ``iter()`` goes on behind it. Without `epoch` the stream has no end. With `epoch: pass` each
    ``iter()`` gives the whole pass again; only one after `load_state_dict` gives the rest of a pass.

    ``torch.utils.data.DataLoader(pipeline, batch_size=None, num_workers=K)`` works too, for one epoch, or for
    several with ``persistent_workers=True`` when K divides the batches of an epoch; where it would repeat or
    skip samples it raises instead. `wdspec.loader` has no such limits.

    ``torchdata.stateful_dataloader.StatefulDataLoader(pipeline, batch_size=None, num_workers=K)`` keeps its state,
    under the same conditions; it goes on with the same number of workers only.

    The methods that add stages return a `DataPipeline` that reads this one: iterating it goes on here.

    Yields:
        With `batch` in the spec, a dict of field -> tensor (or list, where values do not stack), with
        `__key__`, `__url__`, `__source__` as lists of text; or a tuple of such values with `to_tuple`.
        Without `batch`, single samples: dicts, or tuples.

    Raises:
        WdspecError: while iterating, whatever is wrong with shards or samples (see `errors:` for skipping).
    """

    def __init__(self, blueprint: Blueprint, seat: Seat) -> None:
        super().__init__()
        self.blueprint = blueprint
        self.seat = seat
        self._start = Position()
        """Where to begin, as long as nothing was read in this process."""
        self._walk: Walk | None = None
        self._part: WorkerPart | None = None
        """What this process does as a DataLoader worker."""
        self._plans: dict[int, Plan] = {}
        self._run: RunDescription | None = None
        self._restored = False
        """Whether a state was loaded and no iteration begun since."""
        self._iterations = 0
        """Iterations begun in this process."""
        self._begun: torch.Tensor = torch.zeros(_MOST_WORKERS, dtype=torch.int64)
        self._begun.share_memory_()  # type: ignore[no-untyped-call]  # torch does not annotate it
        """Iterations begun by each DataLoader worker, whichever process it was."""

    @property
    def stages(self) -> tuple[Any, ...]:
        """The pipeline itself, as what is read: the stages of its plan are no functions that one could take out."""
        return (self,)

    def _with(self, *stages: Any) -> Any:
        return DataPipeline(*stages)

    def iterate(self, number: int) -> Iterator[Any]:
        """As ``iter()``: the plan knows where it stands, and needs no number."""
        return iter(self)

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.plan.epoch_batches is None

    @property
    def plan(self) -> Plan:
        """The plan as this process would follow it."""
        info = get_worker_info()
        workers = info.num_workers if info else 1
        if workers not in self._plans:
            self._plans[workers] = self.blueprint.plan(self.seat, workers)
        return self._plans[workers]

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        length = self.plan.epoch_batches
        return self._number // length if length else 0

    @property
    def _number(self) -> int:
        return self._start.batch if self._walk is None else self._walk.number

    def _position(self) -> Position:
        return self._start if self._walk is None else self._walk.position

    def __len__(self) -> int:
        """Items of an epoch on this rank: batches with `batch`, else samples.

        Raises:
            TypeError: the spec has no `epoch:`.
        """
        plan = self.plan
        return plan.require_epoch() * self.blueprint.items_per_step(plan, self.seat)

    def set_epoch(self, epoch: int) -> None:
        """Checks that the next iteration begins this epoch; never seeks.

        Raises:
            UsageError: the stream stands elsewhere.
        """
        check_epoch(epoch, self._position(), self.plan)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last item given in this process: JSON values, as `Loader.state_dict` gives.

        Inside a worker of a DataLoader it is that of the worker alone, for `StatefulDataLoader`.
        """
        part = self._worker_part()
        if part is not None:
            return part.state_dict()
        return make_state(self._described(), self._ranks(), self._position(), self._items())

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Goes on behind the last item of the state; an iteration under way ends.

        Args and errors are those of `Loader.load_state_dict`. Inside a worker of a DataLoader it takes what
        `state_dict` returned there.
        """
        part = self._worker_part()
        if part is not None:
            part.load_state_dict(state, allow_changed=allow_changed)
            return
        there = read_state(state, self._described(), self._ranks(), self._items(), allow_changed)
        self._iterations += 1
        self._restored = True
        self._start = there
        if self._walk is not None:
            self._walk.go_to(there)
        self._begun.zero_()

    def __iter__(self) -> Iterator[Any]:
        part = self._worker_part()
        return self._alone() if part is None else part.open()

    def _alone(self) -> Iterator[Any]:
        if self._walk is None:
            self._walk = Walk(self.blueprint, self.plan, self.seat, self._start)
        begin = None if self._restored else self._walk.plan.begin(self._walk.number)
        if begin is not None:
            self._walk.go_to(Position(begin))
        self._restored = False
        self._iterations += 1
        iteration = self._iterations
        length = self._walk.plan.epoch_batches
        end = (self._walk.number // length + 1) * length if length else None
        for item in self._walk.until(end):
            yield item
            if iteration != self._iterations:
                raise UsageError("a newer iteration of this pipeline has begun; this one cannot go on")

    def close(self) -> None:
        """Closes open shards; an iteration under way ends, and the next one goes on where this stands."""
        if self._walk is not None:
            self._start = self._walk.position
            self._walk.close()
            self._walk = None
            self._iterations += 1

    def _worker_part(self) -> WorkerPart | None:
        """This process's part, if it is a worker of a DataLoader that reads this pipeline."""
        info = get_worker_info()
        if info is None:
            return None
        if self._part is None:
            self._part = WorkerPart(
                self.blueprint, self.seat, self._position(), info.id, info.num_workers, self._begun
            )
        return self._part

    def _described(self) -> RunDescription:
        if self._run is None:
            self._run = RunDescription.of(self.blueprint, self.plan)
        return self._run

    def _ranks(self) -> range:
        return self.seat.canonical_ranks(self.plan.topology)

    def _items(self) -> int:
        return self.blueprint.items_per_step(self.plan, self.seat)

    def __repr__(self) -> str:
        return f"SpecPipeline({', '.join(source.name for source in self.blueprint.spec.sources)})"

    def __getstate__(self) -> dict[str, Any]:
        # A copy begins where this stands, with shards of its own.
        return {**self.__dict__, "_start": self._position(), "_walk": None, "_part": None}


def check_epoch(epoch: int, position: Position, plan: Plan) -> None:
    """Raises a UsageError unless the position is the beginning of the epoch; one pass is like another."""
    if plan.finite is not None:
        return
    length, batch = plan.epoch_batches, position.batch
    if length is None:
        if epoch == batch == position.given == 0:
            return
        raise UsageError("this stream is endless and has no epochs; give `epoch:` in the spec")
    if batch != epoch * length or position.given:
        at, inside = divmod(batch, length)
        raise UsageError(
            f"set_epoch({epoch}) checks, it does not seek: the stream stands at batch {inside} of epoch {at}; "
            + (
                "read that epoch to its end first"
                if inside or position.given
                else f"the next iteration is epoch {at}"
            )
        )
