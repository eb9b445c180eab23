"""The `Loader`: reads a run in worker processes, threads, Ray actors or this process, for a training loop."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils.pin_memory import pin_memory

from wdspec.base.errors import UsageError, did_you_mean
from wdspec.base.process import MOST_WORKERS
from wdspec.run.processes import Processes
from wdspec.run.run import Run
from wdspec.run.stats import DriftWatch, RunStats, StatsLog
from wdspec.run.steps import Here, Steps
from wdspec.run.stream import Resumable, Stream
from wdspec.run.threads import AHEAD, Threads
from wdspec.spec.language.options import LoaderOptions

if TYPE_CHECKING:
    from wdspec.run.actors import Actors

Kind = Literal["processes", "threads", "ray"]

_OURS = {
    "batch_size": "set `batch:` in the spec",
    "shuffle": "set `shuffle:` and `order:` in the spec",
    "sampler": "the plan decides the order",
    "batch_sampler": "the plan decides the order",
    "drop_last": "every batch is full",
    "collate_fn": "write `batch: {size: …, collate: package.module:function}` in the spec; the function takes the list "
    "of samples",
    "dataset": "the spec lists the data",
    "workers": "write num_workers=, as for torch's DataLoader (`loader.workers` in a spec, `--workers` in commands)",
}
_OF_PROCESSES = frozenset({"worker_init_fn", "multiprocessing_context", "persistent_workers"})
_TORCHS = frozenset(inspect.signature(DataLoader).parameters)


class Loader(Resumable):
    """Batches (or samples) of a spec, read by worker processes, threads or Ray actors, epoch after epoch.

    Each iteration yields the rest of the current epoch. If you leave it early, no batch is lost or repeated: the next
    iteration resumes with the next batch. With `epoch: pass` every iteration is a whole pass, the same each time; only
    an iteration after `load_state_dict` is the rest of a pass. All ranks get the same number of batches.

    A loader is a context manager that shuts down its workers. An unclosed loader is closed at exit.

    Args:
        run: what to read.
        num_workers: number of workers; 0 reads in this process.
        kind: what the workers are.
        torch_arguments: arguments of torch's DataLoader.

    Yields:
        With `batch` in the spec, dicts of field -> value, or tuples with `to_tuple`. A value is a tensor whose first
        dimension is the batch, a list (text, bytes, dicts), or what `ragged` and `collate` make. `__key__`, `__url__`
        and `__source__` are lists of strings. Without `batch`, single samples: dicts, or tuples.

    Raises:
        WdspecError: while iterating, if a shard or sample cannot be read or decoded; see `errors:` for skipping.
        RuntimeError: while iterating, if a worker dies, or no batch arrives within `timeout`.
    """

    def __init__(
        self, run: Run, num_workers: int, *, kind: Kind = "processes", **torch_arguments: Any
    ) -> None:
        _check_arguments(num_workers, kind, torch_arguments)
        self._stream = Stream(run, _choose_steps(run, num_workers, kind, torch_arguments))
        if run.spec.mix.shares_in != "samples":
            drift = DriftWatch([source.name for source in run.plan.sources], run.mean_costs)
            self._stream.on_step["drift"] = lambda stream: drift.tick(stream.tally)

    @property
    def stream(self) -> Stream:
        """The stream of this process."""
        return self._stream

    def class_names(self, field: str) -> list[str] | dict[int, str]:
        """Return the names of the classes of a field that `make` makes by `label`; see `Spec.class_names`."""
        return self._stream.run.spec.class_names(field)

    def __iter__(self) -> Iterator[Any]:
        return self._stream.items(self._stream.start_iteration())

    def __getitem__(self, index: object) -> NoReturn:
        """Raise UsageError: a loader takes the place of a DataLoader, and not of a dataset."""
        raise UsageError(
            "a loader yields batches in order and has no single items: iterate over it in place of a DataLoader; in "
            "place of `Trainer(train_dataset=loader)` of transformers, write "
            "`wdspec.integrations.transformers.SpecTrainer(train_dataset=loader)`"
        )

    def stats(self) -> RunStats:
        """Return the counts of all workers of this rank: samples delivered, dropped, skipped, and more, by source.

        Counting takes less than 1% of the reading time; this call takes a few microseconds per source.
        """
        return self._stream.stats()

    def log_stats(self, file: str | None = None, *, every: float = 60.0) -> None:
        """Log the `stats` periodically: as lines of JSON to a file, or to the logger `wdspec` (level INFO).

        Call it once for each file and for the logger; a second call for the same one replaces the first.

        Args:
            file: a file to append to; None for the logger.
            every: minimum number of seconds between lines. A line is only written when a batch is yielded.

        Raises:
            UsageError: `every` is not a positive number.
        """
        if not every > 0:
            raise UsageError(f"`every` is a number of seconds above 0, not {every!r}")
        log = StatsLog(every, file)
        self._stream.on_step[f"log {file}"] = lambda stream: log.tick(stream.stats)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def choose_arguments(
    options: LoaderOptions, num_workers: int | None, torch_arguments: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Return the number of workers and the arguments of a `Loader`; the caller's win over the spec's `loader:`."""
    workers = options.workers if num_workers is None else num_workers
    arguments: dict[str, Any] = {"pin_memory": options.pin_memory, "kind": options.kind}
    if workers:
        set_in_spec = {"timeout": options.timeout, "prefetch_factor": options.prefetch}
        arguments |= {name: value for name, value in set_in_spec.items() if value is not None}
        if options.kind == "processes":
            # Persistent workers keep their buffers from one epoch to the next; threads always do.
            arguments["persistent_workers"] = True if options.persistent is None else options.persistent
    return workers, {**arguments, **torch_arguments}


