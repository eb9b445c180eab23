"""Spec + plan -> pipeline: the only place that knows all the rooms.

load ──▶ Spec ──list──▶ Shards ──plan──▶ Plan ──compile──▶ DataPipeline ──▶ Loader
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wdspec.decoders.libraries import require_libraries
from wdspec.errors import SpecError, UsageError
from wdspec.fields.sample_fields import SampleFields
from wdspec.fields.scale import Scaling
from wdspec.planning.plan import Plan, make_plan
from wdspec.planning.schedule import largest_shares
from wdspec.planning.topology import Topology
from wdspec.spec.language.models import Source, Spec
from wdspec.spec.loading import load
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.sequence import UrlSequence

if TYPE_CHECKING:
    from wdspec.fluent.spec_pipeline import SpecPipeline
    from wdspec.planning.finite_pass import SourceCount
    from wdspec.reading.batch_reader import Reader
    from wdspec.reading.source_parts import SourceParts
    from wdspec.running.blueprint import Blueprint
    from wdspec.running.loader import Loader

SpecLike = str | os.PathLike[str] | Mapping[str, Any] | Spec
"""What names a spec: a path (perhaps ``x.yaml#split``), a dict, or a loaded Spec."""


def plan(spec: SpecLike, *, ranks: int | None = None, workers: int | None = None, **choice: Any) -> Plan:
    """Lists the shards of a spec and plans who reads what, when. Needs no torch.

    Reads no shard, but for the headers that count the samples of `epoch: pass`.

    Args:
        spec: a path, a dict or a loaded Spec.
        ranks: data-parallel ranks N; by default those of the running job, else 1.
        workers: DataLoader workers per rank K; by default the spec's `loader.workers`, at least 1. Both only
            matter without `elastic`, which fixes the canonical topology.
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
    from wdspec.processes.seat import find_seat

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
    storages = storages_of(checked)
    shards = list_sources(checked, storages)
    return make_plan(checked, shards, topology, count_pass(checked, shards, storages))


def compile(
    spec: SpecLike, *, rank: int | None = None, world_size: int | None = None, **choice: Any
) -> SpecPipeline:
    """Compiles a spec into a `DataPipeline` with a plan: a torch IterableDataset that reads in this process.

    Args:
        spec: a path, a dict or a loaded Spec.
        rank, world_size: the data-parallel place; by default found in torch.distributed or the environment.
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
    from wdspec.fluent.spec_pipeline import SpecPipeline
    from wdspec.processes.seat import find_seat
    from wdspec.running.rank_agreement import check_ranks_agree

    pipeline = SpecPipeline(blueprint(load(spec, **choice)), find_seat(rank, world_size))
    check_ranks_agree(pipeline.run)
    return pipeline


def loader(
    spec: SpecLike,
    *,
    num_workers: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    **torch_arguments: Any,
) -> Loader:
    """A `Loader`: batches (or samples) of a spec, read by worker processes, epoch after epoch.

    Args:
        spec: a path, a dict or a loaded Spec.
        num_workers: reading processes; by default the spec's `loader.workers`. 0 reads in this process.
        rank, world_size: the data-parallel place; by default found in torch.distributed or the environment.
        split, env, vars, overrides: as for `wdspec.load`.
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
    from wdspec.processes.seat import find_seat
    from wdspec.running.loader import Loader
    from wdspec.running.rank_agreement import check_ranks_agree

    checked = load(spec, split=split, env=env, vars=vars, overrides=overrides)
    options = checked.loader
    workers = options.workers if num_workers is None else num_workers
    arguments: dict[str, Any] = {"pin_memory": options.pin_memory}
    if options.timeout is not None and workers:
        arguments["timeout"] = options.timeout
    if workers:
        # Persistent workers keep their windows from one epoch to the next.
        arguments["persistent_workers"] = True if options.persistent is None else options.persistent
        if options.prefetch is not None:
            arguments["prefetch_factor"] = options.prefetch
    made = Loader(
        blueprint(checked), find_seat(rank, world_size), workers, **{**arguments, **torch_arguments}
    )
    check_ranks_agree(made.run)
    return made


def sample_reader(spec: Spec, *, workers: int | None = None) -> Reader:
    """A reader of the single samples of a checked spec, in this process: batch J is one sample. Needs no torch.

    They come as canonical rank 0 gets them, with so many workers where `elastic` does not say; but a `batch` in
    the spec would give the samples within each batch an order of their own.

    Raises:
        WdspecError: shards cannot be listed, or shares do not fit together.
    """
    from wdspec.reading.batch_reader import Reader

    shards, parts = shards_and_parts(spec)
    elastic = spec.elastic
    topology = Topology(elastic.ranks, elastic.workers) if elastic else Topology(1, max(1, workers or 0))
    finite = spec.epoch if spec.epoch is not None and spec.epoch.remainder is not None else None
    single = spec.model_copy(update={"batch": None, "epoch": finite})
    return Reader(make_plan(single, shards, topology, _count(single, shards, parts)), parts, range(1))


def blueprint(spec: Spec) -> Blueprint:
    """Lists the shards of a checked spec and describes how each source is read."""
    require_torch("batching")
    from wdspec.running.blueprint import Blueprint

    shards, parts = shards_and_parts(spec)
    return Blueprint(spec, shards, parts, _count(spec, shards, parts))


def count_pass(
    spec: Spec, shards: Mapping[str, UrlSequence], storages: Mapping[str, Storage]
) -> dict[str, SourceCount] | None:
    """The samples of every source of a spec with `epoch: pass`, from the headers of its shards; else None.

    Raises:
        WdspecError: a shard cannot be read, and the policy is to raise.
    """
    if spec.epoch is None or spec.epoch.remainder is None:
        return None
    return _count(spec, shards, _all_parts(spec, shards, storages))


def _count(
    spec: Spec, shards: Mapping[str, UrlSequence], parts: Mapping[str, SourceParts]
) -> dict[str, SourceCount] | None:
    if spec.epoch is None or spec.epoch.remainder is None:
        return None
    from wdspec.reading.counting import count_samples

    return count_samples(spec, shards, parts)


def require_torch(what: str) -> None:
    """Checks that torch can be imported, without importing it.

    Raises:
        UsageError: it is not installed; names what needs it, and the extra.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"{what} needs torch, which is not installed: `pip install 'wdspec[torch]'`")


