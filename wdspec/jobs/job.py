"""The driver of all work over shards: `check`, `stats`, `lock` and `process` run on it.

    spec ──of_spec──▶ tasks, one per shard ──▶ engine (this process, others, a cluster) ──▶ outcomes ──▶ ShardJob

A job knows which tasks need no work and collects the outcomes of the others. `ShardJob.run_tasks` does the rest: it
shows progress, tries failed shards again, and however it ends, by an error or Ctrl-C, closes the engine and lets the
job keep what it has found so far.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar
from uuid import uuid4

from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.process import PerProcess
from wdspec.base.progress import progress
from wdspec.jobs.engine import Engine
from wdspec.read.budget import Budget
from wdspec.read.shard import Piece
from wdspec.read.transform import MapSteps, Process, SourceParts
from wdspec.shards.shards import Shards
from wdspec.spec.files import MOST_DATA, read_from_disk, reason_of
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

T = TypeVar("T", bound="ShardTask")
R = TypeVar("R")
V = TypeVar("V")


class _MapsOfThread(threading.local):
    """The user functions of the job that a thread works on."""

    job = ""

    def of(self, job: str) -> MapSteps:
        if job != self.job:
            self.job, self.maps = job, MapSteps(threading.current_thread() is threading.main_thread())
        return self.maps


_maps = PerProcess(_MapsOfThread)


@dataclass(frozen=True)
class ShardTask:
    """One shard that a job works on."""

    source: str
    """Name of its source."""
    number: int
    """Its index among the shards of the source; random numbers of its samples are keyed by it."""
    shard: ShardUrl


@dataclass(frozen=True)
class ReadTask(ShardTask):
    """A shard to read, with everything that a process on any machine needs for it; pickles."""

    parts: SourceParts
    seed: int
    job: str
    """Different for each job: classes that `map` names are built once per job, in each thread that works on it."""
    directory: str
    """Appended to `sys.path`: modules with user functions may be in it."""

    @classmethod
    def of_spec(
        cls,
        spec: Spec,
        shards: Shards,
        parts: Mapping[str, SourceParts],
        choose: Callable[[Source, int, ShardUrl], Mapping[str, Any] | None],
    ) -> list[Self]:
        """A task for each shard of a spec, source by source.

        Args:
            spec: the spec.
            shards: its shards.
            parts: how each source is read.
            choose: from source, number and shard to the fields that a subclass adds; None for no task.
        """
        job, directory = uuid4().hex, os.getcwd()
        return [
            cls(
                source.name,
                number,
                shard,
                parts[source.name],
                spec.seed,
                job,
                directory,
                **more,
            )
            for source in spec.sources
            for number, shard in enumerate(shards.lists[source.name])
            if (more := choose(source, number, shard)) is not None
        ]

    def build_process(self, budget: Budget) -> tuple[Process, AbstractContextManager[object]]:
        """The function that takes raw samples through the steps of the source, and the context to call it in.

        A sample's random numbers depend on the seed, its source, its shard's number and its index, and not on the
        process that works on it, or on earlier samples.
        """
        if self.directory not in sys.path:
            sys.path.append(self.directory)
        maps = _maps.value.of(self.job)
        generators = maps.generators if self.parts.transform.has_functions else None
        process = self.parts.transform.build(budget, self.seed, self.number, maps, self.parts.open)
        return process, generators or nullcontext()

    def samples(self, budget: Budget) -> Generator[dict[str, Any]]:
        """The samples of the shard in order, through the steps of its source. Closing this closes the shard.

        Args:
            budget: what happens to errors.
        """
        process, lent = self.build_process(budget)
        url = self.shard.text
        opened = self.parts.open(Piece(self.shard), on_error=lambda error: budget(error, "shard", url=url))
        with closing(opened):
            for raw in opened:
                with lent:
                    sample = process(raw, opened.next_index - 1)
                if sample is not None:
                    yield sample


class ShardFailed(NamedTuple):
    """Why there is no result for a shard."""

    cause: str
    detail: str = ""
    """The lines of user code that led to it; empty for wdspec's own errors."""


