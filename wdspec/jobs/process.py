"""The job of `wdspec process`: apply the decoders, filters and maps of a spec to each shard, and write a new shard."""

from __future__ import annotations

import os
import posixpath
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from wdspec.base.amounts import join_names, pluralize
from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.user_code import digest_code
from wdspec.fields.encode import JSON_VALUES, EncoderMissingError
from wdspec.formats.compression import format_of, stem_of
from wdspec.jobs.dedup import Drops
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import LiveCount, ReadTask, ShardFailed, ShardJob, check_each_sample, gpus_of
from wdspec.jobs.originals import Originals
from wdspec.jobs.output_records import OutputRecord, describe_input
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.transform import Process, parts_of
from wdspec.shards.shards import check_readable, list_shards
from wdspec.spec.language.locations import OutputOptions
from wdspec.spec.reading import changed_keys, digest_writing
from wdspec.spec.spec import Source, Spec
from wdspec.storage.ahead import side_by_side
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.settings import ObjectLogin
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import ShardUrl, is_command, is_relative, lance_url, scheme_of
from wdspec.write.shard_writer import check_writable, open_writer


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
    digest: str
    """See `digest_writing`."""
    replaces: bool = False
    """Whether there is an older shard, which is replaced."""
    drops: Mapping[int, str] = field(default_factory=dict)
    """The samples to leave out: their indexes, and their keys."""

    def build_process(self, budget: ErrorBudget) -> tuple[Process, AbstractContextManager[object]]:
        process, lent = super().build_process(budget)
        if not self.drops:
            return process, lent

        def without_drops(raw: dict[str, Any], index: int) -> dict[str, Any] | None:
            key = self.drops.get(index)
            if key is None:
                return process(raw, index)
            if key != raw["__key__"]:
                raise UsageError(
                    f"sample {index:,} of this shard is `{raw['__key__']}`, but the list of --drop says `{key}`: the "
                    "shard has changed; repeat `wdspec dedup`"
                )
            budget.dropped["--drop"] += 1
            return None

        return without_drops, lent


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
    causes: Mapping[str, int]
    """The samples dropped, by cause."""

    @classmethod
    def of(cls, record: OutputRecord) -> ShardDone | None:
        """Return the result that a record has; None if it is of another wdspec."""
        return cls(**record.counts) if record.counts.keys() == set(cls._fields) else None


