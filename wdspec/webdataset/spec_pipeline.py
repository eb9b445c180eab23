"""The one door between the engine and pipelines in Python: the dataset of a spec, with the methods of pipelines."""

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
    """A spec as a pipeline. See `SpecDataset` for what it yields and raises, and how it resumes.

    The methods that add stages return a `DataPipeline` that reads this one; iterating over it moves this one, too.
    """

    @property
    def stages(self) -> tuple[Any, ...]:
        """The pipeline itself, as a source: its plan has no stages that could be taken out."""
        return (self,)

    def _with(self, *stages: Any) -> Any:
        return DataPipeline(*stages)

    def iterate(self, number: int) -> Iterator[Any]:
        """Like ``iter()``: the cursor knows its position, so the number is ignored."""
        return iter(self)

    @property
    def endless(self) -> bool:
        """Whether an iteration has no end."""
        return self.run.plan.epoch_batches is None


def compile_spec(spec: str | Mapping[str, Any]) -> SpecPipeline:
    """Compile a spec, given as a path or a dict, as `wdspec.compile` does without further arguments."""
    checked = load(spec)
    listed = ListedSpec.of(checked, to_read=True)
    pipeline = SpecPipeline(Blueprint(checked, listed.shards, listed.parts, listed.counts), find_seat())
    check_ranks_agree(pipeline.run)
    return pipeline
