"""How much of a source its slots have read after so many draws: passes, samples seen, shards touched.

Shards are taken to be of one size, M / n samples, as nobody has read them: the figures are exact for shards that
are, and expectations else; but the shards of samples that were read and are held are an expectation in any case. Slots
read at their own speed, so some may be a pass ahead of others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wdspec.planning.delays import Delays
from wdspec.planning.shard_order import ShardOrder

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
