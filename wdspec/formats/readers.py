"""The table of formats besides tar, and how a shard of each is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, BinaryIO, NamedTuple

from wdspec.base.errors import UsageError
from wdspec.formats.decompress import decompress
from wdspec.formats.records import RecordSamples, splitter_of
from wdspec.formats.samples import RawSamples
from wdspec.spec.language.options import TokenOptions
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
    tokens: TokenOptions | None = None
    """The option `tokens` of the source."""
    open_beside: Callable[[str], BinaryIO] | None = None
    """Opens the file next to the shard whose name has this suffix instead."""
    takes_all: bool = False
    """Whether no `extensions` of the source say which fields are needed."""
    are_samples: Callable[[tuple[str, ...], Collection[str]], bool] | None = None
    """See `TableSamples`."""
    verify: Callable[..., Iterator[Any]] | None = None
    """See `TableSamples`."""


class FormatRow(NamedTuple):
    """A format."""

    read: Callable[..., RawSamples]
    """(file, surroundings, options of `RawSamples`) → the samples of a shard."""
    seeks: bool = False
    """Whether it reads a shard from its end, or only parts of it, so that the shard is not fetched from its start."""
    unpack: Callable[[BinaryIO], BinaryIO] = decompress
    """Returns the uncompressed bytes of a shard. Whether it is compressed as a whole, its first bytes show."""


def _records(format: Format, file: BinaryIO, surroundings: Surroundings, **options: Any) -> RawSamples:
    return RecordSamples(file, splitter_of(format), **options)


def _table(kind: str, file: BinaryIO, surroundings: Surroundings, **options: Any) -> RawSamples:
    from wdspec.formats.tables import TableSamples  # numpy is needed only here

    given = surroundings
    return TableSamples(
        file,
        resolve_name(kind),
        fetch_ahead=given.fetch_ahead,
        like=given.like,
        takes_all=given.takes_all,
        verify=given.verify,
        are_samples=given.are_samples,
        **options,
    )


def _tokens(file: BinaryIO, surroundings: Surroundings, **options: Any) -> RawSamples:
    from wdspec.formats.tokens import TokenSamples

    if surroundings.tokens is None or surroundings.open_beside is None:
        raise UsageError("files of token ids need `tokens: {length: …}` in the source, and perhaps `dtype`")
    return TokenSamples(file, surroundings.tokens, surroundings.open_beside, **options)


def _mds(file: BinaryIO, surroundings: Surroundings, **options: Any) -> RawSamples:
    from wdspec.formats.mds import MdsSamples  # numpy is needed only here

    return MdsSamples(file, **options)


def as_it_is(file: BinaryIO) -> BinaryIO:
    """Return the file itself: shards of some formats are never compressed as a whole."""
    return file


def _unpack_mds(file: BinaryIO) -> BinaryIO:
    from wdspec.formats.mds import begins_mds

    return decompress(file, begins_mds)


READERS: Mapping[Format, FormatRow] = {
    "cbor": FormatRow(partial(_records, "cbor")),
    "msgpack": FormatRow(partial(_records, "msgpack")),
    "jsonl": FormatRow(partial(_records, "jsonl")),
    "parquet": FormatRow(partial(_table, "wdspec.formats.parquet:ParquetTable"), seeks=True, unpack=as_it_is),
    "arrow": FormatRow(partial(_table, "wdspec.formats.arrow:ArrowTable"), seeks=True, unpack=as_it_is),
    "lance": FormatRow(partial(_table, "wdspec.formats.lance:LanceTable"), seeks=True, unpack=as_it_is),
    "tokens": FormatRow(_tokens, unpack=as_it_is),
    "mds": FormatRow(_mds, unpack=_unpack_mds),
}
"""The readers of all formats but tar, which `read/shard.py` reads itself."""


def seeks(format: Format) -> bool:
    """Whether shards of a format are not read from start to end: see `FormatRow.seeks`."""
    return format in READERS and READERS[format].seeks
