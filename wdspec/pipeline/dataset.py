"""The plan at work as a torch dataset: iterate it as it is, or hand it to a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from wdspec.pipeline.blueprint import Blueprint
from wdspec.pipeline.checkpoint import make_state, read_state
from wdspec.pipeline.reader import Reader
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Seat
from wdspec.spec.errors import UsageError

_MOST_WORKERS = 4096


class DataPipeline(IterableDataset[Any]):
    """A mixed, shuffled, endless stream of samples or batches, cut into epochs of exact length.

    Each ``iter()`` gives the rest of the current epoch (all of it, unless the last iteration was left early),
    and the next ``iter()`` goes on behind it. Without `epoch` the stream has no end.

    ``torch.utils.data.DataLoader(pipeline, batch_size=None, num_workers=K)`` works too, for one epoch, or for
    several with ``persistent_workers=True`` when K divides the batches of an epoch; where it would repeat or
    skip samples it raises instead. `wdspec.loader` has no such limits.

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
        self._next = 0
        """J of the next batch, in this process."""
        self._iterations = 0
        """Iterations begun in this process."""
        self._reader: Reader | None = None
        self._restored: dict[int, bytes] = {}
        """States to go on from, for the reader that is not built yet."""
        self._begun: torch.Tensor = torch.zeros(_MOST_WORKERS, dtype=torch.int64)
        self._begun.share_memory_()  # type: ignore[no-untyped-call]  # torch does not annotate it
        """Iterations begun by each DataLoader worker, whichever process it was."""

    @property
    def plan(self) -> Plan:
        """The plan as this process would follow it."""
        return self.blueprint.plan(self.seat, _workers())

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        length = self.plan.epoch_batches
        return self._next // length if length else 0

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
        check_epoch(epoch, self._next, self.plan)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last item given in this process: JSON values, as `Loader.state_dict` gives.

        Raises:
            UsageError: inside a DataLoader worker, which knows only its own part.
        """
        self._refuse_in_workers("state_dict")
        plan = self.plan
        table = self._reader.table() if self._reader is not None else self._restored
        return make_state(self.blueprint, plan, self.seat.canonical_ranks(plan.topology), self._next, table)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Goes on behind the last item of the state; an iteration under way ends.

        Args and errors are those of `Loader.load_state_dict`.
        """
        self._refuse_in_workers("load_state_dict")
        plan = self.plan
        ranks = self.seat.canonical_ranks(plan.topology)
        self._next, self._restored = read_state(state, self.blueprint, plan, ranks, allow_changed)
        self._iterations += 1
        if self._reader is not None:
            self._reader.restore(self._restored)

    def __iter__(self) -> Iterator[Any]:
        # All of it runs at the first next(): a DataLoader reports errors from there, but dies of one in iter().
        info = get_worker_info()
        worker = info.id if info else None
        plan = self.plan if self._reader is None else self._reader.plan
        if worker is not None:
            self._refuse_what_would_repeat(worker, plan)
        if self._reader is None:
            self._reader = self.blueprint.reader(plan, self.seat)
            self._reader.restore(self._restored)
        self._iterations += 1
        yield from self._iterate(self._reader, self._iterations, worker)

    def _iterate(self, reader: Reader, iteration: int, worker: int | None) -> Iterator[Any]:
        plan, assemble = reader.plan, self.blueprint.assemble
        length, step = plan.epoch_batches, _workers()
        end = (self._next // length + 1) * length if length else None
        number = self._next + (worker or 0)
        while end is None or number < end:
            items = assemble(reader.batch(number))
            number += step
            if worker is None:
                self._next = number
            for item in items:
                yield item
                if iteration != self._iterations:
                    raise UsageError("a newer iteration of this pipeline has begun; this one cannot go on")
        if worker is not None and end is not None:
            self._next = end

    def _refuse_in_workers(self, method: str) -> None:
        if get_worker_info() is not None:
            raise UsageError(
                f"{method}() of a pipeline inside DataLoader workers holds only one worker's part; use "
                "wdspec.loader(spec, num_workers=…), whose state is that of the whole rank"
            )

    def _refuse_what_would_repeat(self, worker: int, plan: Plan) -> None:
        """A bare DataLoader starts its rotation at worker 0 each time, and knows nothing of earlier workers."""
        before = int(self._begun[worker])
        self._begun[worker] += 1
        if before != self._iterations:
            raise UsageError(
                "these DataLoader workers are new and would read the epoch before again; use wdspec.loader(spec, "
                "num_workers=…), or persistent_workers=True, or compile the spec anew to start from the beginning"
            )
        length, workers = plan.epoch_batches, _workers()
        if before and length and length % workers:
            raise UsageError(
                f"an epoch of {length} batches is no multiple of {workers} workers, so a bare DataLoader would give "
                "the next epoch in the wrong order; use wdspec.loader(spec, num_workers=…), or change the epoch"
            )
        if before and self._next % (length or 1):
            raise UsageError(
                "the last epoch was left early; with a bare DataLoader, read epochs to their end"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}


def _workers() -> int:
    """Reading processes: those of the DataLoader that this process works for, else this one alone."""
    info = get_worker_info()
    return info.num_workers if info else 1


def check_epoch(epoch: int, next_batch: int, plan: Plan) -> None:
    """Raises a UsageError unless batch J is the first of the epoch."""
    length = plan.epoch_batches
    if length is None:
        if epoch == next_batch == 0:
            return
        raise UsageError("this stream is endless and has no epochs; give `epoch:` in the spec")
    if next_batch != epoch * length:
        at, inside = divmod(next_batch, length)
        raise UsageError(
            f"set_epoch({epoch}) checks, it does not seek: the stream stands at batch {inside} of epoch {at}; "
            + ("read that epoch to its end first" if inside else f"the next iteration is epoch {at}")
        )
