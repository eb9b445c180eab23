"""From shards of records (CBOR, MessagePack, JSON lines) to samples: each record as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.stage import Stage, makes_stages, stage
from wdspec.fluent.stages.shard_reader import Policy, ShardReader, handled, piece_of
from wdspec.formats.decompress import decompressed
from wdspec.formats.records import NOTHING, Record, RecordSamples, RecordSplitter, splitter_of
from wdspec.spec.language.values import Format


@makes_stages
def cbors_to_samples(handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None) -> Stage:
    """A stage from shards to the values of concatenated CBOR records: lists, maps, whatever was written.

    `WebDataset("x.cbors")` instead takes records for samples, maps of field to value, and adds `__key__` and `__url__`.

    Args:
        handler: what to do about a damaged shard: what follows in it is lost.
        reader: how shards are opened; by default as this process's environment says now.
    """
    return read_records(reader or ShardReader.here(), "cbor", handler)


@makes_stages
def msgpacks_to_samples(
    handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None
) -> Stage:
    """As `cbors_to_samples`, for concatenated MessagePack."""
    return read_records(reader or ShardReader.here(), "msgpack", handler)


@makes_stages
def jsonl_to_samples(handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None) -> Stage:
    """As `cbors_to_samples`, for JSON lines."""
    return read_records(reader or ShardReader.here(), "jsonl", handler)


@stage
def read_records(
    source: Iterator[Any], reader: ShardReader, format: Format, handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """The values of the records of shards."""
    split = _boxed(splitter_of(format))

    def read(policy: Policy) -> Iterator[Any]:
        with closing(reader.open(piece.shard.text)) as raw:
            records = RecordSamples(
                decompressed(raw),
                split,
                field_of=str,
                stride=piece.stride,
                residue=piece.residue,
                on_error=policy,
                may_be_empty=reader.may_be_empty,
                constants={"__url__": piece.shard.text},
            )
            for box in records:
                yield box["value"]

    for entry in source:
        piece = piece_of(entry)
        if not (yield from handled(piece.shard.text, read, handler)):
            return


def _boxed(split: RecordSplitter) -> RecordSplitter:
    """Puts each record into a map, as what reads records takes maps only."""

    def boxed(piece: bytes, is_last: bool) -> Iterator[Record]:
        for record in split(piece, is_last):
            plain = record.value is NOTHING or record.fault
            yield record if plain else record._replace(value={"value": record.value})

    return boxed
