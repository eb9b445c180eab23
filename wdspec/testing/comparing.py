"""Compares what loaders yield by value: tensors, arrays, images, text, nested in any way."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

_FEW = 8
"""Elements of an array that are shown instead of counted."""


def difference(expected: Any, seen: Any, place: str = "") -> str | None:
    """Where and how two values differ first, in words; None if they are alike.

    Types must agree, and dtypes and shapes of tensors and arrays; NaN is like NaN; the order of a dict's keys
    does not matter. Other objects are alike if ``==`` says so.

    Args:
        expected, seen: what is compared.
        place: what to call the value in the answer.
    """
    where = place or "it"
    if type(expected) is not type(seen):
        return f"{where} should be a {type(expected).__name__}, was a {type(seen).__name__}: {_shown(seen)}"
    if isinstance(expected, Mapping):
        if set(expected) != set(seen):
            return f"{where} should have the keys {_shown(list(expected))}, had {_shown(list(seen))}"
        pairs = [(f"{place}[{key!r}]", expected[key], seen[key]) for key in expected]
        return _first(pairs)
    if isinstance(expected, (list, tuple)):
        if len(expected) != len(seen):
            return f"{where} should have {len(expected)} elements, had {len(seen)}"
        return _first([(f"{place}[{i}]", a, b) for i, (a, b) in enumerate(zip(expected, seen, strict=True))])
    return _leaf(expected, seen, where)


def _first(triples: list[tuple[str, Any, Any]]) -> str | None:
    for place, expected, seen in triples:
        found = difference(expected, seen, place)
        if found is not None:
            return found
    return None


def _leaf(expected: Any, seen: Any, where: str) -> str | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(expected, torch.Tensor) and expected.is_nested:
        return difference(list(expected.unbind()), list(seen.unbind()), where)
    if torch is not None and isinstance(expected, torch.Tensor):
        if expected.dtype != seen.dtype or expected.shape != seen.shape:
            return f"{where} should be {_kind(expected)}, was {_kind(seen)}"
        alike = torch.equal(torch.nan_to_num(expected), torch.nan_to_num(seen)) and torch.equal(
            torch.isnan(expected), torch.isnan(seen)
        )
    elif isinstance(expected, np.ndarray):
        if expected.dtype != seen.dtype or expected.shape != seen.shape:
            return f"{where} should be {_kind(expected)}, was {_kind(seen)}"
        alike = np.array_equal(expected, seen, equal_nan=expected.dtype.kind in "fc")
    elif isinstance(expected, float) and math.isnan(expected):
        alike = math.isnan(seen)
    else:
        alike = bool(expected == seen)
    if alike:
        return None
    if getattr(expected, "ndim", 0) and math.prod(expected.shape) > _FEW:
        return f"{where}, {_kind(expected)}, has other numbers{_where_other(expected, seen)}"
    return f"{where} should be {_shown(expected)}, was {_shown(seen)}"


def _where_other(expected: Any, seen: Any) -> str:
    """How many rows of an array differ, and the first of them."""
    rows = [i for i, (a, b) in enumerate(zip(expected, seen, strict=True)) if _leaf(a, b, "")]
    return f" in {len(rows)} of its {len(expected)} rows, the first of them {rows[0]}" if rows else ""


def _kind(array: Any) -> str:
    return f"{array.dtype} of shape {tuple(array.shape)}"


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]}…"
