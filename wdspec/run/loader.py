"""The Loader: a run's stream for a training loop, read by worker processes, threads or this process."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils.pin_memory import pin_memory

from wdspec.base.errors import UsageError, did_you_mean
from wdspec.base.process import MOST_WORKERS
from wdspec.run.processes import Processes
from wdspec.run.run import Run
from wdspec.run.stats import RunStats, StatsLog
from wdspec.run.steps import Here, Steps
from wdspec.run.stream import Resumable, Stream
from wdspec.run.threads import AHEAD, Threads
from wdspec.spec.language.options import LoaderOptions

_OURS = {
    "batch_size": "set `batch:` in the spec",
    "shuffle": "set `shuffle:` and `order:` in the spec",
    "sampler": "the plan decides the order",
    "batch_sampler": "the plan decides the order",
    "drop_last": "all batches are whole",
    "collate_fn": "batches are collated in the workers; use `map:` for other shapes",
    "dataset": "the spec says what is read",
    "workers": "write num_workers=, as for torch's DataLoader (`loader.workers` in a spec, `--workers` in commands)",
}
_OF_PROCESSES = frozenset({"worker_init_fn", "multiprocessing_context", "persistent_workers"})
_TORCHS = frozenset(inspect.signature(DataLoader).parameters)


class Loader(Resumable):
    """Batches (or samples) of a spec, read by worker processes, or threads, epoch after epoch.

    Iterating gives the rest of the current epoch; leaving early loses and repeats nothing: the next iteration
    resumes with the next batch. With `epoch: pass` every iteration is a whole pass, the same each time; only one
    after `load_state_dict` is the rest of a pass. All ranks get the same number of batches. A context manager:
    `close` ends the worker processes.

    Args:
        run: what is read.
        num_workers: reading processes, or threads; 0 reads in this process.
        threads: whether to read in threads.
        torch_arguments: of torch's DataLoader.

    Yields:
        What `SpecDataset` yields.

    Raises:
        WdspecError: while iterating, whatever is wrong with shards or samples, as in one process.
    """

    def __init__(self, run: Run, num_workers: int, *, threads: bool = False, **torch_arguments: Any) -> None:
        _check_arguments(num_workers, threads, torch_arguments)
        self._stream = Stream(run, _choose_steps(run, num_workers, threads, torch_arguments))

    @property
    def stream(self) -> Stream:
        """Where the iterations are."""
        return self._stream

    def __iter__(self) -> Iterator[Any]:
        return self._stream.items(self._stream.begin())

    def stats(self) -> RunStats:
        """What all workers of this rank have read so far: delivered, dropped and skipped by source, and more.

        Counting takes less than a hundredth of the time of reading; asking takes some microseconds a source.
        """
        return self._stream.stats()

    def log_stats(self, file: str | None = None, *, every: float = 60.0) -> None:
        """Report from now on what was read, in lines of JSON in a file, or as text in the log `wdspec` (level INFO).

        Args:
            file: lines are added to it; None for the log.
            every: seconds from one line to the next, or more: a line is written when a batch is given.

        Raises:
            UsageError: `every` is not a positive number.
        """
        if not every > 0:
            raise UsageError(f"`every` is a number of seconds above 0, not {every!r}")
        log = StatsLog(every, file)
        self._stream.on_step = lambda: log.tick(self.stats)

    def close(self) -> None:
        """End the worker processes and close open shards; iterating again starts new ones."""
        self._stream.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def choose_arguments(
    options: LoaderOptions, num_workers: int | None, torch_arguments: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """The number of workers and the arguments of a `Loader`: those of the caller, else the spec's `loader:`."""
    workers = options.workers if num_workers is None else num_workers
    arguments: dict[str, Any] = {"pin_memory": options.pin_memory, "threads": options.kind == "threads"}
    if workers:
        if options.timeout is not None:
            arguments["timeout"] = options.timeout
        if options.kind == "processes":
            # Persistent workers keep what they hold from one epoch to the next; threads always do.
            arguments["persistent_workers"] = True if options.persistent is None else options.persistent
        if options.prefetch is not None:
            arguments["prefetch_factor"] = options.prefetch
    return workers, {**arguments, **torch_arguments}


def _check_arguments(num_workers: int, threads: bool, arguments: dict[str, Any]) -> None:
    """Raise a UsageError for arguments that the spec decides, that torch does not have, or that threads cannot use."""
    for name in arguments:
        if name in _OURS or name not in _TORCHS:
            remedy = (
                _OURS.get(name) or did_you_mean(name, _TORCHS) or "neither is it one of torch's DataLoader"
            )
            raise UsageError(f"`{name}` is no argument of wdspec.loader: {remedy}")
    if arguments.get("in_order") is False:
        raise UsageError("`in_order=False` would give batches in no order that a state could describe")
    if not 0 <= num_workers <= MOST_WORKERS:
        raise UsageError(f"num_workers must be from 0 to {MOST_WORKERS:,}, not {num_workers}")
    if threads and num_workers:
        for name in _OF_PROCESSES & arguments.keys():
            raise UsageError(f"`{name}` is for worker processes; leave out `loader: {{kind: threads}}`")


def _choose_steps(run: Run, workers: int, threads: bool, arguments: dict[str, Any]) -> Steps:
    """What reads the steps: processes, threads, or this process."""
    # As torch decides it: where pinned memory is wanted and there is a device to copy to.
    pins = bool(arguments.get("pin_memory")) and torch.accelerator.is_available()
    if workers and not threads:
        return Processes(run, workers, arguments)
    if workers:
        ahead, timeout = arguments.pop("prefetch_factor", None), arguments.pop("timeout", 0)
        _check_by_torch(arguments)
        return Threads(run, workers, AHEAD if ahead is None else ahead, timeout, pins)
    _check_by_torch(arguments)
    return Here(run, notes_states=True, pin=pin_memory if pins else None)


def _check_by_torch(arguments: dict[str, Any]) -> None:
    """Have torch refuse what its DataLoader refuses without worker processes."""
    if arguments.keys() - {"pin_memory"}:
        DataLoader[Any](TensorDataset(), batch_size=None, num_workers=0, **arguments)
