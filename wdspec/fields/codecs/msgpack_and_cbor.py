"""MessagePack and CBOR: values as JSON has them, and bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from wdspec.decoders.libraries import library


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
