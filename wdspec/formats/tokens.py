"""`TokenSamples`: reading a file of token ids as samples of a fixed length, or as documents.

Three kinds of files: `.bin` with an index `.idx` next to it, as Megatron-LM writes them; `.npy` with a header; and bare
numbers, as OLMo (`.npy` without a header), nanotron (`.ds`) and nanoGPT write them. All of them are read from start to
end, through a window of bytes: a mapped file that is truncated would kill the process, and a remote one cannot be
mapped.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from wdspec.base.errors import MissingShardError, ShardError, UsageError
from wdspec.base.process import PARSING
from wdspec.formats.blocks import CHUNK, MAY_BE_EMPTY, REFETCH, Blocks
from wdspec.formats.compression import compression_of, recognize, stem_of
from wdspec.formats.samples import RawSamples
from wdspec.spec.language.options import TokenOptions

MAX_DOCUMENT = 1 << 30
"""Maximum size of a document in bytes (1 GiB): a longer one is more likely a wrong `eos`."""
FIELD = "tokens"
"""The field of the token ids."""
INDEX_MAGIC = b"MMIDIDX\0\0"
INDEX_TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}
"""Megatron's codes of the types of integers; 6 and 7 are floats."""
_NPY_MAGIC = b"\x93NUMPY"
_NPY_HEADER = 64 * 1024

Spans = Iterator[tuple[int, int]]
"""(first byte, byte after the last) of each sample, from one on."""


