"""Fields that no step changes keep their bytes: a JPEG that is decoded and encoded again is larger and not equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wdspec.fields.samples import SampleFields

_PLAIN = (str, int, float, bool, list, tuple, dict, type(None))
"""Values that records and tables contain as they are."""


class Originals:
    """The raw samples of a shard that have been read, but not written.

    Args:
        fields: decode them.
        keeps_plain: whether numbers, texts, lists and maps keep their bytes, too, as in a tar.
    """

    def __init__(self, fields: SampleFields, keeps_plain: bool) -> None:
        self._fields, self._keeps_plain = fields, keeps_plain
        self._raws: dict[str, dict[str, Any]] = {}

    def add(self, raw: dict[str, Any]) -> None:
        """Remember a raw sample."""
        self._raws[raw["__key__"]] = raw

    def restore(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return a sample with its bytes in place of the values that equal what they decode to.

        Values are compared, since a function may also change an array in place.
        """
        raw = self._raws.get(sample["__key__"])
        if raw is None:  # a function has changed the key
            return sample
        while (first := next(iter(self._raws))) != sample["__key__"]:  # dropped before
            del self._raws[first]
        restored = dict(sample)
        for name, data, decode in self._fields.originals(raw):
            value = sample.get(name)
            is_plain = isinstance(value, _PLAIN) and isinstance(data, bytes)
            if isinstance(value, bytes) or (is_plain and not self._keeps_plain):
                continue
            if name in sample and _decodes_to(decode, data, value):
                restored[name] = data
        return restored


def _decodes_to(decode: Callable[[Any], Any], data: Any, value: Any) -> bool:
    try:
        return _is_same(decode(data), value)
    except Exception:  # a decoder that draws random numbers, or values that cannot be compared, are encoded
        return False


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if hasattr(one, "dtype") and hasattr(one, "shape"):
        is_alike = one.dtype == other.dtype and one.shape == other.shape
        return is_alike and np.asarray(one).tobytes() == np.asarray(other).tobytes()
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)
