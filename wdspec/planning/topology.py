"""Who takes part: the canonical topology, which fixes the order, and the seat of this process in the running job.

N canonical ranks × K canonical workers are N·K slots, the unit of order: each slot is an endless stream of samples. Any
number of ranks that divides N (and of workers that divides K) reads the same slots, so the order of samples does not
depend on it.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd, isqrt
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.spec.spec import Spec

_RANK_VARIABLES = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


@dataclass(frozen=True)
class Topology:
    """The canonical topology, which fixes the order of a run no matter what reads it."""

    ranks: int = 1
    """N: data-parallel ranks."""
    workers: int = 1
    """K: reading processes per rank; a run without worker processes counts as one."""

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.workers < 1:
            raise UsageError(
                f"a topology needs at least one rank and one worker, not {self.ranks} × {self.workers}"
            )

    @classmethod
    def of(cls, spec: Spec, ranks: int, workers: int) -> Topology:
        """The canonical topology of a spec: `elastic`, or else the ranks and workers that read it.

        Args:
            ranks: data-parallel ranks of the job.
            workers: reading processes per rank; 0 reads in the rank's process.
        """
        if spec.elastic is not None:
            return cls(spec.elastic.ranks, spec.elastic.workers)
        return cls(ranks, max(1, workers))

    @property
    def slots(self) -> int:
        """S = N·K."""
        return self.ranks * self.workers

    def slot(self, rank: int, worker: int) -> int:
        """The number of slot (c, k), in 0..S-1."""
        return rank * self.workers + worker

    def slot_of_batch(self, batch: int) -> tuple[int, int]:
        """(k, m) of global batch J: canonical worker k = J mod K serves it as its m-th batch, m = ⌊J/K⌋.

        J counts through all epochs and never restarts, so every slot is read even where K does not divide the epoch.
        """
        m, k = divmod(batch, self.workers)
        return k, m

    def most_read(self, ranks: int, per_slot: int = 1) -> int:
        """The most canonical ranks, whole or in part, that one of R ranks reads; R divides N·b (`Seat.places`).

        Ranks start at all multiples of g = gcd(N·b / R, b) of a canonical rank's places; the worst is the last of them.
        """
        each = self.ranks * per_slot // ranks
        return -(-(per_slot - gcd(each, per_slot) + each) // per_slot)

    def check_workers(self, workers: int) -> None:
        """Check that W reading processes per rank can share the K canonical workers.

        Raises:
            UsageError: W does not divide K; the message lists the numbers that do.
        """
        if self.workers % max(1, workers):
            raise UsageError(
                f"{workers} workers cannot share {self.workers} canonical workers evenly; "
                f"use {_join(legal_workers(self.workers))} (or 0)"
            )


@dataclass(frozen=True)
class Seat:
    """The place of this process in a data-parallel job: rank r of R."""

    rank: int = 0
    world_size: int = 1
    is_assumed: bool = field(default=False, compare=False, repr=False)
    """Whether nothing stated the rank, so that this process seemed to be alone."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise UsageError(
                f"rank {self.rank} is not in 0..{self.world_size - 1} (world size {self.world_size})"
            )

    def places(self, topology: Topology, per_slot: int = 1) -> range:
        """This rank's places among the N·b of a global batch, which are ordered by canonical rank.

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
                f"{_join(legal)})"
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


def find_seat(
    rank: int | None = None, world_size: int | None = None, environ: Mapping[str, str] = os.environ
) -> Seat:
    """The data-parallel rank and world size.

    In this order: the arguments (peers in tensor or pipeline parallelism pass the same rank), an initialised
    torch.distributed, ``RANK``/``WORLD_SIZE``, ``SLURM_PROCID``/``SLURM_NTASKS``; else one process alone.

    Raises:
        UsageError: half of a pair is missing where it is needed, or not a number, the rank is out of range, or
            torch.distributed and ``RANK``/``WORLD_SIZE`` contradict each other.
    """
    if rank is not None or world_size is not None:
        if rank is None or world_size is None:
            given, lacking = ("rank", "world_size") if world_size is None else ("world_size", "rank")
            raise UsageError(f"`{given}` was given without `{lacking}`; give both, or neither")
        return Seat(rank, world_size)
    if distributed := initialised_distributed():
        ours = Seat(distributed.get_rank(), distributed.get_world_size())
        # Lightning starts its processes with WORLD_SIZE alone, which contradicts nothing.
        whole = all(environ.get(name) for name in _RANK_VARIABLES[0])
        theirs = (_seat_of_environment(environ, *_RANK_VARIABLES[0]) if whole else None) or ours
        if ours != theirs:
            raise UsageError(
                f"torch.distributed says rank {ours.rank} of {ours.world_size}, but RANK/WORLD_SIZE say rank "
                f"{theirs.rank} of {theirs.world_size}; pass rank= and world_size= of the data-parallel group"
            )
        return ours
    for names in _RANK_VARIABLES:
        if any(environ.get(name) for name in names) and (seat := _seat_of_environment(environ, *names)):
            return seat
    return Seat(is_assumed=True)


def find_seat_in_mesh(mesh: Any, dim: str | Sequence[str]) -> Seat:
    """The data-parallel place in a `DeviceMesh`; peers along its other dimensions have the same.

    Args:
        mesh: with named dimensions.
        dim: the data-parallel dimension, or several, the slowest first, such as `("dp_replicate", "dp_shard")`.

    Raises:
        UsageError: the mesh has no such dimension, or this process is not in it.
    """
    names, wanted = mesh.mesh_dim_names or (), (dim,) if isinstance(dim, str) else tuple(dim)
    coordinate = mesh.get_coordinate()
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        raise UsageError(
            f"the mesh has no dimension {', '.join(map(repr, unknown)) or 'that is named'}; its dimensions are "
            f"{', '.join(map(repr, names)) or 'without names'}: pass `dim=`, the one over which data is parallel"
        )
    if coordinate is None:
        raise UsageError("this process is not in the mesh, so it has no part of the data")
    rank, world_size = 0, 1
    for name in wanted:
        at, size = coordinate[names.index(name)], mesh.size(names.index(name))
        rank, world_size = rank * size + at, world_size * size
    return Seat(rank, world_size)


def initialised_distributed() -> Any | None:
    """torch.distributed, if the program has loaded and initialised it."""
    distributed = sys.modules.get("torch.distributed")
    return (
        distributed if distributed and distributed.is_available() and distributed.is_initialized() else None
    )


def legal_world_sizes(ranks: int, per_slot: int = 1) -> list[int]:
    """The numbers R of ranks that can share N canonical ranks evenly, ascending; `per_slot` as for `Seat.places`."""
    return _divisors(ranks * per_slot)


def legal_workers(workers: int) -> list[int]:
    """The numbers W of reading processes per rank that can share K canonical workers, ascending (0 always can)."""
    return _divisors(workers)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _seat_of_environment(environ: Mapping[str, str], rank: str, world_size: str) -> Seat | None:
    values = {name: environ[name] for name in (rank, world_size) if environ.get(name)}
    if len(values) == 1:
        (name,) = values
        if name.startswith("SLURM_"):
            return None  # inside `salloc`, only the number of tasks is set: not a step of the job
        missing = world_size if name == rank else rank
        if missing == "RANK" and environ.get("LOCAL_RANK"):
            raise UsageError(
                f"the environment has {name}={values[name]} and LOCAL_RANK but no RANK, as in processes of Lightning; "
                "let the Trainer build the loader: `trainer.fit(model, "
                "datamodule=wdspec.integrations.lightning.SpecData(spec))`"
            )
        raise UsageError(f"the environment has {name}={values[name]} but no {missing}; set both, or neither")
    try:
        return Seat(int(values[rank]), int(values[world_size]))
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        raise UsageError(f"not a rank and world size: {shown}") from None


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
