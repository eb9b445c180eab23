"""A spec's dataset in the workers of torch's DataLoader, or of torchdata's StatefulDataLoader.

Such a DataLoader takes items from its W workers in turn, starting at worker 0 in every iteration. So worker w yields
the batches J₀+w, J₀+w+W, … and reads their slots, from J₀ to the end of the epoch. It knows nothing about the other
workers, and about earlier iterations only what happened in its own process. Where that is not enough to resume
exactly, it raises.

`torchdata.stateful_dataloader.StatefulDataLoader` gets each worker's `state_dict` after every item, right after
`iter()`, and at the end of the iteration. It returns them to the workers before the next `iter()`, and then takes turns
from where it stopped. A worker that had finished its part of an epoch must then end at once, and start the next epoch
at the following `iter()`.

A DataLoader does not pass its options to the dataset, so `DataLoaderOptions` looks at the call stack: the DataLoader's
iterator is among the callers of `iter(dataset)`, in its own process and in forked workers, and of the pickling for
spawned ones. So are the classes of Accelerate that divide what a rank reads among the ranks. The 22 lines that look are
kept for one silent fault: Accelerate's dispatcher, its default for an `IterableDataset`, would deliver the part of rank
0 only, and neither the worker info nor torchdata's states show that.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.workers import WorkerCounters
from wdspec.planning.shares import shares_as_text
from wdspec.run.position import Position, entries_of
from wdspec.run.run import Run
from wdspec.run.state import VERSION, WORKER_FORMAT, State, damage_error, rank_state, stamp
from wdspec.run.steps import Here
from wdspec.run.stream import Stream
from wdspec.spec.language.steps import StepRanges

_OF_LOADERS = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader")
_OF_ACCELERATE = "accelerate.data_loader"
_TRAINER = (
    "with a Trainer of transformers, write "
    "`wdspec.integrations.transformers.SpecTrainer(train_dataset=wdspec.loader(spec))` (docs/training.md)"
)
_SHARE_OUT = ("IterableDatasetShard", "DataLoaderDispatcher")


@dataclass(frozen=True)
class DataLoaderOptions:
    """Options of a DataLoader that decide whether it keeps the dataset's order."""

    in_order: bool = True
    """Whether workers yield batches in turn."""
    batches: bool = False
    """Whether it makes batches of the items."""
    is_there: bool = False
    """Whether there is a DataLoader at all."""
    shares_out: bool = False
    """Whether Accelerate divides the items among the ranks."""

    @classmethod
    def of_callers(cls) -> DataLoaderOptions:
        """Read the options from the call stack; the defaults if no DataLoader is on it."""
        in_order, batches, is_there, shares_out = True, False, False, False
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            module = frame.f_globals.get("__name__")
            if module in _OF_LOADERS and hasattr(caller := frame.f_locals.get("self"), "_auto_collation"):
                is_there = True
                in_order = in_order and getattr(caller, "_in_order", True)
                batches = batches or caller._auto_collation  # type: ignore[union-attr]  # torch has no public way
            elif module == _OF_ACCELERATE:
                shares_out |= type(frame.f_locals.get("self")).__name__ in _SHARE_OUT
                shares_out |= frame.f_code.co_name == "prepare_data_loader"
            frame = frame.f_back
        return cls(in_order, batches, is_there, shares_out)

    def __or__(self, other: DataLoaderOptions) -> DataLoaderOptions:
        """Combine two observations of one DataLoader."""
        return DataLoaderOptions(
            self.in_order and other.in_order,
            self.batches or other.batches,
            self.is_there or other.is_there,
            self.shares_out or other.shares_out,
        )

    def refusal(self, is_batched: bool, world_size: int, workers: int) -> str | None:
        """Return why a dataset cannot be read with these options; None if it can.

        Args:
            is_batched: whether the dataset yields batches.
            world_size: number of ranks that share the data.
            workers: worker processes of this rank; 0 if it reads by itself.
        """
        if self.shares_out and world_size > 1:
            return (
                f"Accelerate would share out what this rank reads, which is already one rank's part of {world_size}; "
                f"do not prepare it: iterate wdspec.loader(spec) directly, or {_TRAINER}"
            )
        if self.batches and is_batched:
            return (
                "the DataLoader would make batches of batches, since the spec has `batch`; use batch_size=None, or "
                f"use wdspec.loader(spec), or {_TRAINER}"
            )
        if not self.in_order and workers > 1:
            return (
                "in_order=False yields batches in whatever order the workers finish them; leave it out, or use "
                "wdspec.loader(spec, num_workers=…)"
            )
        return None


