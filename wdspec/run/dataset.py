"""A run as a torch dataset, to iterate yourself or to read with your own DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from wdspec.base.errors import UsageError
from wdspec.base.workers import WorkerCounters, end_with_parent
from wdspec.run.foreign import DataLoaderOptions, DataLoaderWorker, SingleProcessIteration
from wdspec.run.run import Run
from wdspec.run.state import State
from wdspec.run.stats import RunStats
from wdspec.run.steps import Here
from wdspec.run.stream import Resumable, Stream


class SpecDataset(Resumable, IterableDataset[Any]):
    """A mixed, shuffled, endless stream of samples or batches, cut into epochs of exact length.

    Each ``iter()`` gives the rest of the current epoch (all of it, unless the last iteration was left early),
    and the next ``iter()`` resumes after it. Without `epoch` the stream has no end. With `epoch: pass` each
    ``iter()`` gives the whole pass again; only one after `load_state_dict` gives the rest of a pass.

    ``torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=K)`` works too, for one epoch, or for
    several with ``persistent_workers=True`` when K divides the batches of an epoch; where it would repeat or
    skip samples it raises instead. `wdspec.loader` has no such limits.

    ``torchdata.stateful_dataloader.StatefulDataLoader(dataset, batch_size=None, num_workers=K)`` keeps its state,
    under the same conditions; it resumes with the same number of workers only.

    Yields:
        With `batch` in the spec, a dict of field -> tensor (text, bytes, dicts: a list; or what `ragged` and `collate`
        ask for), with `__key__`, `__url__`, `__source__` as lists of text; or a tuple of such values with `to_tuple`.
        Without `batch`, single samples: dicts, or tuples.

    Raises:
        WdspecError: while iterating, whatever is wrong with shards or samples (see `errors:` for skipping).
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._stream = Stream(run, Here(run))
        self._worker: DataLoaderWorker | None = None
        self._starts = WorkerCounters()
        """Iterations started by each DataLoader worker, in any process, since the last state was loaded."""
        self._options = DataLoaderOptions()
        """Of the DataLoader that this was pickled for."""

    @property
    def stream(self) -> Stream:
        """Where this process is: by itself, or as a worker of a DataLoader that reads this dataset."""
        worker = self._of_worker()
        return self._stream if worker is None else worker.stream

    def _of_worker(self) -> DataLoaderWorker | None:
        """What this process reads as a worker of a DataLoader; None where it is not a worker."""
        info = get_worker_info()
        if info is None:
            return None
        if self._worker is None:
            end_with_parent()
            run = self._stream.run.with_workers(info.num_workers)
            self._worker = DataLoaderWorker(
                run, self._stream.position, info.id, info.num_workers, self._starts, self._options
            )
        return self._worker

    def __iter__(self) -> Iterator[Any]:
        if (worker := self._of_worker()) is not None:
            return worker.items()
        options = self._options | DataLoaderOptions.of_callers()
        refusal = options.refusal(self.plan.batching.batched, self.run.seat.world_size, 0)
        if refusal is None and not options.is_there:
            return self._stream.items()
        return SingleProcessIteration(self._stream, refusal)

    def state_dict(self) -> State:
        worker = self._of_worker()
        return super().state_dict() if worker is None else worker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        if (worker := self._of_worker()) is not None:
            worker.load_state_dict(state, allow_changed)
            return
        super().load_state_dict(state, allow_changed=allow_changed)
        self._starts.clear()

    def set_shares(self, shares: Mapping[str, float], *, after: int = 0) -> int:
        self._check_alone("draw by other shares")
        return super().set_shares(shares, after=after)

    def skip_steps(self, first: int, last: int | None = None) -> None:
        self._check_alone("skip steps")
        super().skip_steps(first, last)

    def _check_alone(self, what: str) -> None:
        """Raise a UsageError where workers of a DataLoader read this, which nothing can be sent to."""
        if self._is_read_by_workers():
            raise UsageError(
                f"workers of a DataLoader read this, and cannot be told to {what}; use wdspec.loader(spec, "
                "num_workers=…)"
            )

    def stats(self) -> RunStats:
        """What was read so far in this process: of each source delivered, dropped, skipped, and more.

        Raises:
            UsageError: workers of a DataLoader read this: what they count stays with them.
        """
        if self._is_read_by_workers():
            raise UsageError(
                "workers of a DataLoader read this, each for itself, and nobody has the counts of all; use "
                "wdspec.loader(spec, num_workers=…), whose stats() are those of all its workers"
            )
        return replace(self._stream.stats(), waited=None)  # reading is all that this does

    def _is_read_by_workers(self) -> bool:
        return get_worker_info() is not None or self._starts.any()

    def close(self) -> None:
        """Close open shards; an iteration in progress ends, and the next one resumes where this is."""
        self.stream.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(source.name for source in self.run.spec.sources)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None, "_options": DataLoaderOptions.of_callers()}
