"""Shards: the shard lists of a spec's sources, looked up once and frozen, and where their bytes come from.

`list_shards` is the only I/O between loading a spec and reading it: globs, directories and remote lists are read, and
with `epoch: pass` the samples of every shard are counted from headers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wdspec.base.errors import SpecError, UsageError, warn_user
from wdspec.base.user_code import secure_mode
from wdspec.planning.passes import SourceCount
from wdspec.planning.shares import largest_shares
from wdspec.read.transform import SourceParts
from wdspec.shards.count import count_samples
from wdspec.shards.listing import are_local, shards_of
from wdspec.shards.lock import Lock
from wdspec.spec.language.decoders import require_libraries
from wdspec.spec.measurements import Measurements
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.urls import UrlSequence

LockLike = str | os.PathLike[str] | None
"""A file that `wdspec lock` wrote: then exactly its shards are read, and no store is asked for them."""


@dataclass(frozen=True)
class Shards:
    """The frozen shard lists of every source of a spec, with what is needed to open them; pickles."""

    lists: Mapping[str, UrlSequence]
    """The shards of every source, in order; none for a source whose share is 0."""
    storages: Mapping[str, Storage]
    """How the shards of every source are reached, as the environment of the listing process says."""
    local: frozenset[str]
    """The sources whose shards are all plain local paths."""
    counts: Mapping[str, SourceCount] | None = None
    """The samples of every source; only with `epoch: pass`."""

    def parts(self, spec: Spec) -> dict[str, SourceParts]:
        """How every source is read."""
        return {
            source.name: SourceParts.of(spec, source, self.storages[source.name], source.name in self.local)
            for source in spec.sources
        }


def list_readable_shards(spec: Spec, lock: LockLike = None) -> Shards:
    """The shards of a spec that is going to be read: what can be known to fail is refused before they are listed."""
    check_readable(spec)
    return list_shards(spec, lock=lock)


def list_shards(
    spec: Spec,
    *,
    lock: LockLike = None,
    frozen: Mapping[str, UrlSequence] | None = None,
    storage_of: Callable[[Environment, Spec, Source], Storage] = Storage.of,
    counts_samples: bool = True,
) -> Shards:
    """List the shards of a spec.

    Args:
        spec: the checked spec.
        lock: a file that `wdspec lock` wrote, whose shards are taken instead.
        frozen: the shards of every source, where they are known and need not be looked up.
        storage_of: makes the storage of a source.
        counts_samples: whether to count the samples of `epoch: pass`, which opens every shard.

    Raises:
        UsageError: settings of AIStore that cannot be understood; a lock that does not fit the spec.
        WdspecError: a list, directory or glob gives nothing, or cannot be read.
    """
    environment = Environment.read()
    storages = {source.name: storage_of(environment, spec, source) for source in spec.sources}
    if lock is not None:
        frozen = Lock.read(lock).shards(spec, os.fspath(lock))
    if frozen is None:
        shares = largest_shares(spec, lambda source: 1)
        lists = {
            source.name: shards_of(source, storages[source.name]) if shares[source.name] else UrlSequence(())
            for source in spec.sources
        }
    else:
        lists = {source.name: frozen[source.name] for source in spec.sources}
    mixes = (spec.mix, *(each.mix for source in spec.dataset for each in source.mixes))
    if any(mix.by in ("samples", "bytes") for mix in mixes):
        _compare_with_measurements(spec, lists)
    local = frozenset(name for name, listed in lists.items() if are_local(listed, storages[name]))
    shards = Shards(lists, with_surveyed_caches(storages, lists), local)
    if not (spec.is_pass and counts_samples):
        return shards
    counts = count_samples(spec, lists, shards.parts(spec), _read_measurements(spec))
    return Shards(lists, shards.storages, local, counts)


def check_readable(spec: Spec) -> None:
    """Check what can be known to fail before anything is listed: decoders' libraries, and functions under WDS_SECURE.

    Raises:
        SpecError: WDS_SECURE forbids the spec's functions.
        UsageError: a decoder's library is not installed.
    """
    for source in spec.sources:
        for name in (*source.decode.names, *source.decode.fields.values()) if source.decode else ():
            require_libraries(name)
    if not secure_mode():
        return
    # `wdspec.load` says so too, with line and column.
    for role, names in spec.functions.items():
        if names and role != "decode":
            raise SpecError(f"WDS_SECURE forbids `{role}: {names[0]}`; unset it if you trust this spec")


def _read_measurements(spec: Spec) -> Measurements | None:
    """The measurements of the spec's shards, if it names a file of them."""
    if spec.stats is None:
        return None
    try:
        return Measurements.read(spec.stats)
    except (OSError, UsageError) as error:
        warn_user(f"the `stats` of the spec cannot be used, {error}; `wdspec stats SPEC` writes it")
        return None


def _compare_with_measurements(spec: Spec, lists: Mapping[str, UrlSequence]) -> None:
    """Warn where shares follow the size of other shards than were listed."""
    measurements = _read_measurements(spec)
    for source in spec.sources:
        found = None if measurements is None else measurements.of(spec, source)
        if measurements is None or found is None or not lists[source.name]:
            continue
        if (source.samples, source.bytes) != (found.samples, found.bytes):  # it declares its own
            continue
        measured, texts = measurements.shards.get(source.name, {}).keys(), set(lists[source.name].texts())
        new, gone = len(texts - measured), len(measured - texts)
        if new or gone:
            warn_user(
                f"the share of `{source.name}` goes by the size that it had when it was measured: since then {new:,} "
                f"shards have come, and {gone:,} gone; `wdspec stats SPEC` measures them, which changes the order"
            )
