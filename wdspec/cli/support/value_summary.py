"""One value of a sample in a line: its type, its shape or size, and what it begins with."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from wdspec.base.redaction import redacted_urls
from wdspec.cli.support.json_output import without_secrets
from wdspec.cli.support.tables import counted, size

PREVIEW = 60
"""Characters of a preview."""
_MOST_ELEMENTS = 10_000_000
_MOST_CHARACTERS = 10_000


class ValueMeaning(NamedTuple):
    """What is to be said of a value."""

    type: str
    """`bytes`, `int`, `uint8 array`, `float32 tensor`, `RGB image`, …"""
    size: str
    """`16 x 16 x 3`, `1.2 kB`, `34 characters`; empty for a number."""
    preview: str
    """The number; the beginning of text, bytes or JSON; the range of an array."""


def value_meaning(value: Any) -> ValueMeaning:
    """Describes any value that a decoder or a user's `map` may have made."""
    name = type(value).__name__
    if value is None or isinstance(value, (bool, int, float)):
        return ValueMeaning(name, "", shortened(repr(value)))
    if isinstance(value, str):
        return ValueMeaning(
            name, counted(len(value), "character"), shortened(redacted_urls(value[:_MOST_CHARACTERS]))
        )
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ValueMeaning(name, size(len(value)), shortened(repr(bytes(value[: PREVIEW + 1]))[2:-1]))
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        kind = "array" if type(value).__module__.split(".")[0] == "numpy" else name.lower()
        label = f"{str(dtype).removeprefix('torch.')} {kind}"
        return ValueMeaning(label, " x ".join(map(str, shape)) or "scalar", _range(value))
    if hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
        return ValueMeaning(f"{value.mode} image", " x ".join(map(str, value.size)), "")
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        text = str(value) if isinstance(value, (set, frozenset)) else _json(value)
        return ValueMeaning(name, counted(len(value), "entry", "entries"), shortened(text))
    return ValueMeaning(name, "", shortened(repr(value)))


def extent(value: Any) -> dict[str, Any]:
    """The size as numbers: `shape` of an array, `length` of text, bytes or a collection; nothing for others."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return {"shape": [int(side) for side in value.shape]}
    if isinstance(value, (str, bytes, bytearray, memoryview, dict, list, tuple, set, frozenset)):
        return {"length": len(value)}
    return {}


def shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text[: 4 * PREVIEW].split())
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}…"


def _json(value: Any) -> str:
    try:
        return json.dumps(without_secrets(value), ensure_ascii=False, default=_inner)
    except (TypeError, ValueError):  # keys that are no text, or a circle
        return repr(value)


def _inner(value: Any) -> str:
    """A value inside of another, for which JSON has no form: arrays by their type and shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        meaning = value_meaning(value)
        return f"{meaning.type} {meaning.size}"
    return repr(value)


def _range(value: Any) -> str:
    """The least and greatest element of an array or tensor, where it has them."""
    try:
        if not 0 < math.prod(map(int, value.shape)) <= _MOST_ELEMENTS:
            return ""
        low, high = value.min().item(), value.max().item()
        return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
    except Exception:  # text, objects, complex numbers, or a library of the user's: there is no range to show
        return ""
