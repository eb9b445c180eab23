"""One shard at work: its samples counted, and the sizes of its files, from headers alone."""

from __future__ import annotations

from array import array
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from wdspec.errors import ShardError
from wdspec.formats.raw_samples import Unread
from wdspec.measuring.spreads import spread_of
from wdspec.reading.counting import count_shard
from wdspec.reading.error_budget import Budget
from wdspec.reading.shard_opener import ShardOpener
from wdspec.spec.compose.measurements import MeasuredShard
from wdspec.spec.language.options import Errors
from wdspec.stores.store import ObjectStat
from wdspec.urls.sequence import ShardUrl

MOST_FIELDS = 50
"""Suffixes of a shard that are told apart; where names hold numbers behind a dot there is no end of them."""


class SizingTask(NamedTuple):
    """Everything that a process on any machine needs to measure one shard; pickles."""

    source: str
    shard: ShardUrl
    open: ShardOpener
    errors: Errors


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
        bare = replace(task.open, storage=replace(task.open.storage, cache=None))
        stat = ObjectStat()
        with suppress(ShardError):  # which reading will say, as the spec's `errors` has it
            stat = bare.storage.stat(
                task.shard
            )  # before it is read: what changes meanwhile is found next time
        sizes = _Sizes()
        count = count_shard(bare, task.shard, Budget(task.errors, task.source).without_log(), sizes.take)
        fields = {name: spread_of(found) for name, found in sorted(sizes.fields.items())}
        return Sizing(
            MeasuredShard(
                count.samples,
                sizes.total,
                stat.size,
                stat.validator,
                fields,
                count.marks,
                tuple(sorted(count.lost)),
            )
        )
    except Exception as error:
        return Sizing(None, str(error) or type(error).__name__)


class _Sizes:
    """The sizes of the files of a shard, by suffix."""

    def __init__(self) -> None:
        self.fields: dict[str, array[int]] = {}
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
            suffix = name[1:].lower()
            if suffix in self.fields:
                self.fields[suffix].append(size)
            elif len(self.fields) < MOST_FIELDS:
                self.fields[suffix] = array("q", [size])