class SingleProcessIteration(Iterator[Any]):
    """One `iter()` in the process of the DataLoader itself, with its own state in addition to the dataset's.

    A `StatefulDataLoader` without workers saves both. So a state from after the last batch of an epoch resumes as with
    workers: the first iteration ends at once.
    """

    def __init__(self, stream: Stream, refusal: str | None) -> None:
        self._stream, self._items = stream, stream.items()
        self._refusal = refusal
        self._first = stream.step
        self._at_end = False
        """Whether a state from the end of an epoch was loaded."""

    def __next__(self) -> Any:
        if self._refusal is not None:
            raise UsageError(self._refusal)
        if self._at_end:
            raise StopIteration
        return next(self._items)

    def state_dict(self) -> dict[str, bool]:
        """Return whether the iteration is at the end of its epoch."""
        stream = self._stream
        is_between = stream.step > self._first and not stream.items_given
        end = stream.timeline.end(stream.step - 1) if is_between else None
        return {"at_end": self._at_end or (end is not None and end <= stream.first_step)}

    def load_state_dict(self, state: Mapping[str, bool]) -> None:
        """Resume from a state; the dataset has already loaded its own."""
        self._at_end = bool(state["at_end"])


class DataLoaderWorker:
    """Reads the part of worker w of W, in its process.

    Args:
        run: what the rank reads with W workers.
        position: where the rank was when the worker started; J₀ is the step to resume with.
        worker, workers: w and W.
        starts: calls of `iter()` per worker number, in any process, since the dataset was built or loaded a state.
        options: the DataLoader's options, as seen by the process that pickled this one.
    """

    def __init__(
        self,
        run: Run,
        position: Position,
        worker: int,
        workers: int,
        starts: WorkerCounters,
        options: DataLoaderOptions,
    ) -> None:
        self.stream = Stream(run, Here(run), position, stride=workers)
        self.stream.step += worker
        self._worker, self._workers = worker, workers
        self._starts, self._own = starts, starts.slot()
        self._options = options
        self._first = position.step
        """J₀: the first batch of worker 0 in the epoch, or in the rest of it."""
        self._times = 0
        """Calls of `iter()` in this process since a state was loaded."""
        self._in_progress = False
        """Whether an iteration has started and not ended."""
        self._ended: int | None = None
        """The end of the last iteration, if none has started since."""

    def items(self) -> Iterator[Any]:
        """Start an iteration: the rest of the epoch, or the next one.

        Errors are raised at the first item, since a DataLoader dies of errors in `iter()`.
        """
        refusal = self._refusal()
        self._starts[self._own] += 1
        self._times += 1
        iteration = self.stream.start_iteration()
        self._in_progress = True
        if self._ended is not None:
            self._first = self._ended
            self.stream.step = self._first + self._worker
        self._ended = None
        return self._read(iteration, refusal)

    def _read(self, iteration: int, refusal: str | None) -> Iterator[Any]:
        if refusal is not None:
            raise UsageError(refusal)
        if self.stream.timeline.start is not None:
            self.stream.find_epoch(self._first)
        yield from self.stream.read(self.stream.enter_iteration(iteration), self._end())
        self._in_progress, self._ended = False, self._end()

    def _end(self) -> int | None:
        return self.stream.timeline.iteration(self._first, self.stream.skipped)[1]

    def _refusal(self) -> str | None:
        options, run = self._options | DataLoaderOptions.of_callers(), self.stream.run
        refusal = options.refusal(run.plan.batching.batched, run.seat.world_size, self._workers)
        if refusal is not None:
            return refusal
        is_pass = run.plan.timeline.is_pass  # every iteration is the same
        if self._starts[self._own] != self._times and not (is_pass and self._first == 0):
            return (
                "these DataLoader workers are new and would read the previous epoch again; use wdspec.loader(spec, "
                "num_workers=…), or persistent_workers=True, or compile the spec again to start from the beginning"
            )
        if self._in_progress:
            return (
                "the last iteration was left early, and a DataLoader would lose what it has read ahead; read epochs to "
                "their end, or use wdspec.loader(spec, num_workers=…)"
            )
        if not is_pass and self._ended is not None and (self._ended - self._first) % self._workers:
            return (
                f"an epoch of {self._ended - self._first} batches is not a multiple of {self._workers} workers, so a "
                "DataLoader would yield the next epoch in the wrong order; use wdspec.loader(spec, num_workers=…), or "
                "change the epoch"
            )
        if (uneven := self._uneven_skip()) is not None:
            return (
                f"{uneven.count} steps are to be skipped ({uneven}), which is not a multiple of {self._workers} "
                "workers, so a DataLoader would yield later batches in the wrong order; use wdspec.loader(spec, "
                "num_workers=…), or skip a multiple"
            )
        if run.items_per_step > 1 and self._workers > 1:
            return (
                f"a step gives this rank {run.items_per_step} items, and {self._workers} workers taking turns would "
                "yield them in another order; use wdspec.loader(spec, num_workers=…)"
            )
        return None

    def _uneven_skip(self) -> StepRanges | None:
        """Return steps of the next iteration of which some workers would skip more than others."""
        stream, first = self.stream, self._first if self._ended is None else self._ended
        end = stream.timeline.iteration(first, stream.skipped)[1]
        for start, stop in stream.skipped.within(first, end).ranges:
            if stop != end and (stop - start) % self._workers:
                return StepRanges(((start, stop),))
        return None

    def _reads(self, slot: int) -> bool:
        return (slot % self.stream.run.plan.topology.workers - self._first) % self._workers == self._worker

    @cached_property
    def _described(self) -> str:
        # One constant value: torchdata compares and copies every value for every batch.
        run = self.stream.run
        return json.dumps([run.order_text, run.order_digest, run.samples_digest, run.state_names])

    def state_dict(self) -> State:
        """Return the state of this worker as JSON values; the DataLoader saves one for each worker."""
        run, position = self.stream.run, self.stream.position
        own = {slot: state for slot, state in position.slot_states.items() if self._reads(slot)}
        where = {
            "batch": position.step,
            "given": position.items_given,
            "shares": shares_as_text(position.shares),
            "skip": position.skipped.as_text(),
        }
        if self.stream.timeline.start is not None:
            where["epoch"] = list(self.stream.timeline.place(self._first))
        stamped = stamp({**where, "items": run.items_per_step, "digest": run.order_digest})
        return {
            "format": WORKER_FORMAT,
            "version": VERSION,
            "worker": self._worker,
            "workers": self._workers,
            "first": self._first,
            **where,
            "run": self._described,
            "ranks": entries_of(run, own, stamped),
        }

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: bool = False) -> None:
        """Resume from a state of this worker.

        Raises:
            UsageError: the state is damaged, does not fit the spec, or is of another worker or number of workers.
        """
        run = self.stream.run
        of_rank = rank_state(state, run.items_per_step)
        worker, workers, first = state["worker"], state["workers"], state["first"]
        if (worker, workers) != (self._worker, self._workers):
            raise UsageError(
                f"the state is of worker {worker} of {workers}, this is worker {self._worker} of {self._workers}; "
                f"resume with num_workers={workers}, or use wdspec.loader, whose state fits any number of workers"
            )
        before, self._first = self._first, first
        try:
            position = Position.from_state(of_rank, run, allow_changed, self._reads)
            if position.step < first + worker or (position.step - first - worker) % workers:
                raise damage_error(
                    f"`batch` is {position.step}, which worker {worker} of {workers} does not read"
                )
        except UsageError:
            self._first = before
            raise
        self.stream.restore(position)
        self._in_progress, self._ended = False, None
        self._starts[self._own] = self._times = 0
