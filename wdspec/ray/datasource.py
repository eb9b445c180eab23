"""Reading: a Ray Data datasource with a read task for each shard of a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource
from ray.data.datasource import ReadTask as RayTask

from wdspec.base.amounts import sum_known
from wdspec.base.errors import WdspecError
from wdspec.jobs.job import ReadTask, check_each_sample
from wdspec.ray.columns import tables_of
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.transform import parts_of
from wdspec.shards.lock import find_measured
from wdspec.shards.shards import LockLike, Shards, check_readable, list_shards, read_measurements
from wdspec.spec.spec import Source, Spec
from wdspec.storage.ahead import side_by_side

MOST_TASKS = 10_000
"""Maximum number of read tasks. If there are more shards, tasks read several: Ray takes milliseconds to plan a task."""
MOST_ASKED = 16
"""Number of shards per source whose sizes are requested, to estimate the sizes of the others."""


class SpecDatasource(Datasource):  # type: ignore[misc]  # Ray has no types
    """The samples of all shards of a spec, each once, for `ray.data.read_datasource`.

    Args:
        spec: a loaded spec.
        schema: types of some columns; see `wdspec.ray.read`.
        lock: a file that `wdspec lock` wrote.

    Raises:
        WdspecError: shards cannot be listed, or the spec has a `stage`.
    """

    def __init__(self, spec: Spec, schema: Mapping[str, pa.DataType], lock: LockLike = None) -> None:
        super().__init__()
        check_each_sample(spec, "wdspec.ray.read")
        check_readable(spec)
        shards = list_shards(spec, lock=lock)
        tasks = ReadTask.of_spec(spec, spec.sources, shards, parts_of(spec, shards), lambda *_: {})
        facts = [fact for source in spec.sources for fact in _facts_of(spec, source, shards)]
        self._reads: list[tuple[Any, BlockMetadata]] = []
        group = -(-len(tasks) // MOST_TASKS) or 1
        for at in range(0, len(tasks), group):
            some, (counts, sizes) = tasks[at : at + group], zip(*facts[at : at + group], strict=True)
            read: Any = partial(read_shards, some, schema, spec.limit)
            read.__name__ = "read_shards"  # Ray shows this name
            about = BlockMetadata(
                num_rows=sum_known(counts),
                size_bytes=sum_known(sizes),
                exec_stats=None,
                input_files=[task.shard.text for task in some],
            )
            self._reads.append((read, about))
        self._size = sum_known([size for _, size in facts])

    def get_name(self) -> str:
        """Return the name of the read tasks in Ray's messages."""
        return "Wdspec"

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the total size of the shards as stored, in bytes; None if the stores do not report sizes."""
        return self._size

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[RayTask]:
        """Return the tasks, regardless of the parallelism: Ray splits their blocks as needed."""
        return [RayTask(read, about, None, per_task_row_limit) for read, about in self._reads]


def read_shards(
    tasks: Sequence[ReadTask], schema: Mapping[str, pa.DataType], limit: int | None
) -> Iterator[pa.Table]:
    """Yield the samples of shards, in order, as tables; runs in Ray's workers.

    Args:
        tasks: the shards.
        schema: types of columns.
        limit: maximum number of samples per shard.

    Raises:
        WdspecError: a shard cannot be read or a sample cannot be decoded, unless the source's policy is to skip it.
        Exception: any exception of user functions.
    """
    for task in tasks:
        budget = ErrorBudget(task.parts.errors, task.source)
        try:
            with closing(task.final_samples(budget)) as samples:
                yield from tables_of(islice(samples, limit), schema)
        except GeneratorExit:  # when Python exits, the names below may no longer exist
            raise
        except WdspecError as error:
            error.at(source=task.source, url=task.shard.text)
            raise


def _facts_of(spec: Spec, source: Source, shards: Shards) -> Iterator[tuple[int | None, int | None]]:
    """Yield (samples, bytes) for each shard of a source: samples only if known exactly, bytes perhaps estimated."""
    listed, storage = shards.lists[source.name], shards.storages[source.name]
    measurements = read_measurements(spec)
    if measurements is not None and measurements.of(spec, source) is not None:
        for known in find_measured(measurements, spec, source, storage, listed):
            if known is None:
                yield None, None
            else:
                count = min(known.samples - len(known.lost), spec.limit or known.samples)
                yield None if source.drops_samples or spec.map_batches else count, known.bytes
        return

    def ask(shard: Any) -> int | None:
        try:
            return storage.stat(shard).size
        except (WdspecError, OSError):  # reading the shard will raise the error
            return None

    count = len(listed)
    asked = [listed[count * n // MOST_ASKED] for n in range(MOST_ASKED)] if count > MOST_ASKED else listed
    sizes = list(side_by_side(ask, asked)) if count else []
    found = [size for size in sizes if size is not None]
    mean = sum(found) // len(found) if found else None
    for number in range(count):
        yield None, (sizes[number] or mean) if count <= MOST_ASKED else mean
