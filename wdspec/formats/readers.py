"""The table of formats besides tar, and how a shard of each is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, BinaryIO, NamedTuple

from wdspec.formats.records import RecordSamples, splitter_of
from wdspec.formats.samples import RawSamples
from wdspec.spec.language.values import Format

FetchAhead = Callable[[BinaryIO], BinaryIO]
"""Stream that only reads forward → the same, fetched in the background."""


@dataclass(frozen=True)
class Surroundings:
    """What a reader may use besides the bytes of its shard."""

    fetch_ahead: FetchAhead | None = None
    """How to fetch parts of the shard in the background; None for local files."""
    like: Callable[[], tuple[str, Mapping[str, str]] | None] | None = None
    """Returns the URL of the first shard of the source, and what its columns are; None if they are not known."""
    takes_all: bool = False
    """Whether no `extensions` of the source say which fields are needed."""


class FormatRow(NamedTuple):
    """A format."""

    read: Callable[..., RawSamples]
    """(file, surroundings, options of `RawSamples`) → the samples of a shard."""
    seeks: bool = False
    """Whether it reads a shard from its end, or only parts of it, so that the shard is neither decompressed as a whole
    nor fetched from its start."""


def _records(format: Format, file: BinaryIO, surroundings: Surroundings, **options: Any) -> RawSamples:
    return RecordSamples(file, splitter_of(format), **options)


def _table(kind: str, file: BinaryIO, surroundings: Surroundings, **options: Any) -> RawSamples:
    from wdspec.formats.tables import TableSamples  # numpy is needed only here

    return TableSamples(file, resolve_name(kind), **vars(surroundings), **options)


READERS: Mapping[Format, FormatRow] = {
    "cbor": FormatRow(partial(_records, "cbor")),
    "msgpack": FormatRow(partial(_records, "msgpack")),
    "jsonl": FormatRow(partial(_records, "jsonl")),
    "parquet": FormatRow(partial(_table, "wdspec.formats.parquet:ParquetTable"), seeks=True),
    "arrow": FormatRow(partial(_table, "wdspec.formats.arrow:ArrowTable"), seeks=True),
}
"""The readers of all formats but tar, which `read/shard.py` reads itself."""


def seeks(format: Format) -> bool:
    """Whether shards of a format are not read from start to end: see `FormatRow.seeks`."""
    return format in READERS and READERS[format].seeks
