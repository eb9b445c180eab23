"""A check from its spec to its report: shards looked at in any order, then compared.

What is to be looked at: every shard of a spec looked for, and some of each source, or all, read in full.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wdspec.base.errors import SpecError, WdspecError
from wdspec.base.user_code import secure_mode
from wdspec.jobs.check.data import CheckedData, CheckedSource, LookedAt
from wdspec.jobs.check.facts import DataProblem, ShardFacts
from wdspec.jobs.check.hashes import HashSpool
from wdspec.jobs.check.judging import judged
from wdspec.jobs.check.look import ShardLook, look_at
from wdspec.jobs.check.report_file import LockedShards, ReportFile
from wdspec.jobs.engine import Engine
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Topology
from wdspec.read.transform import SourceParts
from wdspec.shards.lock import check_harmless
from wdspec.shards.shards import ListedSpec
from wdspec.spec.measurements import reading_of
from wdspec.spec.spec import Spec


def looks_of(listed: ListedSpec, most: int | None, compares: bool = False) -> list[ShardLook]:
    """One task for each shard.

    Args:
        listed: the spec, with its shards listed.
        most: shards of each source that are read in full, from the first to the last; None for all.
        compares: whether what images look like is compared with another spec.
    """
    spec = listed.spec
    return [
        ShardLook(
            source.name,
            number,
            shard,
            _thorough(listed.parts[source.name]),
            spec.seed,
            in_full=number in read,
            looks=compares,
            directory=os.getcwd(),
        )
        for source in spec.sources
        for read in [frozenset(spread(len(listed.shards[source.name]), most))]
        for number, shard in enumerate(listed.shards[source.name])
    ]


def _thorough(parts: SourceParts) -> SourceParts:
    return replace(parts, transform=replace(parts.transform, thorough=True))


def plan_of(listed: ListedSpec) -> Plan | None:
    """The plan for the topology that the spec names; None where there is none, or it takes all samples counted."""
    spec = listed.spec
    elastic = spec.elastic
    topology = (
        Topology(elastic.ranks, elastic.workers) if elastic else Topology(1, max(1, spec.loader.workers))
    )
    if spec.epoch is not None and spec.epoch.remainder is not None:
        return None
    try:
        return listed.plan(topology)
    except WdspecError:  # `validate` and `explain` say so
        return None


def listed_sources(spec: Spec) -> tuple[ListedSpec | None, list[DataProblem]]:
    """The spec with the shards of those sources listed that can be, and why others cannot; None if there is none.

    Raises:
        SpecError: WDS_SECURE forbids the spec's functions.
    """
    try:
        return listed_for_check(spec), []
    except SpecError:
        raise
    except WdspecError as first:
        listed, problems = [], []
        for source in spec.sources:
            try:
                listed_for_check(alone(spec, source.name))
            except WdspecError as error:
                problems.append(DataProblem.of(error, source=source.name))
            else:
                listed.append(source)
        if not problems:
            raise first
    if not listed:
        return None, problems
    return listed_for_check(spec.of(listed)), problems


def listed_for_check(spec: Spec) -> ListedSpec:
    """The spec with its shards listed.

    What training cannot do without (a library, a function that WDS_SECURE forbids) is found as each source is read, so
    that all else is looked at, too; only the latter is refused at once.

    Raises:
        WdspecError: shards cannot be listed.
    """
    return ListedSpec.of(spec, to_read=secure_mode())


def alone(spec: Spec, name: str) -> Spec:
    """The spec with no other source than that of this name, whatever its share was."""
    return spec.of([source for source in spec.sources if source.name == name])


def spread(count: int, most: int | None) -> Sequence[int]:
    """So many indexes of a list, from the first to the last; None for all."""
    if most is None or count <= most:
        return range(count)
    return [0] if most == 1 else [each * (count - 1) // (most - 1) for each in range(most)]


Told = Callable[[ShardLook, ShardFacts], None]


@dataclass(frozen=True)
class CheckReport:
    """What a check found."""

    collection: CheckedData
    problems: list[DataProblem]
    """Source by source and shard by shard in the order of the spec; what is about all of a source comes behind
    them."""
    hidden: Mapping[str, int]
    """By code: problems beyond those that are listed of a shard."""

    def without(self, codes: Collection[str]) -> CheckReport:
        """The report without problems of some codes."""
        kept = [problem for problem in self.problems if problem.code not in codes]
        hidden = {code: count for code, count in self.hidden.items() if code not in codes}
        return CheckReport(self.collection, kept, hidden)


def check_data(
    spec: Spec,
    engine: Engine,
    *,
    most: int | None,
    other: Spec | None = None,
    kept: ReportFile | None = None,
    earlier: ReportFile | LockedShards | None = None,
    begun: Callable[[int], None] = lambda count: None,
    told: Told = lambda look, facts: None,
) -> CheckReport:
    """Looks at the shards of a spec.

    Args:
        spec: the spec.
        engine: who works; closed at the end.
        most: shards of each source that are read in full; None for all.
        other: a spec whose samples this one should not have, such as that of validation.
        kept: where what each shard showed is kept, and known from an earlier check.
        earlier: another one, which is only asked, or a lock.
        begun: called with how many shards there are.
        told: called with each shard that was looked at.

    Raises:
        UsageError: URLs that hold a secret, which `kept` would keep.
        WdspecError: shards of the other spec cannot be listed.
    """
    listed, unlisted = listed_sources(spec)
    looks, sources = [], {}
    if listed is not None:
        looks = looks_of(listed, most, other is not None)
        sources = {
            source.name: CheckedSource(source, listed.parts[source.name]) for source in listed.spec.sources
        }
    if kept is not None and listed is not None:
        for name, shards in listed.shards.items():
            check_harmless(name, shards.parts, "the report")
    theirs: dict[str, CheckedSource] = {}
    if other is not None:
        also = listed_for_check(other)
        theirs = {
            source.name: CheckedSource(source, also.parts[source.name], True) for source in other.sources
        }
        looks += [look._replace(is_other=True) for look in looks_of(also, most, True) if look.in_full]
    for look in looks:
        (theirs if look.is_other else sources)[look.source].awaited.append(look.number)
    begun(len(looks))
    memory = _Memory(kept, earlier, spec, other)
    looks = [memory.reminded(look) for look in looks]
    with HashSpool() as spool:
        try:
            for look, found in engine.run(look_at, looks, _lost):
                facts = memory.recalled(look, found)
                told(look, facts)
                spool.take(facts)
                checked = (theirs if look.is_other else sources)[look.source]
                checked.take(LookedAt(look.number, look.shard, facts))
        finally:
            engine.close()
        spool.give_back()
        plan = None if listed is None or unlisted else plan_of(listed)
        collection = CheckedData(spec, plan, [*sources.values(), *theirs.values()])
        hidden: dict[str, int] = {}
        problems = [*unlisted, *_of_shards(collection.own, hidden)]
        problems += judged(collection)
        return CheckReport(collection, problems, hidden)


class _Memory:
    """What is known of shards from reports, and where it is kept."""

    def __init__(
        self,
        kept: ReportFile | None,
        earlier: ReportFile | LockedShards | None,
        spec: Spec,
        other: Spec | None,
    ) -> None:
        self._kept = kept
        self._files = [file for file in (kept, earlier) if file is not None]
        self._readings = {
            (source.name, each is other): reading_of(each, source)
            for each in (spec, other)
            if each is not None and self._files
            for source in each.sources
        }

    def reminded(self, look: ShardLook) -> ShardLook:
        """The task with what is known of its shard."""
        for file in self._files:
            known = file.known(look, self._reading(look))
            if known is not None:
                return look._replace(known=known)
        return look

    def recalled(self, look: ShardLook, found: ShardFacts) -> ShardFacts:
        """What was found of a shard now, or before, where it has not changed."""
        facts = found
        if found.is_unchanged:
            reading = self._reading(look)
            facts = next(file for file in self._files if file.known(look, reading) == look.known).facts(look)
        if self._kept is not None and not facts.is_unchanged:
            self._kept.keep(look, self._reading(look), facts)
        return facts

    def _reading(self, look: ShardLook) -> str:
        return self._readings[look.source, look.is_other]


def _of_shards(sources: Iterable[CheckedSource], hidden: dict[str, int]) -> Iterable[DataProblem]:
    for source in sources:
        mistakes: set[str] = set()
        for looked in sorted(source.shards, key=lambda each: each.number):
            for code, count in looked.facts.hidden.items():
                hidden[code] = hidden.get(code, 0) + count
            for problem in looked.facts.problems:
                if problem.code == "D211":  # all shards have it in common
                    if problem.message in mistakes:
                        continue
                    mistakes.add(problem.message)
                if not problem.shard:  # the process that looked at it ended
                    problem = replace(problem, source=source.name, shard=looked.shard.text)
                yield problem


def _lost(why: str) -> ShardFacts:
    facts = ShardFacts()
    facts.problems.append(DataProblem("D102", why))
    return facts
