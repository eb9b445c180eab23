"""Slots: the unit of order. N canonical ranks × K canonical workers = N·K endless sample streams.

Epoch lengths: a cut of the endless stream into equal runs of global batches.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import gcd, isqrt

from wdspec.base.errors import UsageError
from wdspec.spec.language.values import MOST_SAMPLES
from wdspec.spec.spec import Spec


@dataclass(frozen=True)
class Topology:
    """The canonical topology, which fixes the order of a run whatever reads it."""

    ranks: int = 1
    """N: data-parallel ranks."""
    workers: int = 1
    """K: reading processes per rank; a run without worker processes counts as one."""

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.workers < 1:
            raise UsageError(
                f"a topology needs at least one rank and one worker, not {self.ranks} × {self.workers}"
            )

    @property
    def slots(self) -> int:
        """S = N·K."""
        return self.ranks * self.workers

    def slot(self, rank: int, worker: int) -> int:
        """The number of slot (c, k), in 0..S-1."""
        return rank * self.workers + worker

    def most_read(self, ranks: int, per_slot: int = 1) -> int:
        """The most canonical ranks, whole or in part, that one of R ranks reads; R divides N·b (`Seat.places`).

        Ranks begin at all multiples of g = gcd(N·b / R, b) of a canonical rank's places; the worst is the last of them.
        """
        each = self.ranks * per_slot // ranks
        return -(-(per_slot - gcd(each, per_slot) + each) // per_slot)

    def check_workers(self, workers: int) -> None:
        """Checks that W reading processes per rank can share the K canonical workers.

        Raises:
            UsageError: W does not divide K; the message lists the numbers that do.
        """
        if self.workers % max(1, workers):
            raise UsageError(
                f"{workers} workers cannot share {self.workers} canonical workers evenly; "
                f"use {_listed(legal_workers(self.workers))} (or 0)"
            )


@dataclass(frozen=True)
class Seat:
    """Where one process group member sits in a run: rank r of R."""

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise UsageError(
                f"rank {self.rank} is not in 0..{self.world_size - 1} (world size {self.world_size})"
            )

    def places(self, topology: Topology, per_slot: int = 1) -> range:
        """This rank's places among the N·b of a global batch, which come canonical rank by canonical rank.

        Args:
            per_slot: b, where ranks may share a slot's part of a batch; 1 where they may not.

        Raises:
            UsageError: R does not divide N·b; the message names the nearest world sizes that do.
        """
        places = topology.ranks * per_slot
        each, rest = divmod(places, self.world_size)
        if rest:
            legal = _divisors(places)
            above = bisect_right(legal, self.world_size)
            near = " or ".join(map(str, legal[above - 1 : above + 1]))
            what = (
                f"a global batch of {places} samples" if per_slot > 1 else f"{topology.ranks} canonical ranks"
            )
            raise UsageError(
                f"{self.world_size} ranks cannot share {what} evenly; run with a world size of {near} (of "
                f"{_listed(legal)})"
            )
        return range(self.rank * each, (self.rank + 1) * each)

    def canonical_ranks(self, topology: Topology, per_slot: int = 1) -> range:
        """The canonical ranks that this rank reads, whole or in part: those of its `places`.

            N = 4, b = 3, R = 3:   places  0 1 2 | 3 4 5 | 6 7 8 | 9 10 11     canonical ranks 0..3
                                   ranks   0 0 0   0 1 1   1 1 2   2  2  2     rank 1 reads 1 and 2

        Raises:
            UsageError: as `places`.
        """
        places = self.places(topology, per_slot)
        return range(places.start // per_slot, -(-places.stop // per_slot))


def legal_world_sizes(ranks: int, per_slot: int = 1) -> list[int]:
    """The numbers R of ranks that can share N canonical ranks evenly, ascending; `per_slot` as for `Seat.places`."""
    return _divisors(ranks * per_slot)


def legal_workers(workers: int) -> list[int]:
    """The numbers W of reading processes per rank that can share K canonical workers, ascending, beside 0."""
    return _divisors(workers)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def slot_of_batch(batch: int, topology: Topology) -> tuple[int, int]:
    """(k, m) of global batch J: canonical worker k = J mod K serves it as its m-th batch, m = ⌊J/K⌋.

    Counting J through epochs, never from 0 again, is what keeps every slot read when K does not divide
    the epoch.
    """
    m, k = divmod(batch, topology.workers)
    return k, m


@dataclass(frozen=True)
class Batching:
    """How samples are gathered into global steps, the same on every rank."""

    per_slot: int
    """b: samples one slot gives to one global batch; 1 without `batch`."""
    global_size: int
    """G = N·b: samples of one global batch over all canonical ranks."""
    batched: bool
    """False: the pipeline yields samples, one a canonical rank and step."""
    accumulated: bool = False
    """Whether a rank gets the samples of each of its canonical ranks by themselves."""

    @property
    def shared(self) -> int:
        """b where ranks may share what a slot gives to a batch, 1 where each item is of one canonical rank."""
        return self.per_slot if self.batched and not self.accumulated else 1


def batching(spec: Spec, ranks: int) -> Batching:
    """The batching of spec over N canonical ranks.

    Raises:
        UsageError: `batch.global_size` is not divisible by N; the message lists divisors near by.
    """
    if spec.batch is None:
        return Batching(1, ranks, batched=False)
    if spec.batch.size is not None:
        return Batching(spec.batch.size, spec.batch.size * ranks, True, spec.batch.accumulate)
    size = spec.batch.global_size
    assert size is not None, "the spec room checks that one of the two is given"
    each, rest = divmod(size, ranks)
    if rest:
        below, above = each * ranks, (each + 1) * ranks
        near = f"{below} or {above}" if below else str(above)
        raise UsageError(f"batch.global_size {size} cannot be shared evenly by {ranks} ranks; use {near}")
    if each > MOST_SAMPLES:
        raise UsageError(
            f"batch.global_size {size:,} has each of {ranks:,} ranks hold {each:,} samples at once; the limit is "
            f"{MOST_SAMPLES:,}"
        )
    return Batching(each, size, True, spec.batch.accumulate)


def epoch_batches(spec: Spec, batching: Batching) -> int | None:
    """E, the global batches of an epoch: ⌊samples / G⌋, or as given; None for an endless stream.

    `limit` caps it.

    Raises:
        UsageError: the epoch is shorter than one global batch, or would end by `limit` inside one.
    """
    length: int | None = None
    if spec.epoch is not None:
        if spec.epoch.batches is not None:
            length = spec.epoch.batches
        elif spec.epoch.samples is not None:
            length = spec.epoch.samples // batching.global_size
            if not length:
                raise UsageError(
                    f"an epoch of {spec.epoch.samples} samples is shorter than one global batch of "
                    f"{batching.global_size}; raise `epoch` or lower `batch`"
                )
    if spec.limit is None or (length is not None and length * batching.global_size <= spec.limit):
        return length
    cap, rest = divmod(spec.limit, batching.global_size)
    if rest:
        near = [str(whole * batching.global_size) for whole in (cap, cap + 1) if whole]
        raise UsageError(
            f"`limit: {spec.limit}` would end inside a global batch of {batching.global_size} samples, and all "
            f"batches are whole; use {' or '.join(near)}, or `epoch: pass`, which pads the last batch"
        )
    return cap
