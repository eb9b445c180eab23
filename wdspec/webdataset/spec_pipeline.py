"""The only link between the engine and pipelines in Python: the dataset of a spec, with the methods of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wdspec.planning.topology import Seat
from wdspec.read.pass_count import with_counts
from wdspec.run.dataset import SpecDataset
from wdspec.run.ranks import check_ranks_agree
from wdspec.run.run import make_run
from wdspec.shards.shards import LockLike, list_readable_shards, plan_shards
from wdspec.spec.spec import Spec
from wdspec.webdataset.pipeline import DataPipeline


class SpecPipeline(SpecDataset, DataPipeline):
    """A spec as a pipeline. See `SpecDataset` for what it yields and raises, and how it resumes.

    The methods that add stages return a `DataPipeline` that reads this one; iterating over it moves this one, too.
    """

    @property
    def stages(self) -> tuple[Any, ...]:
        """The pipeline itself, as a source: its plan has no stages that could be taken out."""
        return (self,)

    @property
    def pipeline(self) -> list[Any]:
        """The `stages` as a list; changing it has no effect."""
        return [self]

    def _with(self, *stages: Any) -> Any:
        return DataPipeline(*stages)

    def iterate(self, number: int) -> Iterator[Any]:
        """Like ``iter()``: the cursor knows its position, so the number is ignored."""
        return iter(self)

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.run.plan.timeline.end(0) is None


def compile_spec(spec: Spec, seat: Seat, lock: LockLike = None) -> SpecPipeline:
    """List the shards of a spec, plan them, and return the pipeline that reads them at a seat, in this process."""
    shards = list_readable_shards(spec, lock)
    shards = with_counts(spec, shards) if spec.is_pass else shards
    run = make_run(plan_shards(spec, shards, seat.world_size, 1), spec, shards, seat)
    if seat.world_size > 1:
        check_ranks_agree(run)
    return SpecPipeline(run)
