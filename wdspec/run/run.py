"""A run: a plan as one rank executes it. It is frozen and pickles; a `Stream` moves a `Position` along it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Any

from wdspec.planning.digest import describe_order, describe_samples, digest, digest_windows
from wdspec.planning.past import Changes
from wdspec.planning.plan import Plan
from wdspec.planning.shares import LiveShares, ScheduleSegment, live_segments
from wdspec.planning.topology import Seat
from wdspec.read.batch import as_tuple, build_collate
from wdspec.read.counts import Amount, Counts, TokenFields, count_samples, must_count_tokens, token_fields
from wdspec.read.packing import build_window_collate
from wdspec.read.reader import Reader, SlotTable
from wdspec.read.sections import shares_of, tops_of
from wdspec.read.source import StreamState, unpack_slot
from wdspec.read.transform import Sample, SourceParts, parts_of
from wdspec.shards.shards import Shards
from wdspec.spec.spec import Spec


@dataclass(frozen=True)
class Run:
    """What a rank reads. It is frozen, and it pickles."""

    spec: Spec
    shards: Shards
    plan: Plan
    seat: Seat
    parts: Mapping[str, SourceParts]
    """How every source is read."""
    canonical_ranks: range
    """The canonical ranks that this rank reads, completely or in part."""
    own: slice
    """This rank's samples among those of its canonical ranks in a batch."""
    order_text: str
    """Everything that the order depends on (`planning.digest.describe_order`), as JSON text."""
    order_digest: str
    """A digest of `order_text`; a state of another digest does not fit."""
    samples_digest: str
    """A digest of what changes the samples but not their order."""
    state_names: tuple[str, ...]
    """The names of the sources in the order of a slot's state; then the companions, the stage and the windows."""

    @cached_property
    def items_per_step(self) -> int:
        """Items of one global batch that the training loop gets on this rank.

        1 with `batch`; one per canonical rank without it, or with `batch: {accumulate: true}`.
        """
        batching = self.plan.batching
        return 1 if batching.batched and not batching.accumulated else len(self.canonical_ranks)

    @property
    def slot_count(self) -> int:
        """Number of slots that this rank reads; in a short pass, only those that get a batch."""
        finite, slots = self.plan.finite, self.plan.topology.workers
        return len(self.canonical_ranks) * (slots if finite is None else min(slots, finite.batches))

    @cached_property
    def has_sections(self) -> bool:
        """Whether slots have places in sections (`read/sections.py`): in windows, or in the input of a stage."""
        return len(self.state_names) > len(self.plan.sources) + len(self.plan.companions)

    @property
    def mean_costs(self) -> tuple[float, ...]:
        """The mean cost of a sample of each source, if shares are in cost; otherwise empty."""
        costs = {source.name: source.mean_cost for source in self.spec.sources}
        means = [costs[source.name] for source in self.plan.sources]
        in_cost = any(mix.shares_in != "samples" for mix in self.spec.mixes)
        return (
            tuple(float(mean) for mean in means if mean is not None) if in_cost and None not in means else ()
        )

    def segments(self, live: Sequence[LiveShares]) -> tuple[ScheduleSegment, ...]:
        """Return the schedule segments of shares set at run time (`live_segments`)."""
        names = [source.name for source in self.plan.sources]
        return live_segments(self.spec, names, live, lambda source: len(self.shards.lists[source.name]))

    def shares_at(self, step: int, changes: Changes, slots: Mapping[int, bytes]) -> dict[str, float]:
        """Return the share of every source in global batch J: with windows or a stage, of those that it is from.

        Args:
            step: J.
            changes: the shares set at run time, and earlier specs.
            slots: slot -> packed state before this step.
        """
        sources, planned = self.plan.sources, self.plan.with_shares(changes.segments).segments
        if not self.has_sections or self.plan.finite is not None:
            found = [[each for each in planned if each.start <= step][-1].shares]
        else:
            worker, turn = self.plan.slot_of_step(step)
            numbers = [self.plan.topology.slot(rank, worker) for rank in self.canonical_ranks]
            found = [self._shares_of_section(slots.get(each, b""), worker, turn, changes) for each in numbers]
        means = [float(sum(each) / len(found)) for each in zip(*found, strict=True)]
        return {source.name: mean for source, mean in zip(sources, means, strict=True)}

    def _shares_of_section(
        self, state: bytes, worker: int, turn: int, changes: Changes
    ) -> tuple[Fraction, ...]:
        """Return the shares by which the section is drawn from which a slot gives its next batch."""
        count, workers = len(self.plan.sources) + len(self.plan.companions), self.plan.topology.workers
        place = (unpack_slot(state) if state else [StreamState()] * (count + 1))[count]
        begun = (place.last if place.ordinal else turn) * workers + worker
        past = next((past for past in changes.past if begun < past.until), None)
        plan, live = self.plan if past is None else past.plan(self.plan), shares_of(place, tops_of(self.plan))
        set_later = [each for each in changes.segments if each.start <= begun and not place.ordinal]
        if live is not None:
            return (self.segments([live])[0] if past is None else past.segment(plan, live)).shares
        if set_later:
            return set_later[-1].shares
        block = place.turn * workers + worker
        return [each for each in plan.segments if each.start <= block][-1].shares

    @cached_property
    def token_fields(self) -> Mapping[str, TokenFields]:
        """The fields in which tokens are counted, by source."""
        return token_fields(self.spec)

    @cached_property
    def counts_steps(self) -> bool:
        """Whether steps say what they have of each source, as it does not follow from the position."""
        batch = self.spec.batch
        has_tokens = bool(batch and batch.collate) or any(each.open.tokens for each in self.parts.values())
        must_count = self.has_sections or (has_tokens and must_count_tokens(self.spec))
        return must_count or (self.plan.finite is not None and self._may_lose())

    def _may_lose(self) -> bool:
        """Whether a pass may lose samples, ends before all sources have been read, or differs from the others."""
        parts = self.parts.values()
        loses = any(each.drops_decoded or each.errors.skip or each.selection is not None for each in parts)
        return loses or self.spec.limit is not None or self.spec.reshuffles

    def nothing_of(self, source: str) -> Amount:
        """Return the amount of a source of which nothing was received yet."""
        batch = self.spec.batch if self.plan.batching.windowed else None
        has_cost = batch is not None and (batch.cost is not None or batch.pack is not None)
        return Amount(0, 0 if has_cost else None, 0 if self.token_fields.get(source) else None)

    def count(self, parts: Sequence[Sequence[Sample]]) -> tuple[Counts | None, ...] | None:
        """Return how much of each source a step has, for each canonical rank; None if it follows from the draws."""
        if not self.counts_steps:
            return None
        return tuple(count_samples(part, self.token_fields) for part in parts)

    def reader(self, table: SlotTable | None = None) -> Reader:
        """Return a reader of this rank's part of each global batch, which resumes from the states of slots."""
        return Reader(self.plan, self.parts, self.canonical_ranks, self.spec, table)

    @cached_property
    def assemble(self) -> Callable[[int, Sequence[Sequence[Sample]]], list[Any]]:
        """The function from (J, the samples of each canonical rank) to the `items_per_step` items of the step.

        With `batch`, one dict of tensors, or one tuple with `to_tuple` (with `accumulate`, one per canonical rank).
        Without, the samples as dicts or tuples.
        """
        entries, batch = self.spec.to_tuple, self.spec.batch
        if batch is None:
            if entries is None:
                return lambda step, parts: list(chain.from_iterable(parts))
            return lambda step, parts: [as_tuple(sample, entries) for part in parts for sample in part]
        build = build_window_collate if self.plan.batching.windowed else build_collate
        collate = build(batch, entries, self.spec.folder, self.plan.seed)
        size, of_all = self.plan.batching.per_slot, self.plan.batching.global_size
        first, own = self.canonical_ranks.start * size, self.own
        if self.plan.batching.accumulated:
            return lambda step, parts: [
                collate(part, step * of_all + first + at * size) for at, part in enumerate(parts)
            ]
        if len(self.canonical_ranks) == 1 and own == slice(0, size):
            return lambda step, parts: [collate(parts[0], step * of_all + first)]
        return lambda step, parts: [
            collate([*chain.from_iterable(parts)][own], step * of_all + first + own.start)
        ]

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the cached properties.
        return {each.name: getattr(self, each.name) for each in fields(self)}


