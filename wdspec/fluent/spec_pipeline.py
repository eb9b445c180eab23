"""The one door between the engine and the fluent face: a spec's dataset, with the methods of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wdspec.fluent.datapipeline import DataPipeline
from wdspec.run.dataset import SpecDataset


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
