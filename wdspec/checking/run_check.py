"""A check from its spec to its report: shards looked at in any order, then compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from wdspec.checking.check_job import listed_for_check, looks_of, plan_of
from wdspec.checking.judgements.checked_data import CheckedData, CheckedSource, LookedAt
from wdspec.checking.judging import judged
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.checking.shards.shard_facts import ShardFacts
from wdspec.checking.shards.shard_look import ShardLook, look_at
from wdspec.offline.engines import Engine
from wdspec.spec.language.models import Spec

Told = Callable[[ShardLook, ShardFacts], None]


@dataclass(frozen=True)
class CheckReport:
    """What a check found."""

    collection: CheckedData
    problems: list[DataProblem]
    """Source by source and shard by shard in the order of the spec; what is about all of a source comes behind "
    "them."""
    hidden: Mapping[str, int]
    """By code: problems beyond those that are listed of a shard."""


def check_data(
    spec: Spec,
    engine: Engine,
    *,
    most: int | None,
    other: Spec | None = None,
    begun: Callable[[int], None] = lambda count: None,
    told: Told = lambda look, facts: None,
) -> CheckReport:
    """Looks at the shards of a spec.

    Args:
        spec: the spec.
        engine: who works; closed at the end.
        most: shards of each source that are read in full; None for all.
        other: a spec whose samples this one should not have, such as that of validation.
        begun: called with how many shards there are.
        told: called with each shard that was looked at.

    Raises:
        WdspecError: shards cannot be listed.
    """
    listed = listed_for_check(spec)
    looks = looks_of(listed, most, other is not None)
    sources = {source.name: CheckedSource(source, listed.parts[source.name]) for source in spec.sources}
    theirs: dict[str, CheckedSource] = {}
    if other is not None:
        also = listed_for_check(other)
        theirs = {
            source.name: CheckedSource(source, also.parts[source.name], True) for source in other.sources
        }
        looks += [look._replace(is_other=True) for look in looks_of(also, most, True) if look.in_full]
    begun(len(looks))
    try:
        for look, facts in engine.run(look_at, looks, _lost):
            checked = (theirs if look.is_other else sources)[look.source]
            checked.shards.append(LookedAt(look.number, look.shard, facts))
            told(look, facts)
    finally:
        engine.close()
    collection = CheckedData(spec, plan_of(listed), [*sources.values(), *theirs.values()])
    hidden: dict[str, int] = {}
    problems = list(_of_shards(collection.own, hidden))
    problems += judged(collection)
    return CheckReport(collection, problems, hidden)


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
                yield problem


def _lost(why: str) -> ShardFacts:
    facts = ShardFacts()
    facts.problems.append(DataProblem("D102", why))
    return facts
