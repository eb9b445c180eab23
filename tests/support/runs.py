"""Specs with their shards listed, from which tests make runs on several topologies."""

from dataclasses import dataclass

import wdspec
from wdspec.planning.topology import Seat
from wdspec.read.pass_count import with_counts
from wdspec.read.transform import parts_of
from wdspec.run.run import make_run
from wdspec.shards.shards import Shards, list_readable_shards, plan_shards
from wdspec.spec.spec import Spec


@dataclass(frozen=True)
class Listed:
    """A loaded spec and its shards."""

    spec: Spec
    shards: Shards

    @classmethod
    def of(cls, spec):
        """Lists the shards of a loaded spec."""
        shards = list_readable_shards(spec)
        return cls(spec, with_counts(spec, shards) if spec.is_pass else shards)

    def run(self, seat=None, workers=1):
        """What a rank reads with this many workers; rank 0 of 1 by default."""
        seat = seat or Seat()
        plan = plan_shards(self.spec, self.shards, seat.world_size, workers)
        return make_run(plan, self.spec, self.shards, seat, workers)

    @property
    def parts(self):
        """How every source is read."""
        return parts_of(self.spec, self.shards)

    @property
    def counts(self):
        """The samples of every source, with `epoch: pass`."""
        return self.shards.counts


def read_ranks(spec, world, steps, state=None):
    """The keys of up to this many global batches, read by all ranks in this process over epochs; and the state."""
    loaders = [wdspec.loader(spec, num_workers=0, rank=rank, world_size=world) for rank in range(world)]
    try:
        for loader in loaders if state is not None else ():
            loader.load_state_dict(state)
        found = []
        while len(found) < steps:
            before = len(found)
            for parts in zip(*loaders, strict=True):
                found.append([key for part in parts for key in part["__key__"]])
                if len(found) == steps:
                    break
            if len(found) == before:
                break
        return found, wdspec.merge_states([loader.state_dict() for loader in loaders])
    finally:
        for loader in loaders:
            loader.close()
