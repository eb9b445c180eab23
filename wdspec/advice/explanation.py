"""What a spec means on a topology: `explain_spec` lists its shards, plans, and measures a local shard of each source.

The resulting `Explanation` is what `explain`, `simulate`, `diff`, `preview` and `croissant` show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from wdspec.advice import advise
from wdspec.advice.facts import Facts, HeldMemory
from wdspec.advice.measure import (
    KeptSamples,
    Measure,
    UnfoundTable,
    WindowFacts,
    find_useless_tables,
    measure,
    measure_selection,
    measure_windows,
    recall_measure,
    selection_in_pass,
    selection_in_stats,
)
from wdspec.advice.words import ExplainedField, explain_fields, fields_in_words, steps_in_words
from wdspec.base.amounts import join_names, pluralize, sum_known
from wdspec.base.errors import MissingShardError, UsageError, WdspecError
from wdspec.fields.samples import SampleFields
from wdspec.formats.blocks import CHUNK, chunk_among
from wdspec.planning.passes import WindowedPass
from wdspec.planning.plan import Plan, SourcePlan, choose_batching, tokens_of_step
from wdspec.planning.shares import mean_tokens, shares_of_steps
from wdspec.planning.topology import Seat, Topology, find_seat
from wdspec.read.lean import MANY
from wdspec.read.pass_count import with_counts
from wdspec.read.transform import SourceParts
from wdspec.shards.shards import Shards, list_shards, plan_shards
from wdspec.spec.measurements import MeasuredSource, Measurements
from wdspec.spec.problems import Problem
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.read_ahead import least_piece
from wdspec.urls.urls import UrlSequence

PER_UNENDING = 1000
"""Expected draws are per this many samples if the spec has no epoch."""
TURNS = 3
"""First shards shown of each slot and source."""


@dataclass(frozen=True)
class ExplainedSource:
    """One source with shards, or a nested mix."""

    name: str
    path: tuple[str, ...] = ()
    """Names of the nested mixes that contain it, the outermost first."""
    share: float = 0.0
    """Share of the whole mix; 0 for a source that is off."""
    shards: int | None = None
    """None if not listed, since the source is off."""
    samples: float | None = None
    """Samples of a pass; None if neither the spec nor a local shard tells."""
    estimated: bool = False
    """Whether samples are an estimate."""
    selected: KeptSamples | None = None
    """What its selection keeps; `samples` are those that remain. None if it keeps all, or was not tried."""
    expected: float = 0.0
    """Samples drawn of `Explanation.expected_of`."""
    held: int | None = None
    """Samples shuffled together in each slot; None for a nested mix and for a source that is off."""
    held_bytes: float | None = None
    """Bytes of these, if known."""
    interleave: int = 1
    """Shards that a slot reads in turn."""
    open_shards: int = 1
    """Shards that a slot has open at a time: at most the shards that it has in a pass."""
    order: str = ""
    parts_per_shard: int = 1
    """More than 1 if there are fewer shards than slots."""
    fields: str = ""
    field_list: tuple[ExplainedField, ...] = ()
    steps: str = ""
    nested: bool = False
    """Whether it is a nested mix."""

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "passes": self.passes}

    @property
    def is_off(self) -> bool:
        """Whether it is not read."""
        return not self.share and self.held is None

    @property
    def indented(self) -> str:
        """The name, indented by its depth."""
        return "  " * len(self.path) + self.name

    @property
    def samples_in_words(self) -> str:
        """`1,797`, `~800` for an estimate, `?` if unknown."""
        return "?" if self.samples is None else f"{'~' * self.estimated}{round(self.samples):,}"

    @property
    def passes(self) -> float | None:
        """Number of passes over the source in an epoch; None if unknown."""
        return self.expected / self.samples if self.samples else None


@dataclass(frozen=True)
class Turn:
    """The shard, or part of a shard, that a slot reads at one of its turns."""

    url: str
    part: int
    """Index of the part of the shard."""
    parts: int
    """1 unless there are fewer shards than slots."""


@dataclass(frozen=True)
class ExplainedSlot:
    """The first turns of a slot at a source."""

    rank: int
    worker: int
    source: str
    first: tuple[Turn, ...]


class ScheduledShares(NamedTuple):
    """A step of `mix.schedule`."""

    at: int
    """Number of the global sample."""
    batch: int | None
    """J of the first global batch with these shares. An estimate for batches by cost, if windows were read."""
    ramp: bool
    """Whether the shares change linearly from those of the step before, up to this batch."""
    shares: dict[str, float]
    """Shares of the whole mix, of the sources that are ever read."""


@dataclass(frozen=True)
class PlannedRun:
    """The canonical topology, and the ranks and workers that read it."""

    topology: Topology
    ranks: int
    workers: int
    """Reading processes per rank, at least 1."""
    why: str
    """The origin of the numbers."""
    shared: int = 1
    """As `Batching.shared`."""

    @property
    def canonical_ranks(self) -> int:
        """Canonical ranks that one rank reads at most, whole or in part."""
        return self.topology.most_read(self.ranks, self.shared)

    @property
    def in_words(self) -> str:
        """`2 ranks x 4 workers = 8 slots (elastic)`."""
        ranks, workers = pluralize(self.topology.ranks, "rank"), pluralize(self.topology.workers, "worker")
        return f"{ranks} x {workers} = {pluralize(self.topology.slots, 'slot')} ({self.why})"

    @property
    def readers_in_words(self) -> str:
        """`1 rank x 2 workers, 4 slots per worker`."""
        ranks, workers = pluralize(self.ranks, "rank"), pluralize(self.workers, "worker")
        return f"{ranks} x {workers}, {pluralize(self.slots_per_worker, 'slot')} per worker"

    @property
    def slots_per_worker(self) -> int:
        """Slots of one reading process."""
        return self.canonical_ranks * self.topology.workers // self.workers


@dataclass(frozen=True)
class Explanation:
    """A spec, planned and measured."""

    spec: Spec
    shards: Shards
    plan: Plan
    run: PlannedRun
    sources: tuple[ExplainedSource, ...]
    """In file order; a nested mix comes before its sources."""
    slots: tuple[ExplainedSlot, ...]
    """The first slots."""
    found: Facts
    """What was found in the data."""
    windows: WindowFacts | None = None
    """What the batches of the first windows are like, if they are planned by cost and were read."""
    schedule: tuple[ScheduledShares, ...] = ()
    """The steps of `mix.schedule`."""
    epoch_samples: float | None = None
    """Samples of an epoch: an estimate for batches by cost; of a pass, without those that selections leave out."""

    @property
    def expected_of(self) -> float:
        """Samples of all sources, of which each is expected to give so many."""
        return self.epoch_samples or PER_UNENDING

    @property
    def is_epoch_estimated(self) -> bool:
        """Whether `epoch_samples` follows from windows, or from a part of the samples of a pass."""
        finite = self.plan.finite
        selects = any(each.estimated and each.selected for each in self.active)
        is_cut = isinstance(finite, WindowedPass) and finite.part_given < 1
        is_estimated = self.plan.batching.windowed if finite is None else selects or is_cut
        return self.epoch_samples is not None and is_estimated

    @property
    def active(self) -> list[ExplainedSource]:
        """The sources that are read."""
        return [each for each in self.sources if each.held is not None]

    @property
    def lacks_shards(self) -> bool:
        """Whether local shards are missing."""
        return any(each.code == "W501" for each in self.advice)

    @property
    def lacks_functions(self) -> bool:
        """Whether modules do not have the functions that the spec names."""
        return any(each.code == "W514" for each in self.advice)

    @property
    def samples(self) -> float | None:
        """Samples of all sources together; None if unknown."""
        return sum_known(each.samples for each in self.active)

    @property
    def unmeasured(self) -> int:
        """Number of sources whose samples have an unknown size."""
        return sum(each.held_bytes is None for each in self.active)

    @property
    def held_bytes(self) -> float:
        """Mean number of bytes that one reading process needs for shuffling, as far as they are known."""
        samples = sum(each.held_bytes or 0.0 for each in self.active)
        order = sum(source.delays.order_bytes for source in self.plan.sources)
        return (samples + order) * self.run.slots_per_worker

    @property
    def shards_in_turn(self) -> int:
        """Number of shards that one reading process reads in turn."""
        opened = [each.open_shards for each in self.active]
        each_slot = 1 if self.plan.timeline.is_pass else sum(opened)  # a pass reads one source after another
        return each_slot * self.run.slots_per_worker

    @property
    def shards_in_stores(self) -> int:
        """Number of these whose next bytes are requested when they are due, as there are many sources."""
        if len(self.plan.sources) <= MANY or self.plan.timeline.is_pass:
            return 0
        opened = [each.open_shards for each in self.active if each.name not in self.shards.local]
        return sum(opened) * self.run.slots_per_worker

    @property
    def buffer_bytes(self) -> int:
        """Bytes that one reading process buffers of its open shards; less for small shards."""
        shards, remote = self.shards_in_turn, self.shards_in_stores
        windows = shards * (chunk_among(shards) if len(self.plan.sources) > MANY else CHUNK)
        return windows + remote * least_piece(remote)

    @property
    def step_tokens(self) -> float | None:
        """About how many tokens a global batch has; None if the spec does not say that tokens are counted."""
        spec, plan, batch = self.spec, self.plan, self.spec.batch
        cut = all(source.tokens and source.tokens.length for source in spec.sources)
        if not (spec.counts_tokens or (cut and not plan.batching.windowed)):
            return None
        if plan.finite is not None and self.epoch_samples is not None:
            mean = self._mean_tokens
            return None if mean is None else mean * self.epoch_samples / plan.timeline.length(0)
        if batch is not None and plan.batching.windowed and self.windows is not None:
            return self.windows.cost * plan.topology.ranks
        names = [source.name for source in plan.sources]
        shares = dict.fromkeys(plan.off, Fraction(0)) | dict(zip(names, plan.segments[0].shares, strict=True))
        try:
            return float(tokens_of_step(spec, plan.batching, shares))
        except UsageError:  # the mean cost of a source is unknown
            return None

    @property
    def _mean_tokens(self) -> float | None:
        """The mean number of tokens of a sample of a pass: as measured of all, or else in the first windows."""
        shares = {each.name: Fraction(0) for each in self.spec.sources}
        try:
            return float(
                mean_tokens(self.spec, shares | {each.name: Fraction(each.share) for each in self.active})
            )
        except UsageError:  # the mean cost of a source is unknown
            return None if self.windows is None else self.windows.cost / self.windows.sizes[1]

    @cached_property
    def facts(self) -> Facts:
        """What advice needs to know."""
        memory = HeldMemory(self.held_bytes, self.buffer_bytes, self.run.workers, memory_of_machine())
        return replace(self.found, plan=self.plan, samples=self.samples, windows=self.windows, memory=memory)

    @cached_property
    def advice(self) -> list[Problem]:
        """Advice about this spec on this topology."""
        return advise(self.facts)

    def heading(self, **more: Any) -> dict[str, Any]:
        """The first entries of a report's JSON: the spec, how it draws, `more`, and the topology."""
        spec, topology = self.spec, self.plan.topology
        return {
            "name": spec.name,
            "file": spec.file,
            "split": spec.split,
            "environment": spec.environment,
            "seed": spec.seed,
            "draw": self.plan.draw,
            **more,
            "topology": {**asdict(topology), "slots": topology.slots, "why": self.run.why},
        }