def make_run(plan: Plan, spec: Spec, shards: Shards, seat: Seat, workers: int = 0) -> Run:
    """Return what one rank reads of a plan.

    Args:
        plan: the plan (`plan_shards`).
        spec: its spec.
        shards: the shards of the spec.
        seat: which rank this is.
        workers: workers per rank; 0 reads in the process of the rank.

    Raises:
        UsageError: the ranks or workers do not divide the canonical ones.
    """
    plan.topology.check_workers(workers)
    topology, shared = plan.topology, plan.batching.shared
    places, ranks = seat.places(topology, shared), seat.canonical_ranks(topology, shared)
    first = ranks.start * shared
    # Hashing long lists of shards takes time: do it now, so that no state has to wait for it.
    order = describe_order(spec, plan, shards.files)
    sections = [each.name for each in plan.companions] + ([f"stage {spec.stage.name}"] if spec.stage else [])
    sections += [f"windows {digest_windows(order)}"] if plan.batching.windowed else []
    return Run(
        spec=spec,
        shards=shards,
        plan=plan,
        seat=seat,
        parts=parts_of(spec, shards),
        canonical_ranks=ranks,
        own=slice(places.start - first, places.stop - first),
        order_text=json.dumps(order),
        order_digest=digest(order),
        samples_digest=describe_samples(spec, shards.files),
        state_names=(*(source.name for source in plan.sources), *sections),
    )
