"""`TarWriter`: samples into one tar shard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from wdspec.errors import FieldError, UsageError
from wdspec.fields.field_encoder import Encode, EncodeSample, make_encoder
from wdspec.formats.tar.header_writing import END, HeaderMaker, dialect, padding
from wdspec.writing.member_names import KeySplit, MemberNames
from wdspec.writing.sample_writer import OF_THE_READER, Packed, SampleWriter, Target, check_fields


class TarWriter(SampleWriter):
    """Writes samples, dicts with a ``__key__``, into one tar: a member ``key.field`` for each field.

    The members of a sample are sorted by field. By default the same samples give the same bytes: no time, no owner.
    The tar appears under its name when it is closed, complete or not at all; left by an exception, or killed, nothing
    appears. It is plain ustar wherever names and sizes allow.

    Refused are names that a reader would not take apart into the same key and field (a dot in the last part of a
    key, hidden and meta files), absolute paths and `..`, and a key that comes twice.

    Args:
        fileobj: a path or URL (`Storage.output` says which; ``WDS_REWRITE`` applies), or an open
            binary file, which stays open, and gets the bytes at once.
        user, group: names of the owner.
        mode: permissions of the members.
        compress: ``gz``, ``bz2``, ``xz`` or ``zst``; True for gz, False for none; None to go by the name.
        encoder: True for `FieldEncoder`, by extension; a dict of extension → function to put before it; a function
            from sample to sample; False where all values are bytes or text.
        keep_meta: whether entries that begin with ``_`` are written too, those aside that say where a sample was
            read (``__key__``, ``__url__``, ``__source__``, ``__local_path__``). Their values are text.
        mtime: seconds since 1970 for all members; None for the time of writing.
        format: ``auto``, ``ustar``, ``gnu`` or ``pax`` (or `tarfile`'s constants), see `HeaderMaker`.
        key: where the reader is going to split names, ``first_dot`` or ``last_dot``.
        allow_pickle: whether ``pkl``, ``pickle``, ``pyd`` and ``pth`` are encoded.
        overwrite: whether a file of this name may be replaced.
        since: refuse to replace a file younger than this; see `LocalOutput`.

    Raises:
        UsageError: an argument cannot be, the name is taken, or another writer is at it.

    Example:
        >>> import io, wdspec
        >>> file = io.BytesIO()
        >>> with wdspec.TarWriter(file) as writer:
        ...     writer.write({"__key__": "a/000", "cls": 7, "txt": "seven"})
        2048
        >>> len(file.getvalue())
        12288
    """

    end = END

    def __init__(
        self,
        fileobj: Target,
        user: str = "",
        group: str = "",
        mode: int = 0o444,
        compress: bool | str | None = None,
        encoder: bool | Mapping[str, Encode] | EncodeSample | None = True,
        keep_meta: bool = False,
        mtime: float | None = 0,
        format: str | int | None = None,
        *,
        key: KeySplit = "first_dot",
        allow_pickle: bool = False,
        overwrite: bool = True,
        since: int | None = None,
    ) -> None:
        self._encode = make_encoder(encoder, allow_pickle=allow_pickle)
        self._keep_meta = keep_meta
        try:
            self._names = MemberNames(key)
            self._headers = HeaderMaker(
                user, group, mode, int(time.time() if mtime is None else mtime), dialect(format)
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        super().__init__(fileobj, compress, overwrite=overwrite, since=since)

    def pack(self, sample: Mapping[str, Any]) -> Packed:
        check_fields(sample)
        sample = encoded = self._encode(sample)
        key = self._names.key(sample.get("__key__"))
        header, suffix_of = self._headers.header, self._names.suffix
        pieces: list[bytes] = []
        lowered: set[str] = set()
        for field in sorted(encoded):
            data = encoded[field]
            if field[:1] == "_":
                if not self._keep_meta or field in OF_THE_READER:
                    continue
                if not isinstance(data, (str, bytes)):
                    raise FieldError(
                        f"{type(data).__name__} in an entry that begins with `_`; these are text",
                        key=sample["__key__"],
                        field=field,
                    )
            if type(data) is not bytes:
                data = _as_bytes(data, sample, field)
            if field.lower() in lowered:
                raise FieldError(
                    "another field has the same name but for letter case, which readers ignore",
                    key=sample["__key__"],
                    field=field,
                )
            lowered.add(field.lower())
            size = len(data)
            try:
                pieces += header(key + suffix_of(field), size), data, padding(size)
            except FieldError as error:
                error.at(key=sample["__key__"])
                raise
            except ValueError as error:
                raise FieldError(str(error), key=sample["__key__"], field=field) from None
        if not pieces:
            raise FieldError("the sample has no fields, and a tar cannot hold that", key=sample["__key__"])
        return Packed(sample["__key__"], b"".join(pieces))


def _as_bytes(data: Any, sample: Mapping[str, Any], field: str) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8")
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise FieldError(
        f"the encoder gave {type(data).__name__} instead of bytes", key=sample["__key__"], field=field
    )
