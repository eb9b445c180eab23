"""A checked spec with its shards listed, and how each of its sources is read: the place that knows the rooms below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from wdspec.base.errors import SpecError, UsageError, warn_user
from wdspec.fields.samples import SampleFields
from wdspec.fields.scale import Scaling
from wdspec.planning.plan import Plan, make_plan
from wdspec.planning.shares import largest_shares
from wdspec.planning.topology import Topology
from wdspec.shards.listing import shards_of
from wdspec.spec.language.decoders import require_libraries
from wdspec.spec.measurements import Measurements
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.urls import UrlSequence

if TYPE_CHECKING:
    from wdspec.planning.passes import SourceCount
    from wdspec.read.transform import SourceParts


@dataclass(frozen=True)
class ListedSpec:
    """All that planning and reading go on from."""

    spec: Spec
    storages: Mapping[str, Storage]
    """By source, as the environment of this process says."""
    shards: Mapping[str, UrlSequence]
    """The frozen shards of every source; none of one whose share is 0."""

    @classmethod
    def of(
        cls,
        spec: Spec,
        *,
        to_read: bool = False,
        storage_of: Callable[[Environment, Spec, Source], Storage] = Storage.of,
        frozen: Mapping[str, UrlSequence] | None = None,
    ) -> ListedSpec:
        """Lists the shards of a spec.

        Args:
            to_read: whether samples are going to be read: then what can be known to fail is refused at once.
            storage_of: makes the storage of a source.
            frozen: the shards of every source, where they are known and not to be looked up.

        Raises:
            SpecError: WDS_SECURE forbids the spec's functions.
            UsageError: a decoder's library is not installed; settings of AIStore that cannot be understood.
            WdspecError: a list, directory or glob gives nothing, or cannot be read.
        """
        environment = Environment.read()
        if to_read:
            _check_readable(spec, environment.secure)
        storages = {source.name: storage_of(environment, spec, source) for source in spec.sources}
        shares = largest_shares(spec, lambda source: 1)

        def listed(source: Source) -> UrlSequence:
            if not shares[source.name]:
                return UrlSequence(())
            return shards_of(source, storages[source.name]) if frozen is None else frozen[source.name]

        shards = {source.name: listed(source) for source in spec.sources}
        mixes = (spec.mix, *(each.mix for source in spec.dataset for each in source.mixes))
        if any(mix.by in ("samples", "bytes") for mix in mixes):
            _compare_with_measurements(spec, shards)
        return cls(spec, with_surveyed_caches(storages, shards), shards)

    def plan(self, topology: Topology) -> Plan:
        """Who reads what, when.

        Raises:
            UsageError: shares, batch and epoch do not fit together, or the topology.
        """
        return make_plan(self.spec, self.shards, topology, self.counts)

    @cached_property
    def counts(self) -> dict[str, SourceCount] | None:
        """The samples of every source of a spec with `epoch: pass`, from the headers of its shards; else None.

        Raises:
            WdspecError: a shard cannot be read, and the policy is to raise.
        """
        if self.spec.epoch is None or self.spec.epoch.remainder is None:
            return None
        from wdspec.shards.count import count_samples

        return count_samples(self.spec, self.shards, self.parts, _measurements(self.spec))

    @cached_property
    def parts(self) -> dict[str, SourceParts]:
        """How every source is read."""
        return {
            source.name: _parts(self.spec, source, self.storages[source.name]) for source in self.spec.sources
        }


def _measurements(spec: Spec) -> Measurements | None:
    """What was measured of the shards of a spec, if it says where that is."""
    if spec.stats is None:
        return None
    try:
        return Measurements.read(spec.stats)
    except (OSError, UsageError) as error:
        warn_user(f"the `stats` of the spec cannot be used, {error}; `wdspec stats SPEC` writes it")
        return None


def _compare_with_measurements(spec: Spec, shards: Mapping[str, UrlSequence]) -> None:
    """Warns where shares go by the size of other shards than were listed."""
    measurements = _measurements(spec)
    for source in spec.sources:
        found = None if measurements is None else measurements.of(spec, source)
        if measurements is None or found is None or not shards[source.name]:
            continue
        if (source.samples, source.bytes) != (found.samples, found.bytes):  # it states its own
            continue
        measured, texts = measurements.shards.get(source.name, {}).keys(), set(shards[source.name].texts())
        new, gone = len(texts - measured), len(measured - texts)
        if new or gone:
            warn_user(
                f"the share of `{source.name}` goes by the size that it had when it was measured: since then {new:,} "
                f"shards have come, and {gone:,} gone; `wdspec stats SPEC` measures them, which changes the order"
            )


def _parts(spec: Spec, source: Source, storage: Storage) -> SourceParts:
    from wdspec.read.shard import ShardOpener
    from wdspec.read.transform import SourceParts, Transform

    maps = (*source.map, *spec.map)
    asked = [entry for entry in (*(spec.fields or ()), *(spec.to_tuple or ())) if not entry.startswith("__")]
    tagged = any(name in source.tags for entry in asked for name in entry.split(";"))
    # Only what `map` or a tag may add has to be looked for after them; all else is asked of the shard itself.
    late = bool(maps) or tagged
    kept = spec.to_tuple or spec.fields
    expected = source.expect is not None and bool(source.expect.fields)
    prunes = kept is not None and not late and source.select is None and not expected
    fields = SampleFields.of(
        source,
        allow=spec.allow,
        required=() if late else asked,
        only=[entry for entry in kept if not entry.startswith("__")] if prunes and kept else None,
        secure=storage.environment.secure,
        folder=spec.folder,
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
        expect=None if source.expect is None else source.expect.fields,
        missing=source.missing,
        folder=spec.folder,
    )
    opener = ShardOpener(
        source=source.name,
        storage=storage,
        fields=fields,
        key=source.key,
        lenient_end=source.tar.end == "lenient",
        format=source.format,
        may_be_empty=source.empty == "allow",
    )
    return SourceParts(opener, transform, source.errors)


def _check_readable(spec: Spec, secure: bool) -> None:
    for source in spec.sources:
        for name in (*source.decode.names, *source.decode.fields.values()) if source.decode else ():
            require_libraries(name)
    if not secure:
        return
    # `wdspec.load` says so too, with line and column.
    for role, names in functions_of(spec).items():
        if names and role != "decode":
            raise SpecError(f"WDS_SECURE forbids `{role}: {names[0]}`; unset it if you trust this spec")


def functions_of(spec: Spec) -> dict[str, list[str]]:
    """The user's own functions that a spec names, by the key that names them."""
    collation = None if spec.batch is None else spec.batch.collate
    decoders = (
        name
        for source in spec.sources
        if source.decode is not None
        for name in (*source.decode.names, *source.decode.fields.values())
    )
    return {
        "map": [call.call for call in (*spec.map, *(call for source in spec.sources for call in source.map))],
        "select": [source.select for source in spec.sources if source.select],
        "stage": [] if spec.stage is None else [spec.stage.call],
        "collate": [] if collation is None else collation.functions,
        "decode": [name for name in decoders if ":" in name],
    }
