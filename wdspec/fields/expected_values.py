"""Whether the values of a sample are what `expect` says of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wdspec.errors import FieldError
from wdspec.spec.language.steps.expectations import ARRAYS, Bounds, ExpectedField

FEW_ELEMENTS = 4096
"""Elements of an array whose range is looked at while training; `check` looks at all of more."""
_REMEDY = "mend the data, leave such samples out with `select`, or correct `expect`"
_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int, np.integer),
    "float": (float, np.floating),
    "bool": (bool, np.bool_),
    "str": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "dict": (dict,),
    "list": (list,),
    "tuple": (tuple,),
}

Look = Callable[[Any], "str | None"]
"""What is wrong with a value, in words; None where nothing is."""


class UnexpectedValueError(FieldError):
    """A value is not what `expect` says."""

    code = "D213"


def expectation_step(
    fields: Mapping[str, ExpectedField], thorough: bool = False
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The step that gives each sample as it is, and raises UnexpectedValueError where a field is not as expected.

    Args:
        fields: what is expected, by field.
        thorough: whether the ranges of large arrays are looked at, too.
    """
    looks = [(name, look) for name, expected in fields.items() for look in _looks(expected, thorough)]

    def step(sample: dict[str, Any]) -> dict[str, Any]:
        for name, look in looks:
            if name not in sample:
                has = ", ".join(f"`{each}`" for each in sample if not each.startswith("__")) or "no fields"
                said = f"`expect` names the field `{name}`, and the sample has {has}"
            elif (wrong := look(sample[name])) is not None:
                said = f"`{name}` {wrong}"
            else:
                continue
            url, key = sample.get("__url__"), sample.get("__key__")
            raise UnexpectedValueError(f"{said}; {_REMEDY}", url=url, key=key, field=name)
        return sample

    return step


def _looks(expected: ExpectedField, thorough: bool) -> list[Look]:
    looks: list[Look] = []
    if expected.type is not None:
        looks.append(_type_look(expected.type))
    if expected.shape is not None:
        looks.append(_shape_look(expected.shape))
    if expected.length is not None:
        looks.append(_length_look(expected.length))
    if expected.classes is not None:
        looks.append(_class_look(expected.classes))
    if expected.range is not None:
        looks.append(_range_look(expected.range, math.inf if thorough else FEW_ELEMENTS))
    return looks or [lambda value: None]  # that it is there


def _type_look(name: str) -> Look:
    plain, is_array = _PLAIN.get(name, ()), name in ARRAYS

    def look(value: Any) -> str | None:
        dtype = getattr(value, "dtype", None)
        if dtype is not None and hasattr(value, "shape"):
            seen = str(dtype).removeprefix("torch.")
            if is_array and seen == name:
                return None
            if value.shape == () and plain and isinstance(value, plain):
                return None
            return f"is an array of {seen}, where {name} is expected"
        if name == "image" and hasattr(value, "mode") and hasattr(value, "size"):
            return None
        if plain and isinstance(value, plain) and not (name == "int" and isinstance(value, bool)):
            return None
        return f"is a {type(value).__name__}, where {name} is expected"

    return look


def _shape_look(bounds: tuple[Bounds, ...]) -> Look:
    expected = f"[{', '.join('any' if each == Bounds() else str(each) for each in bounds)}]"

    def look(value: Any) -> str | None:
        shape = getattr(value, "shape", None)
        if shape is None and hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
            shape = (*value.size[::-1], len(value.getbands()))[: max(2, len(bounds))]
        if shape is None:
            return f"is a {type(value).__name__}, which has no shape; {expected} is expected"
        if len(shape) == len(bounds) and all(
            each.hold(side) for each, side in zip(bounds, shape, strict=True)
        ):
            return None
        return f"has the shape [{', '.join(map(str, shape))}], where {expected} is expected"

    return look


def _length_look(bounds: Bounds) -> Look:
    def look(value: Any) -> str | None:
        if not hasattr(value, "__len__") or getattr(value, "shape", None) == ():
            return f"is a {type(value).__name__}, which has no length"
        if bounds.hold(len(value)):
            return None
        return f"has the length {len(value):,}, where {bounds} is expected"

    return look


def _class_look(classes: frozenset[int | str] | int) -> Look:
    allowed = range(classes) if isinstance(classes, int) else classes
    expected = f"0 to {classes - 1:,}" if isinstance(classes, int) else f"one of {len(classes):,} classes"

    def look(value: Any) -> str | None:
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            value = value.item()
        try:
            if value in allowed and not isinstance(value, (bool, float)):
                return None
        except TypeError:  # what cannot be looked up
            pass
        return f"is {value!r:.60}, where {expected} is expected"

    return look


def _range_look(bounds: Bounds, most: float) -> Look:
    def look(value: Any) -> str | None:
        shape = getattr(value, "shape", None)
        if shape:
            if not 0 < math.prod(map(int, shape)) <= most:
                return None
            low, high = (float(each) for each in (value.min(), value.max()))
        else:
            try:
                low = high = float(value)
            except (TypeError, ValueError):
                return f"is a {type(value).__name__}, which is no number"
        if bounds.hold(low) and bounds.hold(high):
            return None
        return (
            f"goes from {low:g} to {high:g}, where {bounds} is expected"
            if shape
            else f"is {low:g}, where {bounds} is expected"
        )

    return look