def explain_spec(
    spec: Spec,
    ranks: int | None,
    workers: int | None,
    slots: int | None,
    probe: bool = True,
    storage_of: Callable[[Environment, Spec, Source], Storage] = Storage.of,
    frozen: Mapping[str, UrlSequence] | None = None,
) -> Explanation:
    """List the shards, plan, and read the headers of one local shard of each source. Runs no code.

    With `epoch: pass` the headers of all shards are read, as planning needs them.

    Args:
        spec: the spec.
        ranks, workers: the topology; by default that of the running job, and the spec's.
        slots: number of slots to describe; by default a few.
        probe: whether to read headers; otherwise only sizes that the spec declares are known.
        storage_of: makes the storage of a source.
        frozen: the shards of every source, if known.

    Raises:
        WdspecError: what planning and listing raise.
    """
    run = _run(spec, ranks, workers)
    shards = list_shards(spec, storage_of=storage_of, frozen=frozen)
    shards = with_counts(spec, shards) if spec.is_pass else shards
    plan = plan_shards(spec, shards, run.topology.ranks, run.topology.workers)
    planned = {source.name: source for source in plan.sources}
    errors: list[tuple[Source, WdspecError]] = []
    windows = None
    if probe and plan.batching.windowed:
        try:
            windows = measure_windows(spec, shards, plan)
        except WdspecError as error:
            errors.append((spec.sources[0], error))
    rounds = _count_rounds(spec, plan, windows)
    measures: dict[str, Measure] = {}
    unfound: dict[str, tuple[UnfoundTable, ...]] = {}
    measurements = _measurements(spec)
    leaves: dict[str, ExplainedSource] = {}
    for source in spec.sources:
        storage = shards.storages[source.name]
        fields = SampleFields.of(source, allow=spec.allow, secure=storage.environment.secure)
        leaf = ExplainedSource(
            source.name,
            samples=source.samples,
            order=source.order,
            fields=fields_in_words(source, fields),
            field_list=tuple(explain_fields(source, fields)),
            steps=steps_in_words(source, spec),
        )
        if source.name in planned:
            urls = shards.lists[source.name]
            measured = measure(source, urls, storage, fields.field_of) if probe else None
            if isinstance(measured, WdspecError):
                if not isinstance(measured, MissingShardError):  # W501 reports all missing shards
                    errors.append((source, measured))
                measured = None
            totals = None if measurements is None else measurements.standing_for(spec, source)
            if measured is None and totals is not None:
                measured = recall_measure(source, urls, totals, fields.field_of)
            if measured is not None:
                measures[source.name] = measured
            leaf = _plan_leaf(leaf, planned[source.name], plan, measured, rounds)
            if source.name in shards.key_lists and not spec.functions["decode"]:
                try:
                    parts = SourceParts.of(spec, source, shards)
                    leaf = _select(leaf, spec, source, shards, parts, totals, probe)
                    # In a pass, each sample that is kept is read once for each copy.
                    if plan.finite is not None and leaf.samples is not None:
                        places = planned[source.name].samples or 1
                        leaf = replace(leaf, expected=leaf.expected * leaf.samples / places)
                except WdspecError as error:
                    errors.append((source, error))
            if probe and source.lookup:
                with suppress(WdspecError):  # reading the samples raises it
                    parts = SourceParts.of(spec, source, shards)
                    unfound[source.name] = tuple(find_useless_tables(parts, source, urls))
        leaves[source.name] = leaf
    if slots is None:
        slots = max(1, min(4, 8 // len(plan.sources)))
    epoch_samples = None if rounds is None else _samples_of(plan, rounds)
    if plan.finite is not None:
        part = plan.finite.part_given if isinstance(plan.finite, WindowedPass) else 1.0
        leaves = {name: replace(each, expected=each.expected * part) for name, each in leaves.items()}
        epoch_samples = sum(each.expected for each in leaves.values())
        shares = {name: each.expected / (epoch_samples or 1) for name, each in leaves.items()}
        leaves = {name: replace(each, share=shares[name]) for name, each in leaves.items()}
    return Explanation(
        spec,
        shards,
        plan,
        run,
        tuple(_outline(spec.dataset, (), leaves)),
        tuple(_slots(plan, slots)),
        Facts(
            spec,
            shards,
            measures,
            tuple(errors),
            probe,
            unfound=unfound,
            selected={name: leaf.selected for name, leaf in leaves.items() if leaf.selected is not None},
        ),
        windows,
        tuple(_schedule(spec, shards, plan, windows)),
        epoch_samples,
    )


def _count_rounds(spec: Spec, plan: Plan, windows: WindowFacts | None) -> float | None:
    """About how many global batches, or windows of all ranks, the first epoch draws; None without epochs or windows."""
    steps = plan.timeline.epoch_steps
    if not plan.batching.windowed or plan.finite is not None:
        return steps
    if steps is None or windows is None:
        return None
    rounds = steps / windows.batches
    for _ in range(_TRIES):  # their shares depend on how many rounds there are
        rounds *= steps / _count_batches(spec, plan, windows, rounds)
    return rounds


_TRIES = 4
"""How often to correct an estimate of the rounds of an epoch by the shares of so many rounds."""


def _count_batches(spec: Spec, plan: Plan, windows: WindowFacts, rounds: float) -> float:
    """About how many batches the first rounds have: by mean costs of sources, or as in the windows that were read."""
    costs = {source.name: source.mean_cost for source in spec.sources}
    shares = zip(plan.sources, plan.mean_shares(max(1, round(rounds))), strict=True)
    parts = [(float(share), costs.get(source.name)) for source, share in shares if share]
    if plan.finite is not None or any(cost is None for _, cost in parts):
        return rounds * windows.batches
    return rounds * windows.samples * sum(share * (cost or 0) for share, cost in parts) / windows.cost


def _samples_of(plan: Plan, rounds: float) -> float:
    """About how many samples, or positions of a pass, are in the first epoch."""
    is_pass = plan.finite is not None and plan.batching.windowed
    known = plan.finite.samples if plan.finite is not None and is_pass else plan.epoch_samples
    return rounds * plan.batching.global_size if known is None else known


def _schedule(
    spec: Spec, shards: Shards, plan: Plan, windows: WindowFacts | None
) -> Iterator[ScheduledShares]:
    """The shares of each step of the schedule."""
    steps = shares_of_steps(spec, lambda source: len(shards.lists[source.name]), plan.batching.global_size)
    for (at, shares), step in zip(steps, spec.mix.schedule or (), strict=True):
        share_of = {source.name: float(shares[source.name]) for source in plan.sources}
        batch: int | None = -(-at // plan.batching.global_size)
        if plan.batching.windowed and batch:
            batch = None if windows is None else round(_count_batches(spec, plan, windows, batch))
        yield ScheduledShares(at, batch, step.ramp == "linear", share_of)


def start_in_words(explanation: Explanation, *starts: int) -> str:
    """Say when segments of a plan start: `batch 5, 100`; with windows, `about batch 64`, or `sample 300` if unknown.

    Each slot changes with its first window from there on: `about batch 0 to 800` if not all begin one there.
    """
    unit, points = _points(explanation, starts)
    return f"{unit} {join_names(points)}"


def _points(explanation: Explanation, starts: Iterable[int]) -> tuple[str, list[str]]:
    plan, known = explanation.plan, explanation.windows
    if not plan.batching.windowed:
        return "batch", [f"{start:,}" for start in starts]
    unit = "sample" if known is None else "about batch"
    slots = plan.topology.workers
    whole = (
        (start,) if start % slots == 0 else (start // slots * slots, -(-start // slots) * slots)
        for start in starts
    )

    def place(turn: int) -> int:
        if known is None:
            return turn * plan.batching.global_size
        return round(_count_batches(explanation.spec, plan, known, turn))

    return unit, [" to ".join(f"{place(turn):,}" for turn in turns) for turns in whole]


def changes_in_words(explanation: Explanation) -> str:
    """Say when shares change: `batch 5, 100 (ramp)`, `about batch 64`; in samples if batches are unknown."""
    steps, size = explanation.schedule[1:], explanation.plan.batching.global_size
    if not steps:  # `max_passes` changes them
        return start_in_words(explanation, *(segment.start for segment in explanation.plan.schedule[1:]))
    unit, points = _points(explanation, (-(-step.at // size) for step in steps))
    return f"{unit} {join_names(at + ' (ramp)' * step.ramp for at, step in zip(points, steps, strict=True))}"


def _select(
    leaf: ExplainedSource,
    spec: Spec,
    source: Source,
    shards: Shards,
    parts: SourceParts,
    totals: MeasuredSource | None,
    probe: bool,
) -> ExplainedSource:
    """Find out, or estimate by reading some, how many samples of a source its selection keeps."""
    count = None if shards.counts is None else shards.counts[source.name]
    assert parts.selection is not None, "the source has a selection"
    if (selected := selection_in_pass(count, parts.selection)) is not None:
        names = {} if totals is None or selected.by != "stats" else totals.names
        return replace(leaf, selected=selected._replace(names=names), samples=selected.kept)
    selected = selection_in_stats(totals, spec, source, shards.files.get(source.name, {}))
    if selected is not None:
        return replace(leaf, selected=selected, samples=selected.kept, estimated=False)
    if not probe:
        return leaf
    selected = measure_selection(parts, source, shards.lists[source.name])
    selected = selected._replace(is_to_measure=totals is not None and totals.is_whole)
    samples = leaf.samples
    if samples is not None:
        samples = (samples + (0 if count is None else count.uncounted)) * selected.fraction
    return replace(leaf, selected=selected, samples=samples, estimated=True)


def _measurements(spec: Spec) -> Measurements | None:
    """The file of `wdspec stats` that the spec names."""
    with suppress(OSError, UsageError):  # W108 warns about it
        return None if spec.stats is None else Measurements.read(spec.stats, shards=False)
    return None


def _run(spec: Spec, ranks: int | None, workers: int | None) -> PlannedRun:
    """The run to describe: from the options, else as this process would run, else from `elastic`."""
    seat = find_seat() if ranks is None else Seat(0, ranks)
    rank_why = (
        "--ranks" if ranks is not None else "of the running job" if seat.world_size > 1 else "one process"
    )
    topology = Topology.of(spec, seat.world_size, spec.loader.workers if workers is None else workers)
    if spec.elastic is None:
        worker_why = "--workers" if workers is not None else f"loader.workers is {spec.loader.workers}"
        return PlannedRun(topology, topology.ranks, topology.workers, f"{rank_why}, {worker_why}")
    if ranks is None and seat.world_size == 1:
        seat = Seat(0, topology.ranks)
    shared = choose_batching(spec, topology.ranks).shared
    seat.places(topology, shared)
    workers = topology.workers if workers is None else workers
    topology.check_workers(workers)
    return PlannedRun(topology, seat.world_size, max(1, workers), "elastic", shared)


def _plan_leaf(
    leaf: ExplainedSource, source: SourcePlan, plan: Plan, measured: Measure | None, rounds: float | None
) -> ExplainedSource:
    shards, held = len(source.shards), source.delays.size
    estimated, held_bytes = False, None
    samples: float | None = source.samples
    if measured is not None:
        if samples is None:
            samples, estimated = measured.samples * shards, shards > 1 or not measured.whole
        held_bytes = min(held, max(1.0, samples / plan.topology.slots)) * measured.sample_bytes
    batches = PER_UNENDING / plan.batching.global_size if rounds is None else rounds
    share = float(
        plan.mean_shares(max(1, round(batches)))[plan.sources.index(source)]
        if plan.schedule
        else source.share
    )
    return replace(
        leaf,
        share=share,
        shards=shards,
        samples=samples,
        estimated=estimated,
        expected=share * (PER_UNENDING if rounds is None else _samples_of(plan, rounds)),
        held=held,
        parts_per_shard=source.order.split,
        held_bytes=held_bytes,
        interleave=source.interleave,
        open_shards=min(source.interleave, -(-source.order.per_pass // plan.topology.slots)),
    )


def _outline(
    dataset: tuple[Source, ...], path: tuple[str, ...], leaves: dict[str, ExplainedSource]
) -> Iterator[ExplainedSource]:
    """The sources of a mix in order, each nested mix before its sources."""
    for source in dataset:
        if source.dataset is None:
            yield replace(leaves[source.name], path=path)
            continue
        inside = list(_outline(source.dataset, (*path, source.name), leaves))
        sources = [each for each in inside if not each.nested]
        shards = [each.shards for each in sources if each.shards is not None]
        yield ExplainedSource(
            source.name,
            path,
            share=sum(each.share for each in sources),
            shards=sum(shards) if shards else None,
            samples=sum_known(each.samples for each in sources),
            estimated=any(each.estimated for each in sources),
            expected=sum(each.expected for each in sources),
            nested=True,
        )
        yield from inside


def _slots(plan: Plan, most: int) -> Iterator[ExplainedSlot]:
    topology = plan.topology
    for slot in range(min(most, topology.slots)):
        rank, worker = divmod(slot, topology.workers)
        if plan.finite is not None:
            pieces = plan.finite.first_pieces(rank, worker, TURNS)
            for source, first in zip(plan.sources, pieces, strict=True):
                read = ((plan.finite.shard_at(source.order, at), *part) for at, *part in first)
                turns = [Turn(source.shards[shard].text, *part) for shard, *part in read]
                yield ExplainedSlot(rank, worker, source.name, tuple(turns))
            continue
        for source in plan.sources:
            entries = [source.order.entry(slot, turn) for turn in range(TURNS)]
            turns = [Turn(source.shards[e.shard].text, e.residue, source.order.split) for e in entries]
            yield ExplainedSlot(rank, worker, source.name, tuple(turns))


def memory_of_machine() -> int | None:
    """Bytes of memory of this machine, or of its container; None if unknown."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
        sizes.append(int(file.read()))
    return min(sizes) if sizes else None
