"""`TokenWriter`: writes token ids into one file of the formats that pretraining reads: Megatron's, or `.npy`."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdspec.base.errors import FieldError, UsageError
from wdspec.fields.values import describe
from wdspec.formats.tokens import INDEX_MAGIC, INDEX_TYPES
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import Output
from wdspec.write.writer import Packed, SampleWriter, Target, list_values


class TokenWriter(SampleWriter):
    """Writes the token ids of samples, one after the other.

    Each sample is a document, with one field: a list, an array or a tensor of integers. Keys are not stored; readers
    number the documents.

    - ``.bin``: the numbers, and an index ``.idx`` of the documents next to it, as Megatron-LM writes them.
    - ``.npy``: one array, without the borders of documents. End each one with a token that readers use as ``eos``.

    The numbers are uint16 if all of a shard are below 65,536, otherwise int32. They are kept in memory until the shard
    is closed. The index appears first, then the shard, each of them complete or not at all.

    Args:
        fileobj: see `TarWriter`.
        name: the name of the shard, if `fileobj` has none.
        compress, overwrite, since: see `TarWriter`; token files are not compressed.
        open_output: opens the output with the name of the index. By default, as `fileobj` is opened.

    Raises:
        UsageError: an argument is invalid, or the name does not end in ``.bin`` or ``.npy``.

    Example:
        >>> import os, tempfile, numpy
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npy")
        >>> with TokenWriter(path) as writer:
        ...     writer.write({"__key__": "0", "ids": [5, 7, 1]})
        12
        >>> numpy.load(path)
        array([5, 7, 1], dtype=uint16)
    """

    def __init__(
        self,
        fileobj: Target,
        name: str = "",
        compress: bool | str | None = None,
        *,
        overwrite: bool = True,
        since: int | None = None,
        open_output: Callable[[str], Output] | None = None,
    ) -> None:
        name = name or (os.fspath(fileobj) if isinstance(fileobj, (str, os.PathLike)) else "")
        self._stem, self._suffix = os.path.splitext(name)
        if self._suffix not in (".bin", ".npy") or compress:
            raise UsageError(
                f"token ids are written to `.bin` or `.npy`, uncompressed, not to `{os.path.basename(name)}`; name "
                "the shard `.bin`"
            )
        self._open_output = open_output or Storage.of(Environment.read()).output
        self._documents: list[NDArray[Any]] = []
        super().__init__(fileobj, compress, overwrite=overwrite, since=since)

    def pack(self, sample: Mapping[str, Any]) -> Packed:
        values = list_values(sample, keep_meta=False)
        key = values.pop("__key__")
        if len(values) != 1:
            listed = ", ".join(values) or "none"
            raise FieldError(
                f"a token file has one field, and this sample has {listed}; keep one with `fields`", key=key
            )
        ((field, value),) = values.items()
        ids = np.asarray(value)
        if ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(ids)):
            raise FieldError(
                f"a token file has lists of integers, and this is {describe(value)}; tokenize it first",
                key=key,
                field=field,
            )
        if len(ids) and not 0 <= ids.min() <= ids.max() < 1 << 31:
            raise FieldError(
                f"token ids are from 0 to 2,147,483,647, and these are from {ids.min():,} to {ids.max():,}",
                key=key,
                field=field,
            )
        return Packed(key, ids.astype("<i4").tobytes())

    def _store(self, packed: Packed) -> None:
        self._check_open()
        self._documents.append(np.frombuffer(packed.data, "<i4"))
        self._taken += len(packed.data)

    def close(self) -> None:
        if self._open:
            self._finish()
        super().close()

    def _finish(self) -> None:
        """Write the documents, and their index."""
        ids = np.concatenate([np.zeros(0, "<i4"), *self._documents])
        kind = np.dtype("<u2" if len(ids) and ids.max() < 1 << 16 else "<i4")
        self._taken = 0
        if self._suffix == ".npy":
            array = io.BytesIO()
            np.save(array, ids.astype(kind))
            self._write(array.getvalue())
            return
        index = self._open_output(f"{self._stem}.idx")
        try:
            index.write(_index([len(each) for each in self._documents], kind))
            index.commit()
        except BaseException:
            index.abort()
            self.abort()
            raise
        self._write(ids.astype(kind).tobytes())


def _index(lengths: list[int], kind: np.dtype[Any]) -> bytes:
    """Return the index of documents with these lengths, as `megatron/core/datasets/indexed_dataset.py` writes it."""
    code = next(code for code, name in INDEX_TYPES.items() if np.dtype(f"<{name}") == kind)
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = (ends - lengths) * kind.itemsize
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    head = INDEX_MAGIC + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
    return head + np.array(lengths, "<i4").tobytes() + starts.astype("<i8").tobytes() + documents.tobytes()
