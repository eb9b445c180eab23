"""What an offline job is to do: one task for each shard of a spec with `output:`. Describes only, and pickles."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from wdspec.base.errors import UsageError
from wdspec.read.transform import SourceParts
from wdspec.shards.shards import ListedSpec
from wdspec.spec.language.locations import OutputOptions
from wdspec.spec.spec import Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.settings import ObjectLogin
from wdspec.urls.rewrite import Rule
from wdspec.urls.urls import ShardUrl, is_relative, scheme_of


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
