"""Python values → the bytes of their files, by the last part of a field's name.

Samples as bytes and back, without pickle: what a sample cache stores.

A length of 4 bytes, a JSON header, then the values one after the other. The header says what the sample is (dict,
tuple, list or a single value) and for each value its name, its form and its bytes: bytes as they are, text, numbers
and what JSON holds exactly as JSON, arrays and tensors as npy.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from wdspec.base.errors import FieldError, UsageError, WdspecError
from wdspec.fields.codecs.arrays import read_numpy, write_npy
from wdspec.fields.extensions import endings
from wdspec.formats.compression import BY_NAME, unpacked
from wdspec.spec.language.decoders import WRITTEN_BY, library

Encode = Callable[[Any], bytes]
Sample = Mapping[str, Any]
EncodeSample = Callable[[Sample], Sample]
"""A sample with values → the same with bytes; entries that begin with ``_`` pass as they are."""

_BYTES = (bytes, bytearray, memoryview)


def make_encoder(
    encoder: bool | Mapping[str, Encode] | EncodeSample | None = True, *, allow_pickle: bool = False
) -> EncodeSample:
    """What turns the values of a sample into bytes.

    Args:
        encoder: True for `FieldEncoder`; a map of extension → function to put before its table; a function that
            encodes whole samples; False or None where all values are bytes (or text) already.
        allow_pickle: whether ``pkl``, ``pickle``, ``pyd`` and ``pth`` are written.

    Raises:
        UsageError: it is none of these.
    """
    if encoder is False or encoder is None:
        return _encoded_already
    if encoder is True:
        return FieldEncoder({}, allow_pickle=allow_pickle)
    if isinstance(encoder, Mapping):
        return FieldEncoder(encoder, allow_pickle=allow_pickle)
    if callable(encoder):
        return encoder
    raise UsageError(
        f"`encoder` is True, False, a dict of extension to function, or a function, not {type(encoder).__name__}"
    )


class FieldEncoder:
    """Encodes each field by the last part of its name: `seg.png` as png.

    - bytes are taken for the file's content, and kept; under a name that ends in ``.gz`` (``.bz2``, ``.xz``, ``.zst``)
      they are compressed, unless they begin as such files do;
    - a str is text: UTF-8 under any extension that has no encoder, but a value to be encoded under ``json``;
    - ``x.gz`` is encoded as ``x``, then compressed.

    Args:
        own: extension, or a whole field name → function from value to bytes; asked first, the longer first.
        allow_pickle: whether pickles are written.
    """

    def __init__(self, own: Mapping[str, Encode], *, allow_pickle: bool = False) -> None:
        self._own = {name.lower().lstrip("."): encode for name, encode in own.items()}
        self._allow_pickle = allow_pickle
        self._steps: dict[str, tuple[Encode | None, tuple[str, ...]]] = {}

    def __call__(self, sample: Sample) -> Sample:
        """The sample with bytes for values.

        Raises:
            FieldError: a value has no encoder, or none that takes it; names key and field.
        """
        return {
            name: value if name[:1] == "_" else self._encoded(sample, name, value)
            for name, value in sample.items()
        }

    def _encoded(self, sample: Sample, name: str, value: Any) -> bytes:
        step = self._steps.get(name)
        if step is None:
            if len(self._steps) > 10_000:
                self._steps.clear()
            step = self._steps[name] = self._study(name)
        encode, layers = step
        if type(value) is bytes and not layers:
            return value
        try:
            if isinstance(value, _BYTES):
                data = bytes(value)
                packed = bool(layers) and BY_NAME[layers[0]].magic.match(data)
                return data if packed else _in_layers(data, layers)
            if encode is not None:
                return _in_layers(bytes(encode(value)), layers)
            if isinstance(value, str):
                return _in_layers(value.encode("utf-8"), layers)
            raise TypeError(_unknown(name, value))
        except WdspecError as error:
            error.at(key=sample.get("__key__"), field=name)
            raise
        except Exception as cause:
            reason = " ".join(str(cause).split()) or type(cause).__name__
            raise FieldError(
                f"cannot be encoded: {reason[:400]}", key=sample.get("__key__"), field=name
            ) from cause

    def _study(self, name: str) -> tuple[Encode | None, tuple[str, ...]]:
        """The encoder of a field, if it has one, and how its output is packed, outermost first."""
        plain = name.lower()
        if plain in self._own:
            return self._own[plain], ()
        plain, layers = unpacked(plain)
        ends = endings(plain)
        for end in ends:
            if end in self._own:
                return self._own[end], layers
        return encoder_of(ends[-1], self._allow_pickle), layers

    def __repr__(self) -> str:
        return f"FieldEncoder({self._own!r}, allow_pickle={self._allow_pickle})"


def encoder_of(extension: str, allow_pickle: bool = False) -> Encode | None:
    """What writes values under an extension, or None where only bytes can be."""
    row = WRITTEN_BY.get(extension)
    if row is None:
        return None
    found: Any = resolve_name(row.write_trusting if allow_pickle and row.write_trusting else row.write)
    encode: Encode = found(extension) if row.made else found
    return encode


def _unknown(name: str, value: Any) -> str:
    last = unpacked(name.lower())[0].rpartition(".")[2]
    return (
        f"there is no encoder for {last!r} to take a value of type {type(value).__name__}; give bytes, use a known "
        f"extension (such as json, npy, png, txt, cls), or pass `encoder={{{last!r}: function}}`"
    )


def _in_layers(data: bytes, layers: tuple[str, ...]) -> bytes:
    for layer in reversed(layers):
        data = BY_NAME[layer].compress(data)
    return data


def _encoded_already(sample: Sample) -> Sample:
    encoded: dict[str, Any] = {}
    for name, value in sample.items():
        if name[:1] != "_":
            if isinstance(value, str):
                value = value.encode("utf-8")
            elif not isinstance(value, _BYTES):
                raise FieldError(
                    f"{type(value).__name__} instead of bytes; encode it, or leave out `encoder=False`",
                    key=sample.get("__key__"),
                    field=name,
                )
        encoded[name] = value
    return encoded


_LENGTH = struct.Struct("<I")


def frozen(sample: Any) -> bytes:
    """A sample as bytes.

    Raises:
        FieldError: a value of a type that is not stored; names it.
    """
    kind = type(sample).__name__ if type(sample) in (dict, tuple, list) else "value"
    named = sample.items() if kind == "dict" else enumerate([sample] if kind == "value" else sample)
    entries, payloads = [], []
    for name, value in named:
        form, payload = _frozen_value(name, value)
        entries.append((name, form, len(payload)))
        payloads.append(payload)
    header = json.dumps([kind, entries]).encode()
    return b"".join((_LENGTH.pack(len(header)), header, *payloads))


def thawed(data: bytes) -> Any:
    """The sample that `frozen` made bytes of."""
    at = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    kind, entries = json.loads(data[_LENGTH.size : at])
    values = list(_thawed_values(entries, data, at))
    if kind == "dict":
        return {name: value for (name, _, _), value in zip(entries, values, strict=True)}
    return tuple(values) if kind == "tuple" else values if kind == "list" else values[0]


def _frozen_value(name: Any, value: Any) -> tuple[str, bytes]:
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
        f"a {type(value).__name__} is not stored: only bytes, text, numbers, JSON, arrays and tensors are; put the "
        "cache before the stage that makes it (before `decode`, say)",
        field=str(name),
    )


def _is_json(value: Any) -> bool:
    """Whether JSON gives exactly this value back."""
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return True
    if kind is list:
        return all(map(_is_json, value))
    return kind is dict and all(type(key) is str and _is_json(inner) for key, inner in value.items())


def _thawed_values(entries: list[tuple[Any, str, int]], data: bytes, at: int) -> Iterator[Any]:
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
