"""`RecordSamples`: reading a sequence of records (CBOR, MessagePack, JSON lines) as raw samples.

A splitter finds the records of each format in a piece of a shard.
"""

from __future__ import annotations

import io
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from wdspec.base.encodings import describe_encoding, name_wide
from wdspec.base.errors import ShardError, in_one_line
from wdspec.formats.blocks import CHUNK, MAY_BE_EMPTY, REFETCH, Blocks
from wdspec.formats.compression import stem_of
from wdspec.formats.map_names import PairsHook, find_lost_in_cbor
from wdspec.formats.samples import RawSamples, page_error, tar_error
from wdspec.spec.language.decoders import library
from wdspec.spec.language.values import Format

MAX_RECORD = 1 << 29
"""Maximum size of a record in bytes (512 MiB); a larger one is more likely a damaged length than a sample."""

NOTHING = object()
"""The value of an empty line, which is neither a record nor an error."""


class Record(NamedTuple):
    """One record found in a piece of a shard."""

    value: Any
    end: int
    """The index after the record in the piece."""
    fault: str = ""
    """What is wrong with the record, if the next one can still be found."""
    twice: str = ""
    """A name that the record, or a map in it, has twice. Parsers keep its last value without a word."""


RecordSplitter = Callable[[bytes, bool], Iterator[Record]]
"""(piece of a shard that starts with a record, whether it ends the shard) → its complete records.

Raises ShardError, with the index in the piece as the offset, if no further record can be found."""


class RecordSamples(RawSamples):
    """The samples of one uncompressed sequence of records, each a map of field → value.

    Iterating (once) yields dicts: `__key__`, the constants, then the fields in the order of the record. Byte strings
    are bytes to decode, like members of a tar; other values need no decoding. Entries like `__note__` are kept, unless
    a constant has the same name. `__key__` is that of the record, a text or an integer; without one it is
    `<name of the shard>/<index>`.

    A record that is damaged or longer than `MAX_RECORD` is a ShardError with its byte offset (in the uncompressed
    shard). A shard that was cut between two records looks complete, as these formats have no end marker.

    Args:
        file: see `RawSamples`.
        split: finds the records; see `splitter_of`.
        options: of `RawSamples`.
    """

    def __init__(self, file: BinaryIO, split: RecordSplitter, **options: Any) -> None:
        super().__init__(file, **options)
        self._split = split
        self._stem = stem_of(str(self._constants.get("__url__", "")))
        self._names: dict[str, str | None] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        offset, index, wanted = self.next_offset, self.next_index, CHUNK
        try:
            blocks = Blocks(self._file, offset, self._on_read)
            while True:
                at = blocks.find(offset, wanted, least=1)
                piece = blocks.buffer[at:] if at else blocks.buffer
                is_last = len(piece) < wanted and not blocks.has_failed
                done = 0
                for record in self._records(piece, is_last, offset):
                    if record.value is NOTHING:
                        done = record.end
                        continue
                    if index % self._stride == self._residue:
                        try:
                            sample = self._sample(record, index)
                        except ShardError as error:
                            self._report(error, offset=offset + done)
                        else:
                            self.next_offset, self.next_index = offset + record.end, index + 1
                            yield sample
                    index += 1
                    done = record.end
                if is_last:
                    if done < len(piece):
                        raise ShardError(
                            f"truncated: the shard ends at byte {offset + len(piece)}, within a record; {REFETCH}",
                            code="D107",
                            offset=offset + done,
                        )
                    self.next_offset, self.next_index = offset + done, index
                    if not index and not self._may_be_empty:
                        raise ShardError(
                            f"the shard has no records in its {offset + len(piece)} bytes; {REFETCH}, {MAY_BE_EMPTY}",
                            code="D105" if offset + len(piece) else "D103",
                            offset=0,
                        )
                    return
                offset += done
                wanted = CHUNK if done else wanted * 2
                if wanted > MAX_RECORD:
                    raise ShardError(
                        f"a record has more than {MAX_RECORD:,} bytes; {REFETCH}", code="D120", offset=offset
                    )
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except ShardError as error:
            self._report_end(error, offset=self.next_offset)

    def _records(self, piece: bytes, is_last: bool, offset: int) -> Iterator[Record]:
        """Yield the records of a piece. Errors get their place in the shard."""
        if offset == 0 and piece[257:262] == b"ustar" and piece[0] < 0x80 and piece[0] not in b"{ \t\r\n":
            raise tar_error()
        if offset == 0 and piece[:64].lstrip()[:1] == b"<":  # no record begins with it
            raise page_error(piece)
        try:
            yield from self._split(piece, is_last)
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except ShardError as error:
            at = error.place.pop("offset", 0)
            raise error.at(offset=offset + at) from error.__cause__

    def _sample(self, record: Record, index: int) -> dict[str, Any]:
        value = record.value
        if record.fault:
            raise ShardError(record.fault, code="D120")
        if not isinstance(value, dict):
            raise ShardError(
                f"a record is a {type(value).__name__}, but a sample is a map of field to value; write such maps",
                code="D120",
            )
        if record.twice in value:  # not in a map within the record: names of the record come first
            raise _repeated(record.twice)
        key = value.get("__key__")
        if key is None:
            key = f"{self._stem}/{index}" if self._stem else str(index)
        elif type(key) is int:
            key = str(key)
        elif not isinstance(key, str):
            raise ShardError(f"the `__key__` of a record is {key!r:.60}; use text or an integer", code="D120")
        sample = {"__key__": key, **self._constants}
        names = self._names
        for name, content in value.items():
            try:
                stored = names[name]
            except (KeyError, TypeError):
                stored = self._learn(name, key)
            if stored is None:
                continue
            if stored in sample:
                raise ShardError(
                    f"two fields of a record both become {stored!r} (case is ignored); rename one",
                    code="D206",
                    key=key,
                )
            sample[stored] = content
        if record.twice:
            raise _repeated(record.twice)
        return sample

    def _learn(self, name: Any, key: str) -> str | None:
        """Return the name to store the values of a field under; None to drop them."""
        if not isinstance(name, str):
            raise ShardError(
                f"the name of a field of a record is {name!r:.60}, which is not text; rename it",
                code="D120",
                key=key,
            )
        if name.startswith("__") and name.endswith("__"):
            stored = None if name == "__key__" or name in self._constants else name
        else:
            stored = self._field_of(name)
        if len(self._names) > 10_000:
            self._names.clear()
        self._names[name] = stored
        return stored


