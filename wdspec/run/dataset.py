"""`SpecDataset`: a run as a torch dataset, to iterate yourself or to read with your own DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from wdspec.base.errors import UsageError
from wdspec.base.workers import WorkerCounters, end_with_parent
from wdspec.run.foreign import DataLoaderOptions, DataLoaderWorker, SingleProcessIteration
from wdspec.run.run import Run, make_run
from wdspec.run.state import State
from wdspec.run.stats import RunStats
from wdspec.run.steps import Here
from wdspec.run.stream import Resumable, Stream
from wdspec.shards.shards import plan_shards


class SpecDataset(Resumable, IterableDataset[Any]):
    """A mixed, shuffled stream of samples or batches, divided into epochs of exact length.

    Each ``iter()`` yields the rest of the current epoch (a whole epoch, unless the last iteration was left early).
    Without `epoch` the stream is endless. With `epoch: pass` each ``iter()`` yields the whole pass; only one after
    `load_state_dict` yields the rest of a pass.

    ``torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=K)`` also works, for one epoch, or for several
    with ``persistent_workers=True`` if K divides the batches of an epoch. It raises an error if it would repeat or
    skip samples. `wdspec.loader` does not have these limits.

    ``torchdata.stateful_dataloader.StatefulDataLoader(dataset, batch_size=None, num_workers=K)`` resumes from its state
    under the same conditions, with the same number of workers.

    Yields:
        With `batch` in the spec, dicts of field -> value, or tuples with `to_tuple`. A value is a tensor whose first
        dimension is the batch, a list (text, bytes, dicts), or what `ragged` and `collate` make. `__key__`, `__url__`
        and `__source__` are lists of strings. Without `batch`, single samples: dicts, or tuples.

    Raises:
        WdspecError: while iterating, if a shard or sample cannot be read or decoded; see `errors:` for skipping.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._stream = Stream(run, Here(run))
        self._worker: DataLoaderWorker | None = None
        self._starts = WorkerCounters()
        """Number of iterations of each DataLoader worker, in any process, since the last state was loaded."""
        self._options = DataLoaderOptions()
        """Options of the DataLoader that this was pickled for."""

    @property
    def stream(self) -> Stream:
        """The stream of this process, which may be a worker of a DataLoader that reads this dataset."""
        worker = self._find_worker()
        return self._stream if worker is None else worker.stream

    def _find_worker(self) -> DataLoaderWorker | None:
        """Return the DataLoader worker that this process is; None if it is not one."""
        info = get_worker_info()
        if info is None:
            return None
        if self._worker is None:
            end_with_parent()
            run = self._stream.run
            plan = plan_shards(run.spec, run.shards, run.seat.world_size, info.num_workers)
            run = make_run(plan, run.spec, run.shards, run.seat, info.num_workers)
            self._worker = DataLoaderWorker(
                run, self._stream.position, info.id, info.num_workers, self._starts, self._options
            )
        return self._worker

    @property
    def generator(self) -> None:
        """None. Accelerate looks for it before it divides what a dataset yields among the ranks, which is refused.

        Raises:
            UsageError: the caller is Accelerate, and there are several ranks.
        """
        refusal = DataLoaderOptions.of_callers().refusal(False, self.run.seat.world_size, 0)
        if refusal is not None:
            raise UsageError(refusal)

    def __iter__(self) -> Iterator[Any]:
        if (worker := self._find_worker()) is not None:
            return worker.items()
        options = self._options | DataLoaderOptions.of_callers()
        refusal = options.refusal(self.plan.batching.batched, self.run.seat.world_size, 0)
        if refusal is None and not options.is_there:
            return self._stream.items()
        return SingleProcessIteration(self._stream, refusal)

    def state_dict(self) -> State:
        worker = self._find_worker()
        return super().state_dict() if worker is None else worker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        if (worker := self._find_worker()) is not None:
            worker.load_state_dict(state, allow_changed)
            return
        super().load_state_dict(state, allow_changed=allow_changed)
        self._starts.clear()

    def set_shares(self, shares: Mapping[str, float], *, after: int = 0) -> int:
        self._check_alone("`set_shares` cannot reach them")
        return super().set_shares(shares, after=after)

    def skip_steps(self, first: int, last: int | None = None) -> None:
        self._check_alone("`skip_steps` cannot reach them")
        super().skip_steps(first, last)

    def _check_alone(self, problem: str) -> None:
        """Raise a UsageError if workers of a DataLoader read this, since nothing can be sent to them."""
        if get_worker_info() is not None or self._starts.any():
            raise UsageError(
                f"workers of a DataLoader read this dataset, and {problem}; use wdspec.loader(spec, num_workers=…)"
            )

    def stats(self) -> RunStats:
        """Return the counts of this process: samples delivered, dropped and skipped by source, and more.

        Raises:
            UsageError: workers of a DataLoader read this dataset, and keep their counts.
        """
        self._check_alone("each keeps its own counts, which only a Loader adds up")
        return replace(self._stream.stats(), waited=None)  # all of the time is waiting

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(source.name for source in self.run.spec.sources)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None, "_options": DataLoaderOptions.of_callers()}
