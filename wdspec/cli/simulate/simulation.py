"""Counts what a plan draws, without reading anything: per global batch, epoch and slot, against the exact shares.

Draws are pure functions of (seed, slot, t), so a million of them take a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wdspec.planning.draws import IntArray
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
