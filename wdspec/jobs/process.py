"""What an offline job is to do: one task for each shard of a spec with `output:`. Describes only, and pickles.

One task at work: a shard read, its samples mapped, and written whole or not at all.

A job from its tasks to its report: what is there already is skipped, what failed is tried again.
"""

from __future__ import annotations

import os
import posixpath
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.process import PerProcess
from wdspec.jobs.engine import Engine
from wdspec.read.budget import Budget
from wdspec.read.shard import Piece
from wdspec.read.transform import MapSteps, SourceParts
from wdspec.shards.shards import ListedSpec
from wdspec.spec.language.locations import OutputOptions
from wdspec.spec.spec import Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.settings import ObjectLogin
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import ShardUrl, is_relative, scheme_of
from wdspec.write.choice import open_writer


class ShardTask(NamedTuple):
    """One shard to be read, and the one to be written of it."""

    source: str
    """Name of its source."""
    number: int
    """Its index among the shards of the source: what is random in its samples is keyed by it."""
    shard: ShardUrl
    output: str
    """Absolute path, or URL."""


class JobOptions(NamedTuple):
    """What is the same for all tasks of a job."""

    seed: int
    limit: int | None
    """Samples written of each shard, at most."""
    allow_pickle: bool
    outputs: Storage
    """Where shards are written; the rewrite rules of the environment apply, not those of the spec."""


@dataclass(frozen=True)
class Job:
    """All tasks of a spec, and how its sources are read."""

    parts: Mapping[str, SourceParts]
    tasks: tuple[ShardTask, ...]
    options: JobOptions


def job_of(spec: Spec) -> Job:
    """Lists the shards of a spec and says where each is to be written. A source whose share is 0 is left out.

    Raises:
        UsageError: the spec has no `output:`, or a `stage`; two shards would be written to one place, or one to itself.
        WdspecError: shards cannot be listed.
    """
    if spec.stage is not None:
        raise UsageError(
            f"`stage: {spec.stage.call}` makes other samples of several, and `process` takes each by itself: write "
            "`stage: null` in an environment for it"
        )
    if spec.output is None:
        raise UsageError(
            "this spec does not say where to write; add `output: out/` to it, or give --output out/"
        )
    listed = ListedSpec.of(spec, to_read=True)
    environment = Environment.read()
    outputs = replace(
        Storage.of(environment),
        login=ObjectLogin.of(environment.home, spec),
        ais=AisCluster.of(environment.ais, environment.home, spec),
    )
    tasks = tuple(
        ShardTask(source.name, number, shard, place_of(spec.output, shard))
        for source in spec.sources
        for number, shard in enumerate(listed.shards[source.name])
    )
    _check(tasks, outputs, listed.storages)
    return Job(listed.parts, tasks, JobOptions(spec.seed, spec.limit, "pickle" in spec.allow, outputs))


def place_of(output: OutputOptions, shard: ShardUrl) -> str:
    """The path or URL at which the samples of a shard are written.

    Raises:
        UsageError: `from` does not match the shard's URL, or it has no file name.
    """
    if output.dir is not None:
        name = posixpath.basename(shard.text.split("?", 1)[0] if "://" in shard.text else shard.text)
        if not name or scheme_of(shard.text) == "pipe":
            hint = "this shard has no file name to keep; write `output: {from: …, to: …}`"
            raise UsageError(hint, url=shard.text)
        place = f"{output.dir.rstrip('/')}/{name}"
    else:
        rule = Rule(output.pattern or "", output.replacement or "", "`output`")
        if rule.regex.match(shard.text) is None:
            raise UsageError(
                f"`output` has `from: {output.pattern}`, which does not match this shard; it is matched at the "
                "start of the URL as the spec spells it",
                url=shard.text,
            )
        place = rule.apply(shard.text)
    place = os.path.expanduser(place)
    return os.path.normpath(os.path.join(output.base, place)) if is_relative(place) else place


def _check(tasks: tuple[ShardTask, ...], outputs: Storage, storages: Mapping[str, Storage]) -> None:
    taken: dict[str, ShardTask] = {}
    for task in tasks:
        other = taken.setdefault(outputs.destination(task.output), task)
        if other is not task:
            twice = "the same shard is listed twice" if other.shard == task.shard else "two shards"
            raise UsageError(
                f"{twice} would be written to `{task.output}`: `{other.shard.text}` of {other.source} and "
                f"`{task.shard.text}` of {task.source}; tell them apart with `output: {{from: …, to: …}}`"
            )
    written = taken.keys() | {task.output for task in tasks}
    for place in _read(tasks, storages):
        if place in written:
            raise UsageError(f"`{place}` would be read and written; write elsewhere with `output`")


def _read(tasks: tuple[ShardTask, ...], storages: Mapping[str, Storage]) -> Iterator[str]:
    for task in tasks:
        yield task.shard.text
        yield storages[task.source].resolve(task.shard).location


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


@dataclass
class Report:
    """What became of a job's shards."""

    there: list[ShardTask] = field(default_factory=list)
    """Written before; not looked into."""
    done: dict[ShardTask, ShardDone] = field(default_factory=dict)
    failed: dict[ShardTask, ShardFailed] = field(default_factory=dict)
    """With the cause of the last attempt."""


def run_job(
    job: Job,
    engine: Engine,
    *,
    retries: int = 1,
    force: bool = False,
    told: Callable[[ShardTask, Outcome | None, bool], None] = lambda task, outcome, last: None,
) -> Report:
    """Does all tasks of a job whose output is not there yet.

    Args:
        job: the tasks.
        engine: who does them; closed at the end.
        retries: how often a failed shard is tried again, after all others.
        force: do also those whose output is there; it is replaced when the new one is whole.
        told: called with each task and its outcome (None: it was there), and whether that is final.
    """
    report = Report()
    pending: list[ShardTask] = []
    for task in job.tasks:
        if not force and job.options.outputs.is_written(task.output):
            report.there.append(task)
            told(task, None, True)
        else:
            pending.append(task)
    directory, number = os.getcwd(), uuid.uuid4().hex
    try:
        for left in range(retries, -1, -1):
            works = [
                ShardWork(task, job.parts[task.source], job.options, directory, number) for task in pending
            ]
            pending = []
            for work, outcome in engine.run(carry_out, works, lost_shard) if works else ():
                failed = isinstance(outcome, ShardFailed)
                told(work.task, outcome, not failed or not left)
                if isinstance(outcome, ShardDone):
                    report.done[work.task] = outcome
                elif left:
                    pending.append(work.task)
                else:
                    report.failed[work.task] = outcome
    finally:
        engine.close()
    return report
