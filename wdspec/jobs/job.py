"""The driver of all work over shards: `check`, `stats`, `lock` and `process` run on it.

    spec ──of_spec──▶ tasks, one per shard ──▶ engine (this process, others, a cluster) ──▶ outcomes ──▶ ShardJob

A job knows which tasks are done already, and collects the outcomes of the others. `ShardJob.run_tasks` does the rest:
it shows progress, retries failed shards, and at the end, also after an error or Ctrl-C, closes the engine and saves the
outcomes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Self, TypeVar
from uuid import uuid4

from wdspec.base.errors import SpecError, UsageError, WdspecError, warn_user
from wdspec.base.process import PerProcess
from wdspec.base.progress import progress
from wdspec.fields.encode import EncoderMissingError
from wdspec.jobs.engine import Engine, termination_ends_in_order
from wdspec.planning.plan import Plan
from wdspec.read.batch_map import BatchCallError, BatchMap
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.shard import Piece
from wdspec.read.transform import Process, SourceParts, UserFunctions
from wdspec.shards.shards import Shards, plan_shards
from wdspec.spec.files import MOST_DATA, read_from_disk, reason_of
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

T = TypeVar("T", bound="ShardTask")
R = TypeVar("R")
V = TypeVar("V")

SAVE_EVERY = 30.0
"""What a job has collected is saved about every this many seconds."""
_turn = PerProcess(threading.RLock)
"""Held by the thread to which the random generators are lent: the threads of a Dask worker share them."""


class _MapsOfThread(threading.local):
    """The user functions of the current job of a thread."""

    job = ""

    def of(self, job: str) -> UserFunctions:
        if job != self.job:
            self.job, self.maps = job, UserFunctions(turn=_turn.value)
        return self.maps


_maps = PerProcess(_MapsOfThread)


@dataclass(frozen=True)
class ShardTask:
    """One shard that a job works on."""

    source: str
    """Name of its source."""
    number: int
    """Its index among the shards of the source; it keys the random numbers of its samples."""
    shard: ShardUrl


@dataclass(frozen=True)
class ReadTask(ShardTask):
    """A shard to read, with everything that a process on any machine needs; can be pickled."""

    parts: SourceParts
    seed: int
    job: str
    """Identifies the job: classes that `map` names are built once per job in each thread."""
    directory: str
    """Appended to `sys.path`, as it may contain modules with user functions."""
    batches: BatchMap | None
    """`map_batches` of the spec, for `final_samples`."""

    @classmethod
    def of_spec(
        cls,
        spec: Spec,
        sources: Iterable[Source],
        shards: Shards,
        parts: Mapping[str, SourceParts],
        choose: Callable[[Source, int, ShardUrl], Mapping[str, Any] | None],
    ) -> list[Self]:
        """Create a task for each shard of some sources of a spec, source by source.

        Args:
            spec: the spec.
            sources: those of its mix, or of its companions, too.
            shards: its shards.
            parts: how each source is read.
            choose: maps source, number and shard to the fields that a subclass adds; None for no task.
        """
        common = spec.seed, uuid4().hex, os.getcwd()
        return [
            cls(source.name, number, shard, parts[source.name], *common, batches, **more)
            for source in sources
            for batches in [BatchMap.of(spec.by_which(source), source, parts[source.name])]
            for number, shard in enumerate(shards.lists[source.name])
            if (more := choose(source, number, shard)) is not None
        ]

    def build_process(self, budget: ErrorBudget) -> tuple[Process, AbstractContextManager[object]]:
        """Build the function that applies the steps of the source to raw samples, and the context to call it in.

        A sample's random numbers depend on the seed, its source, its shard's number and its index, but not on the
        process or on earlier samples.
        """
        if self.directory not in sys.path:
            sys.path.append(self.directory)
        maps = _maps.value.of(self.job)
        generators = maps.generators if self.parts.transform.has_functions else None
        process = self.parts.transform.build(budget, self.seed, self.number, maps, self.parts.open)
        return self.parts.choosing(process, budget), generators or nullcontext()

    def samples(
        self, budget: ErrorBudget, see: Callable[[dict[str, Any]], None] | None = None
    ) -> Generator[dict[str, Any]]:
        """Yield the samples of the shard in order, after the steps of its source. Closing this closes the shard.

        Args:
            budget: handles errors.
            see: called with each raw sample; one that names objects has them.
        """
        task, objects = self, self.parts.transform.objects
        if see is not None and objects is not None:
            transform = replace(self.parts.transform, objects=replace(objects, see=see))
            task, see = replace(self, parts=replace(self.parts, transform=transform)), None
        process, lent = task.build_process(budget)
        url = self.shard.text
        opened = self.parts.open(Piece(self.shard), on_error=lambda error: budget(error, "shard", url=url))
        with closing(opened):
            items = ((raw, opened.next_index - 1) for raw in opened)
            for raw, index in self.parts.ahead(items, itemgetter(0), budget):
                if see is not None:
                    see(raw)
                with lent:
                    sample = process(raw, index)
                if sample is not None:
                    yield sample

    def final_samples(
        self, budget: ErrorBudget, see: Callable[[dict[str, Any]], None] | None = None
    ) -> Generator[dict[str, Any]]:
        """Yield the samples of the shard in order, after `map_batches`, too, for jobs that write or return them.

        Args:
            budget, see: as for `samples`.
        """
        samples = self.samples(budget, see)
        if self.batches is None:
            return samples
        return self.batches.run(samples, budget, self.seed, self.number, _maps.value.of(self.job))


def gpus_of(spec: Spec) -> float:
    """The GPUs that each process of a job over a spec needs, if the job runs `map_batches`."""
    return 0 if spec.map_batches is None else spec.map_batches.gpus


def check_each_sample(spec: Spec, what: str) -> None:
    """Raise a UsageError for a spec with a `stage` or companions, whose samples cannot be read shard by shard.

    Args:
        what: what reads them, for the message.
    """
    if spec.stage is not None:
        raise UsageError(
            f"`stage: {spec.stage.name}` combines samples, but {what} handles each sample separately: write "
            "`stage: null` in an environment for it"
        )
    owner = next((source for source in spec.sources if source.companions), None)
    if owner is not None:
        raise UsageError(
            f"`companions` are drawn in the order of a run, but {what} reads shard by shard: write "
            "`companions: null` in an environment for it, and remove what reads them",
            source=owner.name,
        )


class ShardFailed(NamedTuple):
    """Why there is no result for a shard."""

    cause: str
    detail: str = ""
    """The lines of user code that led to it; empty for wdspec's errors."""
    is_general: bool = False
    """Whether it is no fault of this shard, so that the others would most likely fail, too."""