class ShardJob(Generic[T, R]):
    """A job as the driver sees it. Subclasses collect outcomes."""

    title = "shards"
    """Of the progress bar."""
    reports_failures = False
    """Whether to print each failure at once."""

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        """More columns of the bar: name -> (format, a `LiveCount`)."""
        return {}

    def is_done(self, task: T) -> bool:
        """Whether a task needs no work, since its result is there already."""
        return False

    def take(self, task: T, outcome: R | ShardFailed) -> None:
        """Collect the final outcome of a task. Tasks come in any order."""
        raise NotImplementedError

    def keep(self) -> None:
        """Save what was collected so far; called once, however the job ends."""

    def run_tasks(
        self, do: Callable[[T], R], tasks: Sequence[T], engine: Engine, *, retries: int = 0
    ) -> None:
        """Work on the shards of the job.

        Args:
            do: works on one shard; a function of a module, as other processes import it.
            tasks: the shards.
            engine: runs `do`; closed at the end.
            retries: how often a failed shard is tried again, after all others.
        """
        with progress(self.title, len(tasks), drawn=bool(tasks), **self.columns()) as bar:
            try:
                left = []
                for task in tasks:
                    if self.is_done(task):
                        bar.advance()
                    else:
                        left.append(task)
                for tries_left in range(retries, -1, -1):
                    if not left:
                        break
                    failed = []
                    with closing(engine.run(partial(_attempt, do), left, ShardFailed)) as outcomes:
                        for task, outcome in outcomes:
                            is_final = not (tries_left and isinstance(outcome, ShardFailed))
                            if is_final:
                                self.take(task, outcome)
                            else:
                                failed.append(task)
                            if isinstance(outcome, ShardFailed) and self.reports_failures:
                                again = "" if is_final else "; will be tried again"
                                bar.note(f"failed: {task.shard.text}: {outcome.cause}{again}")
                            bar.advance(int(is_final))
                    left = failed
            finally:
                engine.close()
                self.keep()


class LiveCount:
    """A number that is looked up each time it is shown, in a column of a progress bar."""

    def __init__(self, count: Callable[[], float]) -> None:
        self._count = count

    def __format__(self, form: str) -> str:
        return format(self._count(), form)


def measure_rate(count: Callable[[], int]) -> LiveCount:
    """MB/s of a number of bytes that grows from now on."""
    started = time.monotonic()
    return LiveCount(lambda: count() / 1e6 / max(1e-3, time.monotonic() - started))


def skip_columns(
    spec: Spec, skipped: int | LiveCount = 0, dropped: int | LiveCount = 0
) -> dict[str, tuple[str, Any]]:
    """Columns for samples that training does not get: `skipped` if a source skips errors, `dropped` if one may drop."""
    columns = {"skipped": ("{:,} skipped", skipped), "dropped": ("{:,} left out", dropped)}
    drops = frozenset[str]().union(*(source.drops for source in spec.sources))
    return {name: column for name, column in columns.items() if name in drops}


def _attempt(do: Callable[[T], R], task: T) -> R | ShardFailed:
    """Work on one shard. Raises no Exception, so that every engine brings back what went wrong."""
    try:
        return do(task)
    except WdspecError as error:
        return ShardFailed(str(error))
    except SystemExit as error:
        return ShardFailed(f"a function that the spec names ended its process: exit({error.code!r})")
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        cause = " ".join(f"{type(error).__name__}: {error}{f' ({notes})' if notes else ''}".split())
        return ShardFailed(cause, lines_of_user_code(error))


def lines_of_user_code(error: Exception) -> str:
    """The last lines outside wdspec that led to an error, as a traceback shows them."""
    own = os.path.dirname(os.path.dirname(__file__)) + os.sep
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(own)]
    return "".join(traceback.format_list(frames[-3:])).rstrip()


def read_earlier(path: str, mark: bytes, command: str, parse: Callable[[bytes], V]) -> tuple[V | None, bytes]:
    """What an earlier run of a command wrote to a file: its value and bytes.

    Without a file, or with a damaged one, which is going to be replaced, the value is None.

    Args:
        path: of the file.
        mark: among the first 100 bytes of what the command writes.
        command: its name.
        parse: makes the value; raises UsageError for damaged files.

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
    except UsageError:
        if text.strip() and mark not in text[:100]:
            raise UsageError(f"`{path}` is no file of `wdspec {command}`; give another name") from None
        return None, b""
