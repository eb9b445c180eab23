"""The functions that users call. Read this file first.

    train.yaml ──load──▶ Spec ──list──▶ Shards ──plan──▶ Plan ──run──▶ Run ──▶ Loader ──▶ your training loop
     (text)             (validated)   (frozen URLs)   (pure numbers)  (reads)   (torch)

Each arrow is one function: `load` (spec/load.py), `list_shards` and `plan_shards` (shards/shards.py), `make_run`
(run/run.py) and `Loader` (run/loader.py). With `epoch: pass`, `with_counts` (read/pass_count.py) comes before the plan.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wdspec.base.errors import UsageError, did_you_mean, install_command
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Seat, find_seat, find_seat_in_mesh
from wdspec.shards.shards import LockLike, list_readable_shards, list_shards, plan_shards
from wdspec.spec.load import load
from wdspec.spec.spec import Spec

if TYPE_CHECKING:
    from wdspec.read.reader import Reader
    from wdspec.run.loader import Loader
    from wdspec.webdataset.spec_pipeline import SpecPipeline

SpecLike = str | os.PathLike[str] | Mapping[str, Any] | Spec
"""A spec: a path (perhaps ``x.yaml#split``), a dict, or a loaded Spec."""
_CHOICES = ("split", "env", "vars", "overrides")
"""The arguments of `wdspec.load` besides the spec."""


def plan(
    spec: SpecLike,
    *,
    ranks: int | None = None,
    workers: int | None = None,
    lock: LockLike = None,
    **choice: Any,
) -> Plan:
    """List the shards of a spec, and plan which rank and worker reads which shards, and when. Does not need torch.

    This does not read any shards, except for headers to count the samples of `epoch: pass`.

    Args:
        spec: a path, a dict or a loaded Spec.
        ranks: number of data-parallel ranks N; by default that of the running job, else 1.
        workers: number of workers per rank K; by default the spec's `loader.workers`, at least 1. `ranks` and
            `workers` only matter without `elastic`, which fixes the canonical topology.
        lock: a file written by `wdspec lock`; plan exactly its shards, without listing any.
        choice: `split`, `env`, `vars`, `overrides`, as for `wdspec.load`.

    Raises:
        SpecError: the spec has problems.
        WdspecError: shards cannot be listed, or shares, batch and epoch do not fit the topology.

    Example:
        >>> import wdspec
        >>> plan = wdspec.plan("examples/specs/digits.yaml", split="train", ranks=2, workers=4)
        >>> [source.name for source in plan.sources]
        ['digits-a', 'digits-b', 'rendered']
    """
    if choice:
        _check_choice("plan", choice, num_workers="write workers=")
    checked = load(spec, **choice)
    shards = list_shards(checked, lock=lock)
    if checked.is_pass:
        from wdspec.read.pass_count import with_counts  # reads the shards, which no other plan needs

        shards = with_counts(checked, shards)
    if ranks is None:
        ranks = find_seat().world_size if checked.elastic is None else 1
    return plan_shards(checked, shards, ranks, checked.loader.workers if workers is None else workers)


def compile(
    spec: SpecLike,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    mesh: Any = None,
    dim: str | Sequence[str] = "dp",
    lock: LockLike = None,
    **choice: Any,
) -> SpecPipeline:
    """Compile a spec into a `SpecPipeline`: a `DataPipeline` and torch IterableDataset that reads in this process.

    Args:
        spec: a path, a dict or a loaded Spec.
        rank, world_size, mesh, dim, lock: as for `wdspec.loader`.
        choice: `split`, `env`, `vars`, `overrides`, as for `wdspec.load`.

    Returns:
        The pipeline; see its class for what it yields.

    Raises:
        SpecError: the spec has problems.
        UsageError: the topology does not fit, or ranks of torch.distributed see different shards.
        WdspecError: shards cannot be listed, or shares, batch and epoch do not fit the topology.

    Example:
        >>> import wdspec
        >>> pipeline = wdspec.compile("examples/specs/digits.yaml", split="train")
        >>> sorted(next(iter(pipeline)))[:3]
        ['__key__', '__source__', '__url__']
    """
    require_torch("wdspec.compile")
    from wdspec.webdataset.spec_pipeline import compile_spec

    if choice:
        remedy = (
            "it reads in this process; use wdspec.loader(spec, num_workers=…), or pass it to a DataLoader"
        )
        _check_choice("compile", choice, workers=remedy, num_workers=remedy)
    checked = load(spec, **choice)
    if checked.map_batches is not None:
        raise _not_for_training(checked.map_batches.call)
    return compile_spec(checked, _choose_seat(rank, world_size, mesh, dim), lock)


def loader(
    spec: SpecLike,
    *,
    num_workers: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    mesh: Any = None,
    dim: str | Sequence[str] = "dp",
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    lock: LockLike = None,
    **torch_arguments: Any,
) -> Loader:
    """Return a `Loader`: batches (or samples) of a spec, read by worker processes or threads, epoch after epoch.

    Args:
        spec: a path, a dict or a loaded Spec.
        num_workers: number of workers; by default the spec's `loader.workers`. 0 reads in this process.
        rank, world_size: the data-parallel rank and their number; by default those of torch.distributed or of the
            launcher's environment variables.
        mesh, dim: a `DeviceMesh` to get the rank from instead, and its data-parallel dimension (or several, outermost
            first). Peers along other dimensions (tensor, pipeline, context parallel) read the same batches.
        split, env, vars, overrides: as for `wdspec.load`.
        lock: a file written by `wdspec lock`; read exactly its shards, without listing any.
        torch_arguments: more arguments of torch's DataLoader, such as ``pin_memory`` or ``multiprocessing_context``;
            they override the spec's `loader:`.

    Raises:
        SpecError: the spec has problems.
        UsageError: the spec decides an argument (such as ``batch_size``), the topology does not fit, or ranks of
            torch.distributed see different shards.
        WdspecError: shards cannot be listed, or shares, batch and epoch do not fit the topology.

    Example:
        >>> import wdspec
        >>> with wdspec.loader("examples/specs/digits.yaml", split="train", num_workers=2) as loader:
        ...     batch = next(iter(loader))
        >>> batch["label"].dtype
        torch.int64
    """
    require_torch("wdspec.loader")
    from wdspec.read.pass_count import with_counts
    from wdspec.run.loader import Loader, choose_arguments
    from wdspec.run.ranks import check_ranks_agree
    from wdspec.run.run import make_run

    checked = load(spec, split=split, env=env, vars=vars, overrides=overrides)
    if checked.map_batches is not None:
        raise _not_for_training(checked.map_batches.call)
    shards = list_readable_shards(checked, lock)
    shards = with_counts(checked, shards) if checked.is_pass else shards
    workers, arguments = choose_arguments(checked.loader, num_workers, torch_arguments)
    seat = _choose_seat(rank, world_size, mesh, dim)
    run = make_run(plan_shards(checked, shards, seat.world_size, workers), checked, shards, seat, workers)
    loader = Loader(run, workers, **arguments)
    if run.seat.world_size > 1:
        check_ranks_agree(run)
    return loader


def sample_reader(spec: Spec, *, workers: int | None = None, as_files: bool = False) -> Reader:
    """Return a reader of single samples in this process: batch J is one sample. Needs no torch.

    The samples have the order of canonical rank 0, with this number of workers unless `elastic` fixes it. `batch` in
    the spec is ignored; it would change the order within each batch. Only a pass ends, by itself or by `limit`.

    Args:
        spec: a loaded spec.
        workers: number of workers K that the order is for; by default 1.
        as_files: whether samples have their files as bytes, without any step of the spec but its selections.

    Raises:
        WdspecError: shards cannot be listed, or shares do not fit together.
    """
    from wdspec.read.pass_count import with_counts
    from wdspec.read.reader import Reader
    from wdspec.read.transform import file_parts_of, parts_of

    update = {"batch": None, "epoch": spec.epoch if spec.is_pass else None}
    spec = spec.model_copy(update={**update, "limit": spec.limit if spec.is_pass else None})
    shards = list_readable_shards(spec)
    shards = with_counts(spec, shards) if spec.is_pass else shards
    plan = plan_shards(spec, shards, 1, workers or 0)
    if as_files:
        return Reader(replace(plan, companions=()), file_parts_of(spec, shards), range(1), spec)
    return Reader(plan, parts_of(spec, shards), range(1), spec)


def _not_for_training(call: str) -> UsageError:
    """Return the error for a spec with `map_batches`, whose results a loader would silently leave out."""
    return UsageError(
        f"`map_batches: {call}` is for `wdspec process` and `wdspec.ray.read`: write its results to new shards, and "
        "read those; to read these shards without it, write it in an environment, or set `map_batches: null`"
    )


def _choose_seat(rank: int | None, world_size: int | None, mesh: Any, dim: str | Sequence[str]) -> Seat:
    if mesh is None:
        return find_seat(rank, world_size)
    if rank is not None or world_size is not None:
        raise UsageError("`mesh` has the rank, so `rank` or `world_size` is given twice; leave them out")
    return find_seat_in_mesh(mesh, dim)


def _check_choice(function: str, choice: Mapping[str, Any], **remedies: str) -> None:
    """Raise a UsageError for an argument that `wdspec.load` does not have."""
    for name in choice:
        if name not in _CHOICES:
            remedy = remedies.get(name) or did_you_mean(name, _CHOICES) or f"it takes {', '.join(_CHOICES)}"
            raise UsageError(f"`{name}` is not an argument of wdspec.{function}: {remedy}")


def require_torch(what: str) -> None:
    """Raise a UsageError if torch is not installed, without importing it; `what` is what needs it."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"{what} needs torch, which is not installed: {install_command('wdspec[torch]')}")
