"""Shards: the shard lists of a spec's sources, looked up once and frozen, and how to open them.

`list_shards` reads globs, directories, remote lists, files of keys and tables of `lookup`. With `epoch: pass`, a plan
also needs `counts`, for which `read/pass_count.py` opens the shards. Nothing else is read before samples are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from wdspec.base.amounts import pluralize
from wdspec.base.errors import SpecError, UsageError, warn_user
from wdspec.base.user_code import secure_mode
from wdspec.planning.companions import with_companions
from wdspec.planning.passes import SourceCount
from wdspec.planning.plan import Plan, make_plan
from wdspec.planning.shares import largest_shares
from wdspec.planning.topology import Topology
from wdspec.shards.key_lists import KeyLists, read_key_lists
from wdspec.shards.listing import are_local, shards_of, with_tables
from wdspec.shards.lock import Lock
from wdspec.spec.language.decoders import import_decoder, require_libraries
from wdspec.spec.language.making import MADE_FILES
from wdspec.spec.measurements import Measurements, find_costs_misfit
from wdspec.spec.reading import digest_costing, split_costing
from wdspec.spec.spec import Source, Spec
from wdspec.steps.files import digest_file
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.urls import UrlSequence

LockLike = str | os.PathLike[str] | None
"""A file that `wdspec lock` wrote, to read exactly its shards without listing any."""

_NAMING = ("where", "subset", "only_keys", "exclude", "join", "lookup", "make")
"""Keys of a source that choose samples, or name more than its shards."""


@dataclass(frozen=True)
class Shards:
    """The frozen shard lists of a spec, with what is needed to open the shards. It pickles."""

    lists: Mapping[str, UrlSequence]
    """Source name -> shards in order; empty for a source whose share is 0."""
    storages: Mapping[str, Storage]
    """Source name -> storage, with the environment of the process that listed the shards."""
    local: frozenset[str]
    """Names of the sources whose shards are all plain local paths."""
    counts: Mapping[str, SourceCount] | None = None
    """Source name -> sample counts; None without `epoch: pass`, and before `with_counts`."""
    key_lists: Mapping[str, KeyLists] = field(default_factory=dict)
    """Source name -> the lists of `keys` and `exclude`, for sources that do not keep all samples."""
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Source name -> key of the spec -> digest of what it names besides the shards: files of keys, partners, tables."""
    lock: LockLike = None
    """The absolute path of the lock that the lists are from."""


def plan_shards(spec: Spec, shards: Shards, ranks: int, workers: int) -> Plan:
    """Plan a spec over its canonical topology: `elastic`, or else the ranks and workers that read it.

    Args:
        spec: the checked spec.
        shards: its shards.
        ranks: data-parallel ranks of the job.
        workers: workers per rank; 0 if the rank's process reads.

    Raises:
        UsageError: shares, batch and epoch do not fit each other or the topology.
    """
    plan = make_plan(spec, shards.lists, Topology.of(spec, ranks, workers), shards.counts)
    return with_companions(spec, plan, shards.lists) if spec.companions else plan


def list_readable_shards(spec: Spec, lock: LockLike = None) -> Shards:
    """List the shards of a spec to read, after checking what can be checked before (`check_readable`)."""
    check_readable(spec)
    return list_shards(spec, lock=lock)


def list_shards(
    spec: Spec,
    *,
    lock: LockLike = None,
    frozen: Mapping[str, UrlSequence] | None = None,
    storage_of: Callable[[Environment, Spec, Source], Storage] = Storage.of,
) -> Shards:
    """List the shards of a spec.

    Args:
        spec: the checked spec.
        lock: a file that `wdspec lock` wrote; use its shards instead.
        frozen: the shards of every source, if they are known already.
        storage_of: creates the storage of a source.

    Raises:
        UsageError: settings of AIStore are invalid, or the lock does not fit the spec.
        WdspecError: a list, directory or glob is empty, or cannot be read.
    """
    environment, sources = Environment.read(), (*spec.sources, *spec.companions.values())
    storages = {source.name: storage_of(environment, spec, source) for source in sources}
    if lock is not None:
        frozen, storages = Lock.read(lock).freeze(spec, storages, os.fspath(lock))
    if frozen is None:
        if spec.stats is not None:
            _check_costs(spec)
        shares = largest_shares(spec, lambda source: 1)
        lists = {
            source.name: shards_of(source, storages[source.name])
            if shares.get(source.name, 1)
            else UrlSequence(())
            for source in sources
        }
    else:
        lists = {source.name: with_tables(frozen, source, storages[source.name]) for source in sources}
    if spec.stats and not spec.is_pass:
        _compare_with_measurements(spec, lists)
    local = frozenset(name for name, listed in lists.items() if are_local(listed, storages[name]))
    shards = Shards(lists, with_surveyed_caches(storages, lists), local, lock=lock and os.path.abspath(lock))
    has_files = any(getattr(source, key) for source in sources for key in _NAMING)
    return _read_files(spec, shards) if has_files else shards