def shards_and_parts(spec: Spec) -> tuple[dict[str, UrlSequence], dict[str, SourceParts]]:
    storages = storages_of(spec)
    if any(storage.environment.secure for storage in storages.values()):
        _refuse_user_code(spec)
    for source in spec.sources:
        decoders = (*source.decode.names, *source.decode.fields.values()) if source.decode else ()
        for name in decoders:
            require_libraries(name)
    shards = list_sources(spec, storages)
    return shards, _all_parts(spec, shards, storages)


def storages_of(spec: Spec) -> dict[str, Storage]:
    """The storage of every source, as the environment of this process says now.

    Raises:
        UrlError, UsageError: rewrite rules or settings of AIStore that cannot be understood.
    """
    environment = Environment.read()
    return {source.name: Storage.of(environment, spec, source) for source in spec.sources}


def list_sources(spec: Spec, storages: Mapping[str, Storage]) -> dict[str, UrlSequence]:
    """The frozen shards of every source; a source whose share is 0 is not looked for.

    Raises:
        WdspecError: a list, directory or glob gives nothing, or cannot be read.
    """
    shares = largest_shares(spec, lambda source: 1)
    return {
        source.name: storages[source.name].shards_of(source) if shares[source.name] else UrlSequence(())
        for source in spec.sources
    }


def _all_parts(
    spec: Spec, shards: Mapping[str, UrlSequence], storages: Mapping[str, Storage]
) -> dict[str, SourceParts]:
    surveyed = with_surveyed_caches(storages, shards)
    return {source.name: _parts(spec, source, surveyed[source.name]) for source in spec.sources}


def _parts(spec: Spec, source: Source, storage: Storage) -> SourceParts:
    from wdspec.reading.shard_opener import ShardOpener
    from wdspec.reading.source_parts import SourceParts
    from wdspec.reading.transform import Transform

    maps = (*source.map, *spec.map)
    asked = [entry for entry in (*(spec.fields or ()), *(spec.to_tuple or ())) if not entry.startswith("__")]
    tagged = any(name in source.tags for entry in asked for name in entry.split(";"))
    # Only what `map` or a tag may add has to be looked for after them; all else is asked of the shard itself.
    late = bool(maps) or tagged
    kept = spec.to_tuple or spec.fields
    prunes = kept is not None and not late and source.select is None
    fields = SampleFields.of(
        source,
        allow=spec.allow,
        required=() if late else asked,
        only=[entry for entry in kept if not entry.startswith("__")] if prunes and kept else None,
        secure=storage.environment.secure,
    )
    transform = Transform(
        fields=fields,
        scaling=None if source.scale is None else Scaling(*source.scale, source.scaleprob),
        select=source.select,
        maps=maps,
        own_maps=len(source.map),
        tags=source.tags or None,
        keep=spec.fields,
        need=tuple(asked) if late else (),
        missing=source.missing,
    )
    opener = ShardOpener(
        source=source.name,
        storage=storage,
        fields=fields,
        key=source.key,
        lenient_end=source.tar.end == "lenient",
        format=source.format,
    )
    return SourceParts(opener, transform, source.errors)


def _refuse_user_code(spec: Spec) -> None:
    """WDS_SECURE forbids functions named in a spec; `wdspec.load` says so too, with line and column."""
    for role, names in {
        "map": [call.call for call in (*spec.map, *(call for source in spec.sources for call in source.map))],
        "select": [source.select for source in spec.sources if source.select],
    }.items():
        if names:
            raise SpecError(f"WDS_SECURE forbids `{role}: {names[0]}`; unset it if you trust this spec")
