"""Task-fed workers: the parent says which batch comes next and where its slots stand.

A DataLoader's rotation starts at worker 0 whenever iteration starts, at batch J₀ say, so worker w serves
J₀+w, J₀+w+W, … and needs the slots k with (k - J₀) mod W = w: other ones after a resume or an odd epoch. So
workers own nothing across iterations. A task is (J, table): the table, sent with the first W tasks only, holds
the states of that worker's slots; what comes back holds the states after the batch.

    parent:   table ─▶ (J₀, table₀) (J₀+1, table₁) (J₀+2, ·) …        workers:  restore(table), batch(J), states
              table ◀─ states of delivered batches ◀──────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from torch.utils.data import Dataset, Sampler
from torch.utils.data._utils.pin_memory import pin_memory

from wdspec.errors import WdspecError
from wdspec.reading.batch_reader import Reader
from wdspec.running.cursor import Cursor
from wdspec.running.run import Run
from wdspec.running.worker_processes import memory_peak

Task = tuple[int, "dict[int, bytes] | None"]


@dataclass(frozen=True)
class Delivery:
    """What a worker returns for a task."""

    items: list[Any]
    states: dict[int, bytes]
    memory_peak: int
    """The most memory that the worker had so far, in bytes."""

    def pin_memory(self) -> Delivery:
        """With its items in page-locked memory; torch looks into dicts and lists by itself, not into objects."""
        items = pin_memory(self.items)  # type: ignore[no-untyped-call]  # torch does not annotate it
        return Delivery(items, self.states, self.memory_peak)


class TaskSampler(Sampler[Task]):
    """The tasks from where a cursor stands to the end of its epoch.

    It holds the cursor, never the Loader: a reference cycle would let forked children collect, and shut down,
    iterators that they inherited.
    """

    def __init__(self, cursor: Cursor, workers: int) -> None:
        self.cursor = cursor
        self.workers = max(1, workers)

    def __len__(self) -> int:
        first, length = self.cursor.batch, self.cursor.run.plan.require_epoch()
        return length - first % length

    def __iter__(self) -> Iterator[Task]:
        run, first, table = self.cursor.run, self.cursor.batch, dict(self.cursor.table)
        k_of, end = run.plan.topology.workers, run.epoch_end(first)
        for worker, number in enumerate(count(first) if end is None else range(first, end)):
            if worker < self.workers:
                own = {s: state for s, state in table.items() if (s % k_of - first) % self.workers == worker}
                yield number, own
            else:
                yield number, None


class TaskDataset(Dataset[Any]):
    """The map-style dataset behind a Loader: a task in, a delivery out."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader: Reader | None = None

    def __getitem__(self, task: Task) -> Delivery | WdspecError:
        number, table = task
        try:
            if self._reader is None:
                self._reader = self.run.reader()
            if table is not None:
                self._reader.restore(table)
            items = self.run.assemble(number, self._reader.batch(number))
            return Delivery(items, self._reader.states(number), memory_peak())
        except WdspecError as error:
            return error  # whole to the training process, where torch would print its traceback into another

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def close(self) -> None:
        """Closes open shards of this process."""
        if self._reader is not None:
            self._reader.close()
