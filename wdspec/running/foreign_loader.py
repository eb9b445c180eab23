"""A DataPipeline inside the workers of a DataLoader that is not ours: torch's own, or torchdata's.

Such a DataLoader asks its W workers in turn, from worker 0 on whenever iteration starts. So worker w gives the
batches J₀+w, J₀+w+W, … and reads the slots of those, from J₀ to the end of the epoch. It knows nothing of the
others, and of earlier iterations only what happened in its own process; where that is not enough to go on
exactly it refuses.

`torchdata.stateful_dataloader.StatefulDataLoader` asks each worker for its `state_dict` after every item, right
after `iter()`, and at the end of the iteration; gives each worker its own back before the next `iter()`; and
then takes turns from where it had stopped. A worker that had ended its part of an epoch must end again at once,
and begin the next epoch at the `iter()` after that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from wdspec.errors import UsageError
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Seat
from wdspec.running.blueprint import Blueprint
from wdspec.running.cursor import Walk
from wdspec.running.run_state import Position, RunDescription, State, read_state, slots_of
from wdspec.running.state_checks import FORMAT, VERSION, WORKER_FORMAT, check_state


class WorkerPart:
    """Worker w of W, in its process.

    Args:
        blueprint, seat: what the rank reads.
        position: where the rank stood when the worker started; J₀ is the step to go on with.
        worker, workers: w and W.
        begun: for every worker number, how often `iter()` was called since the pipeline was made or loaded a
            state, in whatever process; in shared memory.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        seat: Seat,
        position: Position,
        worker: int,
        workers: int,
        begun: torch.Tensor,
    ) -> None:
        self._blueprint, self._seat = blueprint, seat
        self._worker, self._workers = worker, workers
        self._begun = begun
        self._first = position.batch
        """J₀: the batch that worker 0 began the epoch, or the rest of it, with."""
        self._start = Position(position.batch + worker, position.table, position.given)
        self._walk: Walk | None = None
        self._plan: Plan | None = None
        self._run: RunDescription | None = None
        self._opened = 0
        """How often `open` was called in this process."""
        self._reading = False
        """Whether an iteration was begun and has not come to its end."""
        self._ended: int | None = None
        """The end of the last iteration, if no other one was begun since."""

    def open(self) -> Iterator[Any]:
        """Begins an iteration: the rest of the epoch, or the next one.

        Whatever is wrong is raised at the first item, since a DataLoader dies of errors in `iter()`.
        """
        refusal = self._refusal()
        self._begun[self._worker] += 1
        self._opened += 1
        self._reading = True
        if self._walk is not None and self._ended is not None:
            self._first = self._ended
            self._walk.skip_to(self._first + self._worker)
        self._ended = None
        return self._items(self._opened, refusal)

    def _refusal(self) -> str | None:
        is_pass = self._blueprint.counts is not None  # and then every iteration is to be the same
        if int(self._begun[self._worker]) != self._opened and not (is_pass and self._first == 0):
            return (
                "these DataLoader workers are new and would read the epoch before again; use wdspec.loader(spec, "
                "num_workers=…), or persistent_workers=True, or compile the spec anew to start from the beginning"
            )
        if self._reading:
            return (
                "the last iteration was left early, and a DataLoader would lose what it had read ahead; read "
                "epochs to their end, or use wdspec.loader(spec, num_workers=…)"
            )
        if not is_pass and self._ended is not None and (self._ended - self._first) % self._workers:
            return (
                f"an epoch of {self._ended - self._first} batches is no multiple of {self._workers} workers, so a "
                "DataLoader would give the next epoch in the wrong order; use wdspec.loader(spec, num_workers=…), or "
                "change the epoch"
            )
        return None

    def _items(self, opened: int, refusal: str | None) -> Iterator[Any]:
        if refusal is not None:
            raise UsageError(refusal)
        plan = self._planned()
        items = self._blueprint.items_per_step(plan, self._seat)
        if items > 1 and self._workers > 1:
            raise UsageError(
                f"a step gives this rank {items} items, and {self._workers} workers taking turns would give "
                "them in another order; use wdspec.loader(spec, num_workers=…)"
            )
        if self._walk is None:
            self._walk = Walk(self._blueprint, plan, self._seat, self._start, self._workers)
        end = self._end()
        for item in self._walk.until(end):
            yield item
            if opened != self._opened:
                raise UsageError("a newer iteration of this pipeline has begun; this one cannot go on")
        self._reading, self._ended = False, end

    def state_dict(self) -> State:
        """What this worker needs to go on: JSON values, for a DataLoader that keeps one for each worker."""
        run = self._described()
        position = self._start if self._walk is None else self._walk.position
        ranks = self._seat.canonical_ranks(self._planned().topology)
        own = {slot: state for slot, state in position.table.items() if self._reads(slot, run.workers)}
        return {
            "format": WORKER_FORMAT,
            "version": VERSION,
            "worker": self._worker,
            "workers": self._workers,
            "first": self._first,
            "batch": position.batch,
            "given": position.given,
            "ranks": list(ranks),
            # One value that stays the same: torchdata compares and copies every value for every batch.
            "run": json.dumps([json.loads(run.order), run.digest, run.samples, run.sources]),
            "slots": slots_of(run, ranks, own),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Goes on from what this worker returned.

        Raises:
            UsageError: no state of this very worker, of as many, or one that does not fit the spec.
        """
        if not isinstance(state, Mapping) or state.get("format") != WORKER_FORMAT:
            raise UsageError(
                "this is no state of a pipeline in a DataLoader worker; the state of a whole rank goes into the "
                "pipeline before the DataLoader is made, or into wdspec.loader"
            )
        plan, run = self._planned(), self._described()
        whole = {"format": FORMAT, "version": state["version"]}
        check_state(whole)
        if (state["worker"], state["workers"]) != (self._worker, self._workers):
            raise UsageError(
                f"the state is of worker {state['worker']} of {state['workers']}, this is worker {self._worker} of "
                f"{self._workers}; go on with num_workers={state['workers']}, or use wdspec.loader, whose state "
                "fits any number of workers"
            )
        items = self._blueprint.items_per_step(plan, self._seat)
        order, digest, samples, sources = json.loads(state["run"])
        kept = {name: state[name] for name in ("batch", "given", "ranks", "slots")}
        described = {"digest": digest, "order": order, "samples": samples, "sources": sources}
        ranks = self._seat.canonical_ranks(plan.topology)
        position = read_state(
            {**whole, **described, **kept, "items": items}, run, ranks, items, allow_changed, of_worker=True
        )
        self._first = int(state["first"])
        self._start = position
        if self._walk is not None:
            self._walk.go_to(position)
        self._reading, self._ended = False, None
        self._begun[self._worker] = self._opened

    def _end(self) -> int | None:
        length = self._planned().epoch_batches
        return (self._first // length + 1) * length if length else None

    def _reads(self, slot: int, canonical_workers: int) -> bool:
        return (slot % canonical_workers - self._first) % self._workers == self._worker

    def _planned(self) -> Plan:
        if self._plan is None:
            self._plan = self._blueprint.plan(self._seat, self._workers)
        return self._plan

    def _described(self) -> RunDescription:
        if self._run is None:
            self._run = RunDescription.of(self._blueprint, self._planned())
        return self._run
