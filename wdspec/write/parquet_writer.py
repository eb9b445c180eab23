"""`ParquetWriter`: writes samples as the rows of one Parquet file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wdspec.base.errors import FieldError, UsageError
from wdspec.fields.encode import Encode, EncodeSample, make_encoder
from wdspec.spec.language.decoders import library
from wdspec.write.writer import Packed, SampleWriter, Target, check_fields, list_values, size_of, to_plain

GROUP_BYTES = 64 * 1024 * 1024
"""Approximate size of a row group, before compression."""
GROUP_ROWS = 100_000
"""Maximum number of rows in a row group."""
_PLAIN = (str, bytes, int, float, bool, list, tuple, dict, type(None))


class _Row:
    """The values of a row. `len()` is its approximate size in bytes."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self._size = sum(map(size_of, values.values()))

    def __len__(self) -> int:
        return self._size


class ParquetWriter(SampleWriter):
    """Writes samples (dicts with a ``__key__``) as rows, with a column for the key and one for each field.

    Text, bytes, numbers, booleans, lists and dicts are stored unchanged. Arrays and tensors of numbers are stored as
    lists, unless the extension of the field has an encoder (`jpg`, `npy`). All other values are encoded by extension,
    as in a tar. A field that a sample does not have is null. All values of a field must have the same type; if some are
    integers and some floats, the column has floats. The first row group determines the columns, so each field must
    occur in one of its samples.

    Pages are compressed with zstd and have checksums. The shard appears under its name only when it is closed, complete
    or not at all.

    Args:
        fileobj, encoder, keep_meta, allow_pickle, overwrite, since: see `RecordWriter`.
        compress: leave it unset, or pass False: Parquet compresses its pages itself.

    Raises:
        UsageError: an argument is invalid, pyarrow is not installed, the name is taken, or another writer uses it.

    Example:
        >>> import io, wdspec
        >>> file = io.BytesIO()
        >>> with wdspec.ParquetWriter(file) as writer:
        ...     size = writer.write({"__key__": "a/000", "label": 7, "text": "seven"})
        >>> import pyarrow.parquet as pq
        >>> pq.read_table(file).to_pylist()
        [{'__key__': 'a/000', 'label': 7, 'text': 'seven'}]
    """

    def __init__(
        self,
        fileobj: Target,
        compress: bool | str | None = None,
        encoder: bool | Mapping[str, Encode] | EncodeSample | None = True,
        keep_meta: bool = False,
        *,
        allow_pickle: bool = False,
        overwrite: bool = True,
        since: int | None = None,
    ) -> None:
        if compress:
            raise UsageError(
                "Parquet compresses its pages itself; remove the suffix of the compression, or the option"
            )
        self._arrow, self._parquet = library("pyarrow", "writing Parquet"), library("pyarrow.parquet", "it")
        self._encode = make_encoder(encoder, allow_pickle=allow_pickle)
        self._encodes_all = callable(encoder)
        self._keep_meta = keep_meta
        self._types: dict[str, Any] = {"__key__": self._arrow.string()}
        self._rows: list[dict[str, Any]] = []
        self._held = self._total = 0
        self._file: Any = None
        super().__init__(fileobj, False, overwrite=overwrite, since=since)

    @property
    def size(self) -> int:
        return self._total

    def pack(self, sample: Mapping[str, Any]) -> Packed:
        check_fields(sample)
        values = list_values(self._encode(sample) if self._encodes_all else sample, self._keep_meta)
        key, row = values["__key__"], {}
        for field, value in values.items():
            if not isinstance(value, _PLAIN):
                value = to_plain(field, value, self._encode, key)
            if value is not None:
                row[field] = value
        types = {}
        for field, value in row.items():
            try:
                types[field] = self._unite(self._types.get(field), self._type_of(value))
            except (TypeError, ValueError, OverflowError, self._arrow.ArrowException) as cause:
                raise FieldError(f"Parquet cannot contain it: {cause}", key=key, field=field) from cause
            if self._file is not None and types[field] != self._types.get(field):
                raise FieldError(
                    f"it is {types[field]}, but earlier row groups have {self._types.get(field, 'no such column')}; "
                    "start another shard, or make sure that an earlier sample has such a value",
                    key=key,
                    field=field,
                )
        self._types.update(types)
        return Packed(key, _Row(row))  # type: ignore[arg-type]  # only its length is used

    def _store(self, packed: Packed) -> None:
        self._check_open()
        row: Any = packed.data
        self._rows.append(row.values)
        self._held += len(row)
        self._total += len(row)
        if self._held >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        if self._open and not self._failed:
            if self._rows or self._file is None:
                self._flush()
            self._guard(self._file.close)
        super().close()

    def abort(self) -> None:
        self._rows = []
        super().abort()

    def _flush(self) -> None:
        """Write the collected rows as a row group."""
        arrow, rows = self._arrow, self._rows
        self._rows, self._held = [], 0
        schema = arrow.schema(list(self._types.items()))
        if self._file is None:
            self._file = self._parquet.ParquetWriter(
                arrow.PythonFile(_Sink(self), mode="w"), schema, compression="zstd", write_page_checksum=True
            )
        columns = [
            arrow.array([_as_listed(row.get(name)) for row in rows], kind)
            for name, kind in self._types.items()
        ]
        table = arrow.Table.from_arrays(columns, schema=schema)
        self._guard(lambda: self._file.write_table(table, row_group_size=max(1, len(rows))))

    def _guard(self, write: Any) -> None:
        try:
            write()
        except BaseException:
            self._failed = True
            self.abort()
            raise

    def _type_of(self, value: Any) -> Any:
        arrow = self._arrow
        if isinstance(value, np.ndarray):
            kind = arrow.from_numpy_dtype(value.dtype)
            for _ in range(value.ndim):
                kind = arrow.list_(kind)
            return kind
        return self._check_type(arrow.array([value]).type)

    def _check_type(self, kind: Any) -> Any:
        if self._arrow.types.is_struct(kind):
            if not kind.num_fields:
                raise ValueError("an empty dict has no type in Parquet; remove the field from this sample")
            for field in kind:
                self._check_type(field.type)
        elif self._arrow.types.is_list(kind):
            self._check_type(kind.value_type)
        return kind

    def _unite(self, before: Any, now: Any) -> Any:
        """Return the type of a column with values of both types. Raises TypeError if there is none."""
        arrow, types = self._arrow, self._arrow.types
        if before is None or before == now or types.is_null(before):
            return now
        if types.is_null(now):
            return before
        numbers = [types.is_integer(kind) or types.is_floating(kind) for kind in (before, now)]
        if all(numbers) and arrow.int64() in (before, now) and arrow.float64() in (before, now):
            return arrow.float64()
        if types.is_list(before) and types.is_list(now):
            return arrow.list_(self._unite(before.value_type, now.value_type))
        if types.is_struct(before) and types.is_struct(now):
            merged = {field.name: field.type for field in before}
            for field in now:
                merged[field.name] = self._unite(merged.get(field.name), field.type)
            return arrow.struct(list(merged.items()))
        raise TypeError(
            f"it is {now}, but {before} in an earlier sample; give all samples values of one type"
        )


class _Sink:
    """The file that pyarrow writes to; it passes the bytes to the output of a writer."""

    closed = False

    def __init__(self, writer: ParquetWriter) -> None:
        self._writer = writer
        self._at = 0

    def write(self, data: bytes) -> int:
        if self._writer._open:  # pyarrow closes its file even after an abort
            self._writer._write(bytes(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _as_listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) and value.ndim > 1 else value
