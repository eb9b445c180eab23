"""How a run finishes what it began before its spec was changed: windows, groups, and what a stage holds.

    spec 0       │ spec 1     │ now
    ─────────────┼────────────┼──────────▶ J
          begun ─┼────────────┼──▶ finished by spec 0

A state describes the order of its spec (`digest.describe_order`). The descriptions of earlier specs stay in the states
of a run, since a window may last longer than a spec. They are enough to plan what was begun, if the sources are still
there and are read alike, and to count what was drawn.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from wdspec.planning.digest import CONTENTS, differences, drops_alike, reads_alike
from wdspec.planning.passes import Pass, SourceCount
from wdspec.planning.plan import Batching, Plan, SourcePlan
from wdspec.planning.shares import LiveShares, ScheduleSegment, segment_offset
from wdspec.planning.timeline import EpochSpan, Timeline
from wdspec.planning.topology import Topology


@dataclass(frozen=True)
class Past:
    """A spec by which a run was read before it was changed."""

    until: int
    """J of the first step that was read by the next spec."""
    order: str
    """The description of its order, as JSON text."""

    def plan(self, now: Plan) -> Plan:
        """Return the plan of this spec, with the sources of the current plan, which may lack some."""
        order = json.loads(self.order)
        drawn = plan_of(order, [source.name for source in now.sources])
        sources = (_source_as(source, order["sources"].get(source.name)) for source in now.sources)
        return replace(
            now,
            sources=tuple(sources),
            draw=drawn.draw,
            unit=drawn.unit,
            schedule=drawn.schedule,
            exhausted=(),
        )

    @staticmethod
    def segment(plan: Plan, live: LiveShares) -> ScheduleSegment:
        """Return the segment of shares that were set while this spec was read; it had no nested mixes.

        Args:
            plan: the plan of this spec.
        """
        total = sum(map(Fraction, live.shares.values()))
        shares = tuple(Fraction(live.shares.get(source.name, 0)) / total for source in plan.sources)
        return ScheduleSegment(live.start, shares, segment_offset(plan.seed, "shares set", live.start), live)

    def selects(self) -> dict[str, tuple[str, ...]]:
        """Return the functions of `select` of each source."""
        said = {name: source["select"] for name, source in json.loads(self.order)["sources"].items()}
        return {name: (each,) if isinstance(each, str) else tuple(each or ()) for name, each in said.items()}


def _source_as(source: SourcePlan, old: Mapping[str, Any] | None) -> SourcePlan:
    """Return the plan of a source with the sizes that it had; without a share if it was not there."""
    if old is None:
        return replace(source, share=Fraction(0))
    delays = replace(source.delays, size=old["shuffle"])
    return replace(source, share=Fraction(old["share"]), delays=delays, interleave=old["interleave"])


def plan_of(order: Mapping[str, Any], names: Sequence[str]) -> Plan:
    """Return what a description says of the plan of its spec: enough to draw and to count samples, not to read them.

    Args:
        order: the description of its order.
        names: the sources to draw; those that the spec does not have are never drawn.
    """
    topology, size, seed = Topology(**order["elastic"]), order["batch"] or 1, order["seed"]
    sources, finite, steps = order["sources"], None, order.get("schedule", {})
    if "pass" in order:
        samples, batches = order["pass"]["samples"], order["pass"]["batches"]
        counts = [Fraction(source["share"]) * samples for source in sources.values()]
        is_known = all(count.denominator == 1 for count in counts)  # if `limit` does not end the pass
        known = (SourceCount(array("q", [int(count)]), {}) for count in counts if is_known)
        finite = Pass(tuple(known), samples, batches, topology, size)
    constant = {name: source["share"] for name, source in sources.items()}
    schedule = (
        ScheduleSegment(
            start := int(text.removeprefix("batch ")),
            tuple(Fraction(shares.get(name, 0)) for name in names),
            segment_offset(seed, "schedule", start) if steps else 0,
        )
        for text, shares in (steps or {"batch 0": constant}).items()
    )
    return Plan(
        seed=seed,
        topology=topology,
        batching=Batching(size, size * topology.ranks, batched=order["batch"] is not None),
        draw=order["mix"],
        sources=(),
        off=(),
        timeline=Timeline(),
        finite=finite,
        unit=order.get("unit", "sample"),
        schedule=tuple(schedule),
    )


class Changes(NamedTuple):
    """What a run adds to its plan: shares set at run time, specs by which it was read before, and its epoch."""

    segments: tuple[ScheduleSegment, ...] = ()
    """The segments of the shares that were set, ascending."""
    past: tuple[Past, ...] = ()
    """Earlier specs by which sections may have begun, in order."""
    epoch: EpochSpan | None = None
    """The epoch that is read, if epochs have different lengths."""


_PLANNED = {"sources", "mix", "unit", "schedule"}
"""The entries of a description from which `Past` plans."""
_READ = "costs.read"
"""The entry of what `cost` and other expressions read, by source."""


_KINDS = {"stage": "stage", "windows": "batch.size"}
"""Kind of section -> an entry that the descriptions of specs with it have, or a map of which they have entries."""


def kinds_of_sections(order: Mapping[str, Any]) -> list[str]:
    """Return the kinds of sections that a spec has, `stage` and `windows`, from the description of its order."""
    return [
        kind
        for kind, entry in _KINDS.items()
        if any(each == entry or each.startswith(f"{entry}.") for each in order)
    ]


def name_of_section(order: Mapping[str, Any]) -> str:
    """Return what a slot may be inside of between two batches, in words; empty in a plain mix and in a pass.

    Args:
        order: the description of the order of its spec.
    """
    kinds = [] if "pass" in order else kinds_of_sections(order)
    if "stage" in kinds:
        return "a window of what a stage yields" if "windows" in kinds else "the input of a stage"
    if not kinds:
        return ""
    return "a section of groups" if "batch.group_by" in order else "a window"


def why_not_finished(old: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return why what was begun by one spec cannot be finished in the run of another; None if it can.

    Args:
        old, now: the descriptions of their orders.
    """
    if "pass" in now:
        return "a pass is read from positions"
    if kinds_of_sections(old) != kinds_of_sections(now):
        return "the spec has other kinds of batches now"
    for name in sorted((old.keys() | now.keys()) - _PLANNED - {_READ, "companions"}):
        if any(differences({name: old.get(name)}, {name: now.get(name)})):
            return f"`{name}` has changed"
    for name in old["sources"]:
        if name not in now["sources"]:
            return f"the source `{name}` is gone"
        if files := dict.fromkeys(_files_differ(name, old, now)):
            return " and ".join(files)
        if not reads_alike(name, old, now):
            return f"the source `{name}` has other shards, or is read in another order"
        if not drops_alike(name, old, now):
            return f"the source `{name}` leaves out other samples"
        if _companions_of(name, old) != _companions_of(name, now):
            return f"the source `{name}` has other companions"
        if old.get(_READ, {}).get(name) != now.get(_READ, {}).get(name):
            return f"the source `{name}` makes other fields of those that are measured"
    return None


def _companions_of(name: str, order: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a description of an order says of the companions of a source, by field."""
    found = order.get("companions", {}).items()
    return {
        field: each for stream, each in found for owner, _, field in [stream.rpartition("/")] if owner == name
    }


def _files_differ(name: str, old: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each file of `make` that a source selects or measures by, and that has other contents."""
    parts = [(each["sources"][name], each.get(_READ, {}).get(name, {})) for each in (old, now)]
    for before, after in zip(*parts, strict=True):
        yield from (line for line in differences(before, after, name) if line.endswith(CONTENTS))


def past_as_text(past: Sequence[Past]) -> str:
    """Earlier specs, as JSON text."""
    return json.dumps([[each.until, json.loads(each.order)] for each in past])


def past_from_text(text: str) -> tuple[Past, ...]:
    """The inverse of `past_as_text`.

    Raises:
        ValueError: this is not such a text.
    """
    try:
        past = tuple(Past(until, json.dumps(order)) for until, order in json.loads(text))
    except TypeError as error:
        raise ValueError("these are not earlier specs") from error
    if not all(type(each.until) is int and each.until >= 0 for each in past):
        raise ValueError("they end at no steps")
    return past
