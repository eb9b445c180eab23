"""`RecordWriter`: writes samples into one file of CBOR, MessagePack or JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from wdspec.base.errors import FieldError, UsageError, in_one_line
from wdspec.fields.codecs.text import write_json
from wdspec.fields.encode import Encode, EncoderMissingError, EncodeSample, make_encoder
from wdspec.spec.language.decoders import library
from wdspec.spec.language.values import Format
from wdspec.write.writer import Packed, SampleWriter, Target, check_fields, list_values, to_plain

_PLAIN = (str, int, float, bool, list, tuple, dict, type(None))


class RecordWriter(SampleWriter):
    """Writes samples (dicts with a ``__key__``) as records: maps with the ``__key__`` and the fields.

    Values that the format supports are stored unchanged: None, numbers, text, lists and dicts. CBOR and MessagePack
    also store bytes. Other values (arrays, tensors, images) are encoded by the extension of their field, as in a tar,
    and the reader decodes them; arrays and tensors of numbers become lists if the extension has no encoder. JSON lines
    cannot contain bytes: there, bytes are errors, and all arrays become lists.

    The shard appears under its name only when it is closed, complete or not at all. The same samples always produce the
    same bytes.

    Args:
        fileobj: see `TarWriter`.
        format: ``cbor``, ``msgpack`` or ``jsonl``.
        compress, encoder, keep_meta, allow_pickle, overwrite, since: see `TarWriter`. The encoder gets only values
            that the format does not support; with ``encoder=False`` such values are errors.

    Raises:
        UsageError: an argument is invalid, the library for the format is missing, the name is taken, or another writer
            uses it.

    Example:
        >>> import io, wdspec
        >>> file = io.BytesIO()
        >>> with wdspec.RecordWriter(file, "jsonl") as writer:
        ...     writer.write({"__key__": "a/000", "cls": 7, "txt": "seven"})
        47
        >>> file.getvalue()
        b'{"__key__": "a/000", "cls": 7, "txt": "seven"}\\n'
    """

    def __init__(
        self,
        fileobj: Target,
        format: Format,
        compress: bool | str | None = None,
        encoder: bool | Mapping[str, Encode] | EncodeSample | None = True,
        keep_meta: bool = False,
        *,
        allow_pickle: bool = False,
        overwrite: bool = True,
        since: int | None = None,
    ) -> None:
        self._encode = make_encoder(encoder, allow_pickle=allow_pickle)
        self._encodes_all = callable(encoder)
        self._keep_meta = keep_meta
        self._dumps = _dumps(format)
        self._format = format
        self._kept = _PLAIN if format == "jsonl" else (*_PLAIN, bytes)
        super().__init__(fileobj, compress, overwrite=overwrite, since=since)

    def pack(self, sample: Mapping[str, Any]) -> Packed:
        check_fields(sample)
        record = list_values(self._encode(sample) if self._encodes_all else sample, self._keep_meta)
        key = record["__key__"]
        if not self._encodes_all and self._format != "jsonl":
            for field, value in record.items():
                if not isinstance(value, self._kept):
                    plain = to_plain(field, value, self._encode, key)
                    record[field] = plain.tolist() if hasattr(plain, "tolist") else plain
        try:
            return Packed(key, self._dumps(record))
        except Exception as cause:  # each library has its own exceptions
            raise self._explain(record, cause) from cause

    def _explain(self, record: Mapping[str, Any], cause: Exception) -> FieldError:
        """Return the error for a record, with the field that causes it."""
        for field, value in record.items():
            try:
                self._dumps({field: value})
            except Exception as own:
                reason = in_one_line(own)
                error = FieldError
                if self._format == "jsonl" and _has_bytes(value):
                    reason += "; use `.cbors`, `.msgpack` or `.parquet`, which can"
                    error = EncoderMissingError
                return error(
                    f"{self._format} cannot contain it: {reason}", key=record["__key__"], field=field
                )
        return FieldError(f"{self._format} cannot contain the sample: {cause}", key=record["__key__"])


def _has_bytes(value: Any) -> bool:
    """Whether a value has bytes, perhaps within lists and maps."""
    if isinstance(value, (list, tuple, dict)):
        return any(map(_has_bytes, value.values() if isinstance(value, dict) else value))
    return isinstance(value, (bytes, bytearray, memoryview))


def _dumps(format: Format) -> Callable[[Any], bytes]:
    if format == "jsonl":
        return _line
    names = {"cbor": ("cbor2", "dumps"), "msgpack": ("msgpack", "packb")}
    if format not in names:
        raise UsageError(f"{format!r} is not a format of records; use cbor, msgpack or jsonl")
    module, function = names[format]
    return cast("Callable[[Any], bytes]", getattr(library(module, f"writing {format}"), function))


def _line(value: Any) -> bytes:
    return write_json(value) + b"\n"