class ShardJob(Generic[T, R]):
    """The base of jobs. Subclasses collect outcomes."""

    title = "shards"
    """Title of the progress bar."""
    reports_failures = False
    """Whether to print each failure at once."""
    stops_early = False
    """Whether to stop at the first failure that is no fault of its shard."""

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        """Additional columns of the progress bar: name -> (format, a `LiveCount`)."""
        return {}

    def is_done(self, task: T) -> bool:
        """Whether the result of a task exists already."""
        return False

    def take(self, task: T, outcome: R | ShardFailed) -> None:
        """Collect the final outcome of a task. Tasks come in any order."""
        raise NotImplementedError

    def keep(self) -> None:
        """Save the collected outcomes; called from time to time, and at the end of the job, also after an error."""

    def run_tasks(
        self, do: Callable[[T], R], tasks: Sequence[T], engine: Engine, *, retries: int = 0
    ) -> None:
        """Work on the shards of the job.

        Args:
            do: works on one shard; a function of a module, as other processes import it.
            tasks: the shards.
            engine: runs `do`; closed at the end.
            retries: how often a failed shard is retried, after all others.
        """
        bars = progress(self.title, len(tasks), drawn=bool(tasks), **self.columns())
        with termination_ends_in_order(), bars as bar:
            try:
                left, saved = [], time.monotonic()
                for task in tasks:
                    if self.is_done(task):
                        bar.advance()
                    else:
                        left.append(task)
                stops = False
                # What failed and is to be tried again, by `id`.
                waiting: dict[int, tuple[T, ShardFailed]] = {}
                for tries_left in range(retries, -1, -1):
                    if not left or stops:
                        break
                    with closing(engine.run(partial(_attempt, do), left, ShardFailed)) as outcomes:
                        for task, outcome in outcomes:
                            waiting.pop(id(task), None)
                            is_failed = isinstance(outcome, ShardFailed)
                            if isinstance(outcome, ShardFailed):
                                stops = outcome.is_general and self.stops_early
                            is_final = not (tries_left and is_failed) or stops
                            if isinstance(outcome, ShardFailed) and not is_final:
                                waiting[id(task)] = task, outcome
                            else:
                                self.take(task, outcome)
                            if time.monotonic() - saved > SAVE_EVERY:
                                self.keep()
                                saved = time.monotonic()
                            if isinstance(outcome, ShardFailed) and self.reports_failures:
                                again = "" if is_final else "; will be retried"
                                bar.note(f"failed: {task.shard.text}: {outcome.cause}{again}")
                            bar.advance(int(is_final))
                            if stops:
                                break
                    left = [task for task, _ in waiting.values()]
                for task, outcome in waiting.values():  # the job has stopped before it tried them again
                    self.take(task, outcome)
            finally:
                engine.close()
                self.keep()