def _read_files(spec: Spec, shards: Shards) -> Shards:
    """Return the shards with the lists of keys of the sources, and digests of what the sources name."""
    key_lists, files = {}, {}
    for source in spec.collections:
        lists, digests = read_key_lists(source, shards.storages[source.name])
        if source.where or source.subset or any(each is not None for each in lists):
            key_lists[source.name] = lists
        digests = {**digests, **shards.lists[source.name].digests, **_digest_steps(source)}
        if digests:
            files[source.name] = digests
    if spec.stats is not None and spec.needs_costs:
        _compare_costs(spec, files)
    return replace(shards, key_lists=key_lists, files=files)


def _check_costs(spec: Spec) -> None:
    """Say why sources have no mean costs that `stats` has measured, if the shares need them.

    Raises:
        UsageError: other shards were measured, or in another way.
    """
    if not spec.needs_costs or all(each.mean_cost is not None for each in spec.sources):
        return
    try:
        measurements = Measurements.read(str(spec.stats), shards=False)
    except (OSError, UsageError):
        return  # the plan says that costs are missing
    for source in spec.sources:
        totals = measurements.sources.get(source.name) if source.mean_cost is None else None
        if totals is None:
            continue
        if misfit := measurements.find_misfit(spec, source) or find_costs_misfit(totals, spec, source):
            raise UsageError(
                f"shares of the cost and numbers of tokens need the mean cost of every source, and `stats` has "
                f"{misfit}; run `wdspec stats SPEC` again{'' if totals.is_whole else ', which says why'}",
                source=source.name,
            )


def _compare_costs(spec: Spec, files: Mapping[str, Mapping[str, str]]) -> None:
    """Warn if shares follow costs that were measured with other files or tables than those that are read now."""
    measurements = read_measurements(spec)
    for source in spec.sources if measurements is not None else ():
        totals = measurements.of(spec, source) if measurements is not None else None
        if totals is None or not totals.costing or source.mean_cost != totals.cost:
            continue
        now = digest_costing(spec, source, files.get(source.name, {}))
        # Without `batch`, nothing is measured.
        if now and split_costing(now)[1] != split_costing(totals.costing)[1]:
            warn_user(
                f"the share of `{source.name}` follows its mean cost, which was measured with other files or tables; "
                "`wdspec stats SPEC` measures it again, which changes the order"
            )


def _digest_steps(source: Source) -> dict[str, str]:
    """Return digests of what is in the files of `make`: `make.ids` for the field `ids`.

    Raises:
        SpecError: a file cannot be read.
    """
    found = {}
    for name, recipe in source.make.items():
        try:
            digests = [digest_file(path, option) for option, path in sorted(recipe.files.items())]
        except SpecError as error:
            raise error.at(source=source.name, field=name) from None
        if digests:
            found[f"{MADE_FILES}{name}"] = " ".join(digests)
    return found


def check_readable(spec: Spec) -> None:
    """Import decoders, and check what else would fail later: their libraries, and functions under WDS_SECURE.

    Raises:
        SpecError: WDS_SECURE forbids a function of the spec.
        UsageError: a decoder's library is not installed.
    """
    for source in (*spec.sources, *spec.companions.values()):
        for name in (*source.decode.names, *source.decode.fields.values()) if source.decode else ():
            require_libraries(name)
            import_decoder(name)
    # `wdspec.load` reports this too, with line and column.
    for role, names in spec.functions.items() if secure_mode() else ():
        if names and role != "decode":
            raise SpecError(f"WDS_SECURE forbids `{role}: {names[0]}`; unset it if you trust this spec")


def read_measurements(spec: Spec) -> Measurements | None:
    """Return the measurements in the `stats` file of a spec, if it has one."""
    if spec.stats is None:
        return None
    try:
        return Measurements.read(spec.stats)
    except (OSError, UsageError) as error:
        warn_user(f"the `stats` of the spec cannot be used: {error}; `wdspec stats SPEC` writes it")
        return None


def _compare_with_measurements(spec: Spec, lists: Mapping[str, UrlSequence]) -> None:
    """Warn if shares follow sizes that were measured for other shards than the listed ones."""
    if all(mix.by in ("shards", "equal") for mix in spec.mixes):
        return
    measurements = read_measurements(spec)
    for source in spec.sources:
        totals = None if measurements is None else measurements.of(spec, source)
        if measurements is None or totals is None or not lists[source.name]:
            continue
        if (source.samples, source.bytes) != (totals.samples, totals.bytes):  # the spec declares them
            continue
        measured, texts = measurements.shards.get(source.name, {}).keys(), set(lists[source.name].texts())
        new, gone = len(texts - measured), len(measured - texts)
        if new or gone:
            warn_user(
                f"the share of `{source.name}` follows its measured size, but since then "
                f"{pluralize(new, 'shard was', 'shards were')} added and {gone:,} removed; `wdspec stats SPEC` "
                "measures them, which changes the order"
            )
