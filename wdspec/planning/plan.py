"""The plan: everything that decides who reads what, when, as one frozen, picklable value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wdspec.planning.draws import Draws
from wdspec.planning.epochs import Batching, batching, epoch_batches
from wdspec.planning.order import ShardOrder
from wdspec.planning.shares import effective_shares
from wdspec.planning.topology import Topology
from wdspec.planning.windows import Windows, window_size
from wdspec.spec.errors import UsageError
from wdspec.spec.models import Spec
from wdspec.urls.sequence import ShardUrl


@dataclass(frozen=True)
class SourcePlan:
    """One source with a share above 0."""

    name: str
    shards: Sequence[ShardUrl]
    """The frozen list; braces stay arithmetic, so a million shards cost a few hundred bytes."""
    share: Fraction
    """Effective share of the whole mix."""
    order: ShardOrder
    windows: Windows
    samples: int | None
    """Declared samples per pass, if the spec says."""


@dataclass(frozen=True)
class Plan:
    """Who reads what, when: pure functions of (spec, shard lists, topology)."""

    seed: int
    topology: Topology
    batching: Batching
    draw: str
    sources: tuple[SourcePlan, ...]
    """Sources with a share above 0, in file order."""
    off: tuple[str, ...]
    """Names of the sources whose share is 0."""
    epoch_batches: int | None
    """E, global batches in an epoch (each rank takes part in every one); None: endless."""

    def draws(self) -> Draws:
        """The draws of every slot."""
        shares = [source.share for source in self.sources]
        return Draws(shares, self.seed, self.topology, self.batching.per_slot, self.draw)

    @property
    def epoch_samples(self) -> int | None:
        """Samples of an epoch over all ranks together."""
        return None if self.epoch_batches is None else self.epoch_batches * self.batching.global_size

    def require_epoch(self) -> int:
        """E.

        Raises:
            TypeError: the stream is endless, so that nothing has a length.
        """
        if self.epoch_batches is None:
            raise TypeError(
                "this stream is endless and has no length: give `epoch:` in the spec (samples or batches)"
            )
        return self.epoch_batches


def make_plan(spec: Spec, shards: Mapping[str, Sequence[ShardUrl]], topology: Topology) -> Plan:
    """Plans spec over topology.

    Args:
        spec: the checked spec.
        shards: the listed shards of every leaf source, by name.
        topology: canonical ranks and workers.

    Raises:
        UsageError: the shares, the batch or the epoch do not fit together or the topology, or a source with
            a share above 0 has no shard.
    """
    shares = effective_shares(spec.dataset, spec.mix, lambda source: len(shards[source.name]))
    active = [source for source in spec.sources if shares[source.name]]
    if spec.mix.draw == "round_robin":
        shares = {source.name: Fraction(1, len(active)) for source in active}
    sources = []
    for source in active:
        listed, share = shards[source.name], shares[source.name]
        if not len(listed):
            raise UsageError("the source has no shards", source=source.name)
        sources.append(
            SourcePlan(
                name=source.name,
                shards=listed,
                share=share,
                order=ShardOrder(spec.seed, source.name, len(listed), topology.slots, source.order),
                windows=Windows(spec.seed, source.name, window_size(source.shuffle, share)),
                samples=source.samples,
            )
        )
    gathered = batching(spec, topology.ranks)
    return Plan(
        seed=spec.seed,
        topology=topology,
        batching=gathered,
        draw=spec.mix.draw,
        sources=tuple(sources),
        off=tuple(source.name for source in spec.sources if source not in active),
        epoch_batches=epoch_batches(spec, gathered),
    )
