"""Where this process stands in a data-parallel run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.planning.topology import Seat

_PAIRS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def seat_in_mesh(mesh: Any, dim: str | Sequence[str]) -> Seat:
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


def find_seat(
    rank: int | None = None, world_size: int | None = None, environ: Mapping[str, str] = os.environ
) -> Seat:
    """The data-parallel rank and world size.

    In this order: the arguments (peers in tensor or pipeline parallelism pass the same rank), an initialised
    torch.distributed, ``RANK``/``WORLD_SIZE``, ``SLURM_PROCID``/``SLURM_NTASKS``; else one process alone.

    Raises:
        UsageError: half of a pair is missing where it is needed, or no number, the rank is out of range, or
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
        whole = all(environ.get(name) for name in _PAIRS[0])
        theirs = (_from_environment(environ, *_PAIRS[0]) if whole else None) or ours
        if ours != theirs:
            raise UsageError(
                f"torch.distributed says rank {ours.rank} of {ours.world_size}, but RANK/WORLD_SIZE say rank "
                f"{theirs.rank} of {theirs.world_size}; pass rank= and world_size= of the data-parallel group"
            )
        return ours
    return _from_environment(environ, *_PAIRS[0]) or _from_environment(environ, *_PAIRS[1]) or Seat()


def initialised_distributed() -> Any | None:
    """torch.distributed, if the program has loaded and initialised it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _from_environment(environ: Mapping[str, str], rank: str, world_size: str) -> Seat | None:
    values = {name: environ[name] for name in (rank, world_size) if environ.get(name)}
    if not values:
        return None
    if len(values) == 1:
        (name,) = values
        if name.startswith("SLURM_"):
            return None  # inside `salloc`, only the number of tasks is set: not a step of the job
        missing = world_size if name == rank else rank
        raise UsageError(f"the environment has {name}={values[name]} but no {missing}; set both, or neither")
    try:
        return Seat(int(values[rank]), int(values[world_size]))
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        raise UsageError(f"not a rank and world size: {shown}") from None
