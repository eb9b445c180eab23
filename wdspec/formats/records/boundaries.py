"""Where one record ends and the next begins, in CBOR, MessagePack and JSON lines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from wdspec.decoders.libraries import library
from wdspec.errors import ShardError
from wdspec.formats.blocks import REFETCH
from wdspec.formats.records.record_reader import MAX_RECORD, NOTHING, Record, RecordSplitter
from wdspec.spec.language.vocabulary import Format

MAX_DEPTH = 200
"""How deeply values may be nested in a CBOR record (MessagePack and JSON have their libraries' own limits)."""
MAX_ITEMS = 1 << 24
"""Entries that one list or map of a MessagePack record may have: room for them is made before they are seen."""


def splitter_of(format: Format) -> RecordSplitter:
    """What finds the records of a format.

    Raises:
        UsageError: the library that reads it is not installed.
    """
    if format == "jsonl":
        return _split_lines
    if format == "cbor":
        return _cbor(library("cbor2", "a shard of cbor"))
    assert format == "msgpack", format
    return _msgpack(library("msgpack", "a shard of msgpack"))


def _cbor(cbor2: Any) -> RecordSplitter:
    ends_early = cbor2.CBORDecodeEOF
    try:
        cbor2.CBORDecoder(io.BytesIO(), max_depth=MAX_DEPTH)
        options = {"max_depth": MAX_DEPTH}
    except TypeError:  # older ones stop at Python's own limit
        options = {}

    def split(piece: bytes, is_last: bool) -> Iterator[Record]:
        file = io.BytesIO(piece)
        decoder = cbor2.CBORDecoder(file, **options)
        start, end = 0, len(piece)
        while start < end:
            try:
                value = decoder.decode()
            except ends_early:
                return
            except Exception as error:  # its own, and what its builders of dates and numbers raise
                raise _lost("CBOR", error, start) from error
            start = file.tell()
            yield Record(value, start)

    return split


def _msgpack(msgpack: Any) -> RecordSplitter:
    def split(piece: bytes, is_last: bool) -> Iterator[Record]:
        unpacker = msgpack.Unpacker(
            strict_map_key=False,
            max_buffer_size=MAX_RECORD,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_str_len=MAX_RECORD,
            max_bin_len=MAX_RECORD,
            max_ext_len=MAX_RECORD,
        )
        unpacker.feed(piece)
        start = 0
        while True:
            try:
                value = unpacker.unpack()
            except msgpack.OutOfData:
                return
            except Exception as error:
                raise _lost("MessagePack", error, start) from error
            start = unpacker.tell()
            yield Record(value, start)

    return split


def _split_lines(piece: bytes, is_last: bool) -> Iterator[Record]:
    """One JSON text on each line; empty lines do not count, and the last one may lack its newline."""
    start, size = 0, len(piece)
    while start < size:
        end = piece.find(b"\n", start) + 1
        if not end:
            if not is_last:
                return
            end = size
        line = piece[start:end]
        start = end
        try:
            yield Record(json.loads(line.decode("utf-8")) if line.strip() else NOTHING, start)
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                seen = f"a line is no JSON ({_said(error)})"
            else:
                seen = "truncated: the last line is no whole JSON"
            yield Record(None, start, f"{seen}: {line[:40]!r}…; {REFETCH}")


def _lost(kind: str, error: Exception, start: int) -> ShardError:
    return ShardError(f"damaged {kind}: {_said(error)}; {REFETCH}", code="D120", offset=start)


def _said(error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    return said or type(error).__name__