MAX_DEPTH = 200
"""Maximum depth of a CBOR record (for MessagePack and JSON, their libraries have limits)."""
MAX_ITEMS = 1 << 24
"""Maximum number of entries of a list or map in a MessagePack record: they are allocated in advance."""


def splitter_of(format: Format) -> RecordSplitter:
    """Return the splitter that finds the records of a format.

    Raises:
        UsageError: the library that reads it is not installed.
    """
    if format == "jsonl":
        return _split_lines
    if format == "cbor":
        return _cbor(library("cbor2", "a shard of cbor"))
    assert format == "msgpack", format
    return _msgpack(library("msgpack", "a shard of msgpack"))


def as_texts(cbor2: Any) -> dict[str, Any]:
    """Return the option with which regular expressions and messages in CBOR are texts, as they are in the file.

    Compiling an expression of a shard may take any time, and neither can be collated or sent to another process.
    """
    options = {"semantic_decoders": dict.fromkeys((35, 36), lambda content, immutable: content)}
    try:
        cbor2.CBORDecoder(io.BytesIO(), **options)
    except TypeError:  # before version 6
        return {}
    return options


def _cbor(cbor2: Any) -> RecordSplitter:
    ends_early, options = cbor2.CBORDecodeEOF, as_texts(cbor2)
    try:
        cbor2.CBORDecoder(io.BytesIO(), max_depth=MAX_DEPTH)
        options["max_depth"] = MAX_DEPTH
    except TypeError:  # older versions stop at Python's own limit
        pass

    load = partial(cbor2.load, **options)

    def split(piece: bytes, is_last: bool) -> Iterator[Record]:
        sizes: list[int] = []

        def note(*arguments: Any) -> Any:  # (value, whether it is a name); before version 6, (decoder, value)
            value = arguments[0] if isinstance(arguments[0], Mapping) else arguments[1]
            sizes.append(len(value))
            return value

        file = io.BytesIO(piece)
        decoder = cbor2.CBORDecoder(file, object_hook=note, **options)
        start, end = 0, len(piece)
        while start < end:
            try:
                value = decoder.decode()
            except ends_early:
                return
            except Exception as error:  # also what building dates and numbers raises
                raise _lost("CBOR", error, start) from error
            begin, start = start, file.tell()
            twice = ""
            if sizes and (len(sizes) > 1 or _stated_pairs(piece, begin) != sizes[0]):
                twice = find_lost_in_cbor(load, piece[begin:start], sum(sizes))
            sizes.clear()
            yield Record(value, start, twice=twice)

    return split


_HEADS = {0xB8: 1, 0xB9: 2, 0xBA: 4, 0xBB: 8} | {0xA0 + pairs: -pairs for pairs in range(24)}
"""First byte of a map → the size of the number of its pairs that follows, or -n for n pairs."""


def _stated_pairs(piece: bytes, at: int) -> int | None:
    """Return the number of pairs that a map of CBOR states at its start; None if it states none."""
    size = _HEADS.get(piece[at])
    if size is None or size <= 0:
        return None if size is None else -size
    return int.from_bytes(piece[at + 1 : at + 1 + size], "big")


def _msgpack(msgpack: Any) -> RecordSplitter:
    def split(piece: bytes, is_last: bool) -> Iterator[Record]:
        hook = PairsHook()
        unpacker = msgpack.Unpacker(
            object_pairs_hook=hook.build,
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
            yield Record(value, start, twice=hook.take())

    return split


def _split_lines(piece: bytes, is_last: bool) -> Iterator[Record]:
    """Split lines of JSON. Empty lines are ignored, and the last line may lack its newline."""
    start, size, hook = 0, len(piece), PairsHook()
    parse = json.JSONDecoder(object_pairs_hook=hook.build).decode
    while start < size:
        end = piece.find(b"\n", start) + 1
        if not end:
            if not is_last:
                return
            end = size
        line = piece[start:end].removeprefix(BOM_UTF8)
        start = end
        try:
            value = parse(line.decode("utf-8")) if line.strip() else NOTHING
        except (ValueError, RecursionError) as error:
            hook.take()
            if name_wide(line) or (isinstance(error, UnicodeDecodeError) and line.endswith(b"\n")):
                seen = describe_encoding(line)
            elif line.endswith(b"\n"):
                seen = f"a line is not JSON ({in_one_line(error)}); {REFETCH}"
            else:
                seen = f"truncated: the last line is not complete JSON; {REFETCH}"
            yield Record(None, start, seen)
        else:
            yield Record(value, start, twice=hook.take())


def _repeated(name: str) -> ShardError:
    return ShardError(
        f"a record has two values named {name!r}; remove one of them, or rename it", code="D206"
    )


def _lost(kind: str, error: Exception, start: int) -> ShardError:
    return ShardError(f"damaged {kind}: {in_one_line(error)}; {REFETCH}", code="D120", offset=start)