def _check_arguments(num_workers: int, kind: Kind, arguments: dict[str, Any]) -> None:
    """Raise a UsageError for arguments that the spec decides, that torch lacks, or that only processes use."""
    for name in arguments:
        if name in _OURS or name not in _TORCHS:
            remedy = (
                _OURS.get(name) or did_you_mean(name, _TORCHS) or "torch's DataLoader does not have it either"
            )
            raise UsageError(f"`{name}` is not an argument of wdspec.loader: {remedy}")
    if arguments.get("in_order") is False:
        raise UsageError(
            "`in_order=False` would yield batches in an order that no state can describe; leave it out"
        )
    if not 0 <= num_workers <= MOST_WORKERS:
        raise UsageError(f"num_workers must be from 0 to {MOST_WORKERS:,}, not {num_workers}")
    if kind != "processes" and num_workers:
        for name in _OF_PROCESSES & arguments.keys():
            raise UsageError(
                f"`{name}` is for worker processes; remove it, or remove `loader: {{kind: {kind}}}`"
            )


def _choose_steps(run: Run, workers: int, kind: Kind, arguments: dict[str, Any]) -> Steps:
    """Return what reads the steps: processes, threads, Ray actors, or this process."""
    # As torch does: pin only where there is a device to copy to.
    pins = bool(arguments.get("pin_memory")) and torch.accelerator.is_available()
    if workers and kind == "processes":
        return Processes(run, workers, arguments)
    if workers:
        return _choose_others(run, workers, kind, pins, arguments)
    _check_by_torch(arguments)
    return Here(run, notes_states=True, pin=pin_memory if pins else None)


def _choose_others(
    run: Run, workers: int, kind: Kind, pins: bool, arguments: dict[str, Any]
) -> Threads | Actors:
    """Return threads or Ray actors, which read the steps."""
    ahead, timeout = arguments.pop("prefetch_factor", None), arguments.pop("timeout", 0)
    _check_by_torch(arguments)
    read_in: type[Threads | Actors] = Threads
    if kind == "ray":
        from wdspec.run.actors import Actors  # imports Ray

        read_in = Actors
    return read_in(run, workers, AHEAD if ahead is None else ahead, timeout, pins)


def _check_by_torch(arguments: dict[str, Any]) -> None:
    """Let torch reject what its DataLoader rejects without worker processes."""
    if arguments.keys() - {"pin_memory"}:
        DataLoader[Any](TensorDataset(), batch_size=None, num_workers=0, **arguments)
