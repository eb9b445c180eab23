"""Counts the draws of a plan without reading data: per global batch, epoch and slot, compared with the exact shares.

Draws are pure functions of (seed, slot, t), so a million of them take a fraction of a second.

`coverage` computes how much of a source its slots have read after n draws: passes, samples seen, shards opened. As
shards are not read, each of n shards is assumed to have M / n samples: the results are exact for such shards, and
expectations otherwise. Shards whose samples are still in a buffer are always an expectation. Slots read at their own
speed, so some may be a pass ahead of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wdspec.planning.draws import IntArray
from wdspec.planning.epochs import ShuffledPass
from wdspec.planning.order import Delays, ShardOrder
from wdspec.planning.passes import Pass
from wdspec.planning.plan import Plan
from wdspec.planning.topology import legal_workers, legal_world_sizes

Counts = npt.NDArray[np.int64]
Amounts = npt.NDArray[np.float64]

AT_ONCE = 1 << 21
"""Draws counted between two reports of progress; the counts of their batches are held in memory."""
A_CALL = 1024
"""Least number of draws of a slot in one call, which makes numpy's cost per call negligible."""


@dataclass(frozen=True)
class Simulation:
    """Samples drawn from each group of sources in the batches 0..batches-1."""

    batches: int
    global_size: int
    """G: samples of a global batch."""
    epochs: int
    """Epochs started; the last one may be cut short. 1 for an endless stream."""
    padding: int
    """Padding drawn with `epoch: pass`, which belongs to no source."""
    drawn: Counts
    """Samples drawn from each group, shape (groups,)."""
    expected: Amounts
    """Samples expected from the shares, shape (groups,)."""
    batch_least: Counts
    """Fewest samples in any global batch, shape (groups,)."""
    batch_most: Counts
    """Largest number of samples in any global batch, shape (groups,)."""
    furthest: Amounts
    """Largest distance from the expected samples after any number of whole batches, shape (groups,)."""
    by_epoch: Counts
    """Samples in each epoch, shape (epochs, groups)."""
    by_slot: Counts
    """Samples in each slot, shape (slots, groups)."""
    first_by_slot: Counts
    """Samples in each slot up to the end of the first epoch, shape (slots, groups)."""

    @property
    def samples(self) -> int:
        """Samples drawn over all ranks, with padding."""
        return self.batches * self.global_size


