"""The job of `wdspec process`: apply the decoders, filters and maps of a spec to each shard, and write a new shard."""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from wdspec.base.errors import UsageError, WdspecError
from wdspec.fields.encode import JSON_VALUES
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import LiveCount, ReadTask, ShardFailed, ShardJob, check_each_sample, gpus_of
from wdspec.read.budget import Budget
from wdspec.read.transform import parts_of
from wdspec.shards.shards import check_readable, list_shards
from wdspec.spec.language.locations import OutputOptions
from wdspec.spec.spec import Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.settings import ObjectLogin
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import ShardUrl, is_command, is_relative
from wdspec.write.shard_writer import open_writer


class WriteOptions(NamedTuple):
    """How the shards of a job are written."""

    limit: int | None
    """Maximum number of samples of each new shard."""
    allow_pickle: bool
    outputs: Storage
    """Storage of the outputs; it applies the rewrite rules of the environment, but not those of the spec."""


@dataclass(frozen=True)
class ProcessTask(ReadTask):
    """A shard to read, and the shard to write from it."""

    output: str
    """Absolute path, or URL."""
    options: WriteOptions


class ShardDone(NamedTuple):
    """The result of processing a shard."""

    written: int
    """Samples written."""
    dropped: int
    """Samples dropped by `select` or `missing: skip`."""
    skipped: int
    """Errors that the policy skipped."""
    size: int
    """Bytes of the uncompressed new shard."""
    seconds: float


@dataclass
class ProcessJob(ShardJob[ProcessTask, ShardDone]):
    """The shards to write for a spec, and the results."""

    tasks: Sequence[ProcessTask]
    gpus: float = 0
    """GPUs of each process, for `map_batches`."""
    force: bool = False
    """Whether to overwrite existing shards."""
    there: list[ProcessTask] = field(default_factory=list)
    """Tasks whose output existed before."""
    done: list[tuple[ProcessTask, ShardDone]] = field(default_factory=list)
    failed: list[tuple[ProcessTask, ShardFailed]] = field(default_factory=list)
    """With the cause of the last attempt."""
    samples: int = 0
    """Written so far."""
    skipped: int = 0
    """Errors skipped so far."""
    reports_failures = True

    @classmethod
    def of(cls, spec: Spec) -> ProcessJob:
        """List the shards of a spec and choose the output of each. Sources whose share is 0 are omitted.

        Raises:
            UsageError: the spec has no `output:`, or has a `stage`; two shards have the same output, or one would
                overwrite itself.
            WdspecError: shards cannot be listed.
        """
        check_each_sample(spec, "`process`")
        output = spec.output
        if output is None:
            raise UsageError("the spec has no output; add `output: out/` to it, or give --output out/")
        check_readable(spec)
        shards = list_shards(spec)
        environment = Environment.read()
        outputs = replace(
            Storage.of(environment),
            login=ObjectLogin.of(environment.home, spec),
            ais=AisCluster.of(environment.ais, environment.home, spec),
        )
        options = WriteOptions(spec.limit, "pickle" in spec.allow, outputs)
        tasks = ProcessTask.of_spec(
            spec,
            shards,
            parts_of(spec, shards),
            lambda source, number, shard: {"output": output_of(output, shard), "options": options},
        )
        _check_outputs(tasks, outputs, shards.storages)
        return cls(tasks, gpus_of(spec))

    def run(self, engine: Engine, retries: int = 1) -> None:
        """Write the shards that do not exist.

        Args:
            engine: runs the work; closed at the end.
            retries: how often a failed shard is retried, after all others.
        """
        if self.gpus:
            engine.use_gpus(self.gpus)
        self.run_tasks(process_shard, self.tasks, engine, retries=retries)

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        return {
            "samples": ("{:,} samples", LiveCount(lambda: self.samples)),
            "skipped": ("{:,} skipped", LiveCount(lambda: self.skipped)),
        }

    def is_done(self, task: ProcessTask) -> bool:
        if self.force or not task.options.outputs.is_written(task.output):
            return False
        self.there.append(task)
        return True

    def take(self, task: ProcessTask, outcome: ShardDone | ShardFailed) -> None:
        if isinstance(outcome, ShardFailed):
            self.failed.append((task, outcome))
        else:
            self.done.append((task, outcome))
            self.samples += outcome.written
            self.skipped += outcome.skipped


def process_shard(task: ProcessTask) -> ShardDone:
    """Read a shard in order, apply the steps of its source, and write a new shard, which appears when it is complete.

    Raises:
        WdspecError: what reading, decoding or encoding raises, under the source's error policy.
        Exception: what user functions raise.
    """
    started = time.monotonic()
    budget, options = Budget(task.parts.errors, task.source), task.options
    try:
        with closing(task.final_samples(budget)) as samples:
            output = options.outputs.output(task.output)
            with open_writer(
                output, name=task.output, encoder=JSON_VALUES, allow_pickle=options.allow_pickle
            ) as writer:
                for sample in samples:
                    _write(writer, sample, budget)
                    if options.limit is not None and writer.count >= options.limit:
                        break
    except WdspecError as error:
        error.at(source=task.source, url=task.shard.text)
        raise
    dropped, skipped = sum(budget.all_dropped.values()), sum(budget.skipped.values())
    return ShardDone(writer.count, dropped, skipped, writer.size, time.monotonic() - started)


def _write(writer: Any, sample: dict[str, Any], budget: Budget) -> None:
    try:
        packed = writer.pack(sample)
    except WdspecError as error:
        budget(error, "decode", url=sample.get("__url__"), key=sample.get("__key__"))
    else:
        writer.put(packed)


def output_of(output: OutputOptions, shard: ShardUrl) -> str:
    """The path or URL to which the samples of a shard are written.

    Raises:
        UsageError: `from` does not match the shard's URL, or it has no file name.
    """
    if output.dir is not None:
        name = posixpath.basename(shard.text.split("?", 1)[0] if "://" in shard.text else shard.text)
        if not name or is_command(shard.text):
            raise UsageError("the shard has no file name; write `output: {from: …, to: …}`", url=shard.text)
        place = f"{output.dir.rstrip('/')}/{name}"
    else:
        rule = Rule(output.pattern or "", output.replacement or "", "`output`")
        if rule.regex.match(shard.text) is None:
            raise UsageError(
                f"`output` has `from: {output.pattern}`, which does not match the start of this URL, as written in the "
                "spec",
                url=shard.text,
            )
        place = rule.apply(shard.text)
    place = os.path.expanduser(place)
    return os.path.normpath(os.path.join(output.base, place)) if is_relative(place) else place


def _check_outputs(tasks: Sequence[ProcessTask], outputs: Storage, storages: Mapping[str, Storage]) -> None:
    taken: dict[str, ProcessTask] = {}
    for task in tasks:
        other = taken.setdefault(outputs.destination(task.output), task)
        if other is not task:
            what = "a shard that is listed twice" if other.shard == task.shard else "two shards"
            raise UsageError(
                f"{what} would be written to `{task.output}`: `{other.shard.text}` of {other.source} and "
                f"`{task.shard.text}` of {task.source}; give them different names with `output: {{from: …, to: …}}`"
            )
    written = taken.keys() | {task.output for task in tasks}
    for task in tasks:
        for place in (task.shard.text, storages[task.source].resolve(task.shard).location):
            if place in written:
                raise UsageError(f"`{place}` would be read and written; choose another `output`")
