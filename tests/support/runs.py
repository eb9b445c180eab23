"""Specs with their shards listed, from which tests make runs on several topologies."""

from dataclasses import dataclass

from wdspec.api import list_readable_shards
from wdspec.planning.topology import Seat
from wdspec.run.run import make_run
from wdspec.shards.shards import Shards
from wdspec.spec.spec import Spec


@dataclass(frozen=True)
class Listed:
    """A loaded spec and its shards."""

    spec: Spec
    shards: Shards

    @classmethod
    def of(cls, spec):
        """Lists the shards of a loaded spec."""
        return cls(spec, list_readable_shards(spec))

    def run(self, seat=None, workers=1):
        """What a rank reads with this many workers; rank 0 of 1 by default."""
        return make_run(self.spec, self.shards, seat or Seat(), workers)

    @property
    def parts(self):
        """How every source is read."""
        return self.shards.parts(self.spec)

    @property
    def counts(self):
        """The samples of every source, with `epoch: pass`."""
        return self.shards.counts