def simulate(
    plan: Plan,
    batches: int,
    groups: Sequence[Sequence[int]] | None = None,
    advance: Callable[[int], Any] = lambda batches: None,
    epoch: int | None = None,
) -> Simulation:
    """Draw the first global batches of a plan, and count.

    Args:
        plan: the plan.
        batches: number of global batches, from J = 0; at least 1.
        groups: sets of sources to count together, none of them empty, as indices into the plan's sources; by
            default each alone.
        advance: called with the number of batches done since the last call.
        epoch: number of draws of an epoch; by default, its steps.
    """
    topology, size = plan.topology, plan.batching.global_size
    width = len(plan.sources) + 1  # the last column counts padding
    groups = [[n] for n in range(width - 1)] if groups is None else groups
    columns, starts = np.concatenate(groups), np.cumsum([0, *map(len, groups)])[:-1]

    def group(amounts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Add up the sources of each group, along the last axis."""
        return np.add.reduceat(amounts[..., columns], starts, axis=-1)

    epoch = epoch or (plan.timeline.epoch_steps if plan.finite is None else plan.finite.rounds) or batches
    step = max(topology.workers * -(-A_CALL // plan.batching.per_slot), AT_ONCE // size)
    batches_of = plan.draws().batches if plan.finite is None else _pass_batches(plan.finite, 0)

    by_epoch = np.zeros((-(-batches // epoch), width), dtype=np.int64)
    by_slot = np.zeros((topology.slots, width), dtype=np.int64)
    first_by_slot = by_slot
    ahead, expected, furthest = np.zeros((3, len(groups)))
    least, most = np.full(len(groups), size), np.zeros(len(groups), dtype=np.int64)
    done = 0
    while done < batches:
        number, inside = divmod(done, epoch)
        first = done if plan.finite is None else inside
        if plan.finite is not None:
            batches_of = _pass_batches(plan.finite, number)
        count = min(step, batches - done, epoch - inside)
        counts = np.zeros((count, width), dtype=np.int64)
        for rank in range(topology.ranks):
            for worker in range(topology.workers):
                m = -((worker - first) // topology.workers)
                rows = slice(m * topology.workers + worker - first, None, topology.workers)
                own = len(range(count)[rows])
                if own:
                    slot_counts = _row_counts(batches_of(rank, worker, m, own), width)
                    counts[rows] += slot_counts
                    by_slot[topology.slot(rank, worker)] += slot_counts.sum(axis=0)
        by_epoch[number] += counts.sum(axis=0)
        grouped = group(counts)
        least, most = np.minimum(least, grouped.min(axis=0)), np.maximum(most, grouped.max(axis=0))
        shares = (size - counts[:, -1:]) * group(_shares(plan, first, count))
        distances = ahead + np.cumsum(grouped - shares, axis=0)
        furthest = np.maximum(furthest, np.abs(distances).max(axis=0))
        ahead, expected = distances[-1], expected + shares.sum(axis=0)
        done += count
        if done == min(epoch, batches):
            first_by_slot = by_slot.copy()
        advance(count)
    padding = int(by_epoch[:, -1].sum())
    return Simulation(
        batches=batches,
        global_size=size,
        epochs=len(by_epoch),
        padding=padding,
        drawn=group(by_epoch.sum(axis=0)),
        expected=expected,
        batch_least=least,
        batch_most=most,
        furthest=furthest,
        by_epoch=group(by_epoch),
        by_slot=group(by_slot),
        first_by_slot=group(first_by_slot),
    )


def drawn_sources(plan: Plan, batches: int, first: int = 0) -> IntArray:
    """The source of each sample of global batches, as an index into the plan's sources, shape (batches, G).

    Padding has the index after the last source. Samples are in order, rank after rank.

    Args:
        plan: the plan.
        batches: how many.
        first: J of the first one; in an epoch if each pass is the same.
    """
    topology, size = plan.topology, plan.batching.global_size
    drawn = np.empty((batches, size), dtype=np.int64)
    b, finite = plan.batching.per_slot, plan.finite
    if finite is not None and finite.is_reshuffled:
        for row in range(batches):
            epoch, inside = divmod(first + row, finite.rounds)
            worker, number = inside % topology.workers, inside // topology.workers
            for rank in range(topology.ranks):
                drawn[row, rank * b : (rank + 1) * b] = _pass_batches(finite, epoch)(rank, worker, number, 1)
        return drawn
    batches_of = plan.draws().batches if finite is None else _pass_batches(finite, 0)
    for rank in range(topology.ranks):
        for row in range(min(topology.workers, batches)):
            number, worker = divmod(first + row, topology.workers)
            rows = drawn[row :: topology.workers, rank * b : (rank + 1) * b]
            rows[:] = batches_of(rank, worker, number, len(rows))
    return drawn


def legal_runs(plan: Plan) -> tuple[list[int], list[int]]:
    """The ranks R and the workers W with which the plan can run, any R with any W."""
    topology = plan.topology
    return legal_world_sizes(topology.ranks, plan.batching.shared), legal_workers(topology.workers)


def _pass_batches(finite: Pass, epoch: int) -> Callable[[int, int, int, int], IntArray]:
    """`Draws.batches` for an epoch of a finite pass; padding is numbered after the last source."""
    if isinstance(finite, ShuffledPass):
        order, sources = finite.epoch(epoch), len(finite.counts)

        def shuffled(rank: int, worker: int, first: int, count: int) -> IntArray:
            found = np.full((count, finite.per_slot), sources)
            # Some slots have a window less than others.
            for row, drawn in zip(found, order.draws(rank, worker).sources(first, count), strict=False):
                row[: len(drawn)] = drawn
            return found

        return shuffled
    ends = np.minimum(np.cumsum([count.samples for count in finite.counts]), finite.samples)

    def batches(rank: int, worker: int, first: int, count: int) -> IntArray:
        b = finite.per_slot
        begin = finite.slot_range(rank, worker)[0] + first * b
        positions = np.arange(begin, begin + count * b).reshape(count, b)
        return np.searchsorted(ends, positions, side="right")

    return batches


def _shares(plan: Plan, first: int, count: int) -> Amounts:
    """The shares of the sources in the batches first..first+count-1, shape (count, sources + 1), 0 for padding."""
    shares = np.zeros((count, len(plan.sources) + 1))
    for segment in plan.segments:  # each from its start, until the next one overwrites it
        shares[max(0, segment.start - first) :, :-1] = [float(share) for share in segment.shares]
    return shares


def _row_counts(drawn: IntArray, width: int) -> Counts:
    """How often each source occurs in each row, shape (rows, width)."""
    rows = len(drawn)
    flat = drawn + np.arange(rows)[:, None] * width
    return np.bincount(flat.ravel(), minlength=rows * width).reshape(rows, width)


Numbers = npt.NDArray[np.int64]

_TINY = 1e-9
"""Rounding error of a number of turns."""


@dataclass(frozen=True)
class Coverage:
    """How much of a source has been read."""

    passes: float
    """Samples drawn / samples of the source."""
    seen: float
    """Fraction of the source's samples that were drawn at least once."""
    repeats: float
    """Samples drawn again."""
    shards_touched: float
    """Distinct shards opened, including those of samples that are still held."""
    slot_turns: Numbers
    """Shards, or parts of them, opened by each slot, shape (slots,)."""
    slot_passes: Numbers
    """The pass that each slot has reached, from 0, shape (slots,)."""


def coverage(
    order: ShardOrder, delays: Delays, drawn: Numbers, samples: float, interleave: int = 1
) -> Coverage:
    """Compute the coverage of a source after its slots drew `drawn` samples each.

    Args:
        order: the source's shard order.
        delays: its delays; because of them, more is read than drawn.
        drawn: samples drawn by each slot, shape (slots,).
        samples: M, samples of the source, more than 0.
        interleave: shards that a slot reads in turn.
    """
    per_turn = samples / order.per_pass
    drawn_turns = drawn / per_turn
    last = np.maximum(np.ceil(drawn_turns - _TINY), 1).astype(np.int64) - 1
    passes = np.array([order.passes_at(slot, turn) for slot, turn in enumerate(last.tolist())])
    begin, end = _turns_before(order, passes), _turns_before(order, passes + 1)
    into = drawn - begin * per_turn
    read = np.minimum(_read(delays, into), (end - begin) * per_turn)
    # Shards of one size that are read in turn end together, so the slot is in one group of them.
    whole = np.maximum(np.ceil(read / (interleave * per_turn) - _TINY) - 1, 0)
    opened = whole * interleave + np.minimum(
        np.ceil(read - whole * interleave * per_turn - _TINY), interleave
    )
    turns = np.where(drawn > 0, begin + np.minimum(opened, end - begin), 0).astype(np.int64)
    seen, touched = _distinct(order, drawn_turns, turns)
    total = int(drawn.sum())
    return Coverage(
        passes=total / samples,
        seen=seen,
        repeats=max(0.0, total - seen * samples),
        shards_touched=touched * order.shards,
        slot_turns=turns,
        slot_passes=passes,
    )


def _turns_before(order: ShardOrder, passes: Numbers | int) -> Numbers:
    """Turns of each slot in the passes before the given ones, shape (slots,)."""
    if order.kind == "shuffled":
        turns: Numbers = np.maximum(0, -((np.arange(order.slots) - passes * order.per_pass) // order.slots))
        return turns
    ends = np.broadcast_to(passes, order.slots).tolist()
    last = [order.last_turn(slot, end - 1) if end else -1 for slot, end in enumerate(ends)]
    return np.array(last, dtype=np.int64) + 1


def _read(delays: Delays, into: npt.NDArray[np.float64]) -> Numbers:
    """Mean number of samples that a slot has read of its pass when it has yielded `into` of them.

    After reading x samples, a slot holds as many as the mean delay up to x, and has yielded the rest. Whole blocks are
    read.
    """
    if delays.size == 1:
        return np.ceil(into).astype(np.int64)
    low, high = into, into + delays.size
    for _ in range(40):
        middle = (low + high) / 2
        enough = middle - delays.held_after(middle) >= into
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    read: Numbers = np.round(high + delays.block / 2).astype(np.int64)
    return read


def _distinct(order: ShardOrder, drawn_turns: npt.NDArray[np.float64], turns: Numbers) -> tuple[float, float]:
    """(fraction of the samples drawn, fraction of the shards opened), each counted once.

    Permutations of different passes are independent, so the fractions that each pass leaves out multiply. Within a pass
    nothing repeats.
    """
    if order.kind == "resampled":
        return _expect_resampled(order.shards, drawn_turns), _expect_resampled(order.shards, turns)
    unseen = untouched = 1.0
    for passes in range(int(max(turns.max(), 1) * order.slots // order.per_pass) + 1):
        begin, end = _turns_before(order, passes), _turns_before(order, passes + 1)
        unseen *= 1 - np.clip(drawn_turns - begin, 0, end - begin).sum() / order.per_pass
        untouched *= (1 - np.clip(turns - begin, 0, end - begin).sum() / order.per_pass) ** order.split
        if unseen < _TINY or order.kind == "sequential":  # later passes start with the same shards
            break
    return float(min(1.0, 1 - unseen)), float(min(1.0, 1 - untouched))


def _expect_resampled(shards: int, turns: npt.NDArray[np.float64] | Numbers) -> float:
    """The expected fraction of the shards among `turns` picks with replacement."""
    if shards == 1:
        return float(min(1.0, turns.max()))
    return float(-np.expm1(turns.sum() * np.log1p(-1 / shards)))
