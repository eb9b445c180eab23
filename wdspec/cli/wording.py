"""Numbers, amounts and values in words, as reports show them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from wdspec.base.redaction import redacted_urls

PREVIEW = 60
"""Characters of a preview."""
_MOST_ELEMENTS = 10_000_000
_MOST_CHARACTERS = 10_000


def number(value: float) -> str:
    """A count or an amount: `1,797`, `12.5`, `0.031`."""
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def number_range(low: float, high: float) -> str:
    """`12`, `900 to 1,000`."""
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def percent(share: float) -> str:
    """A share: `40.00 %`, `0.013 %`."""
    return f"{100 * share:.2f} %" if share >= 0.001 or not share else f"{100 * share:.2g} %"


def size(count: float) -> str:
    """An amount of bytes: `812 B`, `1.4 kB`, `3.2 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 shard`, `1,024 shards`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Iterable[str], most: int = 4) -> str:
    """`a, b, c` or, of many, `a, b, c, d and 96 more`."""
    rest = list(names)
    shown = ", ".join(islice(rest, most))
    return shown if len(rest) <= most else f"{shown} and {len(rest) - most} more"


def without_secrets(value: Any) -> Any:
    """The same with its texts redacted: before it is written as JSON or cut, which both hide where a secret ends."""
    if isinstance(value, str):
        return redacted_urls(value)
    if isinstance(value, dict):
        return {name: without_secrets(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(each) for each in value]
    return value


class FieldValue(NamedTuple):
    """A field of a sample, or a column of a batch, in a line."""

    name: str
    type: str
    size: str
    preview: str
    """As `ValueMeaning` has them."""
    extent: dict[str, Any]
    """The size as numbers."""

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Cells of a table under `HEADINGS`."""
        return self[:4]

    def as_json(self) -> dict[str, Any]:
        """The same as values."""
        return {**dict(zip(self._fields[:4], self.row, strict=True)), **self.extent}


HEADINGS = ("field", "type", "shape or size", "value")


def describe_fields(values: Iterable[tuple[Any, Any]]) -> list[FieldValue]:
    """Describe fields and columns, given as pairs of name and value."""
    return [FieldValue(str(name), *value_meaning(value), extent(value)) for name, value in values]


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
