"""Text and integers, as UTF-8.

JSON, by orjson where it is installed, and always with the result of the standard library's reader.

orjson is the faster by three to five times, and differs in what it refuses (NaN, Infinity, 1e400, a byte
order mark, UTF-16, lone surrogates, deep nesting) and in one thing it accepts: integers beyond 64 bits
become floats. So what orjson refuses is read again by `json`, whose word counts, and a text with 19 digits
in a row goes to `json` at once: with at most 18 an integer fits in 64 bits. Whether a sample reads alike
therefore does not depend on what is installed.

MessagePack and CBOR: values as JSON has them, and bytes.
"""

from __future__ import annotations

import importlib
import io
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wdspec.spec.language.decoders import library


def read_text(data: bytes) -> str:
    """UTF-8 text, byte for byte: neither a newline nor a byte order mark is dropped."""
    return data.decode("utf-8")


def read_integer(data: bytes) -> int:
    """Decimal digits of an integer, perhaps with spaces and newlines around them. Raises ValueError."""
    if b"_" in data:
        raise ValueError(f"{data[:60]!r} is no integer: digits alone make one")
    return int(data)


def write_text(value: Any) -> bytes:
    """UTF-8. Raises TypeError for what is no text."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text; give a str or bytes")
    return value.encode("utf-8")


def write_integer(value: Any) -> bytes:
    """Decimal digits of an integer: an int, an array or a tensor of one, or a text of one.

    Raises:
        TypeError, ValueError: it is no integer, and would not be read back as it was.
    """
    if isinstance(value, str):
        data = value.encode("utf-8")
        read_integer(data)
        return data
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    try:
        return b"%d" % operator.index(value)
    except TypeError:
        raise TypeError(f"{value!r:.60} is no integer; use json or txt for other values") from None


_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19


def read_json_with_stdlib(data: bytes) -> Any:
    """The value of a JSON text: ``null`` is None, NaN and ±Infinity are floats.

    Raises:
        ValueError: it is not JSON. (RecursionError: it is nested too deeply.)
    """
    try:
        # json.loads spends 0.5 µs on guessing the encoding of bytes, and nearly all JSON is UTF-8.
        return json.loads(data.decode())
    except ValueError:
        return json.loads(data)


@dataclass(frozen=True)
class FastReader:
    """The same reader with orjson's ``loads`` doing the work where it agrees with the standard library."""

    loads: Callable[[bytes], Any]

    def __call__(self, data: bytes) -> Any:
        if _LONG_NUMBER in data.translate(_DIGITS_TO_ZERO):
            return read_json_with_stdlib(data)
        try:
            return self.loads(data)
        except ValueError:
            return read_json_with_stdlib(data)


def choose_reader() -> Callable[[bytes], Any]:
    """The fastest reader that is installed."""
    try:
        orjson = importlib.import_module("orjson")
    except ImportError:
        return read_json_with_stdlib
    return FastReader(orjson.loads)


read_json = choose_reader()
"""Bytes → value; see `read_json_with_stdlib`."""


def write_json(value: Any) -> bytes:
    """JSON in UTF-8: a str becomes a JSON string, None becomes ``null``; arrays and tensors become lists.

    Raises:
        TypeError: JSON has no such value. (ValueError: it holds itself.)
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=_listed).encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and UTF-8 cannot
        return json.dumps(value, default=_listed).encode("ascii")


def _listed(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no {type(value).__name__}")


def read_msgpack(data: bytes) -> Any:
    """The value of a MessagePack object; raises ValueError and the library's own errors for any other bytes."""
    return _unpackb()(data, strict_map_key=False)


def read_cbor(data: bytes) -> Any:
    """The value of a CBOR item.

    Raises:
        ValueError: bytes follow the item. (The library's own errors, ValueErrors too: it is none.)
    """
    file = io.BytesIO(data)
    value = _load()(file)
    if file.tell() != len(data):
        raise ValueError(f"{len(data) - file.tell():,} bytes follow the CBOR item")
    return value


def write_msgpack(value: Any) -> bytes:
    """MessagePack, with bytes apart from text. Raises TypeError for what it has not."""
    packb = library("msgpack", "writing mp").packb
    return packb(value, use_bin_type=True)  # type: ignore[no-any-return]  # of an untyped library


def write_cbor(value: Any) -> bytes:
    """CBOR. Raises an error of cbor2's for what it has not."""
    dumps = library("cbor2", "writing cbor").dumps
    return dumps(value)  # type: ignore[no-any-return]  # of an untyped library


@lru_cache(maxsize=1)
def _unpackb() -> Callable[..., Any]:
    return library("msgpack", "reading mp").unpackb  # type: ignore[no-any-return]  # of an untyped library


@lru_cache(maxsize=1)
def _load() -> Callable[..., Any]:
    return library("cbor2", "reading cbor").load  # type: ignore[no-any-return]  # of an untyped library
