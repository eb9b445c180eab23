"""Which writer a shard gets: by the format asked for, or by its name."""

from __future__ import annotations

import os
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.formats.compression import compression_of
from wdspec.formats.suffixes import format_of
from wdspec.spec.language.values import SUFFIXES
from wdspec.stores.outputs import is_output
from wdspec.write.record_writer import RecordWriter
from wdspec.write.tar_writer import TarWriter
from wdspec.write.writer import SampleWriter, Target


def open_writer(target: Target, *, name: str = "", **options: Any) -> SampleWriter:
    """The writer for a shard. Where there can be none, an `Output` that was to take it is aborted.

    Args:
        target: a path, a URL, a file or an `Output`.
        name: what the shard is called, where the target does not say.
        options: of `TarWriter` or `RecordWriter`; ``format`` may be ``tar``, ``cbor``, ``msgpack`` or ``jsonl``, one of
            tar's dialects, or left out to go by the name.

    Raises:
        UsageError: an option that this kind of shard has not; and as for the writers.
    """
    try:
        return _made(target, name, options)
    except BaseException:
        if is_output(target):
            target.abort()
        raise


def _made(target: Target, name: str, options: dict[str, Any]) -> SampleWriter:
    name = name or (os.fspath(target) if isinstance(target, (str, os.PathLike)) else "")
    asked = options.get("format")
    if asked in SUFFIXES:
        del options["format"]
    format = format_of(name, asked if asked in SUFFIXES else "auto" if asked is None else "tar")
    if options.get("compress") is None:
        compression = compression_of(name)
        options["compress"] = compression.name if compression else False
    try:
        if format == "tar":
            return TarWriter(target, **options)
        options.pop("format", None)
        return RecordWriter(target, format, **options)
    except TypeError as error:
        raise UsageError(f"a writer of {format} cannot be made so: {error}") from error
