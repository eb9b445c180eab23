"""Text, integers, JSON, MessagePack and CBOR.

JSON is read by orjson if that is installed, always with the results of the standard library. orjson is three to five
times as fast, but it rejects more (NaN, Infinity, 1e400, a byte order mark, UTF-16, lone surrogates, deep nesting), and
integers of more than 64 bits become floats. So `json` reads again what orjson rejects, and reads text with 19 digits in
a row itself, as integers of at most 18 digits fit in 64 bits. Samples therefore do not depend on what is installed.
"""

from __future__ import annotations

import importlib
import io
import json
import operator
from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from wdspec.formats.records import as_texts
from wdspec.spec.language.decoders import library


def read_text(data: bytes) -> str:
    """Read UTF-8 text. Newlines and a byte order mark are kept."""
    return data.decode("utf-8")


def read_integer(data: bytes) -> int:
    """Read the decimal digits of an integer, with optional blanks around them. Raises ValueError."""
    if b"_" in data:
        raise ValueError(f"{data[:60]!r} is not an integer, which consists of digits")
    return int(data.removeprefix(BOM_UTF8))


def write_text(value: Any) -> bytes:
    """Write text as UTF-8. Raises TypeError for other values."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not text; pass a str or bytes")
    return value.encode("utf-8")


def write_integer(value: Any) -> bytes:
    """Write an integer as decimal digits, given as an int, an array or tensor, or text.

    Raises:
        TypeError, ValueError: it is not an integer, and would not be read as it was.
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
        raise TypeError(f"{value!r:.60} is not an integer; use json or txt for other values") from None


_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19


def read_json_with_stdlib(data: bytes) -> Any:
    """Read JSON: ``null`` is None, NaN and ±Infinity are floats.

    Raises:
        ValueError: it is not JSON. (RecursionError: it is nested too deeply.)
    """
    try:
        # json.loads takes 0.5 µs to guess the encoding of bytes, but nearly all JSON is UTF-8.
        return json.loads(data.decode())
    except ValueError:
        return json.loads(data)


@dataclass(frozen=True)
class FastReader:
    """The same reader, by orjson's ``loads`` where it agrees with the standard library."""

    loads: Callable[[bytes], Any]

    def __call__(self, data: bytes) -> Any:
        # Not `in`, which first takes bytes for an integer: the error that Python raises and drops takes 0.2 µs.
        if data.translate(_DIGITS_TO_ZERO).find(_LONG_NUMBER) >= 0:
            return read_json_with_stdlib(data)
        try:
            return self.loads(data)
        except ValueError:
            return read_json_with_stdlib(data)


def choose_reader() -> Callable[[bytes], Any]:
    """Return the fastest reader that is installed."""
    try:
        orjson = importlib.import_module("orjson")
    except ImportError:
        return read_json_with_stdlib
    return FastReader(orjson.loads)


read_json = choose_reader()
"""Bytes → value; see `read_json_with_stdlib`."""


def write_json(value: Any) -> bytes:
    """Write JSON in UTF-8: a str becomes a JSON string, None becomes ``null``; arrays and tensors become lists.

    Raises:
        TypeError: JSON has no such value. (ValueError: it contains itself.)
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=_to_list).encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape but UTF-8 cannot encode
        return json.dumps(value, default=_to_list).encode("ascii")


def write_json_text(value: Any) -> bytes:
    """Write a value for a `json` file, like `write_json`; a str or bytes are JSON already, as in webdataset.

    Raises:
        ValueError: the text is not JSON.
    """
    if not isinstance(value, (str, bytes)):
        return write_json(value)
    data = value.encode("utf-8") if isinstance(value, str) else value
    try:
        read_json(data)
    except (ValueError, RecursionError) as cause:
        raise ValueError(
            f"a str or bytes must be JSON already, and this is not: {cause}; to store a text as a JSON string, pass "
            "`json.dumps(text)`"
        ) from cause
    return data


def _to_list(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no {type(value).__name__}")


def read_msgpack(data: bytes) -> Any:
    """Read a MessagePack object. Raises ValueError and errors of the library."""
    return _unpackb()(data, strict_map_key=False)


def read_cbor(data: bytes) -> Any:
    """Read a CBOR item.

    Raises:
        ValueError: bytes follow the item. (Errors of the library, which are ValueErrors too: it is not CBOR.)
    """
    file = io.BytesIO(data)
    value = _load()(file)
    if file.tell() != len(data):
        raise ValueError(f"{len(data) - file.tell():,} bytes follow the CBOR item")
    return value


def write_msgpack(value: Any) -> bytes:
    """Write MessagePack, with bytes distinct from text. Raises TypeError for values that it does not support."""
    packb = library("msgpack", "writing mp").packb
    return packb(value, use_bin_type=True)  # type: ignore[no-any-return]  # of an untyped library


def write_cbor(value: Any) -> bytes:
    """Write CBOR. Raises errors of cbor2 for values that it does not support."""
    dumps = library("cbor2", "writing cbor").dumps
    return dumps(value)  # type: ignore[no-any-return]  # of an untyped library


@lru_cache(maxsize=1)
def _unpackb() -> Callable[..., Any]:
    return library("msgpack", "reading mp").unpackb  # type: ignore[no-any-return]  # of an untyped library


@lru_cache(maxsize=1)
def _load() -> Callable[..., Any]:
    cbor2 = library("cbor2", "reading cbor")
    return partial(cbor2.load, **as_texts(cbor2))
