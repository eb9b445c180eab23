"""Writing: a Ray Data sink. Each write task writes one whole shard; at the end, a list of all shards is written."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ray.data.block import Block
from ray.data.datasource import Datasink, WriteResult

from wdspec.base.errors import MissingShardError, UsageError
from wdspec.fields.encode import JSON_VALUES
from wdspec.ray.columns import Sample, samples_of
from wdspec.storage.storage import Storage
from wdspec.urls.urls import is_relative
from wdspec.write.shard_writer import Written, open_writer

LIST = "shards.txt"
"""The file that lists the shards of a folder. It is written last, so it never lists an incomplete dataset."""


class ShardSink(Datasink):  # type: ignore[misc]  # Ray has no types
    """Writes a dataset to a folder of shards.

    Args:
        folder: a path or URL.
        storage: writes the shards; it can be pickled.
        suffix: the suffix of the shards, which determines their format and compression.
        size: minimum size of a shard, in bytes of Ray's blocks. The last shard may be smaller.
        samples: minimum number of samples in a shard; used instead of `size`.
        overwrite: whether to replace existing shards in the folder.
        options: options of the writer.

    Raises:
        UsageError: the folder has shards, and `overwrite` is false.
        WdspecError: the folder cannot be listed.
    """

    def __init__(
        self,
        folder: str,
        storage: Storage,
        suffix: str,
        size: float,
        samples: int | None,
        overwrite: bool,
        options: Mapping[str, Any],
    ) -> None:
        folder = os.path.expanduser(folder).rstrip("/") or "/"
        if is_relative(folder):
            folder = os.path.join(storage.environment.directory, folder)
        self._folder, self._storage, self._suffix = folder, storage, suffix
        self._size, self._samples, self._options = size, samples, dict(options)
        self._id = uuid4().hex[:8]
        """Part of the names of the shards, so that they never replace older shards that the dataset may be reading."""
        self._older = self._names()
        self.shards: list[Written] = []
        """The shards, once all are written."""
        if self._older and not overwrite:
            has_list = storage.is_written(self._path(LIST))
            what = "" if has_list else f", but no `{LIST}`, as after an interrupted write"
            raise UsageError(
                f"the folder already has {len(self._older):,} shards{what}; choose another folder, or pass "
                "overwrite=True, which deletes them once the new shards are complete",
                location=folder,
            )

    def get_name(self) -> str:
        """Return the name of the write tasks in Ray's messages."""
        return "Wdspec"

    @property
    def min_rows_per_write(self) -> int | None:
        """Return how many rows Ray collects for a shard."""
        return self._samples

    @property
    def min_bytes_per_write(self) -> int | None:
        """Return how many bytes of blocks Ray collects for a shard."""
        return int(self._size) if self._samples is None else None

    def write(self, blocks: Iterable[Block], ctx: Any) -> list[Written]:
        """Write the rows of a task as one shard, which appears when it is complete; runs in Ray's workers.

        Raises:
            FieldError: a row cannot be written: a value has no encoder, or a key occurs twice.
        """
        rows = _with_keys((row for block in blocks for row in samples_of(block)), ctx.task_idx)
        first = next(rows, None)
        if first is None:
            return []
        name = f"{self._id}-{ctx.task_idx:06d}{self._suffix}"
        path = self._path(name)
        with open_writer(self._storage.output(path), name=path, **self._options) as writer:
            writer.write(first)
            for row in rows:
                writer.write(row)
        return [Written(name, writer.count, writer.size)]

    def on_write_complete(self, write_result: WriteResult[list[Written]]) -> None:
        """Write the list of the shards, then delete the shards that they replace."""
        self.shards = sorted(Written(*shard) for each in write_result.write_returns for shard in each or ())
        lines = [f"# {len(self.shards):,} shards, {sum(shard.samples for shard in self.shards):,} samples"]
        for shard in self.shards:
            lines += [f"# {shard.samples:,} samples, {shard.size:,} bytes", shard.name]
        output = self._storage.output(self._path(LIST))
        try:
            output.write("".join(f"{line}\n" for line in lines).encode())
            output.commit()
        finally:
            output.abort()
        for name in self._older:
            self._storage.delete(self._path(name))

    def discard(self) -> None:
        """Delete the shards of this sink, as far as possible, after writing failed."""
        with suppress(Exception):
            for name in self._names():
                if name.startswith(self._id):
                    self._storage.delete(self._path(name))

    def _path(self, name: str) -> str:
        return posixpath.join(self._folder, name)

    def _names(self) -> list[str]:
        """Return the names of the shards in the folder."""
        try:
            return self._storage.list(self._storage.destination(self._folder).rstrip("/") + "/", "")
        except MissingShardError:
            return []


def _with_keys(rows: Iterable[Sample], task: int) -> Iterator[Sample]:
    """Give each row without a key a key made of the number of its task and its own number."""
    for number, row in enumerate(rows):
        if "__key__" not in row:
            row["__key__"] = f"{task:06d}{number:09d}"
        yield row


def writer_options(encoder: Mapping[str, Any] | None, allow_pickle: bool) -> dict[str, Any]:
    """Return the options for the writers of the shards."""
    return {"encoder": {**JSON_VALUES, **(encoder or {})}, "allow_pickle": allow_pickle}
