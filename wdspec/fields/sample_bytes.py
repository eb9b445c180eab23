"""Samples as bytes and back, without pickle: what a sample cache stores.

A length of 4 bytes, a JSON header, then the values one after the other. The header says what the sample is (dict,
tuple, list or a single value) and for each value its name, its form and its bytes: bytes as they are, text, numbers
and what JSON holds exactly as JSON, arrays and tensors as npy.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

from wdspec.decoders.libraries import library
from wdspec.errors import FieldError
from wdspec.fields.codecs.numpy_files import read_numpy, write_npy

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
