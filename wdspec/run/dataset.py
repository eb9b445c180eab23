"""A run as a torch dataset, for those who iterate it themselves or have a DataLoader of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from wdspec.base.errors import UsageError
from wdspec.base.parent_watch import end_with_parent
from wdspec.base.worker_counters import WorkerCounters
from wdspec.planning.topology import Seat
from wdspec.run.foreign import DataLoaderOptions, SingleProcessIteration, WorkerCursor
from wdspec.run.reading_cursor import ReadingCursor
from wdspec.run.resumable import Resumable
from wdspec.run.run import Blueprint, Run
from wdspec.run.stats import RunStats


class SpecDataset(Resumable, IterableDataset[Any]):
    """A mixed, shuffled, endless stream of samples or batches, cut into epochs of exact length.

    Each ``iter()`` gives the rest of the current epoch (all of it, unless the last iteration was left early),
    and the next ``iter()`` goes on behind it. Without `epoch` the stream has no end. With `epoch: pass` each
    ``iter()`` gives the whole pass again; only one after `load_state_dict` gives the rest of a pass.

    ``torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=K)`` works too, for one epoch, or for
    several with ``persistent_workers=True`` when K divides the batches of an epoch; where it would repeat or
    skip samples it raises instead. `wdspec.loader` has no such limits.

    ``torchdata.stateful_dataloader.StatefulDataLoader(dataset, batch_size=None, num_workers=K)`` keeps its state,
    under the same conditions; it goes on with the same number of workers only.

    Yields:
        With `batch` in the spec, a dict of field -> tensor (text, bytes, dicts: a list; or what `ragged` and `collate`
        ask for), with `__key__`, `__url__`, `__source__` as lists of text; or a tuple of such values with `to_tuple`.
        Without `batch`, single samples: dicts, or tuples.

    Raises:
        WdspecError: while iterating, whatever is wrong with shards or samples (see `errors:` for skipping).
    """

    def __init__(self, blueprint: Blueprint, seat: Seat) -> None:
        super().__init__()
        self._cursor = ReadingCursor(Run.of(blueprint, seat, 1).described())
        self._worker: WorkerCursor | None = None
        self._begun = WorkerCounters()
        """Iterations begun by each DataLoader worker, whichever process it was, since the last state was loaded."""
        self._options = DataLoaderOptions()
        """Of the DataLoader that this was pickled for."""

    @property
    def cursor(self) -> ReadingCursor:
        """Where this process stands: by itself, or as a worker of a DataLoader that reads this dataset."""
        info = get_worker_info()
        if info is None:
            return self._cursor
        if self._worker is None:
            end_with_parent()
            run = self._cursor.run
            self._worker = WorkerCursor(
                Run.of(run.blueprint, run.seat, info.num_workers),
                self._cursor.checkpoint,
                info.id,
                info.num_workers,
                self._begun,
                self._options,
            )
        return self._worker

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is None:
            plan, seat = self.run.plan, self.run.seat
            options = self._options | DataLoaderOptions.of_callers()
            refusal = options.refusal(plan.batching.batched, seat.world_size, 0)
            if refusal is None and not options.is_there:
                return self._cursor.read()
            return SingleProcessIteration(self._cursor, refusal)
        return self.cursor.read()

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        super().load_state_dict(state, allow_changed=allow_changed)
        if get_worker_info() is None:
            self._begun.clear()

    def set_shares(self, shares: Mapping[str, float], *, after: int = 0) -> int:
        self._check_alone("draw by other shares")
        return super().set_shares(shares, after=after)

    def skip_steps(self, first: int, last: int | None = None) -> None:
        self._check_alone("skip steps")
        super().skip_steps(first, last)

    def _check_alone(self, what: str) -> None:
        """Raises a UsageError where workers of a DataLoader read this, which cannot be told anything."""
        if get_worker_info() is not None or self._begun.any():
            raise UsageError(
                f"workers of a DataLoader read this, and cannot be told to {what}; use wdspec.loader(spec, "
                "num_workers=…)"
            )

    def stats(self) -> RunStats:
        """What was read so far in this process: of each source delivered, dropped, skipped, and more.

        Raises:
            UsageError: workers of a DataLoader read this: what they count stays with them.
        """
        if get_worker_info() is not None or self._begun.any():
            raise UsageError(
                "workers of a DataLoader read this, each for itself, and nobody has the counts of all; use "
                "wdspec.loader(spec, num_workers=…), whose stats() are those of all its workers"
            )
        return self._cursor.stats()

    def close(self) -> None:
        """Closes open shards; an iteration under way ends, and the next one goes on where this stands."""
        self.cursor.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(source.name for source in self.run.blueprint.spec.sources)})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None, "_options": DataLoaderOptions.of_callers()}