@dataclass
class ProcessJob(ShardJob[ProcessTask, ShardDone]):
    """The shards to write for a spec, and the results."""

    tasks: Sequence[ProcessTask]
    gpus: float = 0
    """GPUs of each process, for `map_batches`."""
    force: bool = False
    """Whether to overwrite existing shards."""
    changed: Literal["refuse", "redo", "keep"] = "refuse"
    """What to do with existing shards that another job wrote, or from another input."""
    there: list[tuple[ProcessTask, ShardDone | None]] = field(default_factory=list)
    """Tasks whose output existed before, with what is known of it."""
    done: list[tuple[ProcessTask, ShardDone]] = field(default_factory=list)
    failed: list[tuple[ProcessTask, ShardFailed]] = field(default_factory=list)
    """With the cause of the last attempt."""
    samples: int = 0
    """Written so far."""
    skipped: int = 0
    """Errors skipped so far."""
    stopped = False
    """Whether it ended at a failure that the other shards would share."""
    reports_failures = stops_early = True

    @classmethod
    def of(cls, spec: Spec, drops: Drops | None = None) -> ProcessJob:
        """List the shards of a spec and choose the output of each. Sources whose share is 0 are omitted.

        Args:
            spec: the spec.
            drops: samples to leave out.

        Raises:
            UsageError: the spec has no `output:`, or has a `stage`; two shards have the same output, or one would
                overwrite itself; no shard with samples to leave out is read.
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
        code = {name: digest_code(name, spec.folder) for names in spec.functions.values() for name in names}
        digests = {
            source.name: digest_writing(spec, source, shards.files.get(source.name, {}), code)
            for source in spec.sources
        }
        left = dict(drops or {})

        def choose(source: Source, number: int, shard: ShardUrl) -> Mapping[str, Any]:
            own = left.pop((source.name, shard.text), {})
            mark = (
                f" drop={blake2b(repr(sorted(own.items())).encode(), digest_size=4).hexdigest()}"
                if own
                else ""
            )
            return {
                "output": output_of(output, shard),
                "options": options,
                "digest": digests[source.name] + mark,
                "drops": own,
            }

        tasks = ProcessTask.of_spec(spec, spec.sources, shards, parts_of(spec, shards), choose)
        if left:
            source, shard = next(iter(left))
            raise UsageError(
                f"the list of --drop has samples of {pluralize(len(left), 'shard')} that the spec does not read, such "
                f"as `{shard}` of `{source}`; name the spec that `wdspec dedup` read"
            )
        _check_outputs(tasks, outputs, shards.storages)
        return cls(tasks, gpus_of(spec))

    def run(self, engine: Engine, retries: int = 1) -> None:
        """Write the shards that do not exist.

        Args:
            engine: runs the work; closed at the end.
            retries: how often a failed shard is retried, after all others.
        """
        try:
            if self.gpus:
                engine.use_gpus(self.gpus)
            tasks = self._find_there()
        except BaseException:
            engine.close()
            raise
        self.run_tasks(process_shard, tasks, engine, retries=retries)

    def __post_init__(self) -> None:
        self._done: set[str] = set()

    def _find_there(self) -> list[ProcessTask]:
        """Find the outputs that exist; return the tasks to run, and those that are done, which `is_done` knows."""
        found = list(side_by_side(_look_at_output, self.tasks))
        tasks, changes = [], []
        for task, (exists, record, change) in zip(self.tasks, found, strict=True):
            redoes = self.force or (change is not None and self.changed == "redo")
            if exists and not redoes:
                self.there.append((task, None if record is None else ShardDone.of(record)))
                if change is not None:
                    changes.append((task, change))
            tasks.append(replace(task, replaces=exists))
        if changes and self.changed == "refuse":
            raise _describe_changes(changes, len(self.there))
        self._done = {task.output for task, _ in self.there}
        return tasks

    @property
    def results(self) -> list[tuple[ProcessTask, ShardDone]]:
        """The results of all complete shards, also of those of earlier runs, as far as they are known."""
        return [*self.done, *((task, done) for task, done in self.there if done is not None)]

    @property
    def is_empty(self) -> bool:
        """Whether all shards are complete, but none has a sample."""
        results = self.results
        return len(results) == len(self.tasks) > 0 and not any(done.written for _, done in results)

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        return {
            "samples": ("{:,} samples", LiveCount(lambda: self.samples)),
            "skipped": ("{:,} skipped", LiveCount(lambda: self.skipped)),
        }

    def is_done(self, task: ProcessTask) -> bool:
        return task.output in self._done

    def take(self, task: ProcessTask, outcome: ShardDone | ShardFailed) -> None:
        if isinstance(outcome, ShardFailed):
            self.failed.append((task, outcome))
            self.stopped = self.stopped or outcome.is_general
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
    budget, options = ErrorBudget(task.parts.errors, task.source), task.options
    format = format_of(task.output)
    keeps_plain = format in ("tar", format_of(task.shard.text, task.parts.open.format))
    originals = None if format == "jsonl" else Originals(task.parts.transform.fields, keeps_plain)
    read = describe_input(task)  # before reading: a change in between is found next time
    try:
        with closing(task.final_samples(budget, None if originals is None else originals.add)) as samples:
            output, how = (
                options.outputs.output(task.output),
                {"encoder": JSON_VALUES, "allow_pickle": options.allow_pickle},
            )
            with open_writer(output, name=task.output, open_output=options.outputs.output, **how) as writer:
                for sample in samples:
                    _write(writer, sample if originals is None else originals.restore(sample), budget)
                    if options.limit is not None and writer.count >= options.limit:
                        break
                causes = budget.all_dropped
                done = ShardDone(
                    writer.count,
                    causes.total(),
                    budget.skipped.total(),
                    writer.size,
                    time.monotonic() - started,
                    dict(causes),
                )
                if task.replaces:  # so that no older shard has the new record
                    options.outputs.delete(task.output)
                OutputRecord(task.digest, read, done._asdict()).write(options.outputs, task.output)
    except WdspecError as error:
        error.at(source=task.source, url=task.shard.text)
        raise
    return done


def _look_at_output(task: ProcessTask) -> tuple[bool, OutputRecord | None, str | None]:
    """Whether the output of a task exists, its record, and what has changed since."""
    outputs = task.options.outputs
    if not outputs.is_written(task.output):
        return False, None, None
    record = OutputRecord.read(outputs, task.output)
    if record is None:
        return True, None, "there is no record of how it was made"
    if record.job != task.digest:
        return True, record, f"{join_names(changed_keys(record.job, task.digest))} changed"
    return True, record, None if record.input == describe_input(task) else "its input changed"


def _describe_changes(changes: Sequence[tuple[ProcessTask, str]], there: int) -> UsageError:
    causes = Counter(change for _, change in changes)
    task, _ = changes[0]
    return UsageError(
        f"{len(changes):,} of the {pluralize(there, 'shard')} that exist differ from what this job would write, such "
        f"as `{task.output}`: {'; '.join(f'{cause} ({count:,})' for cause, count in causes.most_common(3))}; pass "
        "--changed redo to write these again, --changed keep to leave them as they are, or choose another output"
    )


def _write(writer: Any, sample: dict[str, Any], budget: ErrorBudget) -> None:
    try:
        packed = writer.pack(sample)
    except EncoderMissingError:
        raise  # the output cannot hold the field, which is no damage of this sample
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
        text = shard.text.split("?", 1)[0] if "://" in shard.text else shard.text
        if scheme_of(text) in ("http", "https"):
            text = text.split("#", 1)[0]  # no part of the name, and perhaps a secret
        is_fragment = lance_url(shard.text) is not None  # it has no file of its own
        name = f"{stem_of(shard.text)}.parquet" if is_fragment else posixpath.basename(text)
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
    for task in tasks:
        try:
            check_writable(format_of(task.output))
        except UsageError as error:
            folder, name = posixpath.split(task.output)
            suffix = posixpath.splitext(name)[1]
            rule = f"output: {{from: '(?:.*/)?(.*)\\{suffix}', to: '{folder}/\\1.parquet'}}"
            raise UsageError(f"{error.message}, with `{rule}`", url=task.output) from None
    written = taken.keys() | {task.output for task in tasks}
    for task in tasks:
        for place in (task.shard.text, storages[task.source].resolve(task.shard).location):
            if place in written:
                raise UsageError(f"`{place}` would be read and written; choose another `output`")
