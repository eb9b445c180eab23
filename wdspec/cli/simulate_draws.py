"""Counts what a plan draws, without reading anything: per global batch, epoch and slot, against the exact shares.

Draws are pure functions of (seed, slot, t), so a million of them take a fraction of a second.

How much of a source its slots have read after so many draws: passes, samples seen, shards touched.

Shards are taken to be of one size, M / n samples, as nobody has read them: the figures are exact for shards that
are, and expectations else; but the shards of samples that were read and are held are an expectation in any case. Slots
read at their own speed, so some may be a pass ahead of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wdspec.planning.draws import IntArray
from wdspec.planning.order import Delays, ShardOrder
from wdspec.planning.passes import Pass
from wdspec.planning.plan import Plan
from wdspec.planning.topology import legal_workers, legal_world_sizes

Counts = npt.NDArray[np.int64]
Amounts = npt.NDArray[np.float64]

AT_ONCE = 1 << 21
"""Draws counted between two reports of progress; the counts of their batches are held in memory."""
A_CALL = 1024
"""Draws of a slot asked for at a time, at least: numpy's cost per call is then small beside them."""


@dataclass(frozen=True)
class Simulation:
    """What was drawn of each group of sources in the batches 0..batches-1."""

    batches: int
    global_size: int
    """G: samples of a global batch."""
    epochs: int
    """Epochs begun; the last one may be cut short. 1 for an endless stream."""
    padding: int
    """Padding drawn with `epoch: pass`, which belongs to no source."""
    drawn: Counts
    """Samples drawn of each group, shape (groups,)."""
    expected: Amounts
    """Samples that the shares ask for, shape (groups,)."""
    batch_least: Counts
    """Fewest samples in any global batch, shape (groups,)."""
    batch_most: Counts
    """Most samples in any global batch, shape (groups,)."""
    furthest: Amounts
    """Largest distance from what the shares ask for after any number of whole batches, shape (groups,)."""
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
) -> Simulation:
    """Draws the first global batches of a plan and counts.

    Args:
        plan: the plan.
        batches: how many global batches, from J = 0 on; at least 1.
        groups: sets of sources to count together, as indices into the plan's sources; by default each alone.
        advance: called with the number of batches done since the last call.
    """
    topology, size = plan.topology, plan.batching.global_size
    width = len(plan.sources) + 1  # the last column counts padding
    members = np.zeros((width, len(plan.sources) if groups is None else len(groups)), dtype=np.int64)
    for column, group in enumerate([[n] for n in range(width - 1)] if groups is None else groups):
        members[list(group), column] = 1
    epoch = plan.epoch_batches or batches
    step = max(topology.workers * -(-A_CALL // plan.batching.per_slot), AT_ONCE // size)
    batches_of = plan.draws().batches if plan.finite is None else _pass_batches(plan.finite)

    by_epoch = np.zeros((-(-batches // epoch), width), dtype=np.int64)
    by_slot = np.zeros((topology.slots, width), dtype=np.int64)
    first_by_slot = by_slot
    ahead, expected, furthest = np.zeros((3, members.shape[1]))
    least, most = np.full(members.shape[1], size), np.zeros(members.shape[1], dtype=np.int64)
    done = 0
    while done < batches:
        number, begun = divmod(done, epoch)
        first = done if plan.finite is None else begun  # every pass is dealt alike
        count = min(step, batches - done, epoch - begun)
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
        grouped = counts @ members
        least, most = np.minimum(least, grouped.min(axis=0)), np.maximum(most, grouped.max(axis=0))
        asked = size * (_asked(plan, first, count) @ members)
        distances = ahead + np.cumsum(grouped - asked, axis=0)
        furthest = np.maximum(furthest, np.abs(distances).max(axis=0))
        ahead, expected = distances[-1], expected + asked.sum(axis=0)
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
        drawn=by_epoch.sum(axis=0) @ members,
        expected=expected * (1 - padding / (batches * size)),
        batch_least=least,
        batch_most=most,
        furthest=furthest,
        by_epoch=by_epoch @ members,
        by_slot=by_slot @ members,
        first_by_slot=first_by_slot @ members,
    )


def drawn_sources(plan: Plan, batches: int) -> IntArray:
    """Which source each sample of the first global batches comes from, shape (batches, G): an index into the plan's
    sources, behind the last one for padding; rank after rank, in the order in which a rank gets them."""
    topology, size = plan.topology, plan.batching.global_size
    batches_of = plan.draws().batches if plan.finite is None else _pass_batches(plan.finite)
    drawn = np.empty((batches, size), dtype=np.int64)
    b = plan.batching.per_slot
    for rank in range(topology.ranks):
        for worker in range(min(topology.workers, batches)):
            rows = drawn[worker :: topology.workers, rank * b : (rank + 1) * b]
            rows[:] = batches_of(rank, worker, 0, len(rows))
    return drawn


def legal_runs(plan: Plan) -> tuple[list[int], list[int]]:
    """The ranks R and the workers W that a run of the plan may have, any R with any W."""
    topology = plan.topology
    return legal_world_sizes(topology.ranks, plan.batching.shared), legal_workers(topology.workers)


def _pass_batches(finite: Pass) -> Callable[[int, int, int, int], IntArray]:
    """`Draws.batches` for a finite pass; padding is numbered after the last source."""
    ends = np.minimum(np.cumsum([count.samples for count in finite.counts]), finite.samples)

    def batches(rank: int, worker: int, first: int, count: int) -> IntArray:
        b = finite.per_slot
        begin = finite.slot_range(rank, worker)[0] + first * b
        positions = np.arange(begin, begin + count * b).reshape(count, b)
        return np.searchsorted(ends, positions, side="right")

    return batches


def _asked(plan: Plan, first: int, count: int) -> Amounts:
    """The shares of the sources in the batches first..first+count-1, shape (count, sources + 1), 0 for padding."""
    asked = np.zeros((count, len(plan.sources) + 1))
    for segment in plan.segments:  # each from its start on, up to where the next one overwrites it
        asked[max(0, segment.start - first) :, :-1] = [float(share) for share in segment.shares]
    return asked


def _row_counts(drawn: IntArray, width: int) -> Counts:
    """How often each source occurs in each row, shape (rows, width)."""
    rows = len(drawn)
    flat = drawn + np.arange(rows)[:, None] * width
    return np.bincount(flat.ravel(), minlength=rows * width).reshape(rows, width)


Numbers = npt.NDArray[np.int64]

_TINY = 1e-9
"""What rounding may add to a number of turns."""


@dataclass(frozen=True)
class Coverage:
    """What has been read of one source."""

    passes: float
    """Samples drawn / samples of the source."""
    seen: float
    """Fraction of the source's samples that were drawn at least once."""
    repeats: float
    """Samples drawn that had been drawn before."""
    shards_touched: float
    """Distinct shards opened, those of samples that are held among them."""
    slot_turns: Numbers
    """Shards, or parts of them, opened by each slot, shape (slots,)."""
    slot_passes: Numbers
    """The pass that each slot has got to, from 0, shape (slots,)."""


def coverage(
    order: ShardOrder, delays: Delays, drawn: Numbers, samples: float, interleave: int = 1
) -> Coverage:
    """Coverage of a source after its slots drew `drawn` samples each.

    Args:
        order: the source's shard order.
        delays: its delays, by which more is read than drawn.
        drawn: samples drawn by each slot, shape (slots,).
        samples: M, samples of the source, over 0.
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
    """Samples that a slot has read of its pass on average, `into` samples of which came out.

    Behind x samples, the mean delay up to x is how many are held: x - that came out. Whole blocks are read.
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

    Permutations of different passes have nothing to do with each other, so what pass after pass has left out
    multiplies. Within a pass nothing comes twice.
    """
    if order.kind == "resampled":
        return _of_resampled(order.shards, drawn_turns), _of_resampled(order.shards, turns)
    unseen = untouched = 1.0
    for passes in range(int(max(turns.max(), 1) * order.slots // order.per_pass) + 1):
        begin, end = _turns_before(order, passes), _turns_before(order, passes + 1)
        unseen *= 1 - np.clip(drawn_turns - begin, 0, end - begin).sum() / order.per_pass
        untouched *= (1 - np.clip(turns - begin, 0, end - begin).sum() / order.per_pass) ** order.split
        if unseen < _TINY or order.kind == "sequential":  # later passes would begin with the same shards
            break
    return float(min(1.0, 1 - unseen)), float(min(1.0, 1 - untouched))


def _of_resampled(shards: int, turns: npt.NDArray[np.float64] | Numbers) -> float:
    """The expected fraction of the shards among so many picked with replacement."""
    if shards == 1:
        return float(min(1.0, turns.max()))
    return float(-np.expm1(turns.sum() * np.log1p(-1 / shards)))
