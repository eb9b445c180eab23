"""Small datasets and stages of webdataset's: `MockDataset`, `Cached`, `resampled`, `tarfile_samples`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.fluent.datapipeline import DataPipeline
from wdspec.fluent.foreign.pipeline_stages import PipelineStage
from wdspec.fluent.stage import PassContext, keyed_stage
from wdspec.fluent.stages.tar_shards import tarfile_to_samples
from wdspec.planning.keys import random64


class MockDataset:
    """One sample, `length` times a pass."""

    endless = False

    def __init__(self, sample: Any, length: int) -> None:
        self.sample, self.length = sample, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return (self.sample for _ in range(self.length))


class FluidWrapper(DataPipeline):
    """A dataset, or anything else that is read, with the methods of pipelines."""

    def __init__(self, initial: Any) -> None:
        super().__init__(initial)


class Cached(PipelineStage):
    """Keeps all items of its first whole pass in memory, and gives them from then on; each process its own."""

    def __init__(self) -> None:
        self._kept: list[Any] | None = None

    def run(self, source: Iterator[Any]) -> Iterator[Any]:
        """The items, read once."""
        if self._kept is not None:
            yield from self._kept
            return
        kept = []
        for item in source:
            kept.append(item)
            yield item
        self._kept = kept


@keyed_stage
def resampled(source: Iterator[Any], context: PassContext, n: int = sys.maxsize) -> Iterator[Any]:
    """So many items drawn with replacement out of all that come.

    Raises:
        UsageError: none come.
    """
    items = list(source)
    if not items:
        raise UsageError("nothing comes that could be drawn from; `resampled` stands behind a list of shards")
    key = context.key("resampled", 0)
    for i in range(n):
        yield items[random64(key, i) * len(items) >> 64]


def tarfile_samples(data: Iterable[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
    """`tarfile_to_samples` as a function of the shards."""
    return tarfile_to_samples(*args, **kwargs)(data)
