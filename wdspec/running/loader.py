"""The Loader: a thin layer over torch's DataLoader that knows where every slot stands."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import DataLoader

from wdspec.errors import UsageError
from wdspec.fluent.spec_pipeline import check_epoch
from wdspec.planning.keys import key64
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Seat
from wdspec.running import worker_processes as workers
from wdspec.running.blueprint import Blueprint
from wdspec.running.run_state import Position, RunDescription, make_state, read_state
from wdspec.running.tasks import Failure, TaskDataset, TaskSampler

_OURS = {
    "batch_size": "set `batch:` in the spec",
    "shuffle": "set `shuffle:` and `order:` in the spec",
    "sampler": "the plan decides the order",
    "batch_sampler": "the plan decides the order",
    "drop_last": "all batches are whole",
    "collate_fn": "batches are collated in the workers; use `map:` for other shapes",
    "dataset": "the spec says what is read",
}


class Loader:
    """Batches (or samples) of a spec, read by worker processes, epoch after epoch.

    Iterating gives the rest of the current epoch; leaving early loses and repeats nothing: the next iteration
    goes on with the next batch. With `epoch: pass` every iteration is a whole pass, the same each time; only one
    after `load_state_dict` is the rest of a pass. All ranks get the same number of batches. A context manager:
    `close` ends the worker processes.

    Yields:
        What `DataPipeline` yields.

    Raises:
        WdspecError: while iterating, whatever is wrong with shards or samples, as in one process.
    """

    def __init__(self, blueprint: Blueprint, seat: Seat, num_workers: int, **torch_arguments: Any) -> None:
        for name, remedy in _OURS.items():
            if name in torch_arguments:
                raise UsageError(f"`{name}` is no argument of wdspec.loader: {remedy}")
        if torch_arguments.get("in_order") is False:
            raise UsageError("`in_order=False` would give batches in no order that a state could describe")
        if num_workers < 0:
            raise UsageError(f"num_workers must be 0 or more, not {num_workers}")
        self.blueprint = blueprint
        self.seat = seat
        self.plan: Plan = blueprint.plan(seat, num_workers)
        self._items = blueprint.items_per_step(self.plan, seat)
        self._run: RunDescription | None = None
        self._position = Position()
        self._restored = False
        """Whether a state was loaded and no iteration begun since."""
        self._iterations = 0
        self._running: Callable[[], Any] = lambda: None
        """The iterator of the DataLoader; a weak reference, so that one left in mid-epoch is gone at once."""
        self._dataset = TaskDataset(blueprint, self.plan, seat)
        generator = torch_arguments.pop("generator", None)
        if generator is None:  # torch's own default would take a number from the user's global generator
            generator = torch.Generator().manual_seed(key64(blueprint.spec.seed, "loader", seat.rank) >> 1)
        self._words: Connection | None = None
        if num_workers:
            self._words, to = multiprocessing.Pipe(duplex=False)
            then = torch_arguments.get("worker_init_fn")
            torch_arguments["worker_init_fn"] = workers.WorkerStart(then, to)
        self._loader: DataLoader[Any] = DataLoader(
            self._dataset,
            batch_size=None,
            sampler=TaskSampler(self._position, self.plan, num_workers),
            num_workers=num_workers,
            generator=generator,
            **torch_arguments,
        )

    def __len__(self) -> int:
        """Items of a whole epoch on this rank, the same on every rank: batches with `batch`, else samples.

        Raises:
            TypeError: the spec has no `epoch:`.
        """
        return self.plan.require_epoch() * self._items

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        length = self.plan.epoch_batches
        return self._position.batch // length if length else 0

    def set_epoch(self, epoch: int) -> None:
        """Checks that the next iteration begins this epoch; never seeks.

        Raises:
            UsageError: the stream stands elsewhere.
        """
        check_epoch(epoch, self._position, self.plan)

    def __iter__(self) -> Iterator[Any]:
        self._iterations += 1
        return self._iterate(self._iterations)

    def _iterate(self, iteration: int) -> Iterator[Any]:
        position = self._position
        self._require_newest(iteration)
        begin = None if self._restored else self.plan.begin(position.batch)
        if begin is not None:
            position.batch, position.given = begin, 0
        self._restored = False
        running = workers.iterate(self._loader)
        self._running = weakref.ref(running)
        for delivery in self._deliveries(running):
            if isinstance(delivery, Failure):
                raise delivery.error
            for item in delivery.items[position.given : -1]:
                position.given += 1
                yield item
                self._require_newest(iteration)
            position.table.update(delivery.states)
            position.batch += 1
            position.given = 0
            yield delivery.items[-1]
            # Before more is taken: persistent workers serve the newer iteration through the same iterator.
            self._require_newest(iteration)

    def _deliveries(self, running: Iterator[Any]) -> Iterator[Any]:
        """What the workers give; what one of them said before it ended itself is raised."""
        try:
            yield from running
        except RuntimeError:
            if self._words is not None and self._words.poll():
                raise self._words.recv() from None
            raise

    def _require_newest(self, iteration: int) -> None:
        if iteration != self._iterations:
            raise UsageError(
                "this iteration cannot go on: a newer iteration of this loader has begun, or it was given a state, or "
                "closed; iterate the loader again"
            )

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch delivered: JSON values, a few hundred bytes a slot and source.

        It holds the canonical ranks of this rank. To go on with another number of ranks, merge the states of
        all of them (`wdspec.merge_states`).
        """
        return make_state(self._described(), self._ranks(), self._position, self._items)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Goes on behind the last batch of the state, also on a live loader; an iteration under way ends.

        Args:
            state: what `state_dict` returned, or `wdspec.merge_states` made, perhaps through JSON.
            allow_changed: accept a changed spec. Sources are matched by name; added ones start afresh.

        Raises:
            UsageError: no such state, of other ranks, or of a spec with another order; says what changed.
        """
        there = read_state(state, self._described(), self._ranks(), self._items, allow_changed)
        self._iterations += 1
        self._restored = True
        # The sampler holds this very object.
        self._position.batch, self._position.table, self._position.given = (
            there.batch,
            there.table,
            there.given,
        )

    def _described(self) -> RunDescription:
        if self._run is None:
            self._run = RunDescription.of(self.blueprint, self.plan)
        return self._run

    def _ranks(self) -> range:
        return self.seat.canonical_ranks(self.plan.topology)

    def close(self) -> None:
        """Ends the worker processes and closes open shards; iterating again starts new ones."""
        self._iterations += 1
        running, self._loader._iterator = self._running(), None
        if running is not None:
            workers.end(running)
        self._dataset.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
