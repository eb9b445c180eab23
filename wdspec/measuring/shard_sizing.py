"""One shard at work: its samples counted, and the sizes of its files, from headers alone; or its values, too."""

from __future__ import annotations

import sys
import warnings
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from wdspec.base.errors import ShardError, WdspecError
from wdspec.formats.samples import Unread
from wdspec.measuring.spreads import spread_of
from wdspec.offline.shard_work import samples_in_order
from wdspec.read.budget import Budget
from wdspec.read.transform import SourceParts
from wdspec.shards.count import count_shard
from wdspec.spec.measurements import MeasuredShard, Spread
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import ShardUrl

MOST_FIELDS = 50
"""Fields of a shard that are told apart; where names hold numbers behind a dot there is no end of them."""


class SizingTask(NamedTuple):
    """Everything that a process on any machine needs to measure one shard; pickles."""

    source: str
    number: int
    """Its index among the shards of the source."""
    shard: ShardUrl
    parts: SourceParts
    seed: int
    lengths: bool
    """Whether samples are read and decoded, too, as training does."""
    directory: str
    """Joins `sys.path`, last: the user's modules may lie there."""
    job: str
    """Of each job another text, as for `samples_in_order`."""


class Sizing(NamedTuple):
    """What became of a task."""

    shard: MeasuredShard | None
    fault: str = ""
    """Why there is none."""


def size_up(task: SizingTask) -> Sizing:
    """Does one task. Never raises an Exception, so that every engine brings back what went wrong.

    No copy is made in a cache, for headers are a small part of the bytes.
    """
    try:
        parts = task.parts
        bare = replace(parts.open, storage=replace(parts.open.storage, cache=None))
        stat = ObjectStat()
        # Before it is read: what changes meanwhile is found next time. What fails, reading says as `errors` has it.
        with suppress(ShardError):
            stat = bare.storage.stat(task.shard)
        sizes = _Sizes()
        count = count_shard(bare, task.shard, Budget(parts.errors, task.source).without_log(), sizes.take)
        lengths = _lengths(task) if task.lengths else {}
        return Sizing(
            MeasuredShard(
                count.samples,
                sizes.total,
                stat.size,
                stat.validator,
                sizes.columns.spreads,
                lengths,
                count.marks,
                tuple(sorted(count.lost)),
            )
        )
    except Exception as error:
        said = str(error) if isinstance(error, WdspecError) else f"{type(error).__name__}: {error}"
        return Sizing(None, " ".join(said.split()))


class _Columns:
    """Numbers by field."""

    def __init__(self) -> None:
        self._found: dict[str, array[int]] = {}

    def add(self, name: str, number: int) -> None:
        """Notes a number; of more than so many fields those that come later are left out."""
        if name in self._found:
            self._found[name].append(number)
        elif len(self._found) < MOST_FIELDS:
            self._found[name] = array("q", [number])

    @property
    def spreads(self) -> dict[str, Spread]:
        """How large they are."""
        return {name: spread_of(numbers) for name, numbers in sorted(self._found.items())}


def _lengths(task: SizingTask) -> dict[str, Spread]:
    if task.directory not in sys.path:
        sys.path.append(task.directory)
    columns, budget = _Columns(), Budget(task.parts.errors, task.source).without_log()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the spec allows
        for sample in samples_in_order(task.parts, task.shard, task.number, task.seed, task.job, budget):
            for name, value in sample.items():
                if not name.startswith("__"):
                    for part, length in lengths_of(name, value):
                        columns.add(part, length)
    return columns.spreads


def lengths_of(name: str, value: Any) -> Iterator[tuple[str, int]]:
    """The lengths of a value, each with its name: characters of a text, entries of a list, sides of an array.

    The sides of arrays, tensors and images are `name[0]`, `name[1]`, …, height before width; of the parts of a tuple,
    as sound is decoded to, each has its own. Bytes, numbers and maps have none: the sizes of files are measured anyway.
    """
    if isinstance(value, (str, list)):
        yield name, len(value)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield from ((f"{name}[{axis}]", int(side)) for axis, side in enumerate(value.shape))
    elif hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
        yield from ((f"{name}[{axis}]", side) for axis, side in enumerate(value.size[::-1]))
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from lengths_of(f"{name}.{number}", part)


class _Sizes:
    """The sizes of the files of a shard, by suffix."""

    def __init__(self) -> None:
        self.columns = _Columns()
        self.total = 0

    def take(self, sample: dict[str, Any]) -> None:
        """Notes those of one sample, which has a dot before each suffix."""
        for name, value in sample.items():
            if name[0] != ".":
                continue
            if type(value) is str:  # in a record
                size = len(value.encode("utf-8", "surrogatepass"))
            elif isinstance(value, (bytes, Unread)):
                size = len(value)
            else:
                continue
            self.total += size
            self.columns.add(name[1:].lower(), size)
