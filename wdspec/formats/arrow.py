"""`ArrowTable`: the record batches of an Arrow file (also called Feather) or stream, as Hugging Face caches datasets.

Both are sequences of messages: a schema, dictionaries, and record batches. The headers of the messages say how many
rows each batch has, so they are read first, without the data. A batch is read as a whole, and only the needed columns
of it are decoded.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from wdspec.formats.tables import BATCH_BYTES, BATCH_ROWS, Group, TableFile, check_rows
from wdspec.spec.language.decoders import library

_MAGIC = b"ARROW1"
_CONTINUES = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
"""Kinds of messages."""
_ALIGNMENT = 8
_PADDING = 63
"""The most bytes between the end marker and the footer."""
_HEADER = 64 * 1024
"""The bytes that are read at first of a message."""


class _Message(NamedTuple):
    """The header of a message."""

    kind: int
    rows: int
    start: int
    end: int
    """The offset after its body."""


class ArrowTable:
    """An open Arrow file or stream. See `Table`.

    Args:
        file: the file.
        fetch_ahead: not used.

    Raises:
        Exception: errors of pyarrow, struct.error and ValueError: it is damaged, or not of Arrow.
    """

    group_name = "record batch"

    def __init__(self, file: TableFile, fetch_ahead: Callable[[BinaryIO], BinaryIO] | None = None) -> None:
        self._ipc = library("pyarrow.ipc", "a shard of Arrow")
        self._file, self.size = file, file.size
        self.groups: list[Group] = []
        self._batches: list[_Message] = []
        self._shared: list[tuple[int, bytes]] = []  # the schema and the dictionaries, with their offsets
        first, empty = 0, 0
        for message in self._messages():
            if message.kind != _BATCH:
                self._shared.append((message.start, self._read(message)))
            elif message.rows:
                if message.rows > 8 * (message.end - message.start):  # not a bit for each
                    self._check_claim(message)
                self.groups.append(Group(message.start, first, message.rows))
                self._batches.append(message)
                first += message.rows
            else:
                self._decode(message).validate(full=True)  # it may have rows that its header does not declare
                empty += 1
        if not self._shared:
            raise ValueError("it does not start with a schema of Arrow")
        self.schema = self._ipc.open_stream(self._shared[0][1]).schema
        if self._has_footer:
            whole = self._ipc.open_file(file)
            if whole.schema != self.schema or whole.num_record_batches != len(self._batches) + empty:
                raise ValueError("its footer contradicts its messages")

    def batches(self, number: int, paths: Sequence[str]) -> Iterator[Any]:
        message = self._batches[number]
        wanted = {path.partition(".")[0] if path not in self.schema.names else path for path in paths}
        fields = [place for place, name in enumerate(self.schema.names) if name in wanted]
        batch = self._decode(message, included_fields=fields)
        batch.validate(full=True)
        rows = max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1, batch.nbytes / max(1, batch.num_rows)))))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def requested(self, paths: Sequence[str]) -> None:
        """It is unknown."""

    def close(self) -> None:
        """Nothing else is open."""

    def _check_claim(self, message: _Message) -> None:
        """Raise ValueError if a message cannot have as many rows as it says. Compressed ones take few bytes."""
        batch = self._decode(message)
        batch.validate(full=True)
        check_rows(message.rows, 8 * batch.nbytes)

    def _decode(self, message: _Message, **options: Any) -> Any:
        """Return the `pyarrow.RecordBatch` of a message."""
        shared = b"".join(data for start, data in self._shared if start < message.start)
        given = self._ipc.IpcReadOptions(use_threads=False, **options)
        with self._ipc.open_stream(shared + self._read(message), options=given) as stream:
            return stream.read_next_batch()

    def _messages(self) -> Iterator[_Message]:
        """Yield the headers of all messages."""
        self._file.seek(0)
        at = _ALIGNMENT if self._file.read(len(_MAGIC)) == _MAGIC else 0
        self._has_footer = bool(at)
        if at:
            self._file.seek(-len(_MAGIC), os.SEEK_END)
            if self._file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("truncated: its footer is missing")
        while at + 4 <= self.size:
            self._file.seek(at)
            head = self._file.read(_HEADER)
            (length,) = struct.unpack_from("<I", head)
            start, before = at, 4
            if length == _CONTINUES:
                (length,), before = struct.unpack_from("<I", head, 4), 8
            if not length:
                self._check_end(at + before)
                return
            if at + before + length > self.size:
                raise ValueError(f"a message at byte {at} needs {length} bytes")
            if before + length > len(head):
                head += self._file.read(before + length - len(head))
            kind, rows, body = _parse(head[before : before + length])
            if kind not in (_SCHEMA, _DICTIONARY, _BATCH):  # bytes were inserted before it, for example
                raise ValueError(f"a message at byte {at} is of the unknown kind {kind}")
            at += before + length + body
            if at > self.size:
                raise ValueError(f"truncated: a message at byte {start} ends at byte {at}, after the file")
            yield _Message(kind, rows, start, at)
        raise ValueError("truncated: its end marker is missing")

    def _check_end(self, at: int) -> None:
        """Raise ValueError if anything but the footer follows the end marker, such as moved values."""
        end = self.size
        if self._has_footer:
            self._file.seek(-len(_MAGIC) - 4, os.SEEK_END)
            end -= len(_MAGIC) + 4 + struct.unpack("<I", self._file.read(4))[0]
        if not 0 <= end - at <= (_PADDING if self._has_footer else 0):
            raise ValueError(f"its end marker is at byte {at}, and {end - at:,} bytes follow")

    def _read(self, message: _Message) -> bytes:
        self._file.seek(message.start)
        return self._file.read(message.end - message.start)


def _parse(header: bytes) -> tuple[int, int, int]:
    """Read the kind of a message, its rows, and the bytes of its body, from the flatbuffer of its header."""
    (root,) = struct.unpack_from("<I", header)
    kind = _field(header, root, 1)
    body = _field(header, root, 3)
    inner = _field(header, root, 2)
    rows = 0
    if kind and header[kind] == _BATCH:
        assert inner is not None
        batch = inner + struct.unpack_from("<I", header, inner)[0]
        at = _field(header, batch, 0)
        rows = 0 if at is None else struct.unpack_from("<q", header, at)[0]
        nodes = _field(header, batch, 1)
        if nodes is not None:
            nodes += struct.unpack_from("<I", header, nodes)[0]
            (count,) = struct.unpack_from("<I", header, nodes)
            if count and struct.unpack_from("<q", header, nodes + 4)[0] != rows:
                raise ValueError(f"a record batch claims {rows:,} rows, and its first column another number")
    size = 0 if body is None else struct.unpack_from("<q", header, body)[0]
    if rows < 0 or size < 0:
        raise ValueError("a message has a negative size")
    return header[kind] if kind else 0, rows, size


def _field(data: bytes, table: int, number: int) -> int | None:
    """The offset of a field of a flatbuffer's table; None for its default."""
    (back,) = struct.unpack_from("<i", data, table)
    places = table - back
    (size,) = struct.unpack_from("<H", data, places)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, places + 4 + 2 * number)
    return table + offset if offset else None
