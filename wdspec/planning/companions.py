"""The plans of companions: which samples get some, and the streams that they come from.

Each field of each source has a stream of its own in each slot: that of its shards in a mix of nothing else, with a seed
of its own. So a stream has the order and the states of any source, and depends on nothing but how many companions were
taken from it. One keyed number for each sample decides whether it gets some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from wdspec.planning.keys import key64
from wdspec.planning.plan import CompanionPlan, Plan, SourcePlan
from wdspec.spec.spec import Spec
from wdspec.urls.urls import ShardUrl


def with_companions(spec: Spec, plan: Plan, shards: Mapping[str, Sequence[ShardUrl]]) -> Plan:
    """Return a plan with the companions of its sources, in the order of the sources, then of the fields.

    Args:
        spec: the checked spec.
        plan: the plan without companions.
        shards: the shard list of every source, also of those of companions, by name.

    Raises:
        UsageError: a source of companions has no shards.
    """
    fields = {source.name: sorted(source.companions) for source in spec.sources}
    planned = (
        _plan(spec, plan, each.name, field, shards) for each in plan.sources for field in fields[each.name]
    )
    return replace(plan, companions=tuple(planned))


def _plan(
    spec: Spec, plan: Plan, owner: str, field: str, shards: Mapping[str, Sequence[ShardUrl]]
) -> CompanionPlan:
    [companion] = (each.companions[field] for each in spec.sources if each.name == owner)
    source = spec.companions[companion.source]
    listed, seed = shards[source.name], key64(spec.seed, "companion", owner, field)
    stream = SourcePlan.of(source, listed, Fraction(1), seed, plan.topology.slots, source.samples)
    return CompanionPlan(owner, field, round(companion.chance * (1 << 64)), companion.count, seed, stream)


def chance_key(seed: int, companion: CompanionPlan, slot: int) -> int:
    """Return the key of the numbers that decide which samples of a slot get companions.

    Args:
        seed: that of the samples: of the spec, or the key of an epoch.
        companion: the plan of the companions.
        slot: the number of the slot.
    """
    return key64(seed, "companion", companion.owner, companion.field, "chance", slot)
