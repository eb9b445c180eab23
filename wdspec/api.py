"""The functions that users call to plan a spec and to train from it.

load ──▶ Spec ──list──▶ Shards ──plan──▶ Plan ──compile──▶ DataPipeline ──▶ Loader
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wdspec.base.errors import UsageError, did_you_mean
from wdspec.planning.plan import Plan
from wdspec.planning.topology import Seat, Topology
from wdspec.shards.shards import ListedSpec
from wdspec.spec.load import load
from wdspec.spec.spec import Spec

if TYPE_CHECKING:
    from wdspec.read.reader import Reader
    from wdspec.run.loader import Loader
    from wdspec.run.run import Blueprint
    from wdspec.urls.urls import UrlSequence
    from wdspec.webdataset.spec_pipeline import SpecPipeline

SpecLike = str | os.PathLike[str] | Mapping[str, Any] | Spec
"""What names a spec: a path (perhaps ``x.yaml#split``), a dict, or a loaded Spec."""
LockLike = str | os.PathLike[str] | None
"""A file that `wdspec lock` wrote: then just the shards that stand there are read, and no store is asked for them."""
_CHOICES = ("split", "env", "vars", "overrides")
"""What `wdspec.load` takes beside the spec."""


def plan(
    spec: SpecLike,
    *,
    ranks: int | None = None,
    workers: int | None = None,
    lock: LockLike = None,
    **choice: Any,
) -> Plan:
    """Lists the shards of a spec and plans who reads what, when. Needs no torch.

    Reads no shard, but for the headers that count the samples of `epoch: pass`.

    Args:
        spec: a path, a dict or a loaded Spec.
        ranks: data-parallel ranks N; by default those of the running job, else 1.
        workers: DataLoader workers per rank K; by default the spec's `loader.workers`, at least 1. Both only
            matter without `elastic`, which fixes the canonical topology.
        lock: a file that `wdspec lock` wrote: the shards are those that stand there.
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
    from wdspec.planning.seat import find_seat

    _check_choice("plan", choice, num_workers="write workers=")
    checked = load(spec, **choice)
    elastic = checked.elastic
    topology = (
        Topology(elastic.ranks, elastic.workers)
        if elastic
        else Topology(
            find_seat().world_size if ranks is None else ranks,
            max(1, checked.loader.workers if workers is None else workers),
        )
    )
    return ListedSpec.of(checked, frozen=_frozen(checked, lock)).plan(topology)


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
    """Compiles a spec into a `DataPipeline` with a plan: a torch IterableDataset that reads in this process.

    Args:
        spec: a path, a dict or a loaded Spec.
        rank, world_size: the data-parallel place; by default found in torch.distributed or the environment.
        mesh, dim, lock: as for `wdspec.loader`.
        choice: `split`, `env`, `vars`, `overrides`, as for `wdspec.load`.

    Returns:
        The pipeline; see its class for what it yields.

    Raises:
        SpecError: the spec has problems.
        WdspecError: shards cannot be listed, or the plan does not fit the topology.

    Example:
        >>> import wdspec
        >>> pipeline = wdspec.compile("examples/specs/digits.yaml", split="train")
        >>> sorted(next(iter(pipeline)))[:3]
        ['__key__', '__source__', '__url__']
    """
    require_torch("wdspec.compile")
    from wdspec.run.ranks import check_ranks_agree
    from wdspec.webdataset.spec_pipeline import SpecPipeline

    own = "it reads in its own process; use wdspec.loader(spec, num_workers=…), or give it to a DataLoader"
    _check_choice("compile", choice, workers=own, num_workers=own)
    pipeline = SpecPipeline(blueprint(load(spec, **choice), lock), _seat(rank, world_size, mesh, dim))
    check_ranks_agree(pipeline.run)
    return pipeline


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
    """A `Loader`: batches (or samples) of a spec, read by worker processes, epoch after epoch.

    Args:
        spec: a path, a dict or a loaded Spec.
        num_workers: reading processes; by default the spec's `loader.workers`. 0 reads in this process.
        rank, world_size: the data-parallel place; by default found in torch.distributed or the environment.
        mesh, dim: a `DeviceMesh` to find the place in instead, and its data-parallel dimension, or several, the
            slowest first: peers along the other dimensions (tensor, pipeline, context parallel) read the same.
        split, env, vars, overrides: as for `wdspec.load`.
        lock: a file that `wdspec lock` wrote: only the shards that stand there are read, and none are listed.
        torch_arguments: further arguments of torch's DataLoader, such as ``pin_memory`` or
            ``multiprocessing_context``; they win over the spec's `loader:`.

    Raises:
        SpecError: the spec has problems.
        UsageError: an argument that the spec decides (such as ``batch_size``), a bad topology, or ranks of
            torch.distributed that see different shards.
        WdspecError: shards cannot be listed, or the plan does not fit the topology.

    Example:
        >>> import wdspec
        >>> with wdspec.loader("examples/specs/digits.yaml", split="train", num_workers=2) as loader:
        ...     batch = next(iter(loader))
        >>> batch["label"].dtype
        torch.int64
    """
    require_torch("wdspec.loader")
    from wdspec.run.loader import Loader
    from wdspec.run.ranks import check_ranks_agree

    checked = load(spec, split=split, env=env, vars=vars, overrides=overrides)
    options = checked.loader
    workers = options.workers if num_workers is None else num_workers
    arguments: dict[str, Any] = {"pin_memory": options.pin_memory}
    if options.timeout is not None and workers:
        arguments["timeout"] = options.timeout
    if workers:
        if options.kind == "processes":
            # Persistent workers keep what they hold from one epoch to the next; threads always do.
            arguments["persistent_workers"] = True if options.persistent is None else options.persistent
        if options.prefetch is not None:
            arguments["prefetch_factor"] = options.prefetch
    made = Loader(
        blueprint(checked, lock),
        _seat(rank, world_size, mesh, dim),
        workers,
        threads=options.kind == "threads",
        **{**arguments, **torch_arguments},
    )
    check_ranks_agree(made.run)
    return made


def sample_reader(spec: Spec, *, workers: int | None = None) -> Reader:
    """A reader of the single samples of a checked spec, in this process: batch J is one sample. Needs no torch.

    They come as canonical rank 0 gets them, with so many workers where `elastic` does not say; but a `batch` in
    the spec would give the samples within each batch an order of their own. Only a pass ends, by itself or `limit`.

    Raises:
        WdspecError: shards cannot be listed, or shares do not fit together.
    """
    from wdspec.read.reader import Reader

    elastic = spec.elastic
    topology = Topology(elastic.ranks, elastic.workers) if elastic else Topology(1, max(1, workers or 0))
    finite = spec.epoch if spec.epoch is not None and spec.epoch.remainder is not None else None
    update = {"batch": None, "epoch": finite, "limit": finite and spec.limit}
    listed = ListedSpec.of(spec.model_copy(update=update), to_read=True)
    return Reader(listed.plan(topology), listed.parts, range(1), listed.spec)


def _seat(rank: int | None, world_size: int | None, mesh: Any, dim: str | Sequence[str]) -> Seat:
    from wdspec.planning.seat import find_seat, seat_in_mesh

    if mesh is None:
        return find_seat(rank, world_size)
    if rank is not None or world_size is not None:
        raise UsageError(
            "`mesh` says which rank this is, so `rank` and `world_size` say it twice; leave them out"
        )
    return seat_in_mesh(mesh, dim)


def _check_choice(function: str, choice: Mapping[str, Any], **remedies: str) -> None:
    """Raises a UsageError for an argument that chooses nothing of a spec."""
    for name in choice:
        if name not in _CHOICES:
            remedy = remedies.get(name) or did_you_mean(name, _CHOICES) or f"there are {', '.join(_CHOICES)}"
            raise UsageError(f"`{name}` is no argument of wdspec.{function}: {remedy}")


def _frozen(spec: Spec, lock: LockLike) -> Mapping[str, UrlSequence] | None:
    if lock is None:
        return None
    from wdspec.shards.lock import Lock

    return Lock.read(lock).shards(spec, os.fspath(lock))


def blueprint(spec: Spec, lock: LockLike = None) -> Blueprint:
    """Lists the shards of a checked spec and describes how each source is read."""
    require_torch("batching")
    from wdspec.run.run import Blueprint

    listed = ListedSpec.of(spec, to_read=True, frozen=_frozen(spec, lock))
    return Blueprint(spec, listed.shards, listed.parts, listed.counts)


def require_torch(what: str) -> None:
    """Checks that torch can be imported, without importing it.

    Raises:
        UsageError: it is not installed; names what needs it, and the extra.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"{what} needs torch, which is not installed: `pip install 'wdspec[torch]'`")
