"""The one door between the engine and pipelines in Python: a spec's dataset, with the methods of pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wdspec.planning.seat import find_seat
from wdspec.run.dataset import SpecDataset
from wdspec.run.ranks import check_ranks_agree
from wdspec.run.run import Blueprint
from wdspec.shards.shards import ListedSpec
from wdspec.spec.load import load
from wdspec.webdataset.pipeline import DataPipeline


class SpecPipeline(SpecDataset, DataPipeline):
    """A spec as a pipeline; see `SpecDataset` for what it yields and raises, and how it goes on.

    The methods that add stages return a `DataPipeline` that reads this one: iterating it goes on here.
    """

    @property
    def stages(self) -> tuple[Any, ...]:
        """The pipeline itself, as what is read: the stages of its plan are no functions that one could take out."""
        return (self,)

    def _with(self, *stages: Any) -> Any:
        return DataPipeline(*stages)

    def iterate(self, number: int) -> Iterator[Any]:
        """As ``iter()``: the cursor knows where it stands, and needs no number."""
        return iter(self)

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.run.plan.epoch_batches is None


def compile_spec(spec: str | Mapping[str, Any]) -> SpecPipeline:
    """`wdspec.compile` of a path or a dict, without further arguments."""
    checked = load(spec)
    listed = ListedSpec.of(checked, to_read=True)
    pipeline = SpecPipeline(Blueprint(checked, listed.shards, listed.parts, listed.counts), find_seat())
    check_ranks_agree(pipeline.run)
    return pipeline