class TokenSamples(RawSamples):
    """The samples of one file of token ids.

    Iterating (once) yields dicts: `__key__` (`<name of the shard>/<index>`), the constants, and `tokens`, a numpy array
    of int64 and of shape (length,). With `length`, samples are consecutive tokens, and a shorter rest at the end of the
    file is no sample. Otherwise they are documents: those of the index, or up to and including each `eos`.

    Args:
        file: see `RawSamples`.
        tokens: the options of the spec.
        open_beside: opens the file whose name has this suffix instead.
        options: of `RawSamples`.
    """

    def __init__(
        self, file: BinaryIO, tokens: TokenOptions, open_beside: Callable[[str], BinaryIO], **options: Any
    ) -> None:
        super().__init__(file, **options)
        self._tokens, self._open_beside = tokens, open_beside
        url = str(self._constants.get("__url__", ""))
        self._name, stem = url.partition("?")[0].rpartition("/")[2], stem_of(url)
        self._stem = f"{stem}/" if stem else ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        index = self.next_index
        try:
            blocks = Blocks(self._file, 0, self._on_read)
            kind, start, spans = self._open(blocks)
            name = self._field_of(FIELD)
            vocabulary = self._tokens.vocabulary
            for first, last in spans:
                if index % self._stride == self._residue:
                    sample = {"__key__": f"{self._stem}{index}", **self._constants}
                    if name is not None:
                        ids = np.frombuffer(blocks.take(first, last - first), kind)
                        if (
                            vocabulary is not None
                            and len(ids)
                            and not 0 <= ids.min() <= ids.max() < vocabulary
                        ):
                            wrong = int(ids.min() if ids.min() < 0 else ids.max())
                            self._report(
                                ShardError(
                                    f"the token {wrong} is not below `vocabulary: {vocabulary}`; are the numbers "
                                    f"{_name_of(kind)}? If not, set `tokens: {{dtype: …}}`",
                                    code="D122",
                                ),
                                offset=first,
                                key=sample["__key__"],
                            )
                            index += 1
                            continue
                        sample[name] = ids.astype(np.int64)
                    self.next_offset, self.next_index = last, index + 1
                    yield sample
                index += 1
                start = last
            self.next_offset, self.next_index = max(self.next_offset, start), index
            if not index and not self._may_be_empty:
                length = self._tokens.length
                what = (
                    "no sample"
                    if length is None
                    else f"fewer than {length:,} numbers (`length`), so no sample"
                )
                raise ShardError(
                    f"the shard has {what}; {REFETCH}, {MAY_BE_EMPTY}",
                    code="D105",
                    offset=0,
                )
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except ShardError as error:
            self._report_end(error, offset=self.next_offset)

    def _open(self, blocks: Blocks) -> tuple[np.dtype[Any], int, Spans]:
        """Return the type of the numbers, where reading starts, and the spans of the samples from there on."""
        options = self._tokens
        at = blocks.find(0, _NPY_HEADER, least=1)
        head = blocks.buffer[at : at + _NPY_HEADER]
        if not head:
            raise ShardError(f"the shard has 0 bytes; {REFETCH}", code="D103", offset=0)
        if compression_of(self._name) is not None and (packing := recognize(head)) is not None:
            raise UsageError(
                f"the file is compressed ({packing.title}), but token files are read as they are: decompress it, and "
                f"name `{self._name.rpartition('.')[0]}` in `shards`"
            )
        declared = None if options.dtype is None else np.dtype(options.dtype).newbyteorder("<")
        begin, row = 0, None
        self._end: int | None = None
        spans: Spans | None = None
        if head.startswith(_NPY_MAGIC):
            kind, begin, self._end, row = _parse_npy(head)
        elif declared is not None and (options.length is not None or options.eos is not None):
            kind = declared
        else:
            kind, documents = self._read_index()
            self._end = int(documents[-1])
            if options.length is None:
                spans = self._listed(documents, kind, blocks)
        if declared is not None and declared != kind:
            raise ShardError(
                f"the file has {_name_of(kind)}, but `tokens: {{dtype: {options.dtype}}}` says otherwise; remove it",
                code="D123",
                offset=0,
            )
        start = max(begin, self.next_offset)
        if spans is None:
            length = options.length or (row if options.eos is None else None)
            if length is not None:
                spans = self._cut(blocks, kind, begin, start, length * kind.itemsize)
            elif options.eos is not None:
                spans = self._split(blocks, kind, begin, start, options.eos)
            else:
                raise UsageError(
                    "token shards without an index need `tokens: {length: …}` or `tokens: {eos: …}`"
                )
        return kind, start, spans

    def _cut(self, blocks: Blocks, kind: np.dtype[Any], begin: int, start: int, size: int) -> Spans:
        """Spans of one size, from `start` on, which is after a number of them."""
        if (start - begin) % size or (start - begin) // size != self.next_index:
            raise _changed(self.next_index, start)
        if blocks.seekable:
            total = self._file.seek(0, io.SEEK_END)
            blocks.come_back()
            self._check_end(total, begin, kind)
            for first in range(start, total - size + 1, size):
                yield first, first + size
            return
        while True:
            at = blocks.find(start, size)
            have = len(blocks.buffer) - at
            if have < size:
                self._check_end(start + have, begin, kind)
                return
            yield start, start + size
            start += size

    def _split(self, blocks: Blocks, kind: np.dtype[Any], begin: int, start: int, eos: int) -> Spans:
        """Spans up to and including each `eos`; the last one may lack it."""
        item, mark = kind.itemsize, np.array([eos]).astype(kind)
        if int(mark[0]) != eos:
            raise UsageError(
                f"`tokens: {{eos: {eos}}}` is not a number of {_name_of(kind)}; correct it, or `dtype`"
            )
        while True:
            size = CHUNK
            while True:
                at = blocks.find(start, size)
                data = blocks.buffer[at : at + size]
                whole = len(data) // item * item
                found = np.flatnonzero(np.frombuffer(data[:whole], kind) == mark[0])
                if len(found) or len(data) < size:
                    break
                size *= 2
                if size > MAX_DOCUMENT:
                    raise ShardError(
                        f"no `eos: {eos}` within {MAX_DOCUMENT:,} bytes; correct `tokens`",
                        code="D124",
                        offset=start,
                    )
            first = start
            for end in (found + 1).tolist():
                yield start, first + end * item
                start = first + end * item
            if len(data) < size:  # the end of the file
                self._check_end(first + len(data), begin, kind)
                if first + whole > start:
                    yield start, first + whole
                return

    def _listed(self, documents: np.ndarray[Any, Any], kind: np.dtype[Any], blocks: Blocks) -> Spans:
        """The spans of documents: their ends, after the start of the first one."""
        if self.next_index and (
            self.next_index >= len(documents) or int(documents[self.next_index]) != self.next_offset
        ):
            raise _changed(self.next_index, self.next_offset)
        if blocks.seekable:
            total = self._file.seek(0, io.SEEK_END)
            blocks.come_back()
            self._check_end(total, 0, kind)
        ends = documents[self.next_index :].tolist()
        yield from pairwise(ends)
        if not blocks.seekable:
            at = blocks.find(ends[-1], CHUNK)
            self._check_end(ends[-1] + len(blocks.buffer) - at, 0, kind)

    def _check_end(self, total: int, begin: int, kind: np.dtype[Any]) -> None:
        """Check the size of the file: what its header or its index says, or at least a whole number of ids."""
        end = self._end
        if end is not None and total < end:
            raise ShardError(
                f"truncated: the shard ends at byte {total}, but its header or index needs {end}; {REFETCH}",
                code="D107",
            )
        if end is not None and total > end:
            raise ShardError(
                f"the shard has {total} bytes, but its header or index describes only {end}; is the index of another "
                "file, or older?",
                code="D124",
            )
        _check_whole(total - begin, kind)

    def _read_index(self) -> tuple[np.dtype[Any], np.ndarray[Any, Any]]:
        """Read the index of Megatron: the type of the numbers, and the byte offsets of the starts of documents and of
        the end of the last one."""
        try:
            with closing(self._open_beside(".idx")) as file:  # a watched stream is no context manager
                data = b"".join(iter(lambda: file.read(1 << 20), b""))
        except MissingShardError as error:
            raise UsageError(
                f"{error.message}: files of token ids without an index need `tokens: {{dtype: …}}`, and `length` or "
                "`eos`",
                **error.place,
            ) from error
        try:
            if data[:9] != INDEX_MAGIC:
                raise ValueError("it does not start with the magic bytes")
            version, code, sequences, documents = struct.unpack_from("<QBQQ", data, 9)
            kind = np.dtype(f"<{INDEX_TYPES[code]}")
            at = 9 + 8 + 1 + 8 + 8
            if version != 1 or len(data) < at + 12 * sequences + 8 * documents or not documents:
                raise ValueError(
                    f"version {version}, {sequences} sequences, {documents} documents in {len(data)} bytes"
                )
            lengths = np.frombuffer(data, "<i4", sequences, at)
            pointers = np.frombuffer(data, "<i8", sequences, at + 4 * sequences)
            firsts = np.frombuffer(data, "<i8", documents, at + 12 * sequences)
            ends = pointers + lengths.astype(np.int64) * kind.itemsize
            if sequences and (
                lengths.min() < 0 or pointers[0] or np.any(ends[:-1] != pointers[1:]) or firsts[0]
                or firsts[-1] != sequences or np.any(np.diff(firsts) < 0)
            ):  # fmt: skip
                raise ValueError("its lengths and offsets contradict each other")
        except (ValueError, KeyError, struct.error) as error:
            raise ShardError(f"the index `.idx` is damaged: {error}; {REFETCH}", code="D124") from error
        starts = np.append(pointers, ends[-1:] if sequences else 0)
        return kind, starts[firsts]


