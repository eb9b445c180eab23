"""What is to be looked at: every shard of a spec looked for, and some of each source, or all, read in full."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from wdspec.base.errors import SpecError, WdspecError
from wdspec.base.user_code import secure_mode
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.checking.shards.shard_look import ShardLook
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Topology
from wdspec.read.transform import SourceParts
from wdspec.shards.shards import ListedSpec
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
