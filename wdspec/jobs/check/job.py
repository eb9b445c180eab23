"""A check from its spec to its report: shards looked at in any order, then compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wdspec.base.errors import SpecError, WdspecError
from wdspec.base.user_code import secure_mode
from wdspec.jobs.check.facts import (
    CheckedData,
    CheckedSource,
    DataProblem,
    Judgement,
    LookedAt,
    ShardFacts,
)
from wdspec.jobs.check.hashes import HashSpool
from wdspec.jobs.check.judge_samples import repeated_contents, repeated_keys, similar_images
from wdspec.jobs.check.judge_sources import (
    expected_counts,
    few_shards,
    lone_classes,
    mixed_fields,
    odd_images,
    small_shards,
    sorted_shards,
    unstackable_values,
)
from wdspec.jobs.check.look import ShardLook, look_at
from wdspec.jobs.check.report_file import LockedShards, ReportFile
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import LiveCount, ShardFailed, ShardJob, measure_rate, skip_columns
from wdspec.planning.plan import Plan, make_plan
from wdspec.planning.topology import Topology
from wdspec.shards.lock import check_harmless
from wdspec.shards.shards import Shards, check_readable, list_shards
from wdspec.spec.measurements import reading_of
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

JUDGEMENTS: tuple[Judgement, ...] = (
    mixed_fields,
    repeated_keys,
    repeated_contents,
    similar_images,
    odd_images,
    lone_classes,
    sorted_shards,
    small_shards,
    few_shards,
    expected_counts,
    unstackable_values,
)
"""What is judged when the facts of all shards are known."""


@dataclass(frozen=True)
class CheckReport:
    """What a check found."""

    collection: CheckedData
    problems: list[DataProblem]
    """Source by source and shard by shard in the order of the spec; then those of whole sources."""
    hidden: Mapping[str, int]
    """By code: how many problems of shards are not listed."""

    def without(self, codes: Collection[str]) -> CheckReport:
        """The report without problems of some codes."""
        problems = [problem for problem in self.problems if problem.code not in codes]
        hidden = {code: count for code, count in self.hidden.items() if code not in codes}
        return CheckReport(self.collection, problems, hidden)

    def as_json(self) -> dict[str, Any]:
        """The problems, and what the samples of each source are."""
        sources = {source.name: source for source in self.collection.own}
        return {"problems": self.problems, "hidden": self.hidden, "sources": sources}


def check_data(
    spec: Spec,
    engine: Engine,
    *,
    most: int | None,
    other: Spec | None = None,
    kept: ReportFile | None = None,
    earlier: ReportFile | LockedShards | None = None,
) -> CheckReport:
    """Look at the shards of a spec.

    Args:
        spec: the spec.
        engine: runs the work; closed at the end.
        most: shards of each source that are read in full; None for all.
        other: a spec whose samples this one should not have, such as the one for validation.
        kept: where what each shard shows is kept, and known from an earlier check.
        earlier: another report, which is only read, or a lock.

    Raises:
        UsageError: URLs that hold a secret, which `kept` would keep.
        WdspecError: shards of the other spec cannot be listed.
    """
    listed, shards, problems = _list_what_can_be(spec)
    with HashSpool() as spool:
        job = CheckJob(spec, kept, earlier, spool)
        if shards is not None:
            job.add(listed, shards, most, looks=other is not None)
        if kept is not None and shards is not None:
            for name, urls in shards.lists.items():
                check_harmless(name, urls.parts, "the report")
        if other is not None:
            job.add(other, _list_shards(other), most, looks=True, is_other=True)
        job.run_tasks(look_at, [job.remind(look) for look in job.looks], engine)
        spool.give_back()
        plan = None if shards is None or problems else _make_plan(listed, shards)
        collection = CheckedData(spec, plan, list(job.sources.values()))
        hidden: dict[str, int] = {}
        problems += _problems_of_shards(collection.own, hidden)
        for judgement in JUDGEMENTS:
            problems += judgement(collection)
        return CheckReport(collection, problems, hidden)


class CheckJob(ShardJob[ShardLook, ShardFacts]):
    """The shards to look at, and what they showed.

    Args:
        spec: the spec that is checked.
        kept: where what shards show is kept.
        earlier: another file that may know them.
        spool: takes their hashes.
    """

    def __init__(
        self,
        spec: Spec,
        kept: ReportFile | None,
        earlier: ReportFile | LockedShards | None,
        spool: HashSpool,
    ) -> None:
        self._spec, self._kept, self._spool = spec, kept, spool
        self._files = [file for file in (kept, earlier) if file is not None]
        self._readings: dict[tuple[str, bool], str] = {}
        self._counts: Counter[str] = Counter()
        self.sources: dict[tuple[str, bool], CheckedSource] = {}
        """By name, and whether it is of the other spec."""
        self.looks: list[ShardLook] = []

    def add(
        self, spec: Spec, shards: Shards, most: int | None, *, looks: bool, is_other: bool = False
    ) -> None:
        """Add the shards of a spec; of the other spec only those that are read in full.

        Args:
            most: shards of each source that are read in full, from the first to the last; None for all.
            looks: whether what images look like is compared.
        """
        parts = shards.parts(spec)
        in_full = {name: frozenset(spread(len(urls), most)) for name, urls in shards.lists.items()}
        thorough = {
            name: replace(each, transform=replace(each.transform, thorough=True))
            for name, each in parts.items()
        }

        def choose(source: Source, number: int, shard: ShardUrl) -> Mapping[str, Any] | None:
            is_read = number in in_full[source.name]
            return (
                {"in_full": is_read, "looks": looks, "is_other": is_other}
                if is_read or not is_other
                else None
            )

        for source in spec.sources:
            self.sources[source.name, is_other] = CheckedSource(source, parts[source.name], is_other)
            if self._files:
                self._readings[source.name, is_other] = reading_of(spec, source)
        for look in ShardLook.of_spec(spec, shards, thorough, choose):
            self.sources[look.source, is_other].awaited.append(look.number)
            self.looks.append(look)

    def remind(self, look: ShardLook) -> ShardLook:
        """The task with what is known of its shard."""
        for file in self._files:
            known = file.known(look, self._readings[look.source, look.is_other])
            if known is not None:
                return replace(look, known=known)
        return look

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        def count(name: str) -> LiveCount:
            return LiveCount(lambda: self._counts[name])

        return {
            "samples": ("{:,} samples", count("samples")),
            "rate": ("{:,.1f} MB/s", measure_rate(lambda: self._counts["bytes"])),
            "problems": ("{:,} problems", count("problems")),
            **skip_columns(self._spec, count("skipped"), count("dropped")),
        }

    def take(self, task: ShardLook, outcome: ShardFacts | ShardFailed) -> None:
        if isinstance(outcome, ShardFailed):
            outcome = ShardFacts(problems=[DataProblem("D102", outcome.cause)])
        facts = self._recall(task, outcome)
        self._counts["problems"] += len(facts.problems) + sum(facts.hidden.values())
        if (samples := facts.samples) is not None:
            skipped = samples.samples - samples.delivered - samples.dropped
            self._counts.update(
                samples=samples.samples, bytes=samples.bytes, dropped=samples.dropped, skipped=skipped
            )
        self._spool.take(facts)
        self.sources[task.source, task.is_other].take(LookedAt(task.number, task.shard, facts))

    def _recall(self, look: ShardLook, found: ShardFacts) -> ShardFacts:
        """What was found of a shard now, or earlier if it has not changed."""
        facts = found
        if not self._files:
            return facts
        reading = self._readings[look.source, look.is_other]
        if found.is_unchanged:
            facts = next(file for file in self._files if file.known(look, reading) == look.known).facts(look)
        if self._kept is not None and not facts.is_unchanged:
            self._kept.keep(look, reading, facts)
        return facts


def _list_what_can_be(spec: Spec) -> tuple[Spec, Shards | None, list[DataProblem]]:
    """The spec with the sources whose shards can be listed, their shards, and why others cannot; None without any.

    Raises:
        SpecError: WDS_SECURE forbids the spec's functions.
    """
    try:
        return spec, _list_shards(spec), []
    except SpecError:
        raise
    except WdspecError as first:
        sources, problems = [], []
        for source in spec.sources:
            try:
                _list_shards(spec.of([source]))
            except WdspecError as error:
                problems.append(DataProblem.of(error, source=source.name))
            else:
                sources.append(source)
        if not problems:
            raise first
    spec = spec.of(sources)
    return spec, _list_shards(spec) if sources else None, problems


def _list_shards(spec: Spec) -> Shards:
    """The shards of a spec.

    What training cannot do without (a library, a function that WDS_SECURE forbids) is found as each source is read, so
    that everything else is checked too; only the latter is refused at once.

    Raises:
        WdspecError: shards cannot be listed.
    """
    if secure_mode():
        check_readable(spec)
    return list_shards(spec, counts_samples=False)


def spread(count: int, most: int | None) -> Sequence[int]:
    """At most `most` indexes of a list, from the first to the last; all for None."""
    if most is None or count <= most:
        return range(count)
    return [0] if most == 1 else [each * (count - 1) // (most - 1) for each in range(most)]


def _make_plan(spec: Spec, shards: Shards) -> Plan | None:
    """The plan for the topology that the spec names; None if there is none, or it needs all samples counted."""
    if spec.is_pass:
        return None
    try:
        return make_plan(spec, shards.lists, Topology.of(spec, 1, spec.loader.workers))
    except WdspecError:  # reported by `validate` and `explain`
        return None


def _problems_of_shards(sources: Sequence[CheckedSource], hidden: dict[str, int]) -> Iterator[DataProblem]:
    for source in sources:
        mistakes: set[str] = set()
        for looked in sorted(source.shards, key=lambda each: each.number):
            for code, count in looked.facts.hidden.items():
                hidden[code] = hidden.get(code, 0) + count
            for problem in looked.facts.problems:
                if problem.code == "D211":  # the same for all shards
                    if problem.message in mistakes:
                        continue
                    mistakes.add(problem.message)
                if not problem.shard:  # the process that looked at it ended
                    problem = replace(problem, source=source.name, shard=looked.shard.text)
                yield problem