def read_npy_header(file: BinaryIO | io.BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of a `.npy` file, and return the shape, whether it is in Fortran order, and the dtype.

    Raises:
        ValueError: it is damaged, or no header.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        with PARSING.value:
            found: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(file)
    except (SyntaxError, TokenError) as error:  # of the header, which is Python code
        raise ValueError(str(error)) from error
    return found


def _parse_npy(head: bytes) -> tuple[np.dtype[Any], int, int, int | None]:
    """Return the type of a `.npy` file, where its numbers start and end, and the length of its rows if it has rows."""
    file = io.BytesIO(head)
    try:
        shape, is_fortran, kind = read_npy_header(file)
    except ValueError as error:
        raise ShardError(f"a damaged header of .npy: {error}; {REFETCH}", code="D124", offset=0) from error
    if kind.kind not in "iu" or len(shape) not in (1, 2) or (is_fortran and len(shape) == 2):
        raise ShardError(
            f"an array of {kind} and of shape {shape}; token shards have integers, in one dimension or in rows",
            code="D124",
            offset=0,
        )
    begin = file.tell()
    return kind, begin, begin + math.prod(shape) * kind.itemsize, shape[1] if len(shape) == 2 else None


def _check_whole(size: int, kind: np.dtype[Any]) -> None:
    if size % kind.itemsize:
        raise ShardError(
            f"truncated: {size} bytes are no whole number of {_name_of(kind)}; {REFETCH}, or correct `tokens: "
            "{dtype: …}`",
            code="D107",
        )


def _changed(index: int, offset: int) -> ShardError:
    return ShardError(
        f"the shard, or `tokens`, has changed: sample {index} does not start at byte {offset}; restore it, or start a "
        "new run",
        code="D123",
    )


def _name_of(kind: np.dtype[Any]) -> str:
    return kind.newbyteorder("=").name
