"""The results of simulating a spec: everything that `wdspec simulate` shows, as values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.advice.explanation import ExplainedSource, Explanation
from wdspec.base.amounts import join_names
from wdspec.base.errors import UsageError
from wdspec.base.progress import progress
from wdspec.cli.output import one_line
from wdspec.cli.simulate_draws import Simulation, coverage, legal_runs, simulate
from wdspec.planning.passes import WindowedPass
from wdspec.planning.plan import Plan, SourcePlan
from wdspec.planning.topology import Seat

ENDLESS = 1000
"""Global batches drawn of a spec without an epoch."""
MOST = 100_000_000
"""Samples drawn by default, at most; takes about ten seconds."""
MOST_OPEN = 20_000
"""Open shards that are compared; of bigger jobs, those of the first workers."""
BAR_FROM = 1 << 22
"""Number of draws from which a progress bar is shown; fewer take less than half a second."""


class Covered(NamedTuple):
    """How much of a source was drawn; expectations if its shards differ in size."""

    passes: float
    seen: float
    """Fraction of the samples drawn at least once."""
    first_seen: float
    """The same at the end of the first epoch."""
    repeats: float
    """Samples drawn again."""
    shards_touched: float


class Ends(NamedTuple):
    """The smallest and the largest of some numbers."""

    min: int
    max: int

    @classmethod
    def of(cls, values: npt.NDArray[np.int64]) -> Ends:
        return cls(int(values.min()), int(values.max()))


class PerBatch(NamedTuple):
    """Samples in a global batch."""

    expected: float
    min: int
    mean: float
    max: int


class Total(NamedTuple):
    """Samples over all ranks."""

    expected: float
    drawn: int
    furthest_off: float
    """Largest distance from the expected samples, after any number of whole batches."""


class PerSlot(NamedTuple):
    """Samples in a slot."""

    expected: float
    min: int
    max: int
    shards: Ends | None = None
    """Shards (or parts of shards) that a slot opened."""
    passes_behind: Ends | None = None
    """Passes that slots have finished; None for `order: resampled`."""


@dataclass(frozen=True)
class SimulatedSource:
    """Samples drawn from one source with a share, or from a nested mix."""

    explanation: ExplainedSource
    share: float
    """From the spec; with a schedule, the mean over all draws."""
    per_batch: PerBatch
    total: Total
    by_epoch: tuple[int, ...]
    by_slot: tuple[int, ...]
    per_slot: PerSlot
    coverage: Covered | None = None
    """None if the number of samples of the source is unknown."""

    def as_json(self) -> dict[str, Any]:
        known = self.explanation
        return {
            **{name: getattr(known, name) for name in ("name", "path", "nested")},
            "share": self.share,
            **{name: getattr(known, name) for name in ("shards", "samples", "estimated")},
            **{
                name: getattr(self, name)
                for name in ("per_batch", "total", "by_epoch", "per_slot", "coverage")
            },
        }


@dataclass(frozen=True)
class SimulationResult:
    """A plan, simulated."""

    explanation: Explanation
    simulation: Simulation
    epoch: int | None
    """Draws of an epoch: its steps, or about as many windows as it reads with batches by cost; None if unknown."""
    sources: tuple[SimulatedSource, ...]
    """In file order; a nested mix comes before its sources. Sources that are off are omitted."""
    held_samples: float
    """Mean number of samples that one reading process holds for shuffling, in the middle of a pass."""
    open_shards: tuple[int, int]
    """Largest number of shards that a process has open at a time, and how many of them are different."""
    legal_ranks: Sequence[int]
    legal_workers: Sequence[int]

    @property
    def held_bytes(self) -> float | None:
        """Bytes of these samples, if the sizes of all sources are known."""
        return None if self.explanation.unmeasured else self.explanation.held_bytes

    @property
    def leaves(self) -> list[SimulatedSource]:
        """The sources without the nested mixes."""
        return [each for each in self.sources if not each.explanation.nested]

    def warnings(self) -> Iterator[str]:
        """Findings about the spec and the simulation."""
        yield from map(one_line, self.explanation.advice)
        simulation, plan = self.simulation, self.explanation.plan
        unknown = [each.explanation.name for each in self.leaves if each.explanation.samples is None]
        if unknown:
            yield (
                f"the size of {join_names(unknown)} is unknown, and so are its passes; declare `samples:`"
                " or read headers with --probe"
            )
        if simulation.batches == plan.timeline.stop:
            yield f"`on_exhausted: stop` ends the run after {simulation.batches:,} batches"
        elif self.epoch is not None and simulation.batches < self.epoch:
            of = "windows" if plan.batching.windowed else "batches"
            yield (
                f"only the first {simulation.batches:,} of the {self.epoch:,} {of} of an epoch were drawn; --epochs 1 "
                "draws them all"
            )
        elif self.epoch is None and plan.timeline.epoch_steps is not None:
            yield (
                "how many windows an epoch reads is unknown, because the mean cost of samples is; run `wdspec stats "
                "SPEC`, or let --probe read some windows"
            )
        if plan.timeline.is_pass:
            return
        yield from _interleaves(self.explanation)
        idle = [each.explanation.name for each in self.leaves if not each.per_slot.min]
        if idle:
            yield (
                f"some slots draw no sample of {join_names(idle)}: it has fewer draws than slots; a longer run, "
                "a larger share or fewer slots would change that"
            )


def simulation_result(explanation: Explanation, epochs: int | None, batches: int | None) -> SimulationResult:
    """Simulate a plan.

    Args:
        explanation: the spec, planned.
        epochs, batches: how much to draw; by default an epoch of up to `MOST` samples.
    """
    plan = explanation.plan
    if isinstance(plan.finite, WindowedPass) and not plan.finite.is_reshuffled:
        raise UsageError(
            "a pass by cost draws nothing, as it gives each sample once; `wdspec explain` shows its number of batches, "
            "and how full they are"
        )
    epoch = _epoch(explanation)
    if batches is None:
        batches = _batches(plan, epoch, epochs)
    if plan.timeline.stop is not None:
        batches = min(batches, plan.timeline.stop)
    places = {source.name: number for number, source in enumerate(plan.sources)}
    leaves = [each for each in explanation.sources if each.name in places and not each.nested]
    inside = _inside(leaves)
    grouped = [
        (each, [places[leaf.name] for leaf in inside[(*each.path, each.name)]])
        for each in explanation.sources
    ]
    shown = [(each, group) for each, group in grouped if group]
    with progress("drawing", batches, drawn=batches * plan.batching.global_size >= BAR_FROM) as bar:
        simulation = simulate(plan, batches, [group for _, group in shown], bar.advance, epoch)
    sources = [
        _source(each, plan.sources[group[0]], plan, simulation, column)
        for column, (each, group) in enumerate(shown)
    ]
    held = sum(_count_held(each, plan) for each in explanation.active) * explanation.run.slots_per_worker
    return SimulationResult(
        explanation,
        simulation,
        epoch,
        tuple(_add_nested(sources)),
        held,
        _open_shards(explanation),
        *legal_runs(plan),
    )


def _epoch(explanation: Explanation) -> int | None:
    """Return the number of draws of an epoch.

    With batches by cost, these are windows. How many batches a window has is measured by reading some, or else follows
    from the mean cost of samples.
    """
    plan, spec = explanation.plan, explanation.spec
    steps = plan.timeline.epoch_steps
    if steps is None or spec.batch is None or not plan.batching.windowed:
        return steps
    if plan.finite is not None:
        return plan.finite.rounds
    if explanation.windows is not None:
        return max(1, round(steps / explanation.windows.batches))
    means, most = {source.name: source.mean_cost for source in spec.sources}, spec.batch.limit
    costs = [(source.share, means[source.name]) for source in plan.sources]
    if most is None or any(mean is None for _, mean in costs):
        return None
    cost = sum(float(share) * (mean or 0) for share, mean in costs) * plan.batching.per_slot
    return max(1, round(steps / max(1, cost / most)))


def _batches(plan: Plan, length: int | None, epochs: int | None) -> int:
    if length is None:
        return ENDLESS
    if epochs is not None:
        return epochs * length
    return max(1, min(length, MOST // plan.batching.global_size))


def _inside(leaves: Iterable[ExplainedSource]) -> Mapping[tuple[str, ...], list[ExplainedSource]]:
    """The leaves in each source, by its path and name; a leaf is in itself."""
    found = defaultdict[tuple[str, ...], list[ExplainedSource]](list)
    for leaf in leaves:
        place = (*leaf.path, leaf.name)
        for depth in range(len(place)):
            found[place[: depth + 1]].append(leaf)
    return found


def _source(
    explanation: ExplainedSource, source: SourcePlan, plan: Plan, simulation: Simulation, column: int
) -> SimulatedSource:
    """The results in one column of the simulation; `source` is the leaf, or the first leaf of a nested mix."""
    by_slot, batches = simulation.by_slot[:, column], simulation.batches
    expected, drawn = float(simulation.expected[column]), int(simulation.drawn[column])
    share = expected / (simulation.samples - simulation.padding)
    low, high = int(simulation.batch_least[column]), int(simulation.batch_most[column])
    result = SimulatedSource(
        explanation,
        share,
        PerBatch(share * simulation.global_size, low, drawn / batches, high),
        Total(expected, drawn, float(simulation.furthest[column])),
        tuple(simulation.by_epoch[:, column].tolist()),
        tuple(by_slot.tolist()),
        PerSlot(expected / plan.topology.slots, *Ends.of(by_slot)),
    )
    if explanation.nested or not explanation.samples:
        return result
    after = [simulation.first_by_slot[:, column], by_slot]
    order = source.order
    # Every epoch walks once through the source; places of dropped samples are empty.
    if plan.finite is not None:
        kept = min(1.0, explanation.samples / (source.samples or explanation.samples))
        drawn = round(drawn * kept)
        after = [np.array([round(simulation.by_epoch[0, column] * kept)])] * 2
        order = replace(order, slots=1)
    first, found = (
        coverage(order, source.delays, samples, explanation.samples, source.interleave) for samples in after
    )
    repeats = max(0.0, round(drawn - found.seen * explanation.samples, 6))
    covered = Covered(drawn / explanation.samples, found.seen, first.seen, repeats, found.shards_touched)
    if plan.finite:
        return replace(result, coverage=covered)
    passes = None if source.order.kind == "resampled" else Ends.of(found.slot_passes)
    per_slot = result.per_slot._replace(shards=Ends.of(found.slot_turns), passes_behind=passes)
    return replace(result, coverage=covered, per_slot=per_slot)


def _add_nested(sources: Sequence[SimulatedSource]) -> Iterator[SimulatedSource]:
    """Add up the coverage of the sources in each nested mix."""
    results = {each.explanation.name: each for each in sources if not each.explanation.nested}
    leaves = _inside(each.explanation for each in results.values())
    for outer in sources:
        inside = [results[leaf.name] for leaf in leaves[(*outer.explanation.path, outer.explanation.name)]]
        covered = [
            (each.coverage, each.explanation.samples or 0.0) for each in inside if each.coverage is not None
        ]
        if not outer.explanation.nested or len(covered) < len(inside):
            yield outer
            continue
        samples = sum(size for _, size in covered)
        total = Covered(
            passes=sum(each.passes * size for each, size in covered) / samples,
            seen=sum(each.seen * size for each, size in covered) / samples,
            first_seen=sum(each.first_seen * size for each, size in covered) / samples,
            repeats=sum(each.repeats for each, _ in covered),
            shards_touched=sum(each.shards_touched for each, _ in covered),
        )
        yield replace(outer, coverage=total)


def _count_held(source: ExplainedSource, plan: Plan) -> float:
    """Samples held in a slot; at most those of its pass."""
    held = source.held or 1
    if held == 1 or not source.samples:
        return held if held > 1 else 0
    return min(held, max(1.0, source.samples / plan.topology.slots))


def _open_shards(explanation: Explanation) -> tuple[int, int]:
    """(shards open at a time in a reading process, different ones among the first that it opens), the most of any."""
    plan, run = explanation.plan, explanation.run
    if plan.timeline.is_pass:  # slots read one source after another
        return run.slots_per_worker, run.slots_per_worker
    most_opened = most_different = 0
    lanes = run.slots_per_worker * sum(source.interleave for source in plan.sources)
    for number in range(min(max(1, MOST_OPEN // lanes), run.ranks * run.workers)):
        rank, worker = divmod(number, run.workers)
        opened = [
            (source.name, shard)
            for canonical in Seat(rank, run.ranks).canonical_ranks(plan.topology, run.shared)
            for k in range(worker, plan.topology.workers, run.workers)
            for source in plan.sources
            for shard in _first_shards(plan, source, canonical, k)
        ]
        most_opened, most_different = max(most_opened, len(opened)), max(most_different, len(set(opened)))
    return most_opened, most_different


def _first_shards(plan: Plan, source: SourcePlan, rank: int, worker: int) -> list[int]:
    """The shards of a source that slot (c, k) has open first."""
    if plan.finite is not None:
        first = plan.finite.first_pieces(rank, worker, source.interleave)[plan.sources.index(source)]
        return [each.place for each in first]
    slot = plan.topology.slot(rank, worker)
    turns = range(min(source.interleave, source.order.last_turn(slot, 0) + 1))
    return [source.order.entry(slot, turn).shard for turn in turns]


def _interleaves(explanation: Explanation) -> Iterator[str]:
    """Warn if `interleave` exceeds the shards that a slot has in a pass."""
    few, plan = [], explanation.plan
    given = {source.name for source in explanation.spec.sources if "interleave" in source.model_fields_set}
    for source in plan.sources:
        if source.name not in given or source.order.kind == "resampled":
            continue
        most = -(-source.order.per_pass // plan.topology.slots)
        if most < source.interleave:
            few.append(f"{source.name} ({source.interleave}, of {most})")
    if few:
        yield (
            f"`interleave` is larger than the number of shards, or parts of shards, that a slot has in a pass: "
            f"{join_names(few)}; more shards or fewer slots would mix better"
        )
