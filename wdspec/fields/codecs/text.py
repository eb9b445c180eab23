"""Text and integers, as UTF-8."""

from __future__ import annotations

import operator
from typing import Any


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
