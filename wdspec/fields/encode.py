"""Encoding values: as files, by the last part of the name of a field, and as whole samples for a sample cache.

A cached sample (`freeze`, `thaw`) contains no pickle. It consists of a length of 4 bytes, a JSON header, and the
values. The header has the type of the sample (dict, tuple, list or a single value), and the name, form and size of each
value. Bytes are stored as they are, arrays and tensors as npy, and text, numbers and other exact JSON values as JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from wdspec.base.encodings import describe_surrogate
from wdspec.base.errors import FieldError, UsageError, WdspecError, in_one_line
from wdspec.fields.codecs.arrays import read_numpy, write_npy
from wdspec.fields.codecs.text import write_json, write_json_text
from wdspec.formats.compression import BY_NAME
from wdspec.spec.language.decoders import WRITTEN_BY, endings, library, split_packing

Encode = Callable[[Any], bytes]
Sample = Mapping[str, Any]
EncodeSample = Callable[[Sample], Sample]
"""A sample with values → the sample with bytes. Entries that start with ``_`` stay as they are."""

JSON_VALUES: Mapping[str, Encode] = {"json": write_json, "jsn": write_json}
"""An `encoder` for samples that were read from shards: a str is a decoded value, and bytes are copied unchecked."""

_BYTES = (bytes, bytearray, memoryview)


def make_encoder(
    encoder: bool | Mapping[str, Encode] | EncodeSample | None = True, *, allow_pickle: bool = False
) -> EncodeSample:
    """Return a function that turns the values of a sample into bytes.

    Args:
        encoder: True for `FieldEncoder`; a map of extension → function that overrides its table; a function that
            encodes whole samples; False or None if all values are already bytes (or text).
        allow_pickle: whether to write ``pkl``, ``pickle``, ``pyd`` and ``pth``.

    Raises:
        UsageError: the encoder is none of these.
    """
    if encoder is False or encoder is None:
        return _encode_text
    if encoder is True:
        return FieldEncoder({}, allow_pickle=allow_pickle)
    if isinstance(encoder, Mapping):
        return FieldEncoder(encoder, allow_pickle=allow_pickle)
    if callable(encoder):
        return encoder
    raise UsageError(
        f"`encoder` is a {type(encoder).__name__}; use True, False, a dict of extension to function, or a function"
    )


class EncoderMissingError(FieldError):
    """A field has no encoder, so most likely, that of no sample can be written."""


class FieldEncoder:
    """Encodes each field by the last part of its name: `seg.png` as png.

    - bytes are the content of the file, and are kept. If the name ends with ``.gz`` (``.bz2``, ``.xz``, ``.zst``), they
      are compressed, unless they already start like such a file;
    - a str is text, stored as UTF-8 if the extension has no encoder;
    - a str and bytes under ``json`` are JSON already, and are checked;
    - ``x.gz`` is encoded as ``x``, then compressed.

    Args:
        own: extension, or name of a field → function from value to bytes. These come first, longer ones before others.
        allow_pickle: whether to write pickles.
    """

    def __init__(self, own: Mapping[str, Encode], *, allow_pickle: bool = False) -> None:
        self._own = {name.lower().lstrip("."): encode for name, encode in own.items()}
        self._allow_pickle = allow_pickle
        self._steps: dict[str, tuple[Encode | None, tuple[str, ...]]] = {}

    def __call__(self, sample: Sample) -> Sample:
        """Return the sample with bytes in place of values.

        Raises:
            FieldError: a field has no encoder, or its encoder rejects the value; names key and field.
        """
        return {
            name: value if name[:1] == "_" else self._encoded(sample, name, value)
            for name, value in sample.items()
        }

    def has_encoder(self, name: str) -> bool:
        """Whether a field is encoded, rather than only bytes and text accepted."""
        return self._study(name)[0] is not None

    def _encoded(self, sample: Sample, name: str, value: Any) -> bytes:
        step = self._steps.get(name)
        if step is None:
            if len(self._steps) > 10_000:
                self._steps.clear()
            step = self._steps[name] = self._study(name)
        encode, layers = step
        if type(value) is bytes and not layers and encode is not write_json_text:
            return value
        try:
            if isinstance(value, _BYTES):
                data = bytes(value)
                packed = bool(layers) and BY_NAME[layers[0]].magic.match(data)
                if encode is write_json_text and not packed:
                    data = write_json_text(data)
                return data if packed else _pack(data, layers)
            if encode is not None:
                return _pack(bytes(encode(value)), layers)
            if isinstance(value, str):
                return _pack(value.encode("utf-8"), layers)
            raise EncoderMissingError(f"cannot be encoded: {_describe_unknown(name, value)}")
        except WdspecError as error:
            error.at(key=sample.get("__key__"), field=name)
            raise
        except Exception as cause:
            reason = in_one_line(cause)
            if isinstance(cause, UnicodeEncodeError):
                reason = describe_surrogate(cause)
            elif isinstance(value, str):
                reason += (
                    f"; the name `{name}` says how it is written: for text, `rename: {{{name}.txt: {name}}}`"
                )
            raise FieldError(
                f"cannot be encoded: {reason[:400]}", key=sample.get("__key__"), field=name
            ) from cause

    def _study(self, name: str) -> tuple[Encode | None, tuple[str, ...]]:
        """Return the encoder of a field, if it has one, and the packings of its output, outermost first."""
        plain = name.lower()
        if plain in self._own:
            return self._own[plain], ()
        plain, layers = split_packing(plain)
        ends = endings(plain)
        for end in ends:
            if end in self._own:
                return self._own[end], layers
        return encoder_of(ends[-1], self._allow_pickle), layers

    def __repr__(self) -> str:
        return f"FieldEncoder({self._own!r}, allow_pickle={self._allow_pickle})"


def encoder_of(extension: str, allow_pickle: bool = False) -> Encode | None:
    """Return the encoder of an extension, or None if it accepts only bytes."""
    row = WRITTEN_BY.get(extension)
    if row is None:
        return None
    function: Any = resolve_name(row.write_trusting if allow_pickle and row.write_trusting else row.write)
    encode: Encode = function(extension) if row.made else function
    return encode


def _describe_unknown(name: str, value: Any) -> str:
    if isinstance(value, list) and bytes in map(type, value):
        return (
            "it is a list of files, which a tar cannot have; write a table instead: `output: {from: "
            "'(?:.*/)?(.*)[.]tar', to: 'out/\\1.parquet'}`"
        )
    last = split_packing(name.lower())[0].rpartition(".")[2]
    known = f"{name}.{'npy' if hasattr(value, 'dtype') else 'json'}"
    return (
        f"{last!r} has no encoder for a value of type {type(value).__name__}; pass bytes, use a known extension (such "
        f"as json, npy, png, txt, cls; in a spec, `rename: {{{known}: {name}}}`, or the name `{known}` in `make`), or "
        f"in Python, pass `encoder={{{last!r}: function}}`"
    )


def _pack(data: bytes, layers: tuple[str, ...]) -> bytes:
    for layer in reversed(layers):
        data = BY_NAME[layer].compress(data)
    return data


def _encode_text(sample: Sample) -> Sample:
    encoded: dict[str, Any] = {}
    for name, value in sample.items():
        if name[:1] != "_":
            if isinstance(value, str):
                value = value.encode("utf-8")
            elif not isinstance(value, _BYTES):
                raise FieldError(
                    f"{type(value).__name__} instead of bytes; encode it, or remove `encoder=False`",
                    key=sample.get("__key__"),
                    field=name,
                )
        encoded[name] = value
    return encoded


_LENGTH = struct.Struct("<I")


def freeze(sample: Any) -> bytes:
    """Return a sample as bytes.

    Raises:
        FieldError: a value has a type that cannot be stored; names it.
    """
    kind = type(sample).__name__ if type(sample) in (dict, tuple, list) else "value"
    named = sample.items() if kind == "dict" else enumerate([sample] if kind == "value" else sample)
    entries, payloads = [], []
    for name, value in named:
        form, payload = _freeze_value(name, value)
        entries.append((name, form, len(payload)))
        payloads.append(payload)
    header = json.dumps([kind, entries]).encode()
    return b"".join((_LENGTH.pack(len(header)), header, *payloads))


def thaw(data: bytes) -> Any:
    """Return the sample of the bytes that `freeze` returned."""
    at = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    kind, entries = json.loads(data[_LENGTH.size : at])
    values = list(_thaw_values(entries, data, at))
    if kind == "dict":
        return {name: value for (name, _, _), value in zip(entries, values, strict=True)}
    return tuple(values) if kind == "tuple" else values if kind == "list" else values[0]


def _freeze_value(name: Any, value: Any) -> tuple[str, bytes]:
    if type(value) is bytes:
        return "bytes", value
    if _is_json(value):
        return "json", json.dumps(value).encode()
    module = type(value).__module__.partition(".")[0]
    try:
        if module == "numpy" and hasattr(value, "dtype") and value.ndim:
            return "array", write_npy(value)
        if module == "torch" and type(value).__name__ == "Tensor":
            return "tensor", write_npy(value.detach().numpy())
    except (TypeError, ValueError, RuntimeError) as error:
        raise FieldError(f"a {type(value).__name__} cannot be stored: {error}", field=str(name)) from error
    raise FieldError(
        f"a {type(value).__name__} cannot be stored, only bytes, text, numbers, JSON, arrays and tensors can; put the "
        "cache before the stage that makes it (such as `decode`)",
        field=str(name),
    )


def _is_json(value: Any) -> bool:
    """Whether JSON preserves the value exactly."""
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return True
    if kind is list:
        return all(map(_is_json, value))
    return kind is dict and all(type(key) is str and _is_json(inner) for key, inner in value.items())


def _thaw_values(entries: list[tuple[Any, str, int]], data: bytes, at: int) -> Iterator[Any]:
    for _, form, length in entries:
        payload = data[at : at + length]
        at += length
        if form == "bytes":
            yield payload
        elif form == "json":
            yield json.loads(payload)
        else:
            array = read_numpy(payload)
            yield library("torch", "a cached tensor").from_numpy(array) if form == "tensor" else array
