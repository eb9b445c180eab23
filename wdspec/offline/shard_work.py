"""One task at work: a shard read, its samples mapped, and written whole or not at all."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, NamedTuple

from wdspec.base.errors import WdspecError
from wdspec.base.process import PerProcess
from wdspec.offline.job import JobOptions, ShardTask
from wdspec.read.budget import Budget
from wdspec.read.shard import Piece
from wdspec.read.transform import MapSteps, SourceParts
from wdspec.urls.urls import ShardUrl
from wdspec.write.shard_writer import open_writer


class ShardDone(NamedTuple):
    """A shard that was written."""

    written: int
    """Samples."""
    dropped: int
    """Samples left out by `select` or `missing: skip`."""
    skipped: int
    """Errors that the policy skipped."""
    size: int
    """Bytes of the uncompressed shard."""
    seconds: float


class ShardFailed(NamedTuple):
    """A shard that was not written; nothing of it is left."""

    cause: str
    """One line."""
    detail: str
    """The lines of the user's own code that led to it, where it was none of wdspec's own errors."""


Outcome = ShardDone | ShardFailed


class ShardWork(NamedTuple):
    """Everything that a process on any machine needs for one task; pickles."""

    task: ShardTask
    parts: SourceParts
    options: JobOptions
    directory: str
    """Joins `sys.path`, last: the user's modules may lie there."""
    job: str
    """Of each job another text: classes that `map` names are built once for it, in each thread that works on it."""


class _MapsOfThread(threading.local):
    """The steps of the job that a thread works on."""

    job = ""

    def of(self, job: str) -> MapSteps:
        if job != self.job:
            self.job, self.maps = job, MapSteps(threading.current_thread() is threading.main_thread())
        return self.maps


_maps = PerProcess(_MapsOfThread)


def carry_out(work: ShardWork) -> Outcome:
    """Does one task. Never raises an Exception, so that every engine brings back what went wrong."""
    if work.directory not in sys.path:
        sys.path.append(work.directory)
    try:
        return process_shard(work)
    except WdspecError as error:
        return ShardFailed(str(error.at(source=work.task.source, url=work.task.shard.text)), "")
    except SystemExit as error:
        return ShardFailed(f"a function that the spec names ended its process: exit({error.code!r})", "")
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        cause = " ".join(f"{type(error).__name__}: {error}{f' ({notes})' if notes else ''}".split())
        return ShardFailed(cause, users_lines(error))


def lost_shard(why: str) -> Outcome:
    """What became of a task whose process ended."""
    return ShardFailed(why, "")


def users_lines(error: Exception) -> str:
    """The last lines of code that led to an error and are none of wdspec's, as a traceback shows them."""
    own = os.path.dirname(os.path.dirname(__file__)) + os.sep
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(own)]
    return "".join(traceback.format_list(frames[-3:])).rstrip()


def process_shard(work: ShardWork) -> ShardDone:
    """Reads a shard in order, through the steps of its source, into a new one that appears when it is whole.

    A sample's random numbers depend on the seed, its source, its shard's number and its place, and not on who
    works on it, or on what came before.

    Raises:
        WdspecError: what reading, decoding or encoding raises, under the source's error policy.
        Exception: what the user's functions raise.
    """
    started = time.monotonic()
    task, parts, options = work.task, work.parts, work.options
    budget = Budget(parts.errors, task.source)
    with closing(samples_in_order(parts, task.shard, task.number, options.seed, work.job, budget)) as samples:
        output = options.outputs.output(task.output)
        with open_writer(output, name=task.output, allow_pickle=options.allow_pickle) as writer:
            for sample in samples:
                _write(writer, sample, budget)
                if options.limit is not None and writer.count >= options.limit:
                    break
    dropped, skipped = sum(budget.dropped.values()), sum(budget.skipped.values())
    return ShardDone(writer.count, dropped, skipped, writer.size, time.monotonic() - started)


def samples_in_order(
    parts: SourceParts, shard: ShardUrl, number: int, seed: int, job: str, budget: Budget
) -> Generator[dict[str, Any]]:
    """The samples of a shard, through the steps of its source; whoever closes this closes the shard.

    Args:
        parts: of the source.
        shard: of this source, with its number there.
        number: see above.
        seed: of the spec.
        job: as `ShardWork` has it.
        budget: what happens to errors.
    """
    maps = _maps.value.of(job)
    generators = maps.generators if parts.transform.has_functions else None
    lent: AbstractContextManager[object] = generators or nullcontext()
    process = parts.transform.build(budget, seed, number, maps, parts.open)
    opened = parts.open(Piece(shard), on_error=lambda error: budget(error, "shard", url=shard.text))
    with closing(opened):
        for raw in opened:
            with lent:
                sample = process(raw, opened.next_index - 1)
            if sample is not None:
                yield sample


def _write(writer: Any, sample: dict[str, Any], budget: Budget) -> None:
    try:
        packed = writer.pack(sample)
    except WdspecError as error:
        budget(error, "decode", url=sample.get("__url__"), key=sample.get("__key__"))
    else:
        writer.put(packed)
