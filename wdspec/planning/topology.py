"""The canonical topology, which determines the order of samples, and the seat of this process in the running job.

N canonical ranks with K canonical workers each have N·K slots. A slot is the unit of order: an endless stream of
samples. Any number of ranks that divides N, and any number of workers that divides K, reads the same slots, so the
order of samples does not depend on these numbers.
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
    """The canonical topology. It determines the order of samples, whatever processes read them."""

    ranks: int = 1
    """N: data-parallel ranks."""
    workers: int = 1
    """K: workers per rank; 1 if the rank's process reads."""

    def __post_init__(self) -> None:
        if {type(self.ranks), type(self.workers)} != {int} or self.ranks < 1 or self.workers < 1:
            raise UsageError(
                f"ranks and workers must be integers of at least one, not {self.ranks!r} and {self.workers!r}"
            )

    @classmethod
    def of(cls, spec: Spec, ranks: int, workers: int) -> Topology:
        """Return the canonical topology of a spec: `elastic`, or the ranks and workers of the job without it.

        Args:
            ranks: data-parallel ranks of the job.
            workers: workers per rank; 0 if the rank's process reads.
        """
        own = cls(ranks, workers if workers or type(workers) is not int else 1)
        return own if spec.elastic is None else cls(spec.elastic.ranks, spec.elastic.workers)

    @property
    def slots(self) -> int:
        """S = N·K."""
        return self.ranks * self.workers

    def slot(self, rank: int, worker: int) -> int:
        """The number of slot (c, k), in 0..S-1."""
        return rank * self.workers + worker

    def most_read(self, ranks: int, per_slot: int = 1) -> int:
        """Return how many canonical ranks, whole or in part, one of R ranks reads at most; R divides N·b.

        Relative to the b places of a canonical rank, the R ranks start at the multiples of g = gcd(N·b / R, b). The one
        that starts last, at b - g, reads the most.
        """
        each = self.ranks * per_slot // ranks
        return -(-(per_slot - gcd(each, per_slot) + each) // per_slot)

    def check_workers(self, workers: int) -> None:
        """Check that W workers per rank can share the K canonical workers.

        Raises:
            UsageError: W does not divide K; the message lists the divisors.
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
    """Whether the rank was not found anywhere, so wdspec assumes that this process is the only one."""

    def __post_init__(self) -> None:
        if type(self.world_size) is not int or self.world_size < 1:
            raise UsageError(f"the world size (ranks) is an integer of at least one, not {self.world_size!r}")
        if type(self.rank) is not int or not 0 <= self.rank < self.world_size:
            raise UsageError(f"rank {self.rank!r} is not in 0..{self.world_size - 1}, the ranks of this job")

    def places(self, topology: Topology, per_slot: int = 1) -> range:
        """Return this rank's places among the N·b places of a global batch, which are ordered by canonical rank.

        Args:
            per_slot: b if ranks may share a slot's part of a batch, otherwise 1.

        Raises:
            UsageError: R does not divide N·b; the message lists the nearest world sizes that do.
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
        """Return the canonical ranks that this rank reads, whole or in part: those of its `places`.

            N = 4, b = 3, R = 3:   places  0 1 2 | 3 4 5 | 6 7 8 | 9 10 11     canonical ranks 0..3
                                   ranks   0 0 0   0 1 1   1 1 2   2  2  2     rank 1 reads 1 and 2

        Raises:
            UsageError: see `places`.
        """
        places = self.places(topology, per_slot)
        return range(places.start // per_slot, -(-places.stop // per_slot))


def find_seat(
    rank: int | None = None, world_size: int | None = None, environ: Mapping[str, str] = os.environ
) -> Seat:
    """Find the data-parallel rank and world size of this process.

    The first of these is used: the arguments (peers in tensor or pipeline parallelism pass the same rank), an
    initialised torch.distributed, ``RANK``/``WORLD_SIZE``, ``SLURM_PROCID``/``SLURM_NTASKS``. Without any of them, this
    process is assumed to be the only one.

    Raises:
        UsageError: only one of a pair is set, a value is not a number, the rank is out of range, or torch.distributed
            and ``RANK``/``WORLD_SIZE`` contradict each other.
    """
    if rank is not None or world_size is not None:
        if rank is None or world_size is None:
            given, lacking = ("rank", "world_size") if world_size is None else ("world_size", "rank")
            raise UsageError(f"`{given}` was given without `{lacking}`; give both, or neither")
        return Seat(rank, world_size)
    if distributed := initialised_distributed():
        ours = Seat(distributed.get_rank(), distributed.get_world_size())
        # Lightning starts its processes with WORLD_SIZE only, which is not a contradiction.
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
    """Find the data-parallel seat in a `DeviceMesh`; peers along its other dimensions have the same seat.

    Args:
        mesh: a mesh with named dimensions.
        dim: the data-parallel dimension, or several, the slowest first, such as `("dp_replicate", "dp_shard")`.

    Raises:
        UsageError: the mesh lacks a dimension, or this process is not in the mesh.
    """
    names, wanted = mesh.mesh_dim_names or (), (dim,) if isinstance(dim, str) else tuple(dim)
    coordinate = mesh.get_coordinate()
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        raise UsageError(
            f"the mesh has no dimension {', '.join(map(repr, unknown)) or 'that is named'}; its dimensions are "
            f"{', '.join(map(repr, names)) or 'without names'}: pass the data-parallel one as `dim=`"
        )
    if coordinate is None:
        raise UsageError("this process is not in the mesh, so it has no part of the data")
    rank, world_size = 0, 1
    for name in wanted:
        at, size = coordinate[names.index(name)], mesh.size(names.index(name))
        rank, world_size = rank * size + at, world_size * size
    return Seat(rank, world_size)


def initialised_distributed() -> Any | None:
    """Return torch.distributed if the program has imported and initialised it."""
    distributed = sys.modules.get("torch.distributed")
    is_ready = distributed and distributed.is_available() and distributed.is_initialized()
    return distributed if is_ready else None


def legal_world_sizes(ranks: int, per_slot: int = 1) -> list[int]:
    """Return the world sizes that can share N canonical ranks, ascending. See `Seat.places` for `per_slot`."""
    return _divisors(ranks * per_slot)


def legal_workers(workers: int) -> list[int]:
    """Return the numbers of workers per rank that can share K canonical workers, ascending. 0 is always possible."""
    return _divisors(workers)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _seat_of_environment(environ: Mapping[str, str], rank: str, world_size: str) -> Seat | None:
    values = {name: environ[name] for name in (rank, world_size) if environ.get(name)}
    if len(values) == 1:
        (name,) = values
        if name.startswith("SLURM_"):
            return None  # `salloc` sets only the number of tasks: this process is not a step of the job
        missing = world_size if name == rank else rank
        if missing == "RANK" and environ.get("LOCAL_RANK"):
            raise UsageError(
                f"the environment has {name}={values[name]} and LOCAL_RANK but no RANK, as in a process of Lightning; "
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
        raise UsageError(f"these are not a rank and a world size: {shown}; set both to integers") from None


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
