"""Records of the shards that `wdspec process` writes: from what, by which job, and what became of the samples.

The record of `out/a.tar` is `out/.wdspec/a.tar.json`. It is written before the shard appears, so each shard of an
interrupted job has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.jobs.job import ReadTask
from wdspec.shards.lock import digest_partners
from wdspec.storage.storage import Storage
from wdspec.urls.urls import is_command

FOLDER = ".wdspec"
"""Hidden, so that no glob and no folder of shards includes it."""


@dataclass(frozen=True)
class OutputRecord:
    """What a shard was made from and by."""

    job: str
    """See `digest_writing`."""
    input: list[Any]
    """Size and validator of the shard that was read, and a digest of those of its partners; None if unknown."""
    counts: Mapping[str, Any]
    """What became of its samples, by the names in the report."""

    def write(self, outputs: Storage, output: str) -> None:
        """Write the record of an output. Raises as `Storage.output`."""
        if is_command(output):
            return
        file = outputs.output(_place_of(output))
        try:
            file.write(json.dumps(asdict(self)).encode())
            file.commit()
        finally:
            file.abort()

    @classmethod
    def read(cls, outputs: Storage, output: str) -> OutputRecord | None:
        """Read the record of an output; None if there is none, or it is damaged."""
        if not is_command(output) and outputs.is_written(place := _place_of(output)):
            with (
                suppress(ValueError, TypeError),
                closing(outputs.open_location(outputs.destination(place))) as file,
            ):
                return cls(**json.loads(file.read()))
        return None


def _place_of(output: str) -> str:
    folder, slash, name = output.rpartition("/")
    return f"{folder}{slash}{FOLDER}/{name}.json"


def describe_input(task: ReadTask) -> list[Any]:
    """What the store says of a shard and its partners. Reading reports errors, so here, nothing is known then."""
    storage = replace(task.parts.open.storage, cache=None)
    with suppress(ShardError):
        stat = storage.stat(task.shard)
        return [stat.size, stat.validator, digest_partners(task.shard, storage)]
    return [None, None, None]