class LiveCount:
    """A number in a column of a progress bar, which is computed each time it is shown."""

    def __init__(self, count: Callable[[], float]) -> None:
        self._count = count

    def __format__(self, form: str) -> str:
        return format(self._count(), form)


def measure_rate(count: Callable[[], int]) -> LiveCount:
    """The rate in MB/s of a growing number of bytes, from now."""
    started = time.monotonic()
    return LiveCount(lambda: count() / 1e6 / max(1e-3, time.monotonic() - started))


def skip_columns(
    spec: Spec, skipped: int | LiveCount = 0, dropped: int | LiveCount = 0
) -> dict[str, tuple[str, Any]]:
    """Columns for samples that training does not get: `skipped` if a source skips errors, `dropped` if one may drop."""
    columns = {"skipped": ("{:,} skipped", skipped), "dropped": ("{:,} dropped", dropped)}
    drops = frozenset[str]().union(*(source.drops for source in spec.sources))
    return {name: column for name, column in columns.items() if name in drops}


def _attempt(do: Callable[[T], R], task: T) -> R | ShardFailed:
    """Work on one shard. Raises no Exception, so that every engine returns the cause of a failure."""
    try:
        return do(task)
    except WdspecError as error:
        return ShardFailed(str(error), is_general=is_general(error))
    except SystemExit as error:
        return ShardFailed(f"a function that the spec names ended its process: exit({error.code!r})")
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        cause = " ".join(f"{type(error).__name__}: {error}{f' ({notes})' if notes else ''}".split())
        return ShardFailed(cause, lines_of_user_code(error))


def is_general(error: BaseException) -> bool:
    """Whether an error is one of the spec or the code, so that all shards would most likely raise it."""
    return isinstance(error, (SpecError, EncoderMissingError, BatchCallError))


def lines_of_user_code(error: Exception) -> str:
    """The last lines outside wdspec that led to an error, as a traceback shows them."""
    others = (os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen ")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(others)]
    return "".join(traceback.format_list(frames[-3:])).rstrip()


def read_earlier(path: str, mark: bytes, command: str, parse: Callable[[bytes], V]) -> tuple[V | None, bytes]:
    """Read the file of an earlier run of a command; return its value and bytes.

    The value is None if the file does not exist, or is going to be replaced, since it is damaged or has another format;
    a warning says so.

    Args:
        path: of the file.
        mark: bytes among the first 100 of such files.
        command: name of the command.
        parse: parses the file; raises UsageError for damaged files.

    Raises:
        UsageError: the file is of another kind, or cannot be read.
    """
    try:
        text = read_from_disk(path, True, MOST_DATA)
    except FileNotFoundError:
        return None, b""
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {reason_of(error)}; give another name") from None
    try:
        return parse(text), text
    except UsageError as error:
        if text.strip() and mark not in text[:100]:
            raise UsageError(f"`{path}` is not a file of `wdspec {command}`; give another name") from None
        if text.strip():
            warn_user(f"`{path}` is replaced, and all shards are read again: {error.message}")
        return None, b""


def make_plan_if_possible(spec: Spec, shards: Shards) -> Plan | None:
    """The plan for the topology in the spec; None if it cannot be made, or needs counts of all samples."""
    if spec.is_pass:
        return None
    try:
        return plan_shards(spec, shards, 1, spec.loader.workers)
    except WdspecError:  # reported by `validate` and `explain`
        return None
