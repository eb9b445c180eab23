"""Finds out what a spec means: lists its shards, plans, and looks at the headers of one local shard a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from wdspec.base.errors import MissingShardError, UsageError, WdspecError
from wdspec.cli.explain.data_checks import Advice, advice_on_data
from wdspec.cli.explain.explanation import (
    PER_UNENDING,
    ExplainedSlot,
    ExplainedSource,
    Explanation,
    PlannedRun,
    Turn,
)
from wdspec.cli.explain.sample_sizes import Measure, measure, measured_before
from wdspec.cli.explain.wording import explained_fields, fields_in_words, steps_in_words
from wdspec.fields.samples import SampleFields
from wdspec.planning.plan import Plan, SourcePlan
from wdspec.planning.plan import choose_batching as batching
from wdspec.planning.topology import Seat, Topology, find_seat
from wdspec.shards.shards import ListedSpec
from wdspec.spec.measurements import Measurements
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import UrlSequence

TURNS = 3
"""First shards named of each slot and source."""


def explain_spec(
    spec: Spec,
    ranks: int | None,
    workers: int | None,
    slots: int | None,
    probe: bool = True,
    storage_of: Callable[[Environment, Spec, Source], Storage] = Storage.of,
    frozen: Mapping[str, UrlSequence] | None = None,
) -> Explanation:
    """Lists the shards, plans, and reads the headers of one local shard a source. Runs nothing.

    For `epoch: pass` the headers of all shards are read, as planning needs them.

    Args:
        spec: the spec.
        ranks, workers: the topology; by default that of the running job and the spec's.
        slots: how many slots to describe; by default some that fit a screen.
        probe: False: reads no shard, so that sizes are known only where the spec declares them.
        storage_of: makes the storage of a source.
        frozen: the shards of every source, where they are known.

    Raises:
        WdspecError: as planning and listing raise.
    """
    run = _run(spec, ranks, workers)
    listed = ListedSpec.of(spec, storage_of=storage_of, frozen=frozen)
    plan = listed.plan(run.topology)
    planned = {source.name: source for source in plan.sources}
    advice: list[Advice] = []
    measures: dict[str, Measure] = {}
    measurements = _measurements(spec)
    leaves: dict[str, ExplainedSource] = {}
    for source in spec.sources:
        fields = SampleFields.of(
            source, allow=spec.allow, secure=listed.storages[source.name].environment.secure
        )
        leaf = ExplainedSource(
            source.name,
            samples=source.samples,
            order=source.order,
            fields=fields_in_words(source, fields),
            field_list=tuple(explained_fields(source, fields)),
            steps=steps_in_words(source),
        )
        if source.name in planned:
            shards, storage = listed.shards[source.name], listed.storages[source.name]
            measured = measure(source, shards, storage, fields.field_of) if probe else None
            if isinstance(measured, WdspecError):
                if not isinstance(measured, MissingShardError):  # W501 says so of all that are missing
                    advice.append(Advice("W502", str(measured), source))
                measured = None
            totals = None if measurements is None else measurements.standing_for(spec, source)
            if measured is None and totals is not None:
                measured = measured_before(totals, fields.field_of)
            if measured is not None:
                measures[source.name] = measured
            leaf = _planned(leaf, planned[source.name], plan, measured)
        leaves[source.name] = leaf
    if slots is None:
        slots = max(1, min(4, 8 // len(plan.sources)))
    return Explanation(
        spec,
        plan,
        run,
        tuple(_outline(spec.dataset, (), leaves)),
        tuple(_slots(plan, slots)),
        (*advice, *(advice_on_data(listed, measures) if probe else ())),
    )


def _measurements(spec: Spec) -> Measurements | None:
    """What `wdspec stats` has found out about the sources, if the spec says where that is."""
    with suppress(OSError, UsageError):  # of which W104 warns
        return None if spec.stats is None else Measurements.read(spec.stats, shards=False)
    return None


def _run(spec: Spec, ranks: int | None, workers: int | None) -> PlannedRun:
    """The run that is described: as asked, else as this process would run, else as `elastic` says."""
    seat = find_seat() if ranks is None else Seat(0, ranks)
    rank_why = (
        "--ranks" if ranks is not None else "of the running job" if seat.world_size > 1 else "one process"
    )
    elastic = spec.elastic
    if elastic is None:
        worker_why = "--workers" if workers is not None else f"loader.workers is {spec.loader.workers}"
        own = spec.loader.workers if workers is None else workers
        topology = Topology(seat.world_size, max(1, own))
        return PlannedRun(topology, topology.ranks, topology.workers, f"{rank_why}, {worker_why}")
    topology = Topology(elastic.ranks, elastic.workers)
    if ranks is None and seat.world_size == 1:
        seat = Seat(0, topology.ranks)
    shared = batching(spec, topology.ranks).shared
    seat.places(topology, shared)
    own = topology.workers if workers is None else workers
    topology.check_workers(own)
    return PlannedRun(topology, seat.world_size, max(1, own), "elastic", shared)


def _planned(
    leaf: ExplainedSource, source: SourcePlan, plan: Plan, measured: Measure | None
) -> ExplainedSource:
    shards, held = len(source.shards), source.delays.size
    estimated, held_bytes = False, None
    samples: float | None = source.samples
    if measured is not None:
        if samples is None:
            samples, estimated = measured.samples * shards, shards > 1 or not measured.whole
        held_bytes = min(held, max(1.0, samples / plan.topology.slots)) * measured.sample_bytes
    batches = plan.epoch_batches or -(-PER_UNENDING // plan.batching.global_size)
    share = float(plan.mean_shares(batches)[plan.sources.index(source)] if plan.schedule else source.share)
    return replace(
        leaf,
        share=share,
        shards=shards,
        samples=samples,
        estimated=estimated,
        expected=share * (plan.epoch_samples or PER_UNENDING),
        held=held,
        parts_per_shard=source.order.split,
        held_bytes=held_bytes,
        interleave=source.interleave,
        open_shards=min(source.interleave, -(-source.order.per_pass // plan.topology.slots)),
    )


def _outline(
    dataset: tuple[Source, ...], path: tuple[str, ...], leaves: dict[str, ExplainedSource]
) -> Iterator[ExplainedSource]:
    """The sources of a mix in order, each nested mix before its own."""
    for source in dataset:
        if source.dataset is None:
            yield replace(leaves[source.name], path=path)
            continue
        inner = list(_outline(source.dataset, (*path, source.name), leaves))
        own = [each for each in inner if not each.nested]
        listed = [each.shards for each in own if each.shards is not None]
        sizes = [each.samples for each in own if each.samples is not None]
        yield ExplainedSource(
            source.name,
            path,
            share=sum(each.share for each in own),
            shards=sum(listed) if listed else None,
            samples=sum(sizes) if len(sizes) == len(own) else None,
            estimated=any(each.estimated for each in own),
            expected=sum(each.expected for each in own),
            nested=True,
        )
        yield from inner


def _slots(plan: Plan, most: int) -> Iterator[ExplainedSlot]:
    topology = plan.topology
    for slot in range(min(most, topology.slots)):
        rank, worker = divmod(slot, topology.workers)
        if plan.finite is not None:
            for name, shards in plan.pass_turns(rank, worker, TURNS).items():
                yield ExplainedSlot(rank, worker, name, tuple(Turn(shard.text, 0, 1) for shard in shards))
            continue
        for source in plan.sources:
            entries = [source.order.entry(slot, turn) for turn in range(TURNS)]
            turns = [Turn(source.shards[e.shard].text, e.residue, source.order.split) for e in entries]
            yield ExplainedSlot(rank, worker, source.name, tuple(turns))
